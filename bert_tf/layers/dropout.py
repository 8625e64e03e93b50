"""Dropout with one random number for two elements."""

from typing import Any

import keras
from keras import ops

# One random number of 32 bits decides on two elements, with 16 bits each.
_LEVELS = 2**16


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Dropout):
    """Sets elements to 0 at a rate, and divides the rest by what is kept.

    Srivastava et al. 2014. The rate is rounded to a multiple of 2^-16, and
    the division is by the rounded rate, so that the mean stays as it is.
    Works in float32: in bfloat16 the divisor would be rounded.
    """

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        """Drops elements of a float tensor while training."""
        if not training or not self.rate:
            return inputs
        dropped = round(self.rate * _LEVELS)
        shape = ops.shape(inputs)
        size = 1
        for axis in shape:
            size = size * axis
        numbers = keras.random.randint(
            ((size + 1) // 2, 1),
            -(2**31),
            2**31 - 1,
            dtype="int32",
            seed=self.seed_generator,
        )
        bits = ops.reshape(ops.view(numbers, "int16"), (-1,))
        bits = ops.reshape(bits[:size], shape)
        kept = ops.greater_equal(bits, dropped - _LEVELS // 2)
        scale = _LEVELS / (_LEVELS - dropped)
        return inputs * (ops.cast(kept, "float32") * scale)
