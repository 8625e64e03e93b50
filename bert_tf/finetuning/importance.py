"""How much each attention head and feed-forward column matters to a task.

Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4.1:
the importance of a part is the mean over rows x of |d L(x) / d m|, where what
the part gives is multiplied by m = 1. Of a head that is its context, of a
column of a feed-forward layer its activation. Both meet a kernel W next, some
rows of which are the part's own, so that d L / d m is the sum of W * d L / d W
over these rows: the gradients of two kernels a layer are all it takes.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.families.rows import Rows
from bert_tf.families.task_model import LOSS, TaskModel
from bert_tf.finetuning.batches import training_batches
from bert_tf.progress import Progress


class Importances(NamedTuple):
    """Of the parts of each layer: float64 [L, N] and [L, F]."""

    heads: np.ndarray
    columns: np.ndarray


def importances_of(
    model: TaskModel, objective: Any, rows: Rows, num_rows: int, seed: int
) -> Importances:
    """The importances of a model's heads and columns.

    Args:
      model: a model whose network has an encoder, in float32.
      objective: what it was trained for; see `bert_tf.training.step.Objective`.
        A row counts as much as in the training, by its summed loss.
      rows: with answers.
      num_rows: how many are looked at, each once; all if there are fewer.
      seed: decides which.
    """
    blocks, config = model.encoder.blocks, model.encoder.config
    kernels = [
        layer.kernel.value
        for block in blocks
        for layer in (block.attention_output, block.output_dense)
    ]
    num_rows = min(num_rows, len(rows))
    # One a batch: of several, only the sum of their gradients is known.
    batches = training_batches(rows, 1, seed).take(num_rows)

    def of_row(batch: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(kernels)
            losses, _ = objective(model(batch, training=False), batch)
        gradients = tape.gradient(losses[LOSS], kernels)
        return [
            tf.reduce_sum(kernel * gradient, axis=1)
            for kernel, gradient in zip(kernels, gradients, strict=True)
        ]

    # One graph for all lengths.
    compiled = tf.function(
        of_row, input_signature=[batches.element_spec], autograph=False
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
    """The most important parts of each layer, in the order that they have.

    Args:
      importances: float64 [L, P].
      count: how many of each layer; the first ones of equals.

    Returns:
      int64 [L, count].
    """
    order = np.argsort(-importances, axis=1, kind="stable")
    return np.sort(order[:, :count], axis=1)
