"""What sentence models are trained for: classes, a number, several labels.

A row counts as much as its `example_weights`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from bert_tf.finetuning.objective import LOSS, MeanOverRows, Sums, weighted
from bert_tf.finetuning.rows import EXAMPLE_WEIGHTS


class ClassesObjective(MeanOverRows):
    """Cross-entropy of one class in C (Devlin et al. 2019, section 4.1).

    Args:
      class_weights: C weights of the classes in the loss, which is divided by
        the sum of the weights of its rows; None weighs all alike.
    """

    label_name = "label_ids"

    def __init__(self, class_weights: Sequence[float] | None = None):
        self.class_weights = class_weights

    def _weights(self, batch: Mapping[str, Any]) -> Any:
        weights = batch[EXAMPLE_WEIGHTS]
        if self.class_weights is None:
            return weights
        table = ops.convert_to_tensor(list(self.class_weights), "float32")
        return weights * ops.take(table, batch[self.label_name])

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The rows' weights, each times that of its class."""
        return {LOSS: ops.sum(self._weights(batch))}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss and the right answers.

        Args:
          outputs: logits [B, C].
          batch: label_ids int32 [B], example_weights float32 [B].

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: accuracy, as (weighted sum, weight).
        """
        labels = batch[self.label_name]
        logits = ops.cast(outputs["logits"], "float32")
        nll = ops.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        guesses = ops.argmax(logits, axis=-1)
        right = ops.equal(guesses, ops.cast(labels, guesses.dtype))
        accuracy = weighted(ops.cast(right, "float32"), batch[EXAMPLE_WEIGHTS])
        losses = {LOSS: ops.sum(nll * self._weights(batch))}
        return losses, {"accuracy": accuracy}


class RegressionObjective(MeanOverRows):
    """Squared error of one number, as the paper's STS-B head is trained."""

    label_name = "label_values"

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums squared and absolute errors.

        Args:
          outputs: logits [B, 1].
          batch: label_values float32 [B], example_weights float32 [B].

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: absolute_error, as (weighted sum, weight).
        """
        values = ops.cast(outputs["logits"], "float32")[:, 0]
        error = values - batch[self.label_name]
        weights = batch[EXAMPLE_WEIGHTS]
        losses = {LOSS: ops.sum(ops.square(error) * weights)}
        return losses, {"absolute_error": weighted(ops.abs(error), weights)}


class MultiLabelObjective(MeanOverRows):
    """Binary cross-entropy of each of C labels, their mean a row's loss."""

    label_name = "label_sets"

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss and the right decisions.

        Args:
          outputs: logits [B, C].
          batch: label_sets float32 [B, C] of zeros and ones, example_weights
            float32 [B].

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: label_accuracy, as (weighted sum, weight).
        """
        labels = batch[self.label_name]
        logits = ops.cast(outputs["logits"], "float32")
        # -log sigmoid, in the form that no large logit overflows.
        nll = ops.relu(logits) - logits * labels
        nll = nll + ops.log1p(ops.exp(-ops.abs(logits)))
        right = ops.cast(ops.equal(logits > 0, labels > 0.5), "float32")
        weights = batch[EXAMPLE_WEIGHTS]
        accuracy = weighted(ops.mean(right, axis=-1), weights)
        losses = {LOSS: ops.sum(ops.mean(nll, axis=-1) * weights)}
        return losses, {"label_accuracy": accuracy}


def mean_loss(objective: Any, logits: np.ndarray, targets: np.ndarray) -> float:
    """The mean loss of examples.

    Args:
      objective: one of the above.
      logits: float32 [N, C].
      targets: what it was trained for, [N, ...].
    """
    batch = {
        objective.label_name: ops.convert_to_tensor(targets),
        EXAMPLE_WEIGHTS: ops.ones(len(targets)),
    }
    outputs = {"logits": ops.convert_to_tensor(logits)}
    losses, _ = objective(outputs, batch)
    means = objective.normalise(losses, objective.loss_weights(batch))
    return float(sum(means.values()))
