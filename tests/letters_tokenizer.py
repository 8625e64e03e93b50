"""A tokenizer with nothing of WordPiece's: a token a letter.

It has no [CLS] and no [UNK], pads with 2, and a letter that begins a word is
another token than the same letter inside one.
"""

import json
import pathlib
import string

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.text.token_table import Packing, SpecialTokens, TokenTable

MASK, END, PAD = range(3)
LETTERS = string.ascii_letters + string.digits + ".,!?'"
BEGIN = "_"


class Letters(TokenTable):
    """The tokens, and how they are read and written; a `TokenizerData`."""

    FILES = ("letters.json",)
    other_rules = ""
    special = SpecialTokens("<pad>", None, None, "<end>", "<mask>")
    packing = Packing((), (END,), (END,), 1, PAD)
    lower_case = False

    def __init__(self, letters=LETTERS):
        self.letters = letters

    @property
    def tokens(self):
        named = ("<mask>", "<end>", "<pad>")
        return (*named, *(BEGIN + x for x in self.letters), *self.letters)

    @property
    def texts(self):
        return ("", "", "", *self.letters, *self.letters)

    @property
    def starts_word(self):
        alone = [letter in string.punctuation for letter in self.letters]
        return np.array([True] * (3 + len(self.letters)) + alone)

    @property
    def vocabulary(self):
        return self

    @classmethod
    def read(cls, folder, lower_case=None, rows=None, notify=True):
        path = pathlib.Path(folder, cls.FILES[0])
        return cls.of_file(path, lower_case) if path.exists() else None

    @classmethod
    def of_file(cls, path, lower_case=None):
        if lower_case:
            raise UserError(f"{path}: keeps case; pass `lower_case`=False.")
        return cls(json.loads(pathlib.Path(path).read_text()))

    @classmethod
    def from_dict(cls, values):
        return cls(values.pop("letters"))

    def to_dict(self):
        return {"letters": self.letters}

    def settings(self):
        return {}

    def tokenizer(self, split_special_tokens=True):
        return LettersTokenizer(self, split_special_tokens)

    def worker(self):
        return LettersWorker(self)

    def save(self, folder, max_length=None):
        text = json.dumps(self.letters)
        pathlib.Path(folder, self.FILES[0]).write_text(text)


def pieces(text, letters=LETTERS):
    """The ids of a text and their places in it, a letter at a time."""
    ids, places, inside = [], [], False
    for place, letter in enumerate(text):
        if letter in letters:
            ids.append(3 + letters.index(letter) + inside * len(letters))
            places.append(place)
        inside = not letter.isspace()
    return ids, places


class LettersWorker:
    """The ids of many sentences, in plain Python."""

    dtype = np.uint16

    def __init__(self, data):
        self._data = data

    def tokenize(self, text, sentence_bytes):
        lines = text.decode().split("\n")[: len(sentence_bytes)]
        found = [pieces(line, self._data.letters)[0] for line in lines]
        flat = np.array([x for ids in found for x in ids], self.dtype)
        return flat, np.array([len(ids) for ids in found])


class LettersTokenizer(tf.Module):
    """The same as TensorFlow operations; a `Tokenizer`."""

    lower_case = False
    stand_alone = frozenset(map(ord, string.punctuation))
    added_ids = ()

    def __init__(self, data, split_special_tokens):
        super().__init__()
        self.data = self.vocabulary = data
        self.packing = data.packing
        self.split_special_tokens = split_special_tokens
        numbers = np.full(129, -1, np.int32)
        for number, letter in enumerate(data.letters):
            numbers[ord(letter)] = number
        with tf.init_scope():
            self._numbers = tf.constant(numbers)
            self._tokens = tf.constant(data.tokens)
            self._texts = tf.constant(data.texts)
            self._starts = tf.constant(data.starts_word)

    def tokenize_with_offsets(self, texts):
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank == 0:
            return [x[0] for x in self.tokenize_with_offsets(texts[None])]
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        flat = codes.flat_values
        number = tf.gather(self._numbers, tf.minimum(flat, 128))
        begins = tf.cast(codes.row_starts(), tf.int32)
        places = tf.range(tf.size(flat)) - tf.gather(
            begins, codes.value_rowids()
        )
        blank_before = tf.concat([[32], flat], 0)[:-1] == 32
        begins_word = blank_before | (places == 0)
        ids = 3 + number + tf.where(begins_word, 0, len(self.data.letters))
        known = codes.with_flat_values(number >= 0)
        return [
            tf.ragged.boolean_mask(codes.with_flat_values(values), known)
            for values in (ids, places, places + 1)
        ]

    def tokenize(self, texts):
        return self.tokenize_with_offsets(texts)[0]

    def normalize(self, texts):
        return texts

    def id_to_token(self, ids):
        if isinstance(ids, tf.RaggedTensor):
            return ids.with_flat_values(self.id_to_token(ids.flat_values))
        return tf.gather(self._tokens, ids)

    def detokenize(self, ids):
        starts = tf.gather(self._starts, ids.flat_values)
        letters = tf.gather(self._texts, ids.flat_values)
        spelled = tf.where(starts, tf.strings.join([" ", letters]), letters)
        joined = tf.strings.reduce_join(ids.with_flat_values(spelled), axis=-1)
        return tf.strings.strip(joined)

    def save(self, folder):
        self.data.save(folder)
