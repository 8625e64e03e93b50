"""Workarounds that use private names of Keras and TensorFlow.

Each states the version it was written for; `tests/test_compat.py` reports names
that have changed.
"""

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import keras
from keras import ops


def keep_downloads_in(folder: str) -> None:
    """Sets the download folder of `keras.utils.get_file`.

    `_KERAS_DIR` of `keras.src.backend.config`, Keras 3.15.1, which is read from
    KERAS_HOME while Keras is imported.
    """
    config: Any = sys.modules["keras.src.backend.config"]
    config._KERAS_DIR = folder


def symbolic_outputs(layer: keras.layers.Layer) -> list[list]:
    """The outputs of each call of a layer on Keras inputs, as flat lists.

    `keras.Operation._inbound_nodes` and their `outputs`, Keras 3.15.1; the
    public `output` is only that of the first call.
    """
    return [node.outputs for node in layer._inbound_nodes]


class Optimizer(keras.optimizers.Optimizer):
    """An optimizer that clips after the sum over replicas, without decay.

    `_clip_gradients`, `_all_reduce_sum_gradients`, `_apply_weight_decay`,
    `_backend_update_step` and `_get_variable_index` of
    `keras.optimizers.Optimizer`, Keras 3.15.1, which clips the gradients of
    each replica before the sum.
    """

    def clip(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Clips the summed gradients; the default returns them unchanged."""
        return grads

    def index_of(self, variable: Any) -> int:
        """The index of a variable among the optimized ones."""
        return self._get_variable_index(variable)

    def _clip_gradients(self, grads: Sequence[Any]) -> Sequence[Any]:
        # On TensorFlow this precedes the sum, so clipping waits for it; other
        # backends have no such step.
        if keras.backend.backend() == "tensorflow":
            return grads
        return self.clip(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        # Keras calls this only on the TensorFlow backend.
        reduced = super()._all_reduce_sum_gradients(grads_and_vars)
        _leave_gradient_to_graph([grad for grad, _ in reduced])
        variables = [variable for _, variable in reduced]
        # A reshape sums the repeated rows of IndexedSlices.
        grads = self.clip(
            [ops.reshape(g, tuple(variable.shape)) for g, variable in reduced]
        )
        return list(zip(grads, variables, strict=True))

    def _apply_weight_decay(self, variables: Any) -> None:
        # Decay is part of the update.
        del variables

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        """A context for values that the updates of all variables share."""
        yield

    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        with self.sharing():
            super()._backend_update_step(
                grads, trainable_variables, learning_rate
            )


def gpu_memory_limit() -> float:
    """The memory of the first GPU in bytes; allocates all of it.

    `tensorflow.python.client.device_lib`, TensorFlow 2.21.0.
    """
    from tensorflow.python.client import device_lib

    devices = device_lib.list_local_devices()
    return float(
        next(d.memory_limit for d in devices if d.device_type == "GPU")
    )


def has_accelerator() -> bool:
    """Whether TensorFlow has a GPU or TPU."""
    import tensorflow as tf

    devices = tf.config.list_logical_devices()
    return any(device.device_type in ("GPU", "TPU") for device in devices)


def in_graph() -> bool:
    """Whether a TensorFlow graph is being traced."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def in_cpu_graph() -> bool:
    """Whether a TensorFlow graph is being traced for a CPU."""
    return in_graph() and not has_accelerator()


def empty(shape: Sequence[int], dtype: Any = None) -> Any:
    """`keras.ops.empty`, which on TensorFlow, in Keras 3.15.1, writes zeros.

    Args:
      shape: the shape of the tensor, whose values are undefined.
      dtype: its dtype.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.empty(shape, dtype=dtype)
    import tensorflow as tf

    return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)


def function_of_graph(
    key: Hashable, function: Callable[..., Any]
) -> Callable[..., Any]:
    """The TensorFlow function of a key in the graph that is being traced.

    The graph owns it, so that both are freed together. An attribute is set on
    `tf.Graph`, TensorFlow 2.21.0.

    Args:
      key: names the function in the graph.
      function: what is traced where the graph has no function of that key.
    """
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, "bert_tf_functions"):
        graph.bert_tf_functions = {}
    functions = graph.bert_tf_functions
    if key not in functions:
        functions[key] = tf.function(function, autograph=False)
    return functions[key]


def take_rows(array: Any, indices: Any) -> Any:
    """`keras.ops.take` along the first axis, for non-negative indices.

    Keras 3.15.1 supports negative indices with five more operations on
    TensorFlow, which would also accept invalid ids.

    Args:
      array: of any shape [N, ...].
      indices: integers in 0..N-1, of any shape.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.take(array, indices, axis=0)
    import tensorflow as tf

    return tf.gather(array, indices)


def map_in_graph(
    function: Callable[[Any], Any], count: Any, results: Any
) -> Any:
    """`keras.ops.map` over 0..count-1, in a TensorFlow graph.

    Keras 3.15.1 also traces the function on the first element, to find the
    shapes of the results.

    Args:
      function: maps an int32 to a tensor or a tuple of tensors.
      count: the number of elements.
      results: the results of the function, as `keras.KerasTensor`.

    Returns:
      The stacked results.
    """
    import tensorflow as tf

    signature = tf.nest.map_structure(
        lambda result: tf.TensorSpec(result.shape, result.dtype), results
    )
    return tf.map_fn(function, tf.range(count), fn_output_signature=signature)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.ops.custom_gradient`, the same on all backends, without leaks.

    For each call in a graph TensorFlow registers a gradient that references the
    graph, so graphs are never freed. Here the graph owns its gradients.

    `tensorflow.python.framework.ops.gradient_registry`, its `_registry` and the
    attribute `_gradient_op_type` of operations, TensorFlow 2.21.0.

    Args:
      function: maps arrays to an array or a sequence of arrays, and a function
        from the upstream gradients of these to the gradients of the arguments.
    """
    on_tensorflow = keras.backend.backend() == "tensorflow"

    def with_gradient(*args: Any) -> tuple[Any, Callable[..., Any]]:
        outputs, gradient = function(*args)
        # TensorFlow passes those of several outputs as separate arguments.
        one_by_one = on_tensorflow and isinstance(outputs, list | tuple)

        def from_outputs(*upstream: Any) -> Any:
            return gradient(upstream if one_by_one else upstream[0])

        return outputs, from_outputs

    inner = ops.custom_gradient(with_gradient)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        outputs = inner(*args)
        if on_tensorflow:
            _leave_gradient_to_graph(outputs)
        return outputs

    return call


def sum_over_replicas(value: Any) -> Any:
    """Sums a value over replicas, within a replica context.

    `tf.distribute.ReplicaContext.all_reduce`, which has a custom gradient, too.

    Args:
      value: a tensor, or a structure of them.
    """
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    total = replica.all_reduce(tf.distribute.ReduceOp.SUM, value)
    _leave_gradient_to_graph(total)
    return total


def _leave_gradient_to_graph(outputs: Any) -> None:
    """Moves the ownership of a custom gradient to the graph of its outputs."""
    import tensorflow as tf
    from tensorflow.python.framework import ops as framework

    tensors = tf.nest.flatten(outputs, expand_composites=True)
    if tf.executing_eagerly() or not tensors:
        return
    operation = tensors[0].op
    name = operation.node_def.attr["_gradient_op_type"].s.decode()
    registry = framework.gradient_registry._registry
    gradient = registry[name]["type"] if name in registry else None
    if gradient is None or isinstance(gradient, weakref.CallableProxyType):
        return
    graph = operation.graph
    # Freed together with the graph.
    if not hasattr(graph, "bert_tf_gradients"):
        graph.bert_tf_gradients = []
    graph.bert_tf_gradients.append(gradient)
    registry[name]["type"] = weakref.proxy(gradient)
    weakref.finalize(graph, registry.pop, name, None).atexit = False
