"""Tagging: a text in, its words found, its entities out.

Files of tagged words have punctuation apart, but leave together what belongs
together: U.N., O'Neal, 1996-08-22, AT&T; a final 's is a word of its own. The
tokenizer's words are smaller: each punctuation character is one. So these are
put together again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
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
    TextModel,
    check_outputs,
    encoder_of,
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
from bert_tf.families.words import WordFinder, Words
from bert_tf.text.layout import (
    HOST,
    TokenIds,
    Windows,
    most_context,
    pack_rows,
    take,
    text_of,
    token_ids,
)
from bert_tf.text.tokenizer_protocol import Tokenizer


class WordWindows(NamedTuple):
    """R windows that together answer for each of K words once.

    Attributes:
      texts: the tokens of each window.
      sentence: int32 [R], the sentence of its words.
      row: int32 [K], the window that answers for each word, ascending.
      place: int32 [K], the place of its first token in that window.
    """

    texts: TokenIds
    sentence: tf.Tensor
    row: tf.Tensor
    place: tf.Tensor


def word_windows(
    shown: TokenIds,
    token: tf.Tensor,
    sentence: tf.Tensor,
    room: int,
    doc_stride: int,
    max_windows: int = tf.int32.max,
) -> WordWindows:
    """Lays out overlapping windows on sentences with what surrounds them.

    A word is answered for by the window that shows its first token in most
    context; see `most_context`. Windows that answer for no word are left out.

    Args:
      shown: N ranges of tokens, each of a sentence and what surrounds it.
      token: int32 [K], the first token of each word, a place in `shown.ids`.
      sentence: int [K], the sentence of each word, ascending.
      room: tokens of a window.
      doc_stride: tokens from the start of a window to that of the next; 0 is
        half of a window, which leaves each word about a quarter to both sides.
      max_windows: of a sentence; more are refused.
    """
    windows = sentence_windows(shown.count, room, doc_stride, max_windows)
    # Ranges may overlap, so places are counted in all of them, concatenated.
    start = tf.cumsum(shown.count, exclusive=True)
    best, _ = most_context(windows)
    best += tf.gather(start, windows.text) + windows.offset
    place = token + tf.gather(start - shown.begin, sentence)
    window = tf.searchsorted(best, place, side="right") - 1
    # The context of a long sentence may be as long as a window.
    used, row = tf.unique(window)
    of_row = tf.gather(windows.text, used)
    texts = take(
        shown,
        of_row,
        tf.gather(windows.offset, used),
        tf.gather(windows.count, used),
    )
    return WordWindows(texts, of_row, row, token - tf.gather(texts.begin, row))


def sentence_windows(
    length: tf.Tensor,
    room: int,
    doc_stride: int,
    max_windows: int = tf.int32.max,
) -> Windows:
    """The windows on N sentences of `length` tokens; see `word_windows`."""
    stride = min(doc_stride or max(room // 2, 1), room)
    return checked_windows(
        length, room, stride, max_windows, "text", align_last=True
    )


class TaggedEntities(NamedTuple):
    """E entities of K words, in their order.

    Attributes:
      kind: int32 [E], the type by its number in `tag_table`.
      first: int32 [E], the first word.
      last: int32 [E], the last word.
      score: float32 [E], the mean probability of the tags of the words.
    """

    kind: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    score: tf.Tensor


def tagged_entities(
    logits: tf.Tensor, sentence: tf.Tensor, labels: Sequence[str]
) -> TaggedEntities:
    """Decodes the most probable tag of each word, and their entities.

    Args:
      logits: float32 [K, C].
      sentence: int [K], the sentence of each word, ascending.
      labels: the C tags.
    """
    tags = tf.argmax(logits, -1, output_type=tf.int32)
    probability = tf.reduce_max(tf.nn.softmax(logits), -1)
    table = tag_table(labels)
    kind = tf.gather(table.kind, tags)
    begins, ends = tf.gather(table.begins, tags), tf.gather(table.ends, tags)
    same = continues(sentence, kind, begins, ends)
    # Runs of words of one entity, or of O.
    begins_run = tf.concat([[True], ~same], 0)[: tf.size(tags)]
    first = tf.cast(tf.where(begins_run)[:, 0], tf.int32)
    count = tf.size(first)
    last = tf.concat([first[1:], [tf.size(tags)]], 0)[:count] - 1
    run = tf.cumsum(tf.cast(begins_run, tf.int32)) - 1
    score = tf.math.unsorted_segment_sum(probability, run, count)
    score /= tf.cast(last - first + 1, tf.float32)
    kind = tf.gather(kind, first)
    inside = kind >= 0
    return TaggedEntities(
        *(tf.boolean_mask(x, inside) for x in (kind, first, last, score))
    )


class TagModel(TextModel):
    """A model that tags words, which takes text.

    Signatures:
      serving_default: text, string [B] -> entities, labels, string [B, E],
        starts and ends, int32 [B, E], their places in characters of the text,
        scores, float32 [B, E], the mean probability of the tags of their
        words; and count, int32 [B]. Rows with fewer entities are filled up
        with "", -1 and 0.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] -> logits,
        float32 [B, S, C].

    Args:
      model: from the encoder's inputs to logits [B, S, C].
      tokenizer: the tokenizer it was trained with.
      config: how it is used. Its labels are O and types with prefixes, such as
        B-LOC and I-LOC, or labels without them, such as ADJ and LOC, where an
        entity is a run of words with one label other than O.
      max_windows: of a text; longer ones are refused.

    Raises:
      UserError: see `TextModel`; or settings that are none.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        config: TokenClassificationConfig,
        max_windows: int = 128,
    ):
        super().__init__(
            model,
            encoder_of(model),
            tokenizer,
            config.max_seq_length,
            config.labels,
        )
        check_outputs(model.output_shape[-1], self.labels)
        whole_number("doc_stride", config.doc_stride, 0)
        self._doc_stride, self._max_windows = config.doc_stride, max_windows
        self.find_words = WordFinder(tokenizer)

    task = "token classification"

    def requests(self) -> list[Request]:
        """Texts of several lengths, one of them of several windows."""
        lengths = sample_lengths(self.max_seq_length)
        texts = [sample_text(n) for n in (*lengths, 2 * lengths[-1])]
        *alone, _ = requests_of(SERVING_DEFAULT, text=texts)
        together = {"text": string_array([*texts, ""])}
        return [*alone, Request(SERVING_DEFAULT, together)]

    def answers(self, text: tf.Tensor) -> Tensors:
        """The outputs of serving_default; see the class."""
        with tf.device(HOST):
            text = valid_text(text)
            ids, begins, ends = self.tokenizer.tokenize_with_offsets(text)
            codes = tf.strings.unicode_decode(text, "UTF-8")
            words = self.find_words(codes, ids, begins, ends)
            rows = self.rows(token_ids(ids), words)
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
            position = rows.place + len(packing.begin)
            asked = tf.stack([rows.row, position], 1)
            return self._answers(codes, words, tf.gather_nd(logits, asked))

    def rows(self, texts: TokenIds, words: Words) -> WordWindows:
        """The windows on B texts, each of which is a row."""
        return word_windows(
            texts,
            words.token,
            words.row,
            self.max_seq_length - self.tokenizer.packing.num_special(1),
            self._doc_stride,
            self._max_windows,
        )

    def _answers(
        self, codes: tf.RaggedTensor, words: Words, logits: tf.Tensor
    ) -> Tensors:
        """The entities of B texts from the logits of K words [K, C]."""
        found = tagged_entities(logits, words.row, self.labels)
        row = tf.gather(words.row, found.first)
        begin = tf.gather(words.begin, found.first)
        end = tf.gather(words.end, found.last)
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(row), row, codes.nrows()
        )
        start = tf.gather(tf.cast(codes.row_starts(), tf.int32), row) + begin
        kinds = tf.constant([*tag_table(self.labels).kinds, OUTSIDE])

        def dense(values: tf.Tensor, fill: str | int | float) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(
                values, counts, validate=False
            )
            return ragged.to_tensor(fill)

        return {
            "entities": dense(
                text_of(codes.flat_values, start, end - begin), ""
            ),
            "labels": dense(tf.gather(kinds, found.kind), ""),
            "starts": dense(begin, -1),
            "ends": dense(end, -1),
            "scores": dense(found.score, 0.0),
            "count": counts,
        }

    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """The entities: text, label, start and end in characters, score."""
        names = ("entities", "labels", "starts", "ends", "scores")
        columns = [outputs[name].tolist() for name in names]
        return [
            {
                "entities": [
                    {
                        "text": text.decode(),
                        "label": label.decode(),
                        "start": start,
                        "end": end,
                        "score": score,
                    }
                    for text, label, start, end, score, _ in zip(
                        *row, range(count), strict=False
                    )
                ]
            }
            for *row, count in zip(*columns, outputs["count"], strict=True)
        ]

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return {"logits": self.forward(inputs)}


def text_model(
    config: TokenClassificationConfig, model: keras.Model, tokenizer: Tokenizer
) -> TagModel:
    """The model that `config.build` made, as one that takes text."""
    return TagModel(model, tokenizer, config)
