"""Layers that compute the same are traced once in a TensorFlow graph."""

import contextlib
import contextvars
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import keras
from keras import ops

from bert_tf.compat import function_of_graph, in_graph
from bert_tf.layers.rematerialization import generators_of

_ALLOWED = contextvars.ContextVar("_ALLOWED", default=True)


@contextlib.contextmanager
def traced_each_time() -> Iterator[None]:
    """Traces every layer, for programs that read a graph without functions."""
    token = _ALLOWED.set(False)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def can_trace_once() -> bool:
    """Whether a TensorFlow graph is being traced that may hold functions."""
    return _ALLOWED.get() and in_graph()


def traced_once(
    layer: keras.layers.Layer,
    function: Callable[[keras.layers.Layer, Any], Any],
    inputs: Any,
    key: Hashable,
    training: bool | None,
) -> Any:
    """Computes function(layer, inputs) by a TensorFlow function.

    Within a graph, calls with the same key share the function. Its arguments
    are the inputs and the layer's variables, and its gradient is traced once
    too. Weights that are not trainable get no gradient.

    Args:
      layer: a built layer, whose variables are the only ones that are used.
      function: maps a layer and the inputs to float tensors.
      inputs: float tensor.
      key: equal for calls that compute the same function of the inputs and of
        the layer's variables.
      training: whether dropout is active.

    Returns:
      The outputs of the function.
    """
    weights = layer.weights
    generators = generators_of(layer) if training else []

    def stateless(inputs: Any, *values: Any) -> tuple[Any, list[Any]]:
        # The gradients of all arguments are computed, needed or not.
        constant = (
            value if weight.trainable else ops.stop_gradient(value)
            for weight, value in zip(weights, values, strict=False)
        )
        mapping = zip(
            (*weights, *generators),
            (*constant, *values[len(weights) :]),
            strict=True,
        )
        with keras.StatelessScope(state_mapping=list(mapping)) as scope:
            outputs = function(layer, inputs)
        return outputs, [scope.get_current_value(g) for g in generators]

    run = function_of_graph((key, bool(training)), stateless)
    values = (ops.convert_to_tensor(v.value) for v in (*weights, *generators))
    outputs, states = run(inputs, *values)
    for generator, state in zip(generators, states, strict=True):
        generator.assign(state)
    return outputs
