"""When a step is not finite: which tensor was first, and why."""

import pathlib
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import written_beside


class NonFiniteError(UserError):
    """Training met a loss or gradient that is not finite."""


def first_non_finite(
    named: Sequence[tuple[str, object]],
) -> str | None:
    """The name of the first tensor that holds a NaN or an infinity."""
    for name, value in named:
        value = np.asarray(tf.cast(value, tf.float32))
        bad = ~np.isfinite(value)
        if bad.any():
            return f"{name} ({int(bad.sum())} of {value.size} values)"
    return None


def ids_outside(
    batch: Mapping[str, object], limits: Mapping[str, int]
) -> str | None:
    """What is out of range in a batch of ids, if anything.

    Args:
      batch: arrays by name.
      limits: for each name, the number that ids must stay below, if the batch
        holds such.
    """
    for name, limit in limits.items():
        if name not in batch:
            continue
        ids = np.asarray(batch[name])
        bad = np.argwhere((ids < 0) | (ids >= limit))
        if len(bad):
            place = tuple(int(i) for i in bad[0])
            return (
                f"{name}{list(place)} is {int(ids[place])}, which is not in "
                f"[0, {limit})"
            )
    return None


def save_batch(path: str | pathlib.Path, batch: Mapping[str, object]) -> None:
    """Keeps the batch of a bad step as an .npz file."""
    with written_beside(path) as beside:
        with open(beside, "wb") as file:
            arrays = {k: np.asarray(v) for k, v in batch.items()}
            np.savez_compressed(file, **arrays)


def explain(
    model: keras.Model,
    batch: Mapping[str, object],
    limits: Mapping[str, int],
    forward: Callable[[Mapping[str, object]], Sequence[tuple[str, object]]],
    gradient_norms: np.ndarray,
) -> str:
    """Names the first bad tensor of a step, in the order of computation.

    Args:
      model: the model as it was before the step.
      batch: the whole batch of the step.
      limits: see `ids_outside`.
      forward: batch to (name, tensor) of the forward pass, in order.
      gradient_norms: norm of the gradient of each trainable variable.

    Returns:
      One sentence: the tensor, and the likely cause.
    """
    outside = ids_outside(batch, limits)
    if outside:
        return f"{outside}: the records do not belong to this model"
    bad = first_non_finite(list(batch.items()))
    if bad:
        return f"the input {bad} is not finite: the records are damaged"
    cure = "a lower learning_rate or a longer warm-up is the usual cure"
    bad = first_non_finite([(v.path, v) for v in model.trainable_variables])
    if bad:
        return f"the weight {bad} is not finite: {cure}"
    bad = first_non_finite(forward(batch))
    if bad:
        return f"{bad} is the first of the forward pass: {cure}"
    # Variables are listed from the input on; the backward pass reaches the
    # last of them first.
    paths = [v.path for v in model.trainable_variables]
    for path, norm in reversed(list(zip(paths, gradient_norms, strict=True))):
        if not np.isfinite(norm):
            return f"the gradient of {path} is the first: {cure}"
    return f"the loss itself is the first: {cure}"
