"""What the objectives of all kinds of tasks share.

Each gives sums and the weights that belong to them, so that a batch may be cut
over replicas and accumulation steps; see `Objective` in
bert_tf/training/step.py.
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.finetuning.rows import EXAMPLE_WEIGHTS

LOSS = "loss"
Sums = tuple[dict[str, Any], dict[str, tuple[Any, Any]]]


def weighted(values: Any, weights: Any) -> tuple[Any, Any]:
    """The sum of weighted values, and that of the weights."""
    return ops.sum(values * weights), ops.sum(weights)


class MeanOverRows:
    """A loss that is the mean over rows, weighted by example_weights."""

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What the loss's sum is divided by, from the batch alone."""
        return {LOSS: ops.sum(batch[EXAMPLE_WEIGHTS])}

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Divides the summed loss by the summed weights."""
        return {LOSS: losses[LOSS] / weights[LOSS]}
