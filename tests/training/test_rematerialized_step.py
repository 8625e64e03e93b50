"""Training with blocks computed again trains the same."""

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

CONFIG = small_config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3)
BATCH = pretraining_batch(CONFIG, rows=8)


def trained(
    rematerialize: bool, strategy: str, frozen: bool, **settings
) -> list[np.ndarray]:
    """The weights after three steps of the loop's step."""
    chosen = make_strategy(strategy)
    keras.utils.set_random_seed(7)
    with chosen.scope():
        encoder = BertEncoder(CONFIG, rematerialize=rematerialize)
        model = fill(BertPretrainer(encoder), 1)
        encoder.blocks[0].trainable = not frozen
        step = TrainingStep(
            model,
            PretrainingObjective(),
            keras.optimizers.SGD(0.01),
            chosen,
            frozen=model.non_trainable_weights,
            **settings,
        )
    dataset = tf.data.Dataset.from_tensors(BATCH).unbatch().batch(8, True)
    (batch,) = chosen.experimental_distribute_dataset(dataset)
    for _ in range(3):
        assert bool(step(batch).finite)
    return [v.numpy() for v in model.weights]


def distance(left: list[np.ndarray], right: list[np.ndarray]) -> float:
    """The largest difference of two weights."""
    return max(np.abs(a - b).max() for a, b in zip(left, right, strict=True))


@pytest.mark.slow
def test_replicas_that_accumulate_with_a_frozen_block() -> None:
    settings = {"strategy": "mirrored", "accumulation": 2, "frozen": True}
    plain = trained(False, **settings)
    assert distance(trained(True, **settings), plain) < 2e-6
    # The mask is drawn from the seed; another would be seen.
    assert distance(trained(True, seed=1, **settings), plain) > 1e-3


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
    [
        ("token_classifier", {}),
        pytest.param(
            "pretrainer", {"jit_compile": True}, marks=pytest.mark.slow
        ),
    ],
)
def test_stock_fit(kind, compiled) -> None:
    plain = fitted(False, kind, **compiled)
    assert distance(fitted(True, kind, **compiled), plain) < 5e-6
