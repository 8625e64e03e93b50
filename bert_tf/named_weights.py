"""Weights by the names of Google's TF1 checkpoints, strictly."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf.errors import UserError

# An error names so many arrays of a kind.
_MOST_NAMES = 8

# Name -> the variable and, where the checkpoint keeps query, key and value
# apart and the model keeps them side by side, which third of the last axis.
NamedWeights = dict[str, tuple[keras.Variable, int | None]]


def dense_weights(name: str, layer: Any) -> NamedWeights:
    """The kernel and bias of a dense layer under a name."""
    return {
        f"{name}/kernel": (layer.kernel, None),
        f"{name}/bias": (layer.bias, None),
    }


def norm_weights(name: str, layer: Any) -> NamedWeights:
    """The gamma and beta of a layer normalisation under a name."""
    return {
        f"{name}/gamma": (layer.gamma, None),
        f"{name}/beta": (layer.beta, None),
    }


def shapes_of(named: NamedWeights) -> dict[str, tuple[int, ...]]:
    """The shape of each named array."""
    return {
        name: tuple(variable.shape)
        if third is None
        else (*variable.shape[:-1], variable.shape[-1] // 3)
        for name, (variable, third) in named.items()
    }


def arrays_of(named: NamedWeights) -> dict[str, np.ndarray]:
    """The values as float32 arrays."""
    arrays = {}
    for name, (variable, third) in named.items():
        value = np.asarray(
            keras.ops.convert_to_numpy(variable), dtype=np.float32
        )
        if third is not None:
            value = np.split(value, 3, axis=-1)[third]
        arrays[name] = value
    return arrays


def assign_arrays(
    named: NamedWeights,
    arrays: Mapping[str, np.ndarray],
    prefixes: tuple[str, ...],
    owner: str,
) -> None:
    """Assigns every named weight, or none if the names or shapes differ.

    Args:
      named: the weights to assign.
      arrays: values by name.
      prefixes: names that begin with none of these are left alone.
      owner: what the weights belong to, for the error.

    Raises:
      UserError: lists the missing and unexpected names and the shapes that
        differ.
    """
    _check(shapes_of(named), arrays, prefixes, owner)
    parts: dict[int, list[np.ndarray]] = {}
    for name, (variable, third) in named.items():
        if third is None:
            variable.assign(arrays[name])
            continue
        thirds = parts.setdefault(id(variable), [None, None, None])
        thirds[third] = arrays[name]
        if all(part is not None for part in thirds):
            variable.assign(np.concatenate(thirds, axis=-1))


def _check(
    shapes: Mapping[str, tuple[int, ...]],
    arrays: Mapping[str, np.ndarray],
    prefixes: tuple[str, ...],
    owner: str,
) -> None:
    given = {name for name in arrays if name.startswith(prefixes)}
    faults = []
    if missing := sorted(set(shapes) - given):
        faults.append(f"missing: {_some(missing)}")
    if unexpected := sorted(given - set(shapes)):
        faults.append(f"unexpected: {_some(unexpected)}")
    differing = [
        f"{name} is {tuple(arrays[name].shape)} where the model has {shape}"
        for name, shape in shapes.items()
        if name in given and tuple(arrays[name].shape) != shape
    ]
    if differing:
        faults.append(f"other shapes: {_some(differing)}")
    if faults:
        raise UserError(
            f"the arrays do not fit the model {owner!r}: {'; '.join(faults)}."
        )


def _some(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" * (more > 0))
