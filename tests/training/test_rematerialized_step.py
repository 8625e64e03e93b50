"""Training with blocks computed again trains the same."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import fill, numpy, pretraining_batch, small_config

from bert_tf.encoders import BertEncoder
from bert_tf.models import bert_token_classifier
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.training.step import TrainingStep
from bert_tf.training.strategies import make_strategy

CONFIG = small_config(
    num_hidden_layers=1,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.3,
)
BATCH = pretraining_batch(CONFIG, rows=8)


def trained(
    rematerialize: bool, strategy: str, steps: int, **settings
) -> list[np.ndarray]:
    """The weights after training with a frozen block, in slices."""
    chosen = make_strategy(strategy)
    keras.utils.set_random_seed(7)
    with chosen.scope():
        config = dataclasses.replace(CONFIG, num_hidden_layers=2)
        encoder = BertEncoder(config, rematerialize=rematerialize)
        model = fill(BertPretrainer(encoder), 1)
        encoder.blocks[0].trainable = False
        step = TrainingStep(
            model,
            PretrainingObjective(),
            keras.optimizers.SGD(0.01),
            chosen,
            accumulation=2,
            frozen=model.non_trainable_weights,
            **settings,
        )
    dataset = tf.data.Dataset.from_tensors(BATCH).unbatch().batch(4, True)
    for batch in chosen.experimental_distribute_dataset(dataset.take(steps)):
        assert bool(step(batch).finite)
    return [v.numpy() for v in model.weights]


def distance(left: list[np.ndarray], right: list[np.ndarray]) -> float:
    """The largest difference of two weights."""
    return max(np.abs(a - b).max() for a, b in zip(left, right, strict=True))


@pytest.mark.usefixtures("eagerly")
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_replicas_that_accumulate_with_a_frozen_block() -> None:
    plain = trained(False, "mirrored", 1)
    assert distance(trained(True, "mirrored", 1), plain) < 2e-6
    # The mask is drawn from the seed; another would be seen.
    assert distance(trained(True, "mirrored", 1, seed=1), plain) > 1e-3


def test_a_graph_that_accumulates_with_a_frozen_block() -> None:
    plain = trained(False, "one_device", 2)
    assert distance(trained(True, "one_device", 2), plain) < 2e-6


def fitted(rematerialize: bool, kind: str, **compiled) -> list[np.ndarray]:
    """The weights after stock `fit`."""
    keras.utils.set_random_seed(7)
    encoder = BertEncoder(CONFIG, rematerialize=rematerialize)
    if kind == "pretrainer":
        model, inputs, labels, loss = BertPretrainer(encoder), BATCH, None, None
    else:
        model = bert_token_classifier(encoder, 3, unpadded=True)
        inputs = {k: BATCH[k] for k in model.input}
        labels = np.arange(80).reshape(8, 10) % 3
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # No gradient reaches it.
        encoder.pooler.trainable = False
    fill(model, 1)
    model.compile(keras.optimizers.SGD(0.01), loss, **compiled)
    model.fit(inputs, labels, batch_size=4, epochs=2, verbose=0)
    return [numpy(v) for v in model.weights]


@pytest.mark.parametrize(
    ("kind", "compiled"),
    [("token_classifier", {}), ("pretrainer", {"jit_compile": True})],
)
def test_stock_fit(kind, compiled) -> None:
    plain = fitted(False, kind, **compiled)
    assert distance(fitted(True, kind, **compiled), plain) < 5e-6
