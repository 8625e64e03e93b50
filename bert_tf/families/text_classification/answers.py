"""Answers of text classifiers to texts or pairs: labels or scores."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import whole_number
from bert_tf.families.requests import (
    Request,
    Tensors,
    checked_windows,
    equal_rows,
    example_bytes,
    parsed_texts,
    requests_of,
    sample_texts,
    signature,
    text_spec,
    token_specs,
)
from bert_tf.families.text_classification.config import (
    MULTI_LABEL,
    REGRESSION,
    WINDOWS,
    TextClassificationConfig,
)
from bert_tf.families.text_model import (
    RANK,
    SERVING_DEFAULT,
    Answer,
    Arrays,
    InputRows,
    TextModel,
    check_outputs,
)
from bert_tf.text.layout import HOST, TokenIds, take, tokenize, truncate
from bert_tf.text.token_table import Packing
from bert_tf.text.tokenizer_protocol import Tokenizer

# The signature that takes labels.
ZERO_SHOT = "zero_shot"


def text_rows(
    texts: Sequence[TokenIds],
    packing: Packing,
    config: TextClassificationConfig,
    max_windows: int = tf.int32.max,
) -> tuple[tf.Tensor, TokenIds, TokenIds | None]:
    """Makes rows of texts or pairs that fit the model's input.

    With long_inputs="windows", a long text is split into overlapping windows.
    Of a pair, the second text is split, and the first text is repeated in each
    window, truncated to half of the room.

    Args:
      texts: N texts, or N first and N second texts.
      packing: the special tokens of a row.
      config: has the length of rows, and the handling of longer ones: "cut"
        truncates as `SentencePacker` does; or "windows".
      max_windows: the most windows of a text; more are INVALID_ARGUMENT.

    Returns:
      The index of each row's example, int32 [R], ascending, and R first and
      second texts.
    """
    first, second = texts[0], texts[1] if len(texts) == 2 else None
    room = config.max_seq_length - packing.num_special(len(texts))
    if config.long_inputs != WINDOWS:
        example = tf.range(tf.size(first.count))
        return example, *truncate(first, second, room)
    split, name = first, "text"
    count, left = first.count, room
    if second is not None:
        fits = first.count + second.count <= room
        half = tf.minimum(first.count, room // 2)
        count = tf.where(fits, first.count, half)
        split, name, left = second, "text_b", room - count
    stride = config.doc_stride
    windows = checked_windows(split.count, left, stride, max_windows, name)
    example = windows.text
    shown = take(split, example, windows.offset, windows.count)
    if second is None:
        return example, shown, None
    return example, take(first, example, count=tf.gather(count, example)), shown


def text_answers(
    logits: Any, config: TextClassificationConfig, activation: str = "linear"
) -> Tensors:
    """Decodes logits by the kind of label.

    Args:
      logits: float32 [N, C].
      config: the config of the model.
      activation: the activation of a regression, see
        `sentence_modules.TORCH_ACTIVATIONS`.

    Returns:
      The outputs of `SentenceModel`, without `labels`.
    """
    if config.label_kind == REGRESSION:
        # Only a CrossEncoder's activation is not linear.
        from bert_tf.families.sentence_vectors import ACTIVATIONS

        return {"score": ACTIVATIONS[activation](logits[:, 0])}
    temperature = config.calibration_temperature
    with tf.device(HOST):
        if config.label_kind != MULTI_LABEL:
            return class_answers(logits, config.labels, temperature)
        scores = tf.sigmoid(logits / temperature)
        holds = scores > config.threshold
        row, number = tf.unstack(tf.where(holds), axis=1)
        names = tf.RaggedTensor.from_value_rowids(
            tf.gather(tf.constant(config.labels), number),
            row,
            tf.shape(holds, tf.int64)[0],
            validate=False,
        )
        return {
            "label": tf.strings.reduce_join(
                names, axis=-1, separator=config.label_separator
            ),
            "scores": scores,
            "holds": holds,
            "logits": logits,
        }


def class_answers(
    logits: tf.Tensor, labels: Sequence[str], temperature: float = 1.0
) -> Tensors:
    """Decodes the logits of a classifier, float32 [N, C].

    Args:
      logits: the logits.
      labels: the names of the classes.
      temperature: divides the logits for the probabilities.

    Returns:
      label, string [N]; probabilities and logits, float32 [N, C].
    """
    with tf.device(HOST):
        return {
            "label": tf.gather(tf.constant(labels), tf.argmax(logits, -1)),
            "probabilities": tf.nn.softmax(logits / temperature),
            "logits": logits,
        }


def with_labels(answers: Tensors, labels: Sequence[str]) -> Tensors:
    """Adds the names of all labels to each row, string [N, C]."""
    with tf.device(HOST):
        count = tf.shape(answers["logits"])[0]
        names = tf.tile(tf.constant(labels)[tf.newaxis], [count, 1])
        return answers | {"labels": names}


def label_values(
    answers: Mapping[str, np.ndarray], labels: Sequence[str]
) -> list[Any]:
    """Converts outputs of `text_answers` to labels, numbers or sets."""
    if "score" in answers:
        return answers["score"].tolist()
    if "holds" in answers:
        return [tuple(itertools.compress(labels, r)) for r in answers["holds"]]
    return [label.decode() for label in answers["label"]]


def plain_answers(
    answers: Mapping[str, np.ndarray], labels: Sequence[str]
) -> list[Answer]:
    """Converts outputs of `text_answers` to plain values of each row."""
    values = label_values(answers, labels)
    if "score" in answers:
        return [{"score": value} for value in values]
    several = "holds" in answers
    found = []
    shares = answers["scores" if several else "probabilities"].tolist()
    for value, row in zip(values, shares, strict=True):
        by_label = dict(zip(labels, row, strict=True))
        answer: Answer = {"labels": [*value]}
        if not several:
            answer = {"label": value, "probability": by_label[value]}
        found.append(answer | {"probabilities": by_label})
    return found


class SentenceModel(TextModel):
    """A classifier of texts or pairs.

    Signatures:
      serving_default: text and, for pairs, text_b, string [B] ->
        for classes label, string [B], and labels, string, probabilities and
        logits, float32, each [B, C]; for several labels a row labels, scores
        and logits [B, C], holds, bool [B, C], and label, the labels that hold
        in one string; for a regression score, float32 [B].
      classify or, for a regression, regress: the same for serialized
        tf.Examples with the features text and text_b.
      rank, for a regression of pairs: text and text_b, string [B] -> logits,
        float32 [B], the scores without an activation.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] -> the outputs of
        serving_default.
      zero_shot, of models of natural language inference: text, string [B],
        labels, string [B, C], padded with "", and template, string [B], where
        {} stands for the label, and "" is "This text is about {}." -> label,
        string [B], labels as given, probabilities of labels that exclude each
        other, and scores of each label by itself, float32 [B, C].

    Args:
      model: computes logits [B, C] from the encoder's inputs.
      tokenizer: the tokenizer it was trained with.
      config: its config.
      max_windows: the most windows of a text.

    Raises:
      UserError: see `TextModel`; or the config does not fit the model.
    """

    method: str

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        config: TextClassificationConfig,
        max_windows: int = 128,
    ):
        length = config.max_seq_length
        super().__init__(model, tokenizer, length, config.labels)
        pairs = config.num_texts == 2
        # A regression has no labels.
        is_regression = config.label_kind == REGRESSION
        count = model.output_shape[-1]
        if config.labels or not is_regression or count != 1:
            check_outputs(count, config.labels)
        special = tokenizer.packing.num_special(config.num_texts)
        whole_number(
            *("max_seq_length", config.max_seq_length, special + 1),
            why="special tokens and one other",
        )
        self.usage = config
        self.activation = config.activation
        self.calibration_temperature = config.calibration_temperature
        self._max_windows = max_windows
        self.columns = ("text", "text_b") if pairs else ("text",)
        if config.label_kind == MULTI_LABEL:
            self.threshold = config.threshold
        self.method = "regress" if is_regression else "classify"
        self._ranks = pairs and is_regression
        self.task = f"text {'pair ' * pairs}" + {
            REGRESSION: "regression",
            MULTI_LABEL: "multi-label classification",
        }.get(config.label_kind, "classification")

    def file_columns(self, stated: Mapping[str, Any]) -> Mapping[str, str]:
        """See `TextModel`; they are in the setting `text_columns`."""
        names = str(stated.get("text_columns", "")).split(",")
        return dict(zip(self.columns, map(str.strip, names), strict=False))

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        default, tokens = super().signatures().items()
        examples = signature(self._from_examples, text_spec("inputs"))
        found = dict([default, (self.method, examples), tokens])
        if self.usage.is_nli:
            from bert_tf.families.text_classification.zero_shot import (
                served_shares,
            )

            found[ZERO_SHOT] = signature(
                functools.partial(served_shares, self),
                text_spec("text"),
                tf.TensorSpec([None, None], tf.string, "labels"),
                text_spec("template"),
            )
        if self._ranks:
            specs = map(text_spec, self.columns)
            found[RANK] = signature(self._rank, *specs)
        return found

    @functools.cached_property
    def label_shares(self) -> Callable[..., Tensors]:
        """See `zero_shot.label_shares`; traced once for all labels."""
        from bert_tf.families.text_classification.zero_shot import label_shares

        return signature(
            lambda text, number, *tokens: label_shares(
                self, text, number, TokenIds(*tokens)
            ),
            text_spec("text"),
            tf.TensorSpec([None, None], tf.int32),
            *[tf.TensorSpec([None], tf.int32)] * 3,
        )

    def requests(self) -> list[Request]:
        """Texts of several lengths, separately and in one batch."""
        texts = sample_texts(self.max_seq_length, len(self.columns))
        columns = zip(*texts, strict=True)
        found = [
            request
            for plain in requests_of(
                SERVING_DEFAULT, **dict(zip(self.columns, columns, strict=True))
            )
            for request in (
                plain,
                Request(self.method, {"inputs": example_bytes(plain.inputs)}),
                *([Request(RANK, plain.inputs)] if self._ranks else []),
            )
        ]
        if self.usage.is_nli:
            first = [row[0] for row in texts]
            labels = [["boats", "the weather"]] * len(texts)
            templates = ["", "It is {}."] * len(texts)
            found += requests_of(
                ZERO_SHOT,
                text=first,
                labels=labels,
                template=templates[: len(texts)],
            )
        return found

    def answers(
        self, text: tf.Tensor, text_b: tf.Tensor | None = None
    ) -> Tensors:
        """The outputs of serving_default; see the class."""
        texts = [text] if text_b is None else [text, text_b]
        return self._answers(self._logits(texts))

    def _rank(self, text: tf.Tensor, text_b: tf.Tensor) -> Tensors:
        return {"logits": self._logits([text, text_b])[:, 0]}

    def _from_examples(self, inputs: tf.Tensor) -> Tensors:
        logits = self._logits(parsed_texts(inputs, self.columns))
        answers = self._answers(logits)
        if not self.labels:
            return {"outputs": answers["score"]}
        scores = "probabilities" if self.threshold is None else "scores"
        return {"classes": answers["labels"], "scores": answers[scores]}

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """See `plain_answers`."""
        return plain_answers(outputs, self.labels)

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return self._answers(tf.cast(self.forward(inputs), tf.float32))

    def rows(
        self, *texts: TokenIds
    ) -> tuple[tf.Tensor, TokenIds, TokenIds | None]:
        """Makes the rows of texts or pairs; see `text_rows`."""
        packing, most = self.tokenizer.packing, self._max_windows
        return text_rows(texts, packing, self.usage, most)

    @functools.cached_property
    def compiled_logits(self) -> Callable[[Tensors], tf.Tensor]:
        """Computes the logits of rows, float32 [R, C], in a graph."""
        # One graph for all lengths, so that all round alike.
        specs = {spec.name: spec for spec in token_specs()}
        return signature(
            lambda inputs: tf.cast(self.forward(inputs), tf.float32), specs
        )

    def _logits(self, texts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Computes the logits of a batch, float32 [B, C]."""
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

    def _answers(self, logits: tf.Tensor) -> Tensors:
        answers = text_answers(logits, self.usage, self.activation)
        return with_labels(answers, self.labels) if self.labels else answers


# The model of the family, by which a folder is used.
MODEL = SentenceModel
