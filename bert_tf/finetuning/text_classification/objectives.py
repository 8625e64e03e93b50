"""What text classification is trained for: a class, a number, several labels.

A row counts as much as its `example_weights`.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from keras import ops

from bert_tf.finetuning.rows import EXAMPLE_WEIGHTS
from bert_tf.finetuning.task_model import LOSS, MeanOverRows, Sums, weighted


class LogitsObjective(MeanOverRows, abc.ABC):
    """A loss of each row's logits [B, C]; a metric of them besides."""

    # The labels in a batch.
    label_name: ClassVar[str]
    metric: ClassVar[str]

    @abc.abstractmethod
    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """The loss and the metric of each row, float32 [B].

        Args:
          logits: float32 [B, C].
          labels: [B, ...], as the task's `targets`.
        """

    def row_weights(self, batch: Mapping[str, Any]) -> Any:
        """How much the loss of each row counts, float32 [B]."""
        return batch[EXAMPLE_WEIGHTS]

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What the loss's sum is divided by, from the batch alone."""
        return {LOSS: ops.sum(self.row_weights(batch))}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums losses and metric.

        Args:
          outputs: logits [B, C].
          batch: the labels, and example_weights float32 [B].

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: the metric, as (weighted sum, weight).
        """
        logits = ops.cast(outputs["logits"], "float32")
        loss, metric = self.of_rows(logits, batch[self.label_name])
        losses = {LOSS: ops.sum(loss * self.row_weights(batch))}
        return losses, {self.metric: weighted(metric, batch[EXAMPLE_WEIGHTS])}


class ClassesObjective(LogitsObjective):
    """Cross-entropy of one class in C (Devlin et al. 2019, section 4.1).

    Args:
      class_weights: C weights of the classes in the loss, which is divided by
        the sum of the weights of its rows; None weighs all the same.
    """

    label_name = "label_ids"
    metric = "accuracy"

    def __init__(self, class_weights: Sequence[float] | None = None):
        self.class_weights = class_weights

    def row_weights(self, batch: Mapping[str, Any]) -> Any:
        """The rows' weights, each times that of its class."""
        weights = super().row_weights(batch)
        if self.class_weights is None:
            return weights
        table = ops.convert_to_tensor(list(self.class_weights), "float32")
        return weights * ops.take(table, batch[self.label_name])

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Labels are classes, int32 [B]."""
        loss = ops.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        guesses = ops.argmax(logits, axis=-1)
        correct = ops.equal(guesses, ops.cast(labels, guesses.dtype))
        return loss, ops.cast(correct, "float32")


class RegressionObjective(LogitsObjective):
    """Squared error of one number, as the paper's STS-B head is trained."""

    label_name = "label_values"
    metric = "absolute_error"

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Labels are numbers, float32 [B]; logits [B, 1]."""
        error = logits[:, 0] - labels
        return ops.square(error), ops.abs(error)


class MultiLabelObjective(LogitsObjective):
    """Binary cross-entropy of each of C labels, their mean a row's loss."""

    label_name = "label_sets"
    metric = "label_accuracy"

    def of_rows(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        """Labels are zeros and ones, float32 [B, C]."""
        # -log sigmoid, in the form that no large logit overflows.
        loss = ops.relu(logits) - logits * labels
        loss = loss + ops.log1p(ops.exp(-ops.abs(logits)))
        correct = ops.cast(ops.equal(logits > 0, labels > 0.5), "float32")
        return ops.mean(loss, axis=-1), ops.mean(correct, axis=-1)


def mean_loss(
    objective: LogitsObjective, logits: np.ndarray, targets: np.ndarray
) -> float:
    """The mean loss of examples.

    Args:
      objective: what the model was trained for.
      logits: float32 [N, C].
      targets: the labels, [N, ...].
    """
    loss, _ = objective.of_rows(
        ops.convert_to_tensor(logits), ops.convert_to_tensor(targets)
    )
    return float(ops.sum(loss) / len(targets))
