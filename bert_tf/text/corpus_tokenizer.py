"""The ids of `BertTokenizer` for large texts, by a table of known words.

A corpus repeats its words. Text is split where BERT's rules always split it, at
white space, punctuation and ideographs; the pieces of a word come from a table
that `PlainTokenizer` fills, by the same rules in Python. Everything else is
array operations over bytes or, if much of the text is not ASCII, over UTF-16.
TensorFlow, which takes half a gigabyte and seconds to start, is imported only
for vocabularies with added tokens.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bert_tf.libraries import import_tensorflow
from bert_tf.text import unicode_tables
from bert_tf.text.plain_tokenizer import UTF16, PlainNormalizer, PlainTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.word_table import Lists, WordTable

# Classes of bytes and of code units. The pieces around `_OTHER` may depend on
# everything between two blanks.
_SPACE, _APART, _WORD, _OTHER = range(4)
# Longer words are looked up one by one.
_KEY_BYTES = 32
_SLOT_BITS = 20
# Limits above which the tables are cleared, to bound memory for texts without
# repetition. This costs little, because frequent words return at once.
_MAX_WORDS = 1 << 19
_MAX_IDS = 1 << 21
_MAX_LONG_WORDS = 1 << 15
# Texts with a larger share of non-ASCII bytes are read as UTF-16.
_MAX_OTHER_SHARE = 0.06
# MASKS[n] keeps the first n bytes of a little-endian word.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def _byte_classes() -> bytes:
    classes = bytearray([_OTHER]) * 256
    for code in range(0x21, 0x7F):
        is_word = chr(code).isalnum()
        classes[code] = _WORD if is_word else _APART
    for code in b"\t\n\r ":
        classes[code] = _SPACE
    return bytes(classes)


_CLASSES = _byte_classes()
_SAME = bytes(range(256))
_NOT_ASCII = bytes(range(128, 256))
_LOWER = _SAME.lower()


def _unit_classes(normalizer: PlainNormalizer, lower_case: bool) -> np.ndarray:
    """The class of each code unit of UTF-16, uint8 [2^16]."""
    classes = np.full(1 << 16, _WORD, np.uint8)
    classes[normalizer.parts] = _APART
    classes[normalizer.blank] = _SPACE
    if lower_case:
        # Its lower case depends on its context, punctuation included.
        classes[unicode_tables.CAPITAL_SIGMA] = _OTHER
    return classes


class _Words:
    """Maps words in one encoding to numbers."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        # For short words, which nearly all are, and longer ones.
        self._tables = (
            WordTable(2, _SLOT_BITS),
            WordTable(_KEY_BYTES // 8, _SLOT_BITS - 2),
        )
        self._long: dict[bytes, int] = {}

    def clear(self) -> None:
        """Removes all words."""
        for table in self._tables:
            table.clear()
        self._long.clear()

    def numbers(
        self,
        text: bytes,
        starts: np.ndarray,
        ends: np.ndarray,
        learn: Callable[[str], np.ndarray],
    ) -> np.ndarray:
        """Looks up the number of each word, int64 [n], and adds new words.

        Args:
          text: the words, followed by `_KEY_BYTES` bytes, so that a key can be
            read at every position.
          starts: byte offsets of the words, int64 [n].
          ends: their exclusive ends.
          learn: returns the numbers of new words, one per line.
        """
        if len(self._long) >= _MAX_LONG_WORDS:
            self._long.clear()
        lengths = ends - starts
        numbers = np.full(len(starts), -1, np.int64)
        for table, of_size in self._by_size(lengths):
            keys = _keys(text, starts[of_size], lengths[of_size], table.parts)
            known, values = table.find(keys)
            numbers[of_size[known]] = values
        for index in np.flatnonzero(lengths > _KEY_BYTES).tolist():
            word = text[starts[index] : ends[index]]
            numbers[index] = self._long.get(word, -1)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            words = _slices(text, starts[new], ends[new])
            indices = dict(zip(words, new.tolist(), strict=True))
            line_feed = "\n".encode(self._encoding)
            lines = line_feed.join([*indices, b""])
            learned = learn(lines.decode(self._encoding, errors="replace"))
            number_of = dict(zip(indices, learned.tolist(), strict=True))
            numbers[new] = [number_of[word] for word in words]
            unique = np.array(list(indices.values()))
            self._add(text, starts[unique], lengths[unique], numbers[unique])
        return numbers

    def _by_size(
        self, lengths: np.ndarray
    ) -> Iterator[tuple[WordTable, np.ndarray]]:
        """Yields each table and the indices of the words that fit it."""
        shorter = 0
        for table in self._tables:
            longest = 8 * table.parts
            fits = (lengths > shorter) & (lengths <= longest)
            yield table, np.flatnonzero(fits)
            shorter = longest

    def _add(
        self,
        text: bytes,
        starts: np.ndarray,
        lengths: np.ndarray,
        numbers: np.ndarray,
    ) -> None:
        """Adds distinct new words."""
        for table, of_size in self._by_size(lengths):
            keys = _keys(text, starts[of_size], lengths[of_size], table.parts)
            table.add(keys, numbers[of_size])
        for index in np.flatnonzero(lengths > _KEY_BYTES).tolist():
            start = starts[index]
            word = text[start : start + lengths[index]]
            self._long[word] = int(numbers[index])


class CorpusTokenizer:
    """Tokenizes many sentences, with the ids of a `BertTokenizer`.

    Not thread-safe: use one per thread.

    Args:
      vocabulary: the tokens.
      config: the rules.
      make_exact: makes the `BertTokenizer`, for vocabularies with added tokens.

    Attributes:
      dtype: of the ids: uint16 if the vocabulary is small enough, else int32.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        config: TokenizerConfig,
        make_exact: Callable[[], Any],
    ) -> None:
        self._make_exact = make_exact
        self.dtype: type[np.integer] = (
            np.uint16 if len(vocabulary) <= 1 << 16 else np.int32
        )
        self._settings = vocabulary, config
        self._case = _LOWER if config.lower_case else _SAME
        self._pieces = Lists(self.dtype, _MAX_WORDS, _MAX_IDS)
        # For each encoding.
        self._words: dict[str, _Words] = {}

    @functools.cached_property
    def _exact(self) -> Any:
        if "tensorflow" not in sys.modules:
            import_tensorflow()
        return self._make_exact()

    @functools.cached_property
    def _plain(self) -> PlainTokenizer:
        return PlainTokenizer(*self._settings)

    @functools.cached_property
    def _unit_classes(self) -> np.ndarray:
        normalizer = self._plain.normalizer
        return _unit_classes(normalizer, self._settings[1].lower_case)

    def tokenize(
        self, text: bytes, sentence_bytes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Splits sentences into ids; see `WorkerTokenizer`."""
        if self._pieces.full:
            self._pieces.clear()
            for words in self._words.values():
                words.clear()
        sentence_ends = np.cumsum(sentence_bytes + 1)
        # An added token may contain characters that separate words.
        if self._settings[1].added_tokens:
            starts = sentence_ends - sentence_bytes - 1
            sentences = _slices(text, starts, sentence_ends - 1)
            ids = self._exact.tokenize(sentences)
            flat = ids.flat_values.numpy().astype(self.dtype)
            return flat, ids.row_lengths().numpy()
        # The rules drop both characters, and keys are padded with zeros.
        text = text.replace(b"\0", b"\1")
        others = len(text) - len(text.translate(None, _NOT_ASCII))
        if others > _MAX_OTHER_SHARE * len(text):
            encoding = UTF16
            text, classes, ends = self._as_utf16(text, sentence_ends)
        else:
            encoding, ends = "utf-8", sentence_ends
            classes = np.frombuffer(text.translate(_CLASSES), np.uint8)
            # The case of ASCII letters does not affect their neighbours.
            text = text.translate(self._case)
        starts, stops = _chunks(classes)
        chunk_ends = np.searchsorted(starts, ends)
        if encoding == UTF16:
            starts, stops = 2 * starts, 2 * stops
        text += bytes(_KEY_BYTES)
        if encoding not in self._words:
            self._words[encoding] = _Words(encoding)
        numbers = self._words[encoding].numbers(
            text, starts, stops, self._learn
        )
        ids, list_ends = self._pieces.gather(numbers)
        token_ends = np.concatenate([[0], list_ends])
        return ids, np.diff(token_ends[chunk_ends], prepend=0)

    def _as_utf16(
        self, text: bytes, sentence_ends: np.ndarray
    ) -> tuple[bytes, np.ndarray, np.ndarray]:
        """The text in UTF-16, its classes and sentence ends in code units."""
        line_feeds = np.frombuffer(text, np.uint8) == ord("\n")
        lines = np.searchsorted(np.flatnonzero(line_feeds), sentence_ends - 1)
        text = text.decode(errors="replace").encode(UTF16)
        units = np.frombuffer(text, np.uint16)
        ends = np.flatnonzero(units == ord("\n"))[lines] + 1
        return text, self._unit_classes[units], ends

    def _learn(self, lines: str) -> np.ndarray:
        """Stores the pieces of lines and returns the numbers of their lists."""
        return self._pieces.add(*self._plain.tokenize(lines))


def _slices(text: bytes, starts: np.ndarray, ends: np.ndarray) -> list[bytes]:
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return [text[start:end] for start, end in pairs]


def _chunks(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits a text at `_SPACE` and `_APART`.

    Args:
      classes: the class of each byte or code unit, uint8.

    Returns:
      Starts and ends of the chunks, int64.
    """
    others = np.flatnonzero(classes == _OTHER)
    if len(others):
        classes = _whole_words(classes, others)
    begins = classes == _APART
    begins[:1] |= True
    begins[1:] |= classes[1:] != classes[:-1]
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(classes))
    is_word = classes[starts] != _SPACE
    return starts[is_word], ends[is_word]


def _whole_words(classes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Marks each blank-separated word that holds `_OTHER` as `_OTHER`."""
    spaces = np.flatnonzero(classes == _SPACE)
    word = np.unique(np.searchsorted(spaces, others))
    bounds = np.concatenate([[-1], spaces, [len(classes)]])
    starts, ends = bounds[word] + 1, bounds[word + 1]
    change = np.zeros(len(classes) + 1, np.int8)
    change[starts] += 1
    change[ends] -= 1
    return np.where(np.cumsum(change[:-1], dtype=np.int8), _OTHER, classes)


def _keys(
    text: bytes, starts: np.ndarray, lengths: np.ndarray, parts: int
) -> list[np.ndarray]:
    """Chunks as keys: arrays of eight bytes each, zero-padded, uint64."""
    # The eight bytes from each position as a number.
    windows = np.ndarray((len(text) - 7,), np.dtype("<u8"), text, strides=(1,))
    keys = [windows[starts] & _MASKS[np.minimum(lengths, 8)]]
    for before in range(8, 8 * parts, 8):
        key = np.zeros_like(keys[0])
        longer = np.flatnonzero(lengths > before)
        rest = np.minimum(lengths[longer] - before, 8)
        key[longer] = windows[starts[longer] + before] & _MASKS[rest]
        keys.append(key)
    return keys
