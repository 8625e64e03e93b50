"""Removes layers, attention heads or feed-forward columns of a checkpoint."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.layout import block_parts, names_of
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.lazy_arrays import LazyArrays, changed_arrays, shapes_of_arrays


def refuse_shared_blocks(checkpoint: Checkpoint) -> None:
    """Raises `UserError` on a model whose layers share weights."""
    config = checkpoint.config
    if config.shares_blocks:
        raise UserError(
            f"{checkpoint.source}: is of {config.title}, whose layers share "
            "their weights, so no layer and no part of one can be removed; "
            "distil it into a smaller model (bert-tf distill `size`)."
        )


def keep_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """Removes all other layers and keeps embeddings and heads.

    Args:
      checkpoint: a model.
      layers: the numbers of the layers to keep, from 0, in their new order.

    Returns:
      The checkpoint, whose arrays are read at each access.

    Raises:
      UserError: its layers share weights, or its first layer, which differs
        from the others, would not be the first.
    """
    refuse_shared_blocks(checkpoint)
    old = checkpoint.config
    first_differs = not all(part.in_first for part in names_of(old).layer)
    if first_differs and (layers[0] or 0 in layers[1:]):
        raise UserError(
            f"{checkpoint.source}: `layers`={','.join(map(str, layers))}: the "
            "first layer has no layer norm, so 0 must be the first of them."
        )
    new = dataclasses.replace(old, num_hidden_layers=len(layers))

    def names(config: BertConfig, layer: int) -> Iterator[str]:
        for part in block_parts(config, layer):
            yield from part.shapes(config)

    shapes = shapes_of_arrays(checkpoint.arrays)
    of_layers = {n for i in range(old.num_hidden_layers) for n in names(old, i)}
    origin = {name: name for name in shapes if name not in of_layers}
    for number, layer in enumerate(layers):
        origin |= zip(names(new, number), names(old, layer), strict=True)
    return dataclasses.replace(
        checkpoint,
        config=new,
        arrays=LazyArrays(
            {name: shapes[source] for name, source in origin.items()},
            lambda name: checkpoint.arrays[origin[name]],
        ),
    )


def keep_parts(
    checkpoint: Checkpoint, heads: np.ndarray, columns: np.ndarray
) -> Checkpoint:
    """Removes all other attention heads and feed-forward columns.

    The result is an ordinary smaller BERT. It computes the same as the original
    with the context of removed heads and the activations of removed columns set
    to 0.

    Args:
      checkpoint: a model without low-rank updates (LoRA) whose layers share no
        weights.
      heads: the heads of each layer to keep, int64 [L, N'].
      columns: the feed-forward columns of each layer to keep, int64 [L, F'].

    Returns:
      The checkpoint, whose arrays are read at each access.
    """
    config, arrays = checkpoint.config, checkpoint.arrays
    size = config.attention_size // config.num_attention_heads
    # The axis of an array that is cut, and the indices to keep.
    cut: dict[str, tuple[int, np.ndarray]] = {}
    for layer, (of_heads, inner) in enumerate(zip(heads, columns, strict=True)):
        width = (of_heads[:, None] * size + np.arange(size)).ravel()
        indices = {
            "attention_size": width,
            "intermediate_size": inner,
            # Concatenated: query, key and value; columns and their gates.
            "qkv_size": _repeated(width, config.attention_size, 3),
            "gated_size": _repeated(inner, config.intermediate_size, 2),
        }
        for part in block_parts(config, layer):
            for name, shape in part.shapes(config).items():
                # A bias has the last axis of its kernel.
                for axis, size_name in enumerate(part.sizes[-len(shape) :]):
                    if size_name in indices:
                        cut[name] = axis, indices[size_name]
    given, shapes = shapes_of_arrays(arrays), {}
    for name, (axis, kept) in cut.items():
        before, after = given[name][:axis], given[name][axis + 1 :]
        shapes[name] = (*before, len(kept), *after)

    def read(name: str) -> np.ndarray:
        axis, kept = cut[name]
        return np.take(arrays[name], kept, axis)

    num_heads, inner_size = heads.shape[1], columns.shape[1]
    whole = num_heads * size == config.hidden_size
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(
            config,
            num_attention_heads=num_heads,
            attention_head_size=0 if whole else size,
            intermediate_size=inner_size,
        ),
        arrays=changed_arrays(arrays, shapes, read),
    )


def _repeated(indices: np.ndarray, size: int, times: int) -> np.ndarray:
    """The same indices in each of several consecutive ranges of a size."""
    return np.concatenate([indices + size * n for n in range(times)])
