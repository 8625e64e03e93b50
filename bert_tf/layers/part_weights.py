"""Maps a layer's variables to the arrays of an architecture's parts."""

import dataclasses
from typing import Any, NamedTuple

import keras
import numpy as np


@dataclasses.dataclass(frozen=True)
class Weight:
    """A checkpoint array as (part of) a variable of a model.

    Attributes:
      variable: the variable.
      third: the third of the variable's last axis that holds the array, for
        query, key and value, which the model concatenates; None for all of it.
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
    """An update of a kernel [I, O]: lora_alpha / lora_rank * a @ b.

    Hu et al. 2021, "LoRA: Low-rank adaptation of large language models",
    section 4.1. `a` is float [I, R] and `b` float [R, O].
    """

    a: Any
    b: Any


class PartWeights(NamedTuple):
    """The weights of one `Part`; see `architectures/parts.py`.

    Attributes:
      weights: in the order of the part's arrays.
      update: the low-rank update of its kernel, if any.
    """

    weights: tuple[Weight, ...]
    update: LowRank | None = None


def part_of(
    *variables: keras.Variable | None, update: LowRank | None = None
) -> PartWeights:
    """Builds a part from whole variables; None marks one the layer lacks."""
    whole = tuple(Weight(v) for v in variables if v is not None)
    return PartWeights(whole, update)
