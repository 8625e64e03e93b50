"""Tagging: a text in, its entities out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.finetuning.token_classification.entities import (
    OUTSIDE,
    continues,
    is_tag,
    tag_table,
)
from bert_tf.serving.requests import (
    Request,
    checked_windows,
    requests_of,
    sample_lengths,
    sample_text,
    signature,
    string_array,
    text_spec,
    valid_text,
)
from bert_tf.serving.rows import HOST, Tensors
from bert_tf.serving.span_answers import text_of
from bert_tf.serving.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    TextModel,
    check_outputs,
    encoder_of,
)
from bert_tf.serving.words import WORD_RULES, WordFinder, Words
from bert_tf.text.packing import TokenIds, Windows
from bert_tf.text.packing_graph import row_lengths, take, token_ids
from bert_tf.text.tokenizer import BertTokenizer


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
      max_seq_length: the longest row; longer texts are read through windows
        that overlap, as in `bert_tf.finetuning.token_classification`.
      labels: names of the C tags, such as O, B-LOC and I-LOC.
      doc_stride: tokens from one window to the next; None is half of one.
      max_windows: of a text; longer ones are refused.
      word_rule: "text" for raw text; "blanks" where blanks stand between the
        words of a file, punctuation apart.

    Raises:
      UserError: see `TextModel`; or settings that are none.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: BertTokenizer,
        labels: Sequence[str],
        max_seq_length: int = 128,
        doc_stride: int | None = None,
        max_windows: int = 128,
        word_rule: str = "text",
    ):
        super().__init__(
            model, encoder_of(model), tokenizer, max_seq_length, labels
        )
        check_outputs(model.output_shape[-1], labels)
        for label in labels:
            if not is_tag(label):
                raise UserError(
                    f"labels: {label!r} is no tag; tags are O, or a prefix "
                    "such as B or I, a hyphen and a type."
                )
        if word_rule not in WORD_RULES:
            raise UserError(
                f"word_rule is {word_rule!r}; it takes one of "
                f"{', '.join(WORD_RULES)}."
            )
        if doc_stride is not None and doc_stride < 1:
            raise UserError(f"doc_stride={doc_stride}: it takes 1 or more.")
        self._room = max_seq_length - 2
        stride = max(self._room // 2, 1) if doc_stride is None else doc_stride
        self._stride = min(stride, self._room)
        self._max_windows = max_windows
        self._find_words = WordFinder(tokenizer, word_rule)

    task = "token classification"

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        return {
            SERVING_DEFAULT: signature(self._from_text, text_spec("text")),
            TOKENS: self.tokens_signature(),
        }

    def requests(self) -> list[Request]:
        """Texts of several lengths, one of them of several windows."""
        lengths = sample_lengths(self.max_seq_length)
        texts = [sample_text(n) for n in (*lengths, 2 * lengths[-1])]
        *alone, _ = requests_of(SERVING_DEFAULT, text=texts)
        together = {"text": string_array([*texts, ""])}
        return [*alone, Request(SERVING_DEFAULT, together)]

    def _from_text(self, text: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            text = valid_text(text)
            ids, begins, ends = self.tokenizer.tokenize_with_offsets(text)
            codes = tf.strings.unicode_decode(text, "UTF-8")
            words = self._find_words(codes, ids, begins, ends)
            texts = token_ids(ids)
            windows = checked_windows(
                texts.count,
                self._room,
                self._stride,
                self._max_windows,
                "text",
                align_last=True,
            )
            rows = take(texts, windows.text, windows.offset, windows.count)
            width = self.compute.padded_length(row_lengths(rows, None))
        logits = self.compute(
            rows,
            None,
            lambda inputs, chosen: {"logits": self.forward(inputs)},
            {"logits": (None, len(self.labels))},
            width,
        )["logits"]
        with tf.device(HOST):
            asked = self._places(words, texts, windows)
            return self._answers(codes, words, tf.gather_nd(logits, asked))

    def _places(
        self, words: Words, texts: TokenIds, windows: Windows
    ) -> tf.Tensor:
        """Window and position that answer for each word, int32 [K, 2].

        The windows of a text have one length, so the best one is that whose
        middle is nearest: that before the word or that behind it.
        """
        begin = tf.gather(texts.begin, words.row)
        place = words.token - begin
        count = tf.math.unsorted_segment_sum(
            tf.ones_like(windows.text), windows.text, tf.size(texts.count)
        )
        last = tf.gather(count, words.row) - 1
        room, stride = self._room, self._stride
        lower = (2 * place - (room - 1)) // (2 * stride)
        lower = tf.minimum(tf.maximum(lower, 0), last)
        first = tf.gather(tf.cumsum(count, exclusive=True), words.row)

        def smaller_side(number: tf.Tensor) -> tf.Tensor:
            offset = tf.gather(windows.offset, first + number)
            return tf.minimum(place - offset, offset + room - 1 - place)

        upper = tf.minimum(lower + 1, last)
        best = first + tf.where(
            smaller_side(upper) > smaller_side(lower), upper, lower
        )
        position = place - tf.gather(windows.offset, best) + 1
        return tf.stack([best, position], 1)

    def _answers(
        self, codes: tf.RaggedTensor, words: Words, logits: tf.Tensor
    ) -> Tensors:
        """The entities of B texts from the logits of K words [K, C]."""
        probabilities = tf.nn.softmax(logits)
        tags = tf.argmax(logits, -1, output_type=tf.int32)
        found = _entities(self.labels, tags, words.row)
        share = tf.reduce_max(probabilities, -1)
        begin = tf.gather(words.begin, found.first)
        end = tf.gather(words.end, found.last)
        row = tf.gather(words.row, found.first)
        starts = tf.cast(codes.row_starts(), tf.int32)
        size = tf.size(found.first)
        one = tf.ones_like(found.entity, tf.float32)
        scores = tf.math.unsorted_segment_sum(
            tf.gather(share, found.word), found.entity, size
        ) / tf.math.unsorted_segment_sum(one, found.entity, size)
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(row), row, codes.nrows()
        )
        place = tf.gather(starts, row) + begin

        def dense(values: tf.Tensor, fill: str | int | float) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(
                values, counts, validate=False
            )
            return ragged.to_tensor(fill)

        return {
            "entities": dense(
                text_of(codes.flat_values, place, end - begin), ""
            ),
            "labels": dense(found.kind, ""),
            "starts": dense(begin, -1),
            "ends": dense(end, -1),
            "scores": dense(scores, 0.0),
            "count": counts,
        }

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return {"logits": self.forward(inputs)}


class _Entities(NamedTuple):
    """Entities of words, in their order.

    Attributes:
      kind: string [E], the type of each.
      first: int32 [E], its first word.
      last: int32 [E], its last word.
      word: int32 [W], the words that are of one.
      entity: int32 [W], of which.
    """

    kind: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    word: tf.Tensor
    entity: tf.Tensor


def _entities(
    labels: Sequence[str], tags: tf.Tensor, row: tf.Tensor
) -> _Entities:
    """The entities that tags, int32 [K], of words of rows [K] mark."""
    table = tag_table(labels)
    kind = tf.gather(table.kind, tags)
    same = continues(
        row, kind, tf.gather(table.begins, tags), tf.gather(table.ends, tags)
    )
    goes_on = tf.concat([[False], same], 0)[: tf.size(tags)]
    inside = kind >= 0
    word = tf.cast(tf.where(inside)[:, 0], tf.int32)
    begins = inside & ~goes_on
    entity = tf.gather(tf.cumsum(tf.cast(begins, tf.int32)) - 1, word)
    first = tf.cast(tf.where(begins)[:, 0], tf.int32)
    last = tf.math.unsorted_segment_max(word, entity, tf.size(first))
    names = tf.constant([*table.kinds, OUTSIDE])
    return _Entities(
        tf.gather(names, tf.gather(kind, first)), first, last, word, entity
    )
