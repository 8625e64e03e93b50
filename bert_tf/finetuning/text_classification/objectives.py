"""What text classification is trained for, where it is not one class in C.

A class has `ClassesObjective` of task_model.py; here are a number and several
labels. A row counts as much as its `example_weights`.
"""

from typing import Any

import numpy as np
from keras import ops

from bert_tf.finetuning.task_model import LogitsObjective


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
