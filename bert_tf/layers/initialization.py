"""Reading and assigning weights.

Weights that a checkpoint provides are created without random numbers.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.compat import empty

Initializer = Callable[..., Any]

# By the id of a variable without values: the variable and its initializer.
_Waiting = dict[int, tuple[keras.Variable, Initializer]]
_waiting: contextvars.ContextVar[_Waiting | None] = contextvars.ContextVar(
    "waiting", default=None
)


@contextlib.contextmanager
def assigned_later() -> Iterator[None]:
    """A context in which random weights are created without values.

    At its end, those that `assign` was not called for are initialized, with
    the numbers that they would have got at once: an initializer's seed is
    drawn when the layer is built.
    """
    waiting: _Waiting = {}
    token = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(token)
    for variable, initializer in waiting.values():
        variable.assign(initializer(variable.shape, dtype=variable.dtype))


def view(variable: Any) -> np.ndarray:
    """The values of a variable, not copied on a CPU; valid until it changes."""
    return np.asarray(ops.convert_to_tensor(variable))


def bytes_of(variable: Any) -> memoryview:
    """The bytes of a variable's values; see `view`."""
    # NumPy has no buffers of bfloat16.
    return view(variable).reshape(-1).view(np.uint8).data


def assign(variable: keras.Variable, value: Any) -> None:
    """Assigns a variable, which then needs no initializer."""
    variable.assign(value)
    if (waiting := _waiting.get()) is not None:
        waiting.pop(id(variable), None)


def add_random_weight(
    layer: keras.layers.Layer,
    name: str,
    shape: tuple[int, ...],
    initializer: Initializer,
) -> keras.Variable:
    """Adds a weight with random initial values; see `assigned_later`."""
    waiting = _waiting.get()
    variable = layer.add_weight(
        name=name,
        shape=shape,
        initializer=initializer if waiting is None else empty,
        autocast=False,
    )
    if waiting is not None:
        waiting[id(variable)] = variable, initializer
    return variable
