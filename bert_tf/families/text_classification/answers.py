"""Sentence tasks: a text or a pair in, a label, labels or a score out."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.requests import (
    Request,
    checked_windows,
    equal_rows,
    example_bytes,
    parsed_texts,
    requests_of,
    sample_texts,
    signature,
    text_spec,
)
from bert_tf.families.row_computer import Tensors
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    Answer,
    TextModel,
    check_outputs,
    encoder_of,
)
from bert_tf.text.layout import HOST, TokenIds, take, tokenize, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.families.explained import Forward, Subject, Target

LONG_INPUTS = ("cut", "windows")


class SentenceModel(TextModel):
    """A model of sentences or pairs that takes text.

    Signatures:
      serving_default: text and, for pairs, text_b, string [B] -> what the
        kind of task has: of classes label, string [B], and labels, string,
        probabilities and logits, float32, each [B, C]; of several labels a
        row labels, scores and logits [B, C], holds, bool [B, C], and label,
        those that hold, joined; of a regression score, float32 [B].
      classify or, for a regression, regress: the same rows as serialized
        tf.Examples with the features text and text_b.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] -> the same as
        serving_default.

    Args:
      model: from the encoder's inputs to logits [B, C].
      tokenizer: the tokenizer it was trained with.
      max_seq_length: the longest row.
      labels: names of the C labels; none for a regression.
      pairs: whether a row has two texts.
      long_inputs: what becomes of texts that are too long: "cut", or
        "windows", whose mean logits count.
      doc_stride: tokens from one window to the next.
      max_windows: of a text; longer ones are refused.
      threshold: for several labels a row, the probability above which a label
        holds; None for one label.
      separator: stands between several labels.

    Raises:
      UserError: see `TextModel`; or settings that do not go together.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        max_seq_length: int = 128,
        labels: Sequence[str] = (),
        pairs: bool = False,
        long_inputs: str = "cut",
        doc_stride: int = 64,
        max_windows: int = 128,
        threshold: float | None = None,
        separator: str = ",",
    ):
        super().__init__(
            model, encoder_of(model), tokenizer, max_seq_length, labels
        )
        count = model.output_shape[-1]
        # A regression has one output and no label.
        if labels or threshold is not None or count != 1:
            check_outputs(count, labels)
        if long_inputs not in LONG_INPUTS:
            raise UserError(
                f"long_inputs is {long_inputs!r}; it takes one of "
                f"{', '.join(LONG_INPUTS)}."
            )
        special = tokenizer.packing.num_special(1 + pairs)
        self._room = max_seq_length - special
        if self._room < 1:
            raise UserError(
                f"max_seq_length={max_seq_length}: a row needs at least "
                f"{special + 1}, for special tokens and one other."
            )
        self._names = ("text", "text_b") if pairs else ("text",)
        self._windows = long_inputs == "windows"
        self._doc_stride, self._max_windows = doc_stride, max_windows
        self.threshold, self._separator = threshold, separator
        self.method = "classify" if labels else "regress"
        self.task = "text pair " if pairs else "text "
        if threshold is not None:
            self.task += "multi-label classification"
        else:
            self.task += "classification" if labels else "regression"

    method: str

    @property
    def columns(self) -> tuple[str, ...]:
        """text, and of a pair text_b."""
        return self._names

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        return {
            SERVING_DEFAULT: signature(
                self._from_pair if len(self._names) == 2 else self._from_text,
                *(text_spec(name) for name in self._names),
            ),
            self.method: signature(self._from_examples, text_spec("inputs")),
            TOKENS: self.tokens_signature(),
        }

    def requests(self) -> list[Request]:
        """Texts of several lengths, each alone and all at once."""
        texts = sample_texts(self.max_seq_length, len(self._names))
        columns = zip(*texts, strict=True)
        return [
            request
            for plain in requests_of(
                SERVING_DEFAULT, **dict(zip(self._names, columns, strict=True))
            )
            for request in (
                plain,
                Request(self.method, {"inputs": example_bytes(plain.inputs)}),
            )
        ]

    def _from_text(self, text: tf.Tensor) -> Tensors:
        return self._answers(self._logits([text]))

    def _from_pair(self, text: tf.Tensor, text_b: tf.Tensor) -> Tensors:
        return self._answers(self._logits([text, text_b]))

    def _from_examples(self, inputs: tf.Tensor) -> Tensors:
        logits = self._logits(parsed_texts(inputs, self._names))
        answers = self._answers(logits)
        if not self.labels:
            return {"outputs": answers["score"]}
        scores = "probabilities" if self.threshold is None else "scores"
        return {"classes": answers["labels"], "scores": answers[scores]}

    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """The label or the labels with all probabilities, or the score."""
        if not self.labels:
            return [{"score": score} for score in outputs["score"].tolist()]
        if self.threshold is None:
            return class_dicts(outputs, self.labels)
        return [
            {
                "labels": list(itertools.compress(self.labels, holds)),
                "probabilities": dict(zip(self.labels, scores, strict=True)),
            }
            for holds, scores in zip(
                outputs["holds"], outputs["scores"].tolist(), strict=True
            )
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
        from bert_tf.families.text_classification.explained import subject_of

        return subject_of(self, row, answer, target)

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return self._answers(tf.cast(self.forward(inputs), tf.float32))

    def _logits(self, texts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The logits of a batch, float32 [B, C]."""
        with tf.device(HOST):
            if len(texts) == 2:
                texts = equal_rows(text=texts[0], text_b=texts[1])
            example, first, second = self.rows(
                *(tokenize(self.tokenizer, text) for text in texts)
            )
        found = self.compute(
            first,
            second,
            lambda inputs, chosen: {"logits": self.forward(inputs)},
            {"logits": (len(self.labels) or 1,)},
        )
        return tf.math.segment_mean(found["logits"], example)

    def rows(
        self, first: TokenIds, second: TokenIds | None = None
    ) -> tuple[tf.Tensor, TokenIds, TokenIds | None]:
        """The example that each row of a batch is of, and the rows.

        They are those of `bert_tf.families.text_classification.task`.
        """
        if not self._windows:
            example = tf.range(tf.size(first.count))
            return example, *truncate(first, second, self._room)
        if second is None:
            windows = checked_windows(
                first.count,
                self._room,
                self._doc_stride,
                self._max_windows,
                "text",
            )
            text = windows.text
            return text, take(first, text, windows.offset, windows.count), None
        fits = first.count + second.count <= self._room
        count = tf.minimum(first.count, self._room // 2)
        count = tf.where(fits, first.count, count)
        windows = checked_windows(
            second.count,
            self._room - count,
            self._doc_stride,
            self._max_windows,
            "text_b",
        )
        text = windows.text
        return (
            text,
            take(first, text, count=tf.gather(count, text)),
            take(second, text, windows.offset, windows.count),
        )

    def _answers(self, logits: tf.Tensor) -> Tensors:
        """The answers from logits, float32 [B, C]."""
        if not self.labels:
            # A CrossEncoder's alone is not linear.
            from bert_tf.families.sentence_vectors import ACTIVATIONS

            return {"score": ACTIVATIONS[self.activation](logits[:, 0])}
        if self.threshold is None:
            return class_answers(logits, self.labels)
        with tf.device(HOST):
            labels = _labels_of(logits, self.labels)
            scores = tf.sigmoid(logits)
            holds = scores > self.threshold
            chosen = tf.ragged.boolean_mask(labels, holds)
            return {
                "label": tf.strings.reduce_join(
                    chosen, axis=-1, separator=self._separator
                ),
                "labels": labels,
                "scores": scores,
                "holds": holds,
                "logits": logits,
            }


def class_answers(logits: tf.Tensor, labels: Sequence[str]) -> Tensors:
    """The answers of a classifier whose classes have names.

    Args:
      logits: float32 [B, C].
      labels: the C names.

    Returns:
      label, string [B]; labels, string, probabilities and logits, float32,
      each [B, C].
    """
    with tf.device(HOST):
        return {
            "label": tf.gather(tf.constant(labels), tf.argmax(logits, -1)),
            "labels": _labels_of(logits, labels),
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
        }


def class_dicts(
    outputs: Mapping[str, np.ndarray], labels: Sequence[str]
) -> list[Answer]:
    """What `class_answers` gave, as plain values of each row."""
    found = []
    for label, row in zip(
        outputs["label"], outputs["probabilities"].tolist(), strict=True
    ):
        probabilities = dict(zip(labels, row, strict=True))
        name = label.decode()
        found.append(
            {
                "label": name,
                "probability": probabilities[name],
                "probabilities": probabilities,
            }
        )
    return found


def _labels_of(logits: tf.Tensor, labels: Sequence[str]) -> tf.Tensor:
    """The names of the labels beside each row of logits, string [B, C]."""
    return tf.tile(tf.constant(labels)[tf.newaxis], [tf.shape(logits)[0], 1])
