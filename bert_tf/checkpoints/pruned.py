"""A checkpoint with some of its layers, or of their heads and columns."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays

_LAYER = "encoder/layer_"


def keep_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """Leaves all other layers out; embeddings and heads stay.

    Args:
      checkpoint: a model.
      layers: the numbers of those that stay, from 0, in their new order.

    Returns:
      The checkpoint, whose arrays are read when asked for.
    """
    shapes, origin = {}, {}
    for name, shape in shapes_of_arrays(checkpoint.arrays).items():
        begin, found, rest = name.partition(_LAYER)
        number, _, part = rest.partition("/")
        for new, old in enumerate(layers):
            if not found or old == int(number):
                ours = f"{begin}{_LAYER}{new}/{part}" if found else name
                shapes[ours], origin[ours] = shape, name
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            checkpoint.config, num_hidden_layers=len(layers)
        ),
        arrays=LazyArrays(shapes, lambda name: checkpoint.arrays[origin[name]]),
    )


def keep_parts(
    checkpoint: Checkpoint,
    heads: np.ndarray,
    columns: np.ndarray,
) -> Checkpoint:
    """Cuts all other heads and columns off; an ordinary smaller BERT is left.

    It computes what the whole one does where the context of a head that is cut
    off, and the activation of a column, are 0.

    Args:
      checkpoint: a model without low-rank updates (LoRA).
      heads: the numbers of the heads of each layer that stay, int64 [L, N'].
      columns: those of the columns of each feed-forward layer, int64 [L, F'].

    Returns:
      The checkpoint, whose arrays are read when asked for.
    """
    config, arrays = checkpoint.config, checkpoint.arrays
    size = config.attention_size // config.num_attention_heads
    # The axis of an array that is cut, and what stays of it.
    kept: dict[str, tuple[int, np.ndarray]] = {}
    for number, (of_heads, inner) in enumerate(
        zip(heads, columns, strict=True)
    ):
        layer = f"bert/encoder/layer_{number}"
        width = (of_heads[:, None] * size + np.arange(size)).ravel()
        for part in ("query", "key", "value"):
            kept[f"{layer}/attention/self/{part}/kernel"] = 1, width
            kept[f"{layer}/attention/self/{part}/bias"] = 0, width
        kept[f"{layer}/attention/output/dense/kernel"] = 0, width
        kept[f"{layer}/intermediate/dense/kernel"] = 1, inner
        kept[f"{layer}/intermediate/dense/bias"] = 0, inner
        kept[f"{layer}/output/dense/kernel"] = 0, inner
    shapes = shapes_of_arrays(arrays)
    for name, (axis, numbers) in kept.items():
        shape = list(shapes[name])
        shape[axis] = len(numbers)
        shapes[name] = tuple(shape)

    def read(name: str) -> np.ndarray:
        if name not in kept:
            return arrays[name]
        axis, numbers = kept[name]
        return np.take(arrays[name], numbers, axis)

    left, inner_size = heads.shape[1], columns.shape[1]
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            config,
            num_attention_heads=left,
            attention_head_size=0
            if left * size == config.hidden_size
            else size,
            intermediate_size=inner_size,
        ),
        arrays=LazyArrays(shapes, read),
    )
