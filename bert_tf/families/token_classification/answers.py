"""Taggers that take text: finds the words of a text and tags its entities.

The words are tokenized one by one, as in training, so that a text gets the tags
that it would get as a row of a file.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from bert_tf.errors import whole_number
from bert_tf.families.requests import (
    Request,
    Tensors,
    checked_windows,
    requests_of,
    sample_lengths,
    sample_text,
    string_array,
    valid_text,
)
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    Answer,
    Arrays,
    InputRows,
    TextModel,
    check_outputs,
    largest,
)
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.entities import (
    OUTSIDE,
    continues,
    tag_table,
)
from bert_tf.families.words import (
    WordFinder,
    Words,
    first_tokens,
    tokenize_words,
)
from bert_tf.text.layout import (
    HOST,
    TokenIds,
    Windows,
    most_context,
    pack_rows,
    take,
    text_of,
)
from bert_tf.text.tokenizer_protocol import Tokenizer


class WordWindows(NamedTuple):
    """R windows that together predict each of K words once.

    Attributes:
      texts: the tokens of each window.
      sentence: int32 [R], the sentence of its words.
      row: int32 [K], the window that predicts each word, ascending.
      position: int32 [K], the position of its first token in that window.
    """

    texts: TokenIds
    sentence: tf.Tensor
    row: tf.Tensor
    position: tf.Tensor


def word_windows(
    sentences: TokenIds,
    token: tf.Tensor,
    sentence: tf.Tensor,
    room: int,
    doc_stride: int,
    max_windows: int = tf.int32.max,
) -> WordWindows:
    """Lays out overlapping windows on sentences with their context.

    A word is predicted in the window that has most context around its first
    token; see `most_context`. Windows that predict no word are left out.

    Args:
      sentences: N ranges of tokens, each a sentence with its context.
      token: int32 [K], the index of each word's first token in `sentences.ids`.
      sentence: int [K], the sentence of each word, ascending.
      room: tokens of a window.
      doc_stride: tokens from the start of a window to that of the next; 0 is
        half a window, so each word has at least about a quarter on each side.
      max_windows: windows of a sentence beyond which it is refused.
    """
    windows = sentence_windows(sentences.count, room, doc_stride, max_windows)
    # Sentences may overlap, so positions are counted in their concatenation.
    start = tf.cumsum(sentences.count, exclusive=True)
    best, _ = most_context(windows)
    best += tf.gather(start, windows.text) + windows.offset
    position = token + tf.gather(start - sentences.begin, sentence)
    window = tf.searchsorted(best, position, side="right") - 1
    # A window on a long sentence may consist of its context only.
    used, row = tf.unique(window)
    text, offset, count = (
        tf.gather(x, used)
        for x in (windows.text, windows.offset, windows.count)
    )
    texts = take(sentences, text, offset, count)
    return WordWindows(texts, text, row, token - tf.gather(texts.begin, row))


class TextTokens(NamedTuple):
    """The words of B texts with their tokens.

    Attributes:
      codes: the characters, int32 [B, characters].
      words: K words that have tokens.
      ids: int32 [K, tokens].
      begins: the first character of each token in its text, int32 [K, tokens].
      ends: their exclusive ends.
    """

    codes: tf.RaggedTensor
    words: Words
    ids: tf.RaggedTensor
    begins: tf.RaggedTensor
    ends: tf.RaggedTensor


def sentence_windows(
    length: tf.Tensor,
    room: int,
    doc_stride: int,
    max_windows: int = tf.int32.max,
) -> Windows:
    """Returns the windows on N sentences of `length` tokens, int32 [N]."""
    stride = min(doc_stride or max(room // 2, 1), room)
    return checked_windows(
        length, room, stride, max_windows, "text", align_last=True
    )


def tagged_entities(
    logits: tf.Tensor,
    sentence: tf.Tensor,
    labels: Sequence[str],
    temperature: float = 1.0,
) -> tuple[tf.Tensor, ...]:
    """Decodes the entities of the most probable tags.

    Args:
      logits: float32 [K, C].
      sentence: int [K], the sentence of each word, ascending.
      labels: the C tags.
      temperature: divides the logits for the probabilities.

    Returns:
      The type of each entity by its index in `tag_table`, its first and its
      last word, int32 [E], and the mean probability of its tags, float32 [E].
    """
    tags = tf.argmax(logits, -1, output_type=tf.int32)
    probability = tf.reduce_max(tf.nn.softmax(logits / temperature), -1)
    table = tag_table(labels)
    kind = tf.gather(table.kind, tags)
    begins, ends = tf.gather(table.begins, tags), tf.gather(table.ends, tags)
    same = continues(sentence, kind, begins, ends)
    # Runs of words of one entity or of O.
    begins_run = tf.concat([[True], ~same], 0)[: tf.size(tags)]
    first = tf.cast(tf.where(begins_run)[:, 0], tf.int32)
    count = tf.size(first)
    last = tf.concat([first[1:], [tf.size(tags)]], 0)[:count] - 1
    run = tf.cumsum(tf.cast(begins_run, tf.int32)) - 1
    score = tf.math.unsorted_segment_sum(probability, run, count)
    score /= tf.cast(last - first + 1, tf.float32)
    kind = tf.gather(kind, first)
    columns = (kind, first, last, score)
    return tuple(tf.boolean_mask(x, kind >= 0) for x in columns)


class TagModel(TextModel):
    """A tagger that takes text.

    Signatures:
      serving_default: text, string [B] -> entities, labels, string [B, E],
        starts and ends, int32 [B, E], in characters of the text, scores,
        float32 [B, E], the mean probability of the words' tags; and count,
        int32 [B]. Rows with fewer entities are padded with "", -1 and 0.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] -> logits,
        float32 [B, S, C].

    Args:
      model: from the encoder's inputs to logits [B, S, C].
      tokenizer: the tokenizer it was trained with.
      config: how the model is used. Its labels are O and types with prefixes,
        such as B-LOC and I-LOC, or labels without prefixes, such as ADJ, where
        an entity is a run of words with one label other than O.
      max_windows: windows of a text beyond which it is refused.

    Raises:
      UserError: see `TextModel`; or an invalid stride.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        config: TokenClassificationConfig,
        max_windows: int = 128,
    ):
        length = config.max_seq_length
        super().__init__(model, tokenizer, length, config.labels)
        check_outputs(model.output_shape[-1], self.labels)
        whole_number("doc_stride", config.doc_stride, 0)
        self.calibration_temperature = config.calibration_temperature
        self._doc_stride, self._max_windows = config.doc_stride, max_windows
        self._find_words = WordFinder(tokenizer)

    task = "token classification"

    def requests(self) -> list[Request]:
        """Returns texts of several lengths, one with several windows."""
        lengths = sample_lengths(self.max_seq_length)
        texts = [sample_text(n) for n in (*lengths, 2 * lengths[-1])]
        *single, _ = requests_of(SERVING_DEFAULT, text=texts)
        batch = {"text": string_array([*texts, ""])}
        return [*single, Request(SERVING_DEFAULT, batch)]

    def answers(self, text: tf.Tensor) -> Tensors:
        """Computes the outputs of serving_default; see the class."""
        with tf.device(HOST):
            tokens = self.tokens(valid_text(text))
            rows = self.rows(tokens)
            packing = self.tokenizer.packing
            width = largest(pack_rows(rows.texts, None, packing).lengths)
        logits = self.compute(
            rows.texts,
            None,
            lambda inputs, chosen: {"logits": self.forward(inputs)},
            {"logits": (None, len(self.labels))},
            width,
        )["logits"]
        with tf.device(HOST):
            position = rows.position + len(packing.begin)
            logits = tf.gather_nd(logits, tf.stack([rows.row, position], 1))
            return self._answers(tokens.codes, tokens.words, logits)

    def tokens(self, text: tf.Tensor) -> TextTokens:
        """Finds and tokenizes the words of texts, string [B]."""
        codes = tf.strings.unicode_decode(text, "UTF-8")
        words = self._find_words(codes)
        tokens = tokenize_words(
            self.tokenizer, words.texts(codes), words.after_blank
        )
        # Tokenizers may remove all characters of a word.
        has_tokens = tokens[0].row_lengths() > 0
        words = Words(*(tf.boolean_mask(each, has_tokens) for each in words))
        ids, begins, ends = (
            tf.ragged.boolean_mask(each, has_tokens) for each in tokens
        )
        begins, ends = (each + words.begin[:, None] for each in (begins, ends))
        firsts, lasts = (
            tf.gather(begins.flat_values, ids.row_starts()),
            tf.gather(ends.flat_values, ids.row_limits() - 1),
        )
        words = words._replace(begin=firsts, end=lasts)
        return TextTokens(codes, words, ids, begins, ends)

    def rows(self, tokens: TextTokens) -> WordWindows:
        """Returns the windows on B texts."""
        row = tokens.words.row
        counts = tf.math.unsorted_segment_sum(
            tf.cast(tokens.ids.row_lengths(), tf.int32),
            row,
            tokens.codes.nrows(),
        )
        begins = tf.cumsum(counts, exclusive=True)
        return word_windows(
            TokenIds(tokens.ids.flat_values, begins, counts),
            first_tokens(
                self.tokenizer,
                tokens.ids,
                tokens.ends - tokens.words.begin[:, None],
            ),
            row,
            self.max_seq_length - self.tokenizer.packing.num_special(1),
            self._doc_stride,
            self._max_windows,
        )

    def _answers(
        self, codes: tf.RaggedTensor, words: Words, logits: tf.Tensor
    ) -> Tensors:
        """Returns the entities of B texts from the logits of K words [K, C]."""
        kind, first, last, scores = tagged_entities(
            logits, words.row, self.labels, self.calibration_temperature
        )
        row = tf.gather(words.row, first)
        begin, end = tf.gather(words.begin, first), tf.gather(words.end, last)
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(row), row, codes.nrows()
        )
        start = tf.gather(tf.cast(codes.row_starts(), tf.int32), row) + begin
        kinds = tf.constant([*tag_table(self.labels).kinds, OUTSIDE])

        def padded(values: tf.Tensor, fill: str | int | float) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(
                values, counts, validate=False
            )
            return ragged.to_tensor(fill)

        texts = text_of(codes.flat_values, start, end - begin)
        return {
            "entities": padded(texts, ""),
            "labels": padded(tf.gather(kinds, kind), ""),
            "starts": padded(begin, -1),
            "ends": padded(end, -1),
            "scores": padded(scores, 0.0),
            "count": counts,
        }

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """Returns text, label, start, end (in characters) and score of each."""
        names = ("entities", "labels", "starts", "ends", "scores")
        keys = ("text", "label", "start", "end", "score")
        columns = [outputs[name].tolist() for name in names]
        columns[:2] = (
            [[cell.decode() for cell in row] for row in column]
            for column in columns[:2]
        )
        return [
            {
                "entities": [
                    dict(zip(keys, entity, strict=True))
                    for entity in itertools.islice(
                        zip(*row, strict=True), count
                    )
                ]
            }
            for *row, count in zip(*columns, outputs["count"], strict=True)
        ]


# The model of the family, by which a folder is used.
MODEL = TagModel
