"""Computing a layer again in the backward pass, in place of keeping it."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.layers.products import after


def rematerialized(
    layer: keras.layers.Layer, function: Callable[[Any], Any], inputs: Any
) -> Any:
    """function(inputs), of which the backward pass keeps `inputs` alone.

    Chen et al. 2016, "Training deep nets with sublinear memory cost". The
    function is computed again where its gradient is needed, with the same
    dropout: both computations are given the values that the weights and
    dropout's generators have now, and the generators are moved on once.

    Args:
      layer: the layer whose weights and dropout the function uses, no others.
      function: takes the inputs; every other tensor in it has no gradient.
      inputs: float tensor.

    Returns:
      What the function returns: float tensors.
    """
    weights = layer.weights
    known = {id(weight) for weight in weights}
    generators = [v for v in layer.variables if id(v) not in known]
    states = [ops.copy(generator.value) for generator in generators]

    def stateless(inputs: Any, *values: Any) -> tuple[Any, list[Any]]:
        # Nothing is added, but by way of the inputs. TensorFlow would find
        # masks that depend on the states alone equal in both computations, and
        # keep them from one to the other.
        tied = [after(state, inputs) for state in states]
        mapping = zip((*weights, *generators), (*values, *tied), strict=True)
        with keras.StatelessScope(state_mapping=list(mapping)) as scope:
            outputs = function(inputs)
        # Numbers of draws, which are few; whole numbers have no gradient.
        moves = [
            ops.cast(scope.get_current_value(generator) - state, "float32")
            for generator, state in zip(generators, tied, strict=True)
        ]
        return outputs, moves

    # The weights are arguments, since only those have gradients.
    values = [ops.copy(weight.value) for weight in weights]
    outputs, moves = keras.remat(stateless)(inputs, *values)
    for generator, state, move in zip(generators, states, moves, strict=True):
        generator.assign(state + ops.cast(move, state.dtype))
    return outputs
