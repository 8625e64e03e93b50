"""Arithmetic of low-rank updates (LoRA) and their kernels."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from bert_tf.architectures.parts import LORA
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.layout import head_shapes
from bert_tf.lazy_arrays import LazyArrays, changed_arrays, shapes_of_arrays

# Computes factors [I, R] and [R, O] of a part of a kernel [I, O], for a rank R
# and the scale of the update.
Factors = Callable[[np.ndarray, int, float], tuple[np.ndarray, np.ndarray]]


def principal(
    kernel: np.ndarray, rank: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the part of the largest singular values, divided by the scale.

    PiSSA (Meng et al. 2024, equations 2 and 3) initialises updates with it and
    subtracts it from the base.
    """
    left, values, right = np.linalg.svd(kernel, full_matrices=False)
    return left[:, :rank] * (values[:rank] / scale), right[:rank]


def orthonormal(
    kernel: np.ndarray, rank: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the first columns and rows of QR factors of the weight [O, I].

    OLoRA (Bueyuekakyuez 2024, section 3). In peft this part is multiplied by
    the scale too.
    """
    del scale
    columns, rows = np.linalg.qr(kernel.T)
    return rows[:rank].T, columns[:, :rank].T


def subtract_initial(
    checkpoint: Checkpoint, initial_factors: Factors
) -> Checkpoint:
    """Converts updates of a changed base to updates of the original base.

    With init_lora_weights pissa and olora, peft trains on W - a0 b0 with the
    initial matrices a0 and b0. W + a b - a0 b0 is an ordinary update of twice
    the rank; peft can save it in this form too
    (`path_initial_model_for_weight_conversion`).

    Args:
      checkpoint: the base W and the matrices a and b.
      initial_factors: computes a0 and b0 of W.
    """
    config, arrays = checkpoint.config, checkpoint.arrays
    rank, scale = config.lora_rank, config.lora_alpha / config.lora_rank
    config = dataclasses.replace(
        config, lora_rank=2 * rank, lora_alpha=2 * config.lora_alpha
    )
    lora = head_shapes(config)[LORA]

    # Called for each of the two matrices.
    @functools.cache
    def initial(stem: str) -> tuple[np.ndarray, np.ndarray]:
        # In float64, for the same float32 on all machines.
        kernel = arrays[f"{stem}/kernel"].astype(np.float64)
        a, b = initial_factors(kernel, rank, scale)
        return a.astype(np.float32), b.astype(np.float32)

    def read(name: str) -> np.ndarray:
        stem, _, matrix = name.rpartition("/")
        a, b = initial(stem)
        if matrix == "lora_a":
            return np.concatenate([arrays[name], a], axis=1)
        return np.concatenate([arrays[name], -b], axis=0)

    given, shapes = shapes_of_arrays(arrays), {}
    for name in lora:
        rows, columns = given[name]
        is_a = name.endswith("/lora_a")
        shapes[name] = (rows, 2 * columns) if is_a else (2 * rows, columns)
    changed = changed_arrays(arrays, shapes, read)
    return dataclasses.replace(checkpoint, config=config, arrays=changed)


def merged(checkpoint: Checkpoint) -> Checkpoint:
    """Adds low-rank updates to their kernels (Hu et al. 2021, section 4.1).

    Uses outer products: the last digits of a matrix product differ between
    machines, and a merged model may be the base of another adapter.
    """
    config, arrays = checkpoint.config, checkpoint.arrays
    if not config.lora_rank:
        return checkpoint
    scale = np.float32(config.lora_alpha / config.lora_rank)
    lora = head_shapes(config)[LORA]
    shapes = shapes_of_arrays(arrays)

    def read(name: str) -> np.ndarray:
        stem = name.removesuffix("/kernel")
        array = arrays[name]
        if stem == name or f"{stem}/lora_a" not in lora:
            return array
        update = np.zeros_like(array)
        a, b = arrays[f"{stem}/lora_a"], arrays[f"{stem}/lora_b"]
        for column, row in zip(a.T, b, strict=True):
            update += np.multiply.outer(column, row)
        return array + scale * update

    kept = {name: shape for name, shape in shapes.items() if name not in lora}
    return dataclasses.replace(
        checkpoint, config=config.without_lora(), arrays=LazyArrays(kept, read)
    )
