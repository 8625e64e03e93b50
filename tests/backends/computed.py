"""What a classifier on each architecture computes with Keras' present backend.

    python -m tests.backends.computed CONFIGS.json OUTPUT.npz

CONFIGS.json has a configuration by the name of each architecture.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf.architecture_list import find_architecture
from bert_tf.encoders import encoder_class
from bert_tf.models import bert_classifier

NUM_CLASSES = 3
LABELS = np.array([0, 2, 1], "int32")


def outputs_and_gradients(
    configs: Mapping[str, Mapping[str, Any]],
) -> dict[str, np.ndarray]:
    """Returns logits, loss and the gradient of every weight.

    Args:
      configs: the configuration of each architecture.

    Returns:
      Arrays by "ARCHITECTURE/logits", "ARCHITECTURE/loss" and
      "ARCHITECTURE/NUMBER NAME" of each weight.
    """
    found = {}
    for name, values in configs.items():
        kind = find_architecture(name, "tests").config
        config = kind.from_dict(dict(values), "tests")
        encoder = encoder_class(config)(config)
        model = bert_classifier(encoder, NUM_CLASSES, dropout=0.0)
        inputs = _inputs(config)
        model(inputs)
        _fill(model)
        logits, loss, gradients = _differentiate(model, inputs)
        found[f"{name}/logits"], found[f"{name}/loss"] = logits, loss
        for number, (weight, gradient) in enumerate(
            zip(model.trainable_variables, gradients, strict=True)
        ):
            found[f"{name}/{number} {weight.path}"] = gradient
    return found


def _inputs(config: Any) -> dict[str, np.ndarray]:
    """Three rows of 10 tokens, of which the first alone is full."""
    random = np.random.default_rng(1)
    mask = np.arange(10)[None] < np.array([10, 5, 7])[:, None]
    segments = random.integers(0, max(1, config.type_vocab_size), (3, 10))
    inputs = {
        "input_ids": random.integers(0, config.vocab_size, (3, 10)),
        "input_mask": mask,
        "segment_ids": segments,
    }
    return {name: value.astype("int32") for name, value in inputs.items()}


def _fill(model: keras.Model) -> None:
    """Gives every weight distinct values, scales of norms around 1."""
    random = np.random.default_rng(2)
    for weight in model.weights:
        values = random.normal(0.0, 0.3, weight.shape)
        weight.assign(values + (weight.name == "gamma"))


def _differentiate(model: keras.Model, inputs: dict[str, np.ndarray]) -> tuple:
    """Returns logits, loss and gradients as arrays."""
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if keras.backend.backend() == "jax":
        import jax

        def compute(weights: list) -> tuple:
            others = model.non_trainable_variables
            logits, _ = model.stateless_call(weights, others, inputs)
            return loss_of(LABELS, logits), logits

        weights = [weight.value for weight in model.trainable_variables]
        (loss, logits), gradients = jax.jit(
            jax.value_and_grad(compute, has_aux=True)
        )(weights)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            logits = model(inputs)
            loss = loss_of(LABELS, logits)
        weights = [weight.value for weight in model.trainable_variables]
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(
                loss, weights, unconnected_gradients="zero"
            )
        ]
    return np.array(logits), np.array(loss), [np.array(g) for g in gradients]


def main(configs: str, output: str) -> None:
    """Writes the arrays of the configurations in a file."""
    with open(configs, encoding="utf-8") as file:
        np.savez(output, **outputs_and_gradients(json.load(file)))
    assert "tensorflow" not in sys.modules or (
        keras.backend.backend() == "tensorflow"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
