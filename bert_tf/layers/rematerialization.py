"""Gradient checkpointing: recomputes a layer in the backward pass."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.layers.products import in_backward_pass


def generators_of(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The states of a layer's dropout generators."""
    known = {id(weight) for weight in layer.weights}
    return [v for v in layer.variables if id(v) not in known]


def rematerialized(
    layer: keras.layers.Layer, function: Callable[[Any], Any], inputs: Any
) -> Any:
    """Computes function(inputs), storing only `inputs` for the backward pass.

    Chen et al. 2016, "Training deep nets with sublinear memory cost". Both
    computations use the same weights and the same states of the dropout
    generators, so dropout is the same; the generators advance once.

    Args:
      layer: the layer whose weights and dropout the function uses, no others.
      function: maps the inputs to float tensors; every other tensor in it has
        no gradient.
      inputs: float tensor.

    Returns:
      The outputs of the function.
    """
    weights, generators = layer.weights, generators_of(layer)
    states = [ops.copy(generator.value) for generator in generators]

    def stateless(inputs: Any, *values: Any) -> tuple[Any, list[Any]]:
        # Makes the states depend on the inputs. Otherwise TensorFlow finds
        # dropout masks equal in both computations and stores them.
        tied = [in_backward_pass(state, inputs) for state in states]
        mapping = zip((*weights, *generators), (*values, *tied), strict=True)
        with keras.StatelessScope(state_mapping=list(mapping)) as scope:
            outputs = function(inputs)
        # Counts of draws are small, so float32 is exact; integers have no
        # gradient.
        steps = [
            ops.cast(scope.get_current_value(generator) - state, "float32")
            for generator, state in zip(generators, tied, strict=True)
        ]
        return outputs, steps

    # The weights are arguments, because only arguments have gradients.
    values = [ops.copy(weight.value) for weight in weights]
    outputs, steps = keras.remat(stateless)(inputs, *values)
    for generator, state, step in zip(generators, states, steps, strict=True):
        generator.assign(state + ops.cast(step, state.dtype))
    return outputs
