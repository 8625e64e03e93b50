"""The private names of Keras and TensorFlow that bert_tf/compat.py uses."""

import gc
import importlib
import inspect
import pathlib
import re
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from tensorflow.python.framework import ops as framework

from bert_tf import compat
from bert_tf.optimization import AdamW

ROOT = pathlib.Path(compat.__file__).resolve().parent
# Where each is defined, and the arguments that it takes.
HOOKS = {
    "_clip_gradients": ["self", "grads"],
    "_all_reduce_sum_gradients": ["self", "grads_and_vars"],
    "_apply_weight_decay": ["self", "variables"],
    "_get_variable_index": ["self", "variable"],
}


def gone(name: str) -> str:
    return (
        f"{name} is gone or other in Keras {keras.__version__}, TensorFlow "
        f"{tf.__version__}: see bert_tf/compat.py"
    )


@pytest.mark.parametrize("name", HOOKS)
def test_hook_of_the_optimizer(name) -> None:
    hook = getattr(keras.optimizers.Optimizer, name, None)
    assert hook is not None, gone(name)
    assert list(inspect.signature(hook).parameters) == HOOKS[name], gone(name)


def test_keras_calls_the_hooks(monkeypatch) -> None:
    called = []

    def recorded(name):
        inner = getattr(AdamW, name)

        def hook(self, *args):
            called.append(name)
            return inner(self, *args)

        return hook

    for name in HOOKS:
        monkeypatch.setattr(AdamW, name, recorded(name))
    weights = [keras.Variable([3.0, 4.0], name="kernel")]
    optimizer = AdamW(0.5, weight_decay=0.1, clip_norm=1.0)
    optimizer.build(weights)
    optimizer.apply([tf.constant([3.0, 4.0])], weights)
    assert set(called) == set(HOOKS), gone(str(set(HOOKS) - set(called)))


def test_calls_on_keras_inputs_are_known() -> None:
    layer = keras.layers.Dense(2)
    assert hasattr(layer, "_inbound_nodes"), gone("_inbound_nodes")
    outputs = [layer(keras.Input((3,))) for _ in range(2)]
    known = compat.symbolic_outputs(layer)
    assert [x for (x,) in known] == outputs, gone("Node.outputs")


def test_device_lib_is_there() -> None:
    module = importlib.import_module("tensorflow.python.client.device_lib")
    assert hasattr(module, "list_local_devices"), gone("device_lib")


def test_no_other_file_has_private_names() -> None:
    names = "|".join(
        [*HOOKS, "_inbound_nodes", "_outbound_nodes", "_keras_history"]
    )
    pattern = re.compile(
        rf"tensorflow\.python|keras\.src|__internal__|super\(\)\._[a-z]|{names}"
        r"|_aggregate_additional_loss|_compile_loss|_distribution_strategy"
    )
    found = [
        f"{path.name}: {match[0]}"
        for path in ROOT.rglob("*.py")
        if path.name != "compat.py"
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_gradients_go_with_their_graph() -> None:
    registry = framework.gradient_registry._registry

    @compat.custom_gradient
    def doubled(x):
        return x * 2, lambda upstream: upstream * 7

    @tf.function
    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = doubled(x)
        return tape.gradient(y, x)

    before = set(registry)
    assert slope(tf.constant(3.0)) == 7
    graph = weakref.ref(slope.get_concrete_function(tf.constant(3.0)).graph)
    (name,) = set(registry) - before
    del slope
    gc.collect()
    assert graph() is None
    assert name not in registry, gone("gradient_registry")


def test_graphs_of_training_steps_go() -> None:
    weights = [keras.Variable([3.0, 4.0], name="kernel")]

    def make():
        optimizer = AdamW(0.5)
        optimizer.build(weights)

        @tf.function
        def step(x):
            slope = compat.sum_over_replicas(x * 2)
            optimizer.apply([slope], weights)

        step(tf.constant([1.0, 2.0]))
        return weakref.ref(step.get_concrete_function(tf.ones(2)).graph)

    graph = make()
    gc.collect()
    assert graph() is None, gone("gradient_registry")


def test_gradients_of_several_outputs() -> None:
    @compat.custom_gradient
    def parts(x):
        return [x[:1], x[1:]], lambda upstream: ops.concatenate(upstream) * 3

    x = tf.constant([1.0, 2.0, 3.0])
    for run in (lambda f: f(), lambda f: tf.function(f)()):

        def slope():
            with tf.GradientTape() as tape:
                tape.watch(x)
                first, second = parts(x)
                total = tf.reduce_sum(first) + 5 * tf.reduce_sum(second)
            return tape.gradient(total, x)

        np.testing.assert_array_equal(run(slope), [3, 15, 15])
