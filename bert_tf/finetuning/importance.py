"""Importance of attention heads and feed-forward columns for a task.

Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4.1:
the importance is the mean over rows x of |d L(x) / d m|, where the output of a
head (its context) or column (its activation) is multiplied by a mask m = 1.
The output is next multiplied by a kernel W, of which certain rows belong to the
head or column, so d L / d m is the sum of W * d L / d W over these rows: only
the gradients of two kernels per layer are needed.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.families.rows import Rows
from bert_tf.families.task_model import LOSS, TaskModel
from bert_tf.finetuning.batches import training_batches
from bert_tf.progress import Progress


class Importances(NamedTuple):
    """Importances of heads, float64 [L, N], and of columns, float64 [L, F]."""

    heads: np.ndarray
    columns: np.ndarray


def importances_of(
    model: TaskModel, objective: Any, rows: Rows, num_rows: int, seed: int
) -> Importances:
    """Computes the importances of a model's heads and columns.

    Args:
      model: a float32 model with an encoder.
      objective: its training objective (`bert_tf.training.step.Objective`);
        a row is weighted by its summed loss, as in training.
      rows: rows with targets.
      num_rows: number of rows to sample without replacement, at most all.
      seed: determines the sample.
    """
    blocks, config = model.encoder.blocks, model.encoder.config
    kernels = [
        layer.kernel.value
        for block in blocks
        for layer in (block.attention_output, block.output_dense)
    ]
    num_rows = min(num_rows, len(rows))
    # Batches of one row, since a batch has only the sum of its gradients.
    batches = training_batches(rows, 1, seed).take(num_rows)

    def row_sums(batch: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(kernels)
            losses, _ = objective(model(batch, training=False), batch)
        gradients = tape.gradient(losses[LOSS], kernels)
        return [
            tf.reduce_sum(kernel * gradient, axis=1)
            for kernel, gradient in zip(kernels, gradients, strict=True)
        ]

    compiled = tf.function(
        row_sums, input_signature=[batches.element_spec], autograph=False
    )
    heads = np.zeros((len(blocks), config.num_attention_heads))
    columns = np.zeros((len(blocks), config.intermediate_size))
    with Progress("measuring importance", num_rows, 0, " rows") as progress:
        for batch in batches:
            sums = [each.numpy().astype(np.float64) for each in compiled(batch)]
            contexts = np.stack(sums[::2]).reshape(*heads.shape, -1)
            heads += abs(contexts.sum(axis=-1))
            columns += abs(np.stack(sums[1::2]))
            progress.update(1)
    return Importances(heads / num_rows, columns / num_rows)


def most_important(importances: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the most important parts, int64 [L, count].

    Args:
      importances: float64 [L, P].
      count: number of parts to keep in each layer; ties go to the first.
    """
    order = np.argsort(-importances, axis=1, kind="stable")
    return np.sort(order[:, :count], axis=1)
