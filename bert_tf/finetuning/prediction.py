"""What a model answers to all examples of a split."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.finetuning.batches import prediction_batches
from bert_tf.finetuning.encoding import EncodedRows


class Predictor:
    """Runs a model over encoded examples.

    Args:
      model: takes a batch, returns a dict with logits [B, C]; built under
        `strategy`.
      strategy: the distribution strategy.
      batch_size: B, over all devices.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        batch_size: int,
    ):
        self.model = model
        self.strategy = strategy
        self.batch_size = batch_size
        self._compiled = None

    def logits(self, rows: EncodedRows) -> np.ndarray:
        """The logits of every example, those of its windows averaged.

        Args:
          rows: R rows of N examples.

        Returns:
          float32 [N, C], in the order of the examples.
        """
        batches, order = prediction_batches(rows, self.batch_size)
        if self.strategy.num_replicas_in_sync > 1:
            batches = self.strategy.experimental_distribute_dataset(batches)
        if self._compiled is None:
            # One graph for all lengths, since others round differently.
            signature = [batches.element_spec]
            self._compiled = tf.function(self._run, input_signature=signature)
        local = self.strategy.experimental_local_results
        parts = [
            part.numpy()
            for batch in batches
            for part in local(self._compiled(batch))
        ]
        found = np.concatenate(parts)[: len(order)]
        sums = np.zeros((rows.num_examples, found.shape[1]), np.float64)
        weights = rows.weights[order].astype(np.float64)
        np.add.at(sums, rows.example[order], found * weights[:, None])
        return sums.astype(np.float32)

    def _run(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        def logits(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            outputs = self.model(batch, training=False)
            return tf.cast(outputs["logits"], tf.float32)

        return self.strategy.run(logits, (batch,))
