"""Tagging: a text in, its words found, its entities out.

Files of tagged words have punctuation apart, but leave together what belongs
together: U.N., O'Neal, 1996-08-22, AT&T; a final 's is a word of its own. The
tokenizer's words are smaller: each punctuation character is one. So these are
put together again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.requests import (
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
from bert_tf.families.row_computer import Tensors, largest
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    Answer,
    TextModel,
    check_outputs,
    encoder_of,
)
from bert_tf.families.token_classification.entities import (
    OUTSIDE,
    continues,
    tag_table,
)
from bert_tf.families.words import WORD_RULES, WordFinder, Words
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

if TYPE_CHECKING:
    from bert_tf.families.explained import Forward, Subject, Target


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
        that overlap, as in `bert_tf.families.token_classification`.
      labels: names of the C tags: O and types with prefixes, such as B-LOC and
        I-LOC, or labels without them, such as ADJ and LOC, where an entity is
        a run of words with one label other than O.
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
        tokenizer: Tokenizer,
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
        if word_rule not in WORD_RULES:
            raise UserError(
                f"word_rule is {word_rule!r}; it takes one of "
                f"{', '.join(WORD_RULES)}."
            )
        if doc_stride is not None and doc_stride < 1:
            raise UserError(f"doc_stride={doc_stride}: it takes 1 or more.")
        self._room = max_seq_length - tokenizer.packing.num_special(1)
        stride = max(self._room // 2, 1) if doc_stride is None else doc_stride
        self._stride = min(stride, self._room)
        self._max_windows = max_windows
        self.find_words = WordFinder(tokenizer, word_rule)

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
            words = self.find_words(codes, ids, begins, ends)
            texts = token_ids(ids)
            windows, rows = self.rows(texts)
            packing = self.tokenizer.packing
            width = largest(pack_rows(rows, None, packing).lengths)
        logits = self.compute(
            rows,
            None,
            lambda inputs, chosen: {"logits": self.forward(inputs)},
            {"logits": (None, len(self.labels))},
            width,
        )["logits"]
        with tf.device(HOST):
            asked = places(words, texts, windows, len(packing.begin))
            return self._answers(codes, words, tf.gather_nd(logits, asked))

    def rows(self, texts: TokenIds) -> tuple[Windows, TokenIds]:
        """The windows on texts, each of which is a row."""
        windows = checked_windows(
            texts.count,
            self._room,
            self._stride,
            self._max_windows,
            "text",
            align_last=True,
        )
        return windows, take(texts, windows.text, windows.offset, windows.count)

    def _answers(
        self, codes: tf.RaggedTensor, words: Words, logits: tf.Tensor
    ) -> Tensors:
        """The entities of B texts from the logits of K words [K, C]."""
        tags = tf.argmax(logits, -1, output_type=tf.int32)
        share = tf.reduce_max(tf.nn.softmax(logits), -1)
        table = tag_table(self.labels)
        kind = tf.gather(table.kind, tags)
        same = continues(
            words.row,
            kind,
            tf.gather(table.begins, tags),
            tf.gather(table.ends, tags),
        )
        # The words that are of an entity, and which of them begin one.
        inside = kind >= 0
        begins = inside & ~tf.concat([[False], same], 0)[: tf.size(tags)]
        word = tf.cast(tf.where(inside)[:, 0], tf.int32)
        entity = tf.gather(tf.cumsum(tf.cast(begins, tf.int32)) - 1, word)
        first = tf.cast(tf.where(begins)[:, 0], tf.int32)
        size = tf.size(first)
        last = tf.math.unsorted_segment_max(word, entity, size)
        scores = tf.math.unsorted_segment_sum(
            tf.gather(share, word), entity, size
        ) / tf.cast(last - first + 1, tf.float32)
        names = tf.constant([*table.kinds, OUTSIDE])
        row = tf.gather(words.row, first)
        begin, end = tf.gather(words.begin, first), tf.gather(words.end, last)
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(row), row, codes.nrows()
        )
        place = tf.gather(tf.cast(codes.row_starts(), tf.int32), row) + begin

        def dense(values: tf.Tensor, fill: str | int | float) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(
                values, counts, validate=False
            )
            return ragged.to_tensor(fill)

        return {
            "entities": dense(
                text_of(codes.flat_values, place, end - begin), ""
            ),
            "labels": dense(tf.gather(names, tf.gather(kind, first)), ""),
            "starts": dense(begin, -1),
            "ends": dense(end, -1),
            "scores": dense(scores, 0.0),
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

    def subject(
        self,
        forward: "Forward",
        row: Mapping[str, Any],
        answer: Answer,
        target: "Target",
    ) -> "Subject":
        """See `explained.py`."""
        # Whoever asks for answers alone does not load it.
        from bert_tf.families.token_classification.explained import subject_of

        return subject_of(self, forward, row, answer, target)

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return {"logits": self.forward(inputs)}


def places(
    words: Words, texts: TokenIds, windows: Windows, before: int
) -> tf.Tensor:
    """Window and position that answer for each word, int32 [K, 2].

    Before the text, a row has `before` special tokens.
    The window is the one that shows the word's first token in most context.
    """
    begin = tf.gather(texts.begin, windows.text) + windows.offset
    best_begin, _ = most_context(windows)
    window = tf.searchsorted(begin + best_begin, words.token, "right") - 1
    place = words.token - tf.gather(begin, window) + before
    return tf.stack([window, place], 1)
