"""What models compute of all rows of a split."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.finetuning.batches import prediction_batches
from bert_tf.finetuning.rows import ExampleRows, Outputs, Rows
from bert_tf.progress import Progress
from bert_tf.training.strategies import (
    cluster_of,
    collect,
    distribute,
    share_rows,
)


class Predictor:
    """Runs models over encoded examples.

    Args:
      models: each takes a batch and returns a dict of outputs; built under
        `strategy`. The outputs of several are averaged.
      strategy: the distribution strategy.
      batch_size: B, over all devices.
    """

    def __init__(
        self,
        models: Sequence[keras.Model],
        strategy: tf.distribute.Strategy,
        batch_size: int,
    ):
        self.models = tuple(models)
        self.strategy = strategy
        self.batch_size = batch_size
        self._compiled: Any = None

    def outputs(self, rows: ExampleRows) -> Outputs:
        """The outputs to all rows, as these gather them."""
        return rows.gather(self._batches(rows))

    def _batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, Outputs]]:
        """Rows by number and the outputs to them, batch by batch."""
        cluster = cluster_of(self.strategy)
        batches, order = prediction_batches(
            rows, self.batch_size, cluster.shard
        )
        batches = distribute(self.strategy, batches)
        if self._compiled is None:
            # One graph for all lengths, since others round differently.
            signature = [batches.element_spec]
            self._compiled = tf.function(
                self._run, input_signature=signature, autograph=False
            )
        with Progress(
            *("answering", len(order), 0, " rows"),
            shown=cluster.is_chief,
            passing=True,
        ) as progress:
            for number, batch in enumerate(batches):
                begin = number * self.batch_size
                found = {
                    name: collect(self.strategy, values)
                    for name, values in self._compiled(batch).items()
                }
                answered = order[begin : begin + self.batch_size]
                yield answered, found
                progress.update(len(answered))

    def _run(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def mean(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            found = [model(batch, training=False) for model in self.models]
            means = {
                name: tf.add_n(
                    [tf.cast(one[name], tf.float32) for one in found]
                )
                / len(found)
                for name in found[0]
            }
            return {k: share_rows(self.strategy, v) for k, v in means.items()}

        return self.strategy.run(mean, (batch,))
