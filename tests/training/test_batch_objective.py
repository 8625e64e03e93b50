"""A loss that compares the rows of a batch, however the batch is cut."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from bert_tf.training.step import TrainingStep, _untrained_states
from bert_tf.training.strategies import make_strategy
from tests.training.test_step import batches, once, weights_of
from tests.training.tiny_run import Regressor, rows


class Contrast:
    """Cross-entropy of finding a row's target among those of the batch."""

    batch_labels = ("target",)

    def loss_weights(self, batch):
        del batch
        return {"contrast": tf.ones([])}

    def __call__(self, outputs, batch):
        logits = tf.matmul(outputs["y"], batch["target"], transpose_b=True)
        own = tf.linalg.diag_part(logits)
        loss = tf.reduce_mean(tf.reduce_logsumexp(logits, axis=1) - own)
        right = tf.reduce_all(logits <= own[:, tf.newaxis], axis=1)
        count = tf.cast(tf.size(own), tf.float32)
        total = tf.reduce_sum(tf.cast(right, tf.float32))
        return {"contrast": loss}, {"accuracy": (total, count)}

    def normalise(self, losses, weights):
        return {"contrast": losses["contrast"] / weights["contrast"]}


def contrast_step(strategy="one_device", accumulation=1, rate=0.0, **more):
    chosen = make_strategy(strategy)
    keras.utils.set_random_seed(7)
    with chosen.scope():
        return TrainingStep(
            Regressor(rate),
            Contrast(),
            keras.optimizers.Adam(0.03),
            chosen,
            accumulation=accumulation,
            max_grad_norm=0.0,
            **more,
        )


def train(*arguments, **more):
    step = contrast_step(*arguments, **more)
    data = batches(step.strategy, rows(24))
    return step, [step(batch) for batch in data]


@pytest.mark.witness("two replicas and cached gradients are one batch")
@pytest.mark.parametrize(
    ("strategy", "accumulation"),
    [("one_device", 4), ("mirrored", 1), ("mirrored", 2)],
)
def test_spread_or_cut_the_batch_counts_as_one(strategy, accumulation):
    one, expected = train()
    other, found = train(strategy, accumulation)
    assert_allclose(weights_of(other), weights_of(one), atol=1e-6)
    for ours, reference in zip(found, expected, strict=True):
        assert_allclose(
            ours.losses["contrast"], reference.losses["contrast"], rtol=1e-6
        )
        assert_allclose(
            ours.gradient_norms, reference.gradient_norms, rtol=1e-5
        )
        assert float(ours.metrics["accuracy"][1]) == 8
        accuracies = [each.metrics["accuracy"][0] for each in (ours, reference)]
        assert_allclose(*accuracies)


@once
def test_slices_are_computed_again_with_the_same_dropout():
    """The gradient is that of one tape over all slices."""
    step = contrast_step(accumulation=4, rate=0.5)
    batch = next(iter(batches(step.strategy, rows(8))))
    variables = [v.value for v in step.variables]
    before = [tf.identity(v) for v in variables]
    with tf.GradientTape() as tape:
        outputs = []
        for part in range(4):
            counter = tf.constant(part * 4096, tf.int64)
            slice_ = {
                name: v[2 * part : 2 * part + 2] for name, v in batch.items()
            }
            outputs.append(
                step.model.stateless_call(
                    variables,
                    _untrained_states(step.model, (), step.seed, counter),
                    slice_,
                    training=True,
                )[0]["y"]
            )
        whole = {"y": tf.concat(outputs, 0)}
        losses, _ = Contrast()(whole, batch)
    expected = tape.gradient(losses["contrast"], variables)
    found = step(batch)
    assert_allclose(found.losses["contrast"], losses["contrast"], rtol=1e-6)
    assert_allclose(
        found.gradient_norms, [np.linalg.norm(g) for g in expected], rtol=1e-6
    )
    # Without dropout it is another one.
    plain = contrast_step(accumulation=4)
    assert abs(float(plain(batch).gradient_norm - found.gradient_norm)) > 1e-3
    assert not np.allclose(before[0], variables[0])


@once
def test_replicas_that_see_only_their_own_rows():
    """The mean of the losses of two halves."""
    step = contrast_step("mirrored", per_replica_means=True)
    data = rows(8)
    (batch,) = batches(step.strategy, data)
    found = step(batch)
    halves = [
        {k: v[4 * n : 4 * n + 4] for k, v in data.items()} for n in (0, 1)
    ]
    model = contrast_step().model
    losses = [Contrast()(model(half), half)[0]["contrast"] for half in halves]
    assert_allclose(found.losses["contrast"], np.mean(losses), rtol=1e-6)
    with tf.GradientTape() as tape:
        losses = [
            Contrast()(model(half), half)[0]["contrast"] for half in halves
        ]
        mean = tf.add_n(losses) / 2
    gradients = tape.gradient(
        mean, [v.value for v in model.trainable_variables]
    )
    norms = [np.linalg.norm(g) for g in gradients]
    assert_allclose(found.gradient_norms, norms, rtol=1e-5)
