"""Weights of a layer in the order of an architecture's table of parts."""

import dataclasses
from typing import Any, NamedTuple

import keras
import numpy as np


@dataclasses.dataclass(frozen=True)
class Weight:
    """One array of a checkpoint in a variable of a model.

    Attributes:
      variable: the variable.
      third: which third of the variable's last axis holds the array, where
        the checkpoint keeps query, key and value apart and the model keeps
        them side by side; None for all of it.
      transposed: whether the variable is the array's transpose.
    """

    variable: keras.Variable
    third: int | None = None
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        shape = tuple(self.variable.shape)
        if self.third is not None:
            shape = (*shape[:-1], shape[-1] // 3)
        return shape[::-1] if self.transposed else shape

    def array(self) -> np.ndarray:
        """The value as a float32 array."""
        value = keras.ops.convert_to_numpy(self.variable)
        value = np.asarray(value, dtype=np.float32)
        if self.third is not None:
            value = np.split(value, 3, axis=-1)[self.third]
        return value.T if self.transposed else value


class LowRank(NamedTuple):
    """An update of a kernel [I, O], lora_alpha / lora_rank times a b.

    Hu et al. 2021, "LoRA: Low-rank adaptation of large language models",
    section 4.1. `a` is float [I, R] and `b` float [R, O].
    """

    a: Any
    b: Any


class PartWeights(NamedTuple):
    """The weights of one part of a table; see `architectures/parts.py`.

    Attributes:
      weights: in the order of the part's arrays.
      update: of its kernel, if there is one.
    """

    weights: tuple[Weight, ...]
    update: LowRank | None = None


def part_of(
    *variables: keras.Variable | None, update: LowRank | None = None
) -> PartWeights:
    """A part of whole variables; None stands for one that the layer lacks."""
    whole = tuple(Weight(v) for v in variables if v is not None)
    return PartWeights(whole, update)
