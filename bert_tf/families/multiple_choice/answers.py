"""Multiple-choice models that take text: the best of several continuations."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.errors import whole_number
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.requests import (
    Request,
    Tensors,
    equal_rows,
    requests_of,
    sample_lengths,
    sample_text,
    unless,
)
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    Answer,
    Arrays,
    InputRows,
    TextModel,
)
from bert_tf.runtimes.runtime import Runtime
from bert_tf.text.layout import HOST, TokenIds, take, tokenize, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer


class ChoiceRows(NamedTuple):
    """R pairs of a text and a choice, from B texts with up to C choices.

    Attributes:
      first: the texts, truncated.
      second: the choices with their common start, truncated.
      indices: int64 [R, 2], text and choice number of each row, ascending.
    """

    first: TokenIds
    second: TokenIds
    indices: tf.Tensor


def choice_rows(
    text: tf.Tensor,
    choices: tf.Tensor,
    start: tf.Tensor | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> ChoiceRows:
    """Pairs every choice with its text (Devlin et al. 2019, section 4.4).

    Segment A is the text, segment B a possible continuation. What the
    continuations have in common, such as the subject of SWAG's second
    sentence, begins segment B.

    Args:
      text: string [B].
      choices: string [B, C], padded with "".
      start: string [B], the common start of the choices, or None.
      tokenizer: tokenizer of the model.
      max_seq_length: length that pairs are truncated to; see `SentencePacker`.
    """
    indices = tf.where(choices != "")
    row = tf.cast(indices[:, 0], tf.int32)
    endings = tf.gather_nd(choices, indices)
    if start is not None:
        endings = tf.strings.join([tf.gather(start, row), endings], " ")
    first, second = truncate(
        take(tokenize(tokenizer, text), row),
        tokenize(tokenizer, endings),
        max_seq_length - tokenizer.packing.num_special(2),
    )
    assert second is not None
    return ChoiceRows(first, second, indices)


def choice_answers(logits: tf.Tensor, temperature: float = 1.0) -> Tensors:
    """Computes the best choice and the softmax over the choices.

    Args:
      logits: float32 [B, C], -inf for padding.
      temperature: divides the logits for the probabilities.

    Returns:
      best: int64 [B], the number of the choice.
      probabilities: float32 [B, C].
    """
    return {
        "best": tf.argmax(logits, -1),
        "probabilities": tf.nn.softmax(logits / temperature),
    }


class ChoiceModel(TextModel):
    """A multiple-choice model that takes text.

    Signatures:
      serving_default: text, string [B], and choices, string [B, C], padded
        with ""; with `start` also start, string [B], the common start of the
        choices -> choice, string [B], and probabilities, float32 [B, C], 0
        for padding.
      tokens: input_ids, input_mask, segment_ids, int32 [B, C, S] -> logits,
        float32 [B, C].

    Args:
      model: from the encoder's inputs [B, C, S] to logits [B, C].
      tokenizer: the tokenizer it was trained with.
      config: how the model is used.

    Raises:
      UserError: see `TextModel`; or no room for a token of each text.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        config: MultipleChoiceConfig,
    ):
        length = config.max_seq_length
        super().__init__(model, tokenizer, length)
        whole_number(
            "max_seq_length",
            length,
            tokenizer.packing.num_special(2) + 2,
            why="special tokens and one of each text",
        )
        self.calibration_temperature = config.calibration_temperature
        # Without "start" if the choices have no common start.
        self.columns = ("text", "choices", "start")[: 2 + config.has_start]

    task = "multiple choice"
    # Axes of the inputs of `tokens`: texts, choices, positions.
    token_axes = 3

    def file_columns(self, stated: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns the columns that the recipe names, or SWAG's."""
        context = stated.get("context_column", "")
        if "start" not in self.columns or context:
            return {"text": context}
        # Answering requires no reader of files.
        from bert_tf.families.multiple_choice.files import SWAG_COLUMNS

        return {
            "text": SWAG_COLUMNS.context,
            "start": str(SWAG_COLUMNS.start),
            "choices": ",".join(SWAG_COLUMNS.choices),
        }

    def requests(self) -> list[Request]:
        """Returns texts of several lengths with up to four choices."""
        lengths = sample_lengths(self.max_seq_length)
        choices = [
            [sample_text(max(words // 4, 1), 5 * n) for n in range(4)]
            for words in lengths
        ]
        choices[-1][2:] = ["", ""]
        columns: dict[str, Sequence] = {
            "text": [sample_text(max(words // 2, 1)) for words in lengths],
            "choices": choices,
        }
        if "start" in self.columns:
            columns["start"] = ["Then"] * len(lengths)
        return requests_of(SERVING_DEFAULT, **columns)

    def rows(
        self,
        text: tf.Tensor,
        choices: tf.Tensor,
        start: tf.Tensor | None = None,
    ) -> ChoiceRows:
        """Pairs every choice with its text; see `choice_rows`."""
        return choice_rows(
            text, choices, start, self.tokenizer, self.max_seq_length
        )

    def answers(
        self,
        text: tf.Tensor,
        choices: tf.Tensor,
        start: tf.Tensor | None = None,
    ) -> Tensors:
        """Computes the outputs of serving_default; see the class."""
        with tf.device(HOST):
            text, choices = equal_rows(text=text, choices=choices)
            choices = unless(
                tf.reduce_all(choices == "", 1),
                choices,
                "choices: row {} has none; give at least one that is not "
                "empty.",
            )
            if start is not None:
                text, start = equal_rows(text=text, start=start)
            rows = self.rows(text, choices, start)
        outputs = self.compute(
            rows.first, rows.second, self._score, {"logits": ()}
        )
        with tf.device(HOST):
            answers = choice_answers(
                tf.tensor_scatter_nd_update(
                    tf.fill(tf.shape(choices), -float("inf")),
                    rows.indices,
                    outputs["logits"],
                ),
                self.calibration_temperature,
            )
            best = answers.pop("best")
            choice = tf.gather(choices, best, batch_dims=1)
            return {"choice": choice, **answers}

    def _score(self, inputs: Tensors, chosen: tf.Tensor) -> Tensors:
        """Scores each row as the only choice of a text."""
        del chosen
        inputs = {name: value[:, tf.newaxis] for name, value in inputs.items()}
        return {"logits": self.forward(inputs)[:, 0]}

    def row_outputs(self, inputs: Tensors) -> Tensors:
        """See `TextModel`; each row is the only choice of a text."""
        inputs = {name: value[:, tf.newaxis] for name, value in inputs.items()}
        return super().row_outputs(inputs)

    def compute_by(self, runtime: Runtime) -> None:
        """See `TextModel`."""
        of_choices = self.forward
        super().compute_by(runtime)
        of_rows = self.forward
        if of_rows is of_choices:
            return

        def forward(inputs: Tensors) -> tf.Tensor:
            shape = tf.shape(inputs["input_ids"])
            rows = {
                name: tf.reshape(value, [-1, shape[2]])
                for name, value in inputs.items()
            }
            return tf.reshape(of_rows(rows), shape[:2])

        self.forward = forward

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """Returns the choice by number (from 0) and text, and probabilities."""
        return [
            {
                "choice": row["choices"].index(choice.decode()),
                "answer": choice.decode(),
                "probabilities": probabilities[: len(row["choices"])],
            }
            for row, choice, probabilities in zip(
                rows,
                outputs["choice"],
                outputs["probabilities"].tolist(),
                strict=True,
            )
        ]


# The model of the family, by which a folder is used.
MODEL = ChoiceModel
