"""Gaussian error linear units: values, gradients, precisions, compilation."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import fill, numpy, small_config

from bert_tf.layers import Dense
from bert_tf.layers.products import (
    column_sums,
    gelu,
    gelu_erf,
    gelu_product,
    product,
    table_product,
)

# Zero, both tails, and where the slope bends.
POINTS = np.concatenate([[0.0], np.linspace(-7.3, 6.9, 143), [-30.0, 30.0]])


def exact_erf(x: float) -> float:
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def exact_tanh(x: float) -> float:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + math.tanh(inner))


FORMULAS = {gelu: exact_tanh, gelu_erf: exact_erf}
TOLERANCES = {"float32": 4e-6, "bfloat16": 8e-3}


def on(points, formula) -> np.ndarray:
    return np.array([formula(x) for x in points.ravel()]).reshape(points.shape)


def slope(points, formula, step: float = 1e-5) -> np.ndarray:
    high, low = on(points + step, formula), on(points - step, formula)
    return (high - low) / (2 * step)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("activation", FORMULAS, ids=lambda f: f.__name__)
def test_value_and_gradient_are_the_formula(activation, dtype, in_graph):
    x = tf.cast(POINTS, dtype)
    upstream = tf.cast(np.random.default_rng(1).normal(size=len(POINTS)), dtype)

    def run(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = activation(x)
        return y, tape.gradient(y, x, upstream)

    if in_graph:
        run = tf.function(run, autograph=False)
    y, gradient = run(x, upstream)
    assert y.dtype == gradient.dtype == x.dtype
    # At the points as they are rounded.
    points = numpy(x).astype("float64")
    formula, limit = FORMULAS[activation], TOLERANCES[dtype]
    close = {"rtol": limit, "atol": limit}
    np.testing.assert_allclose(numpy(y), on(points, formula), **close)
    expected = slope(points, formula) * numpy(upstream)
    close = {"rtol": limit, "atol": max(limit, 1e-5)}
    np.testing.assert_allclose(numpy(gradient), expected, **close)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_dense_layer_has_its_gradients_when_stateless(
    hidden_act, policy, training
):
    layer = Dense(small_config(), 11, hidden_act, dtype=policy)
    layer.build((None, None, 7))
    fill(layer, scale=0.7)
    kernel, bias = (numpy(w).astype("float64") for w in layer.weights)
    random = np.random.default_rng(2)
    x = tf.constant(random.normal(size=(2, 13, 7)), tf.float32)
    upstream = random.normal(size=(2, 13, 11))

    @tf.function
    def gradients(x, weights):
        with tf.GradientTape() as tape:
            tape.watch([x, weights])
            y, _ = layer.stateless_call(weights, [], x, training=training)
            total = tf.reduce_sum(tf.cast(y, "float32") * upstream)
        return y, tape.gradient(total, [x, *weights])

    y, found = gradients(x, [w.value for w in layer.weights])
    rows = numpy(x).astype("float64").reshape(-1, 7)
    inner = rows @ kernel + bias
    formula = exact_erf if hidden_act == "gelu_erf" else exact_tanh
    outer = upstream.reshape(-1, 11) * slope(inner, formula)
    expected = [
        on(inner, formula).reshape(2, 13, 11),
        (outer @ kernel.T).reshape(x.shape),
        rows.T @ outer,
        outer.sum(0),
    ]
    limit = 1e-5 if policy == "float32" else 3e-2
    for ours, theirs in zip([y, *found], expected, strict=True):
        largest = np.abs(theirs).max()
        assert largest > 0.5
        np.testing.assert_allclose(numpy(ours), theirs, atol=limit * largest)


@pytest.mark.parametrize("hidden_act", ["linear", "gelu", "gelu_erf", "table"])
def test_products_equal_what_is_differentiated_for_them(hidden_act) -> None:
    random = np.random.default_rng(3)
    parts = [
        tf.constant(random.normal(size=shape), tf.float32)
        for shape in ((9, 5), (5, 4), (4,))
    ]
    upstream = tf.constant(random.normal(size=(9, 4)), tf.float32)

    def ours(rows, kernel, bias):
        if hidden_act == "table":
            return table_product(rows, tf.transpose(kernel)) + bias
        if hidden_act == "linear":
            return product(rows, kernel, bias)
        return gelu_product(rows, kernel, bias, hidden_act)

    def plain(rows, kernel, bias):
        inner = tf.matmul(rows, kernel) + bias
        if hidden_act in ("linear", "table"):
            return inner
        return tf.nn.gelu(inner, approximate=hidden_act == "gelu")

    results = []
    for function in (ours, plain):
        with tf.GradientTape() as tape:
            tape.watch(parts)
            y = function(*parts)
        results.append([y, *tape.gradient(y, parts, upstream)])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_many_bfloat16_rows_are_added_up_in_float32() -> None:
    rows = tf.cast(
        np.random.default_rng(4).uniform(1, 2, (3000, 6)), "bfloat16"
    )
    exact = numpy(rows).astype("float64").sum(0)
    found = numpy(keras.ops.cast(column_sums(rows), "float32"))
    # One unit in the last place: processors without bfloat16 add up float32
    # in a few parts and round each.
    np.testing.assert_allclose(found, exact, rtol=2**-7)
