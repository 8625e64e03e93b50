"""A checkpoint with some of its layers, or of their heads and columns."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.layout import names_of
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays


def refuse_shared_blocks(checkpoint: Checkpoint) -> None:
    """Raises `UserError` on a model whose layers share their weights."""
    config = checkpoint.config
    if len(set(config.block_numbers)) < config.num_hidden_layers:
        raise UserError(
            f"{checkpoint.source}: its layers share their weights, so nothing "
            "of one of them can be left out; choose another model."
        )


def keep_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """Leaves all other layers out; embeddings and heads stay.

    Args:
      checkpoint: a model.
      layers: the numbers of those that stay, from 0, in their new order.

    Returns:
      The checkpoint, whose arrays are read when asked for.

    Raises:
      UserError: its layers share their weights.
    """
    refuse_shared_blocks(checkpoint)
    old = checkpoint.config
    new = dataclasses.replace(old, num_hidden_layers=len(layers))

    def names(config: BertConfig, layer: int) -> Iterator[str]:
        for part in names_of(config).layer:
            yield from part.of_block(config.block_numbers[layer]).shapes(config)

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
    checkpoint: Checkpoint,
    heads: np.ndarray,
    columns: np.ndarray,
) -> Checkpoint:
    """Cuts all other heads and columns off; an ordinary smaller BERT is left.

    It computes what the whole one does where the context of a head that is cut
    off, and the activation of a column, are 0.

    Args:
      checkpoint: a model without low-rank updates (LoRA), whose layers share
        no weights.
      heads: the numbers of the heads of each layer that stay, int64 [L, N'].
      columns: those of the columns of each feed-forward layer, int64 [L, F'].

    Returns:
      The checkpoint, whose arrays are read when asked for.
    """
    config, arrays = checkpoint.config, checkpoint.arrays
    size = config.attention_size // config.num_attention_heads
    # The axis of an array that is cut, and what stays of it.
    kept: dict[str, tuple[int, np.ndarray]] = {}
    for numbers, of_heads, inner in zip(
        config.block_numbers, heads, columns, strict=True
    ):
        width = (of_heads[:, None] * size + np.arange(size)).ravel()
        cut = {"attention_size": width, "intermediate_size": inner}
        for part in names_of(config).layer:
            for name, shape in part.of_block(numbers).shapes(config).items():
                # A bias has the last axis of its kernel.
                for axis, size_name in enumerate(part.sizes[-len(shape) :]):
                    if size_name in cut:
                        kept[name] = axis, cut[size_name]
    shapes = shapes_of_arrays(arrays)
    for name, (axis, stays) in kept.items():
        sizes = list(shapes[name])
        sizes[axis] = len(stays)
        shapes[name] = tuple(sizes)

    def read(name: str) -> np.ndarray:
        if name not in kept:
            return arrays[name]
        axis, stays = kept[name]
        return np.take(arrays[name], stays, axis)

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
