"""From texts to ratings, in TensorFlow operations."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from bert_tf.families.rating.config import RatingConfig

from bert_tf.families.requests import (
    Request,
    Tensors,
    requests_of,
    sample_texts,
)
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    Answer,
    TextModel,
)
from bert_tf.text.layout import HOST, TokenIds, tokenize, truncate
from bert_tf.text.tokenizer_protocol import Tokenizer


def rating_rows(
    text: tf.Tensor, tokenizer: Tokenizer, max_seq_length: int
) -> TokenIds:
    """Tokenizes and truncates texts, string [B]."""
    room = max_seq_length - tokenizer.packing.num_special(1)
    return truncate(tokenize(tokenizer, text), None, room)[0]


def rating_answers(logits: tf.Tensor) -> Tensors:
    """Counts the steps that are reached (Frank and Hall 2001).

    Args:
      logits: float32 [B, K], of each step being reached.

    Returns:
      rating: int32 [B], 0 to K.
      reached: float32 [B, K], the probability of each step.
    """
    reached = tf.sigmoid(logits)
    rating = tf.reduce_sum(tf.cast(reached > 0.5, tf.int32), -1)
    return {"rating": rating, "reached": reached}


class RatingModel(TextModel):
    """A model that rates texts."""

    task = "rating"

    def __init__(
        self, model: keras.Model, tokenizer: Tokenizer, config: RatingConfig
    ):
        super().__init__(model, tokenizer, config.max_seq_length)

    def requests(self) -> list[Request]:
        """Texts of several lengths."""
        texts = [text for (text,) in sample_texts(self.max_seq_length, 1)]
        return requests_of(SERVING_DEFAULT, text=texts)

    def answers(self, text: tf.Tensor) -> Tensors:
        """Rates texts, string [B]; see `rating_answers`."""
        with tf.device(HOST):
            rows = rating_rows(text, self.tokenizer, self.max_seq_length)
        steps = self.model.output_shape[-1]
        found = self.compute(
            rows,
            None,
            lambda inputs, chosen: {"logits": self.forward(inputs)},
            {"logits": (steps,)},
        )
        return rating_answers(found["logits"])

    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """The rating, and the probability of each step."""
        columns = outputs["rating"].tolist(), outputs["reached"].tolist()
        return [
            {"rating": rating, "reached": reached}
            for rating, reached in zip(*columns, strict=True)
        ]

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See `rating_answers`."""
        return rating_answers(tf.cast(self.forward(inputs), tf.float32))


MODEL = RatingModel
