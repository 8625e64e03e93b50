"""What Keras and TensorFlow have no public way for.

Each use of a private name is here, with the version that it was seen in.
`tests/test_compat.py` says which one is gone.
"""

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops


def keep_downloads_in(folder: str) -> None:
    """Sets where `keras.utils.get_file` keeps what a program downloads.

    `_KERAS_DIR` of `keras.src.backend.config`, Keras 3.15.1, which is read from
    KERAS_HOME while Keras is imported.
    """
    config: Any = sys.modules["keras.src.backend.config"]
    config._KERAS_DIR = folder


def symbolic_outputs(layer: keras.layers.Layer) -> list[list]:
    """The outputs of each call of a layer on Keras inputs, as flat lists.

    `keras.Operation._inbound_nodes` and their `outputs`, Keras 3.15.1; the
    public `output` is that of the first call alone.
    """
    return [node.outputs for node in layer._inbound_nodes]


class Optimizer(keras.optimizers.Optimizer):
    """An optimizer that clips what was summed over replicas, and has no decay.

    `_clip_gradients`, `_all_reduce_sum_gradients`, `_apply_weight_decay`,
    `_backend_update_step` and `_get_variable_index` of
    `keras.optimizers.Optimizer`, Keras 3.15.1. Its own clipping is of each
    replica's share, before the sum.
    """

    def clip(self, grads: Sequence[Any]) -> Sequence[Any]:
        """What becomes of the gradients, once they are summed."""
        return grads

    def index_of(self, variable: Any) -> int:
        """The place of a variable among those that are optimized."""
        return self._get_variable_index(variable)

    def _clip_gradients(self, grads: Sequence[Any]) -> Sequence[Any]:
        # Before the sum on TensorFlow, where clipping waits for the next one;
        # other backends have no such step, the gradients are whole already.
        if keras.backend.backend() == "tensorflow":
            return grads
        return self.clip(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        # Called by Keras on the TensorFlow backend only.
        reduced = super()._all_reduce_sum_gradients(grads_and_vars)
        _leave_gradient_to_graph([grad for grad, _ in reduced])
        variables = [variable for _, variable in reduced]
        # A reshape adds up the repeated rows of IndexedSlices.
        grads = self.clip(
            [ops.reshape(g, tuple(variable.shape)) for g, variable in reduced]
        )
        return list(zip(grads, variables, strict=True))

    def _apply_weight_decay(self, variables: Any) -> None:
        # Before the update, of which decay is a part here.
        del variables

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        """Computes once what the updates of variables in it have in common."""
        yield

    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        with self.sharing():
            super()._backend_update_step(
                grads, trainable_variables, learning_rate
            )


def gpu_memory_limit() -> float:
    """Bytes that TensorFlow gives out of the first GPU; takes them all.

    `tensorflow.python.client.device_lib`, TensorFlow 2.21.0.
    """
    from tensorflow.python.client import device_lib

    devices = device_lib.list_local_devices()
    return float(
        next(d.memory_limit for d in devices if d.device_type == "GPU")
    )


def has_accelerator() -> bool:
    """Whether TensorFlow computes on something else than CPUs here."""
    import tensorflow as tf

    devices = tf.config.list_logical_devices()
    return any(device.device_type in ("GPU", "TPU") for device in devices)


def in_cpu_graph() -> bool:
    """Whether a graph of TensorFlow is traced, and for a CPU."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly() and not has_accelerator()


def take_rows(array: Any, places: Any) -> Any:
    """`keras.ops.take` of the first axis, of places that are not negative.

    Keras lets others count from the end, 3.15.1: on TensorFlow five operations
    of a graph each time, and a negative id would be some other token.

    Args:
      array: of any shape [N, ...].
      places: whole numbers in 0..N-1, of any shape.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.take(array, places, axis=0)
    import tensorflow as tf

    return tf.gather(array, places)


def map_in_graph(
    function: Callable[[Any], Any], count: Any, results: Any
) -> Any:
    """`keras.ops.map` over 0..count-1, in a graph of TensorFlow.

    Keras adds to the graph what the function gives of the first, 3.15.1, to
    see what it is.

    Args:
      function: takes an int32 and gives a tensor or a tuple of them.
      count: how often.
      results: what it gives, as `keras.KerasTensor`.

    Returns:
      What the function gives, stacked.
    """
    import tensorflow as tf

    signature = tf.nest.map_structure(
        lambda result: tf.TensorSpec(result.shape, result.dtype), results
    )
    return tf.map_fn(function, tf.range(count), fn_output_signature=signature)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.ops.custom_gradient`, alike on all backends, with graphs freed.

    For each call in a graph TensorFlow registers a gradient that holds the
    graph, and never forgets it: a process that traces models again and again
    grows by all of them. Here the graph holds its gradients.

    `tensorflow.python.framework.ops.gradient_registry`, its `_registry` and the
    attribute `_gradient_op_type` of operations, TensorFlow 2.21.0.

    Args:
      function: takes arrays and gives an array or a sequence of them, and a
        gradient, which takes what arrives for these, an array or a sequence
        of them, and gives those of the arguments.
    """
    on_tensorflow = keras.backend.backend() == "tensorflow"

    def with_gradient(*args: Any) -> tuple[Any, Callable[..., Any]]:
        outputs, gradient = function(*args)
        # As TensorFlow hands those of several outputs over.
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
    """The sum of what each replica gives, where replicas run.

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
    """Leaves a custom gradient to the graph of what it is the gradient of."""
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
    # With its graph it is garbage.
    if not hasattr(graph, "bert_tf_gradients"):
        graph.bert_tf_gradients = []
    graph.bert_tf_gradients.append(gradient)
    registry[name]["type"] = weakref.proxy(gradient)
    weakref.finalize(graph, registry.pop, name, None).atexit = False
