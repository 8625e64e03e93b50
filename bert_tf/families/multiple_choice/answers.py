"""Choosing one of several texts: a text and choices in, the best one out."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
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
    TextModel,
    encoder_of,
)
from bert_tf.text.layout import HOST, TokenIds, take, tokenize, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer


class ChoiceRows(NamedTuple):
    """R pairs of a text and one of its choices, of B texts with up to C.

    Attributes:
      first: the texts, truncated.
      second: the choices after their common start, truncated.
      places: int64 [R, 2], the text and the number of the choice of each row,
        in ascending order.
    """

    first: TokenIds
    second: TokenIds
    places: tf.Tensor


def choice_rows(
    text: tf.Tensor,
    choices: tf.Tensor,
    start: tf.Tensor | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> ChoiceRows:
    """Pairs every choice with its text (Devlin et al. 2019, section 4.4).

    The text is A, a possible continuation is B. What the continuations have
    in common, such as the subject in SWAG's second sentence, begins B.

    Args:
      text: string [B].
      choices: string [B, C]; "" fills up rows with fewer choices.
      start: string [B], the common start of the choices, or None.
      tokenizer: that of the model.
      max_seq_length: the longest row; see `SentencePacker` for how longer
        pairs are truncated.
    """
    places = tf.where(choices != "")
    row = tf.cast(places[:, 0], tf.int32)
    endings = tf.gather_nd(choices, places)
    if start is not None:
        endings = tf.strings.join([tf.gather(start, row), endings], " ")
    first, second = truncate(
        take(tokenize(tokenizer, text), row),
        tokenize(tokenizer, endings),
        max_seq_length - tokenizer.packing.num_special(2),
    )
    assert second is not None
    return ChoiceRows(first, second, places)


def choice_answers(logits: tf.Tensor) -> Tensors:
    """The best choice and the probability of each, by a softmax over choices.

    Args:
      logits: float32 [B, C], -inf where there is no choice.

    Returns:
      best: int64 [B], the number of the choice.
      probabilities: float32 [B, C].
    """
    return {
        "best": tf.argmax(logits, -1),
        "probabilities": tf.nn.softmax(logits),
    }


class ChoiceModel(TextModel):
    """A model that chooses what follows a text, which takes text.

    Signatures:
      serving_default: text, string [B], and choices, string [B, C], where ""
        fills up rows with fewer; with `start` also start, string [B], what
        every choice begins with -> choice, string [B], and probabilities,
        float32 [B, C], 0 for what fills up.
      tokens: input_ids, input_mask, segment_ids, int32 [B, C, S] -> logits,
        float32 [B, C].

    Args:
      model: from the encoder's inputs [B, C, S] to logits [B, C].
      tokenizer: the tokenizer it was trained with.
      config: how it is used.

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
        super().__init__(model, encoder_of(model), tokenizer, length)
        special = tokenizer.packing.num_special(2)
        whole_number(
            *("max_seq_length", length, special + 2),
            why="special tokens and one of each text",
        )
        self._start = config.has_start

    task = "multiple choice"
    # Of the inputs of `tokens`: texts, choices, positions.
    token_axes = 3

    @property
    def columns(self) -> tuple[str, ...]:
        """text and choices, and where they have a common start that."""
        return ("text", "choices", "start")[: 2 + self._start]

    def file_columns(self, stated: Mapping[str, Any]) -> Mapping[str, str]:
        """Those of the recipe, or of SWAG's files."""
        context = stated.get("context_column", "")
        if not self._start or context:
            return {"text": context}
        # Answering needs no reader of files.
        from bert_tf.families.multiple_choice.files import SWAG_COLUMNS

        return {
            "text": SWAG_COLUMNS.context,
            "start": str(SWAG_COLUMNS.start),
            "choices": ",".join(SWAG_COLUMNS.choices),
        }

    def requests(self) -> list[Request]:
        """Texts of several lengths with four choices, or fewer."""
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
        if self._start:
            columns["start"] = ["Then"] * len(lengths)
        return requests_of(SERVING_DEFAULT, **columns)

    def rows(
        self,
        text: tf.Tensor,
        choices: tf.Tensor,
        start: tf.Tensor | None = None,
    ) -> ChoiceRows:
        """See `choice_rows`."""
        return choice_rows(
            text, choices, start, self.tokenizer, self.max_seq_length
        )

    def answers(
        self,
        text: tf.Tensor,
        choices: tf.Tensor,
        start: tf.Tensor | None = None,
    ) -> Tensors:
        """The outputs of serving_default; see the class."""
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
        answers = self.compute(
            rows.first, rows.second, self._score, {"logits": ()}
        )
        with tf.device(HOST):
            found = choice_answers(
                tf.tensor_scatter_nd_update(
                    tf.fill(tf.shape(choices), -float("inf")),
                    rows.places,
                    answers["logits"],
                )
            )
            best = found.pop("best")
            return {"choice": tf.gather(choices, best, batch_dims=1), **found}

    def _score(self, inputs: Tensors, chosen: tf.Tensor) -> Tensors:
        """Scores rows, each as the only choice of its own."""
        del chosen
        alone = {name: value[:, tf.newaxis] for name, value in inputs.items()}
        return {"logits": self.forward(alone)[:, 0]}

    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """The number of the choice, from 0, its text and all probabilities."""
        found = []
        for row, choice, probabilities in zip(
            rows,
            outputs["choice"],
            outputs["probabilities"].tolist(),
            strict=True,
        ):
            text, choices = choice.decode(), row["choices"]
            found.append(
                {
                    "choice": choices.index(text),
                    "answer": text,
                    "probabilities": probabilities[: len(choices)],
                }
            )
        return found

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return {"logits": self.forward(inputs)}


def text_model(
    config: MultipleChoiceConfig, model: keras.Model, tokenizer: Tokenizer
) -> ChoiceModel:
    """The model that `config.build` made, as one that takes text."""
    return ChoiceModel(model, tokenizer, config)
