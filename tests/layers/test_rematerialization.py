"""Blocks recomputed: the same outputs, gradients and dropout."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import (
    encoder_inputs,
    fill,
    numpy,
    outputs_and_gradients,
    small_config,
)

from bert_tf.encoders import BertEncoder

ROOT = pathlib.Path(__file__).resolve().parents[2]
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}


def gradients(
    rematerialize: bool,
    graph: bool = False,
    seed: int = 3,
    **arguments,
) -> list[np.ndarray]:
    """Two passes' outputs and gradients, and the generators after them."""
    config = small_config(**DROPOUT)
    keras.utils.set_random_seed(seed)
    model = BertEncoder(config, rematerialize=rematerialize)
    fill(model, 1)
    # Enough rows for two groups of those without padding.
    inputs = encoder_inputs(config, rows=8)
    inputs = {name: tf.constant(value) for name, value in inputs.items()}

    def run(inputs: dict) -> list:
        return outputs_and_gradients(model, inputs, training=True, **arguments)

    run = tf.function(run) if graph else run
    results = [*run(inputs), *run(inputs)]
    return [numpy(v) for v in (*results, *model.non_trainable_variables)]


def distance(left: list[np.ndarray], right: list[np.ndarray]) -> float:
    """The largest difference of two arrays, by the largest of the array."""
    return max(
        np.abs(a - b).max() / max(np.abs(b).max(), 1e-3)
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize(
    "arguments",
    [{}, {"unpadded": True, "pooled_only": True}],
    ids=["padded", "unpadded"],
)
def test_gradients_are_the_same_bit_for_bit(arguments) -> None:
    plain = gradients(False, **arguments)
    again = gradients(True, **arguments)
    for left, right in zip(again, plain, strict=True):
        np.testing.assert_array_equal(left, right)


def test_graph() -> None:
    # Run as it was traced, since the optimizer fuses products.
    options = tf.config.optimizer.get_experimental_options()
    assert options["disable_meta_optimizer"]
    plain = gradients(False, graph=True)
    assert distance(gradients(True, graph=True), plain) < 2e-6
    # Another mask would have been seen.
    assert distance(gradients(True, seed=4), plain) > 0.05


def test_outside_training_nothing_changes() -> None:
    config = small_config(**DROPOUT)
    inputs = encoder_inputs(config)
    plain, again = (
        fill(BertEncoder(config, rematerialize=rematerialize), 2)(inputs)
        for rematerialize in (False, True)
    )
    for name, value in plain.items():
        np.testing.assert_array_equal(numpy(again[name]), numpy(value))


def test_an_encoder_remembers() -> None:
    encoder = BertEncoder(small_config(), rematerialize=True)
    config = encoder.get_config()
    assert BertEncoder.from_config(config).rematerialize
    del config["rematerialize"]
    assert not BertEncoder.from_config(config).rematerialize
