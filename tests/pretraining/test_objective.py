"""The losses of every objective, by hand and cut into pieces."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import OF_BERT, numpy, pretraining_batch, small_config
from reference_bert import pretraining_loss

from bert_tf.pretraining.objective import OBJECTIVES, PretrainingObjective

CONFIG = small_config()
OBJECTIVE = PretrainingObjective()
# What the names of each one's losses and accuracies begin with.
TASKS = {
    "masked_lm_next_sentence": ["masked_lm", "next_sentence"],
    "masked_lm": ["masked_lm"],
    "left_to_right": ["next_token"],
}
every_objective = pytest.mark.parametrize("name", OF_BERT)


def random_outputs(batch, seed=0, dtype="float32") -> dict:
    random = np.random.default_rng(seed)
    rows, predictions = batch["masked_lm_ids"].shape
    outputs = {
        "masked_lm_logits": random.normal(0, 3, (rows, predictions, 41)),
        "next_sentence_logits": random.normal(0, 3, (rows, 2)),
    }
    return {k: keras.ops.cast(v, dtype) for k, v in outputs.items()}


def means(outputs, batch, objective=OBJECTIVE) -> dict[str, float]:
    losses, _ = objective(outputs, batch)
    result = objective.normalise(losses, objective.loss_weights(batch))
    return {name: float(value) for name, value in result.items()}


@pytest.mark.parametrize("seed", range(4))
@every_objective
def test_losses_and_metrics_are_the_reference(name, seed) -> None:
    batch = pretraining_batch(CONFIG, rows=5, seed=seed)
    outputs = random_outputs(batch, seed)
    exact = {k: numpy(v).astype("float64") for k, v in outputs.items()}
    weights = batch["masked_lm_weights"]
    guesses = exact["masked_lm_logits"].argmax(-1)
    # Half of them right, so that no accuracy is 0.
    batch["masked_lm_ids"][:, ::2] = guesses[:, ::2]
    losses = pretraining_loss(exact, batch)
    right = [
        (weights * (guesses == batch["masked_lm_ids"])).sum(),
        (
            exact["next_sentence_logits"].argmax(-1)
            == batch["next_sentence_labels"]
        ).sum(),
    ]
    totals = [weights.sum(), 5]
    objective, tasks = OBJECTIVES[name], TASKS[name]
    _, metrics = objective(outputs, batch)
    found = means(outputs, batch, objective)
    assert list(found) == [f"{task}_loss" for task in tasks]
    assert tuple(metrics) == objective.metrics
    assert list(metrics) == [f"{task}_accuracy" for task in tasks]
    for number, task in enumerate(tasks):
        np.testing.assert_allclose(
            found[f"{task}_loss"], losses[number], rtol=1e-6
        )
        assert 0 < right[number]
        assert [float(v) for v in metrics[f"{task}_accuracy"]] == [
            right[number],
            totals[number],
        ]
        sums = objective.loss_weights(batch)
        assert float(sums[f"{task}_loss"]) == totals[number]


def test_by_hand() -> None:
    batch = {
        "masked_lm_ids": np.int32([[2, 0], [1, 3]]),
        "masked_lm_weights": np.float32([[1, 0], [1, 1]]),
        "next_sentence_labels": np.int32([1, 0]),
    }
    outputs = {
        "masked_lm_logits": np.zeros((2, 2, 4), "float32"),
        "next_sentence_logits": np.float32([[0, np.log(3)], [0, np.log(3)]]),
    }
    outputs["masked_lm_logits"][1, 0, 1] = np.log(5)
    losses, metrics = OBJECTIVE(outputs, batch)
    weights = OBJECTIVE.loss_weights(batch)
    assert {k: float(v) for k, v in weights.items()} == {
        "masked_lm_loss": 3.0,
        "next_sentence_loss": 2.0,
    }
    words = 2 * np.log(4) + np.log(8 / 5)
    np.testing.assert_allclose(
        float(losses["masked_lm_loss"]), words, rtol=1e-6
    )
    np.testing.assert_allclose(
        float(losses["next_sentence_loss"]),
        np.log(4 / 3) + np.log(4),
        rtol=1e-6,
    )
    result = OBJECTIVE.normalise(losses, weights)
    np.testing.assert_allclose(
        float(result["masked_lm_loss"]), words / 3.00001, rtol=1e-6
    )
    # Of the three that count, one guess is right; ties go to the first id.
    assert [float(v) for v in metrics["masked_lm_accuracy"]] == [1.0, 3.0]
    assert [float(v) for v in metrics["next_sentence_accuracy"]] == [1.0, 2.0]


@settings(deadline=None, max_examples=30)
@given(
    name=st.sampled_from(OF_BERT),
    seed=st.integers(0, 1000),
    cut=st.integers(1, 5),
)
def test_pieces_add_up_to_the_whole(name, seed, cut) -> None:
    """Of packed rows, where sequences without a label count for nothing."""
    objective = OBJECTIVES[name]
    batch = pretraining_batch(CONFIG, rows=6, seed=seed)
    outputs = random_outputs(batch, seed)
    random = np.random.default_rng(seed)
    labels = random.integers(-1, 2, (6, 3), "int32")
    labels[:, 0] = 1
    batch["next_sentence_labels"] = labels
    outputs["next_sentence_logits"] = random.normal(0, 3, (6, 3, 2))
    losses, weights = {}, {}
    for part in (np.s_[:cut], np.s_[cut:]):
        piece = {name: value[part] for name, value in batch.items()}
        some, _ = objective({k: v[part] for k, v in outputs.items()}, piece)
        for sums, more in (
            (losses, some),
            (weights, objective.loss_weights(piece)),
        ):
            for name, value in more.items():
                sums[name] = sums.get(name, 0.0) + float(value)
    whole = means(outputs, batch, objective)
    for loss, value in objective.normalise(losses, weights).items():
        np.testing.assert_allclose(value, whole[loss], rtol=1e-5)


@every_objective
def test_unused_predictions_do_not_count(name) -> None:
    objective = OBJECTIVES[name]
    batch = pretraining_batch(CONFIG)
    outputs = random_outputs(batch)
    unused = batch["masked_lm_weights"] == 0
    assert unused.any()
    changed = dict(batch)
    changed["masked_lm_ids"] = np.where(unused, 0, batch["masked_lm_ids"])
    for before, after in zip(
        keras.tree.flatten(objective(outputs, batch)),
        keras.tree.flatten(objective(outputs, changed)),
        strict=True,
    ):
        assert float(before) == float(after)


@every_objective
def test_a_batch_without_predictions_is_no_nan(name) -> None:
    batch = pretraining_batch(CONFIG)
    batch["masked_lm_weights"] = batch["masked_lm_weights"] * 0
    losses = means(random_outputs(batch), batch, OBJECTIVES[name])
    assert losses[f"{TASKS[name][0]}_loss"] == 0.0


@every_objective
def test_everything_is_float32_even_from_bfloat16(name) -> None:
    batch = pretraining_batch(CONFIG)
    results = OBJECTIVES[name](random_outputs(batch, dtype="bfloat16"), batch)
    for value in keras.tree.flatten(results):
        assert keras.backend.standardize_dtype(value.dtype) == "float32"
