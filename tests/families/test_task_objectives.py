"""Losses against NumPy; the sums of slices are those of the batch."""

import numpy as np
import pytest

from bert_tf.families.task_model import (
    ClassesObjective,
    MultiLabelObjective,
    RegressionObjective,
)

ROWS = 12
RANDOM = np.random.default_rng(5)
LOGITS = RANDOM.normal(0, 2, (ROWS, 3)).astype("float32")
WEIGHTS = RANDOM.uniform(0.2, 1, ROWS).astype("float32")
CLASSES = RANDOM.integers(0, 3, ROWS).astype("int32")
SETS = RANDOM.integers(0, 2, (ROWS, 3)).astype("float32")
NUMBERS = RANDOM.normal(0, 3, ROWS).astype("float32")


def batch_of(objective, rows=slice(None)):
    labels = {"label_ids": CLASSES, "label_sets": SETS, "label_values": NUMBERS}
    name = objective.label_name
    return {name: labels[name][rows], "example_weights": WEIGHTS[rows]}


def outputs_of(objective, rows=slice(None)):
    width = 1 if objective.label_name == "label_values" else 3
    return {"logits": LOGITS[rows, :width]}


def negative_log_softmax():
    exp_logits = np.exp(LOGITS.astype("float64"))
    return -np.log(exp_logits / exp_logits.sum(1, keepdims=True))[
        np.arange(ROWS), CLASSES
    ]


def loss_of(objective):
    losses, metrics = objective(outputs_of(objective), batch_of(objective))
    weights = objective.loss_weights(batch_of(objective))
    means = objective.normalise(losses, weights)
    values = {k: float(v[0]) / float(v[1]) for k, v in metrics.items()}
    return float(means["loss"]), values


def test_classes():
    loss, metrics = loss_of(ClassesObjective())
    nll = negative_log_softmax()
    assert loss == pytest.approx(np.average(nll, weights=WEIGHTS), rel=1e-5)
    right = LOGITS.argmax(1) == CLASSES
    assert metrics == {
        "accuracy": pytest.approx(np.average(right, weights=WEIGHTS), rel=1e-5)
    }


def test_class_weights():
    factors = [0.5, 2.0, 3.0]
    loss, metrics = loss_of(ClassesObjective(factors))
    weights = WEIGHTS * np.array(factors)[CLASSES]
    expected = np.average(negative_log_softmax(), weights=weights)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert metrics == loss_of(ClassesObjective())[1]


def test_regression():
    loss, metrics = loss_of(RegressionObjective())
    error = LOGITS[:, 0] - NUMBERS
    expected = np.average(error**2, weights=WEIGHTS)
    assert loss == pytest.approx(expected, rel=1e-5)
    expected = np.average(abs(error), weights=WEIGHTS)
    assert metrics == {"absolute_error": pytest.approx(expected, rel=1e-5)}


def test_multi_label():
    loss, metrics = loss_of(MultiLabelObjective())
    chance = 1 / (1 + np.exp(-LOGITS.astype("float64")))
    nll = -np.log(np.where(SETS == 1, chance, 1 - chance)).mean(1)
    assert loss == pytest.approx(np.average(nll, weights=WEIGHTS), rel=1e-5)
    right = ((chance > 0.5) == (SETS == 1)).mean(1)
    expected = np.average(right, weights=WEIGHTS)
    assert metrics == {"label_accuracy": pytest.approx(expected, rel=1e-5)}


def test_multi_label_does_not_overflow():
    objective = MultiLabelObjective()
    batch = {
        "label_sets": np.array([[1.0, 0.0]], "float32"),
        "example_weights": np.ones(1, "float32"),
    }
    logits = np.array([[-300.0, 300.0]], "float32")
    losses, _ = objective({"logits": logits}, batch)
    assert float(losses["loss"]) == pytest.approx(300.0)


@pytest.mark.parametrize(
    "objective",
    [
        ClassesObjective(),
        ClassesObjective([0.5, 2.0, 3.0]),
        RegressionObjective(),
        MultiLabelObjective(),
    ],
)
def test_pieces_of_a_batch_add_up(objective):
    total, weight = 0.0, 0.0
    for rows in (slice(0, 5), slice(5, 6), slice(6, ROWS)):
        losses, _ = objective(
            outputs_of(objective, rows), batch_of(objective, rows)
        )
        total += float(losses["loss"])
        batch = batch_of(objective, rows)
        weight += float(objective.loss_weights(batch)["loss"])
    means = objective.normalise({"loss": total}, {"loss": weight})
    assert float(means["loss"]) == pytest.approx(
        loss_of(objective)[0], rel=1e-5
    )
