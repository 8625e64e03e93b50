"""Dropout: its rate, its scale, its seeds and its gradient."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import numpy

from bert_tf.layers.base import Dropout


def mask(layer, shape) -> np.ndarray:
    """What a tensor of ones becomes."""
    return numpy(layer(np.ones(shape, "float32"), training=True))


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.9])
def test_rate_and_scale(rate) -> None:
    values = mask(Dropout(rate, seed=1), (1000, 1001))
    deviation = np.sqrt(rate * (1 - rate) / values.size)
    assert abs((values == 0).mean() - rate) < 4 * deviation + 2**-17
    kept = np.unique(values[values != 0])
    assert len(kept) == 1
    np.testing.assert_allclose(kept, 1 / (1 - rate), rtol=2**-12)


def test_neighbours_are_independent() -> None:
    dropped = (mask(Dropout(0.3, seed=2), (1_000_001,)) == 0).astype(float)
    for distance in (1, 2, 3, 4, 8):
        both = (dropped[distance:] * dropped[:-distance]).mean()
        assert abs(both - 0.09) < 0.002, distance


@pytest.mark.parametrize("shape", [(), (1,), (3, 5, 7), (2, 3, 4, 6)])
def test_any_shape(shape) -> None:
    assert mask(Dropout(0.5), shape).shape == shape


def test_nothing_is_dropped_outside_training_or_at_rate_0() -> None:
    x = np.random.default_rng(3).normal(size=(50, 3)).astype("float32")
    for layer, training in ((Dropout(0.5), False), (Dropout(0.0), True)):
        np.testing.assert_array_equal(numpy(layer(x, training=training)), x)
    np.testing.assert_array_equal(numpy(Dropout(0.5)(x)), x)


def test_gradient_is_the_mask_of_the_forward_pass() -> None:
    layer = Dropout(0.4, seed=4)
    x = tf.constant(np.random.default_rng(4).normal(size=(9, 31)), tf.float32)
    upstream = tf.constant(
        np.random.default_rng(5).normal(size=(9, 31)), tf.float32
    )

    @tf.function(input_signature=[tf.TensorSpec([None, 31])] * 2)
    def run(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x, upstream)

    y, gradient = run(x, upstream)
    assert 0.2 < (y.numpy() == 0).mean() < 0.6
    np.testing.assert_allclose(gradient, y / x * upstream, rtol=1e-5)


def test_a_state_draws_one_mask_and_the_next_draws_another() -> None:
    layer = Dropout(0.5, seed=6)
    x = np.ones((40, 5), "float32")

    def run(state):
        return layer.stateless_call([], [state], x, training=True)

    first = layer.seed_generator.state.value + 0
    once, (following,) = run(first)
    np.testing.assert_array_equal(once, run(first)[0])
    assert np.abs(numpy(once) - numpy(run(following)[0])).max() > 1
    assert np.abs(mask(Dropout(0.5, seed=7), (40, 5)) - numpy(once)).max() > 1


def test_it_comes_back_from_its_configuration() -> None:
    layer = Dropout(0.3, seed=8, name="drops")
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert isinstance(again, Dropout)
    np.testing.assert_array_equal(mask(layer, (90,)), mask(again, (90,)))
