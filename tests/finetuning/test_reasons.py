"""Why a training learned nothing: each reason from the data of a run."""

import dataclasses
import re

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.families.task import score_scale
from bert_tf.finetuning.evaluation import summarize
from bert_tf.finetuning.reasons import is_degenerate, likely_reasons
from bert_tf.report.formats import score
from tests.finetuning.sentence_runs import model_folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of width 16, for which 2.4e-3 is a usual learning rate."""
    return load_checkpoint(
        model_folder(tmp_path_factory.mktemp("start") / "model")
    )


def reasons(trained, losses=(0.7, 0.3), **changes) -> str:
    """The reasons of a run of 200 steps without a fault but for `changes`."""
    train = {
        "labels": {"counts": {"a": 50, "b": 50}, "majority_share": 0.5},
        "tokens": {"unknown_word_share": 0.0},
        **changes.pop("train", {}),
    }
    results = {
        "model": "start",
        "dev": {"dev": {"accuracy": 0.5}},
        "examples": {"train": 100, "dev": 100},
        "train_rows": 100,
        "num_train_steps": 200,
        "recipe": {
            "learning_rate": 2.4e-3,
            "num_train_epochs": 3.0,
            "train_batch_size": 32,
        },
        "doctor": {
            "train_split": "train",
            "splits": {"train": train},
            "repeated": {"contradicting_texts": 0},
            **changes.pop("doctor", {}),
        },
    }
    results["recipe"] |= changes.pop("recipe", {})
    history = [{"step": n, "loss": loss} for n, loss in enumerate(losses)]
    return "\n".join(likely_reasons(results | changes, history, trained))


MOSTLY_B = {"counts": {"a": 9, "b": 91}, "majority_share": 0.91}


def test_a_run_without_a_fault_has_no_reason(trained) -> None:
    assert not reasons(trained)
    # Nor one of a family with other statistics.
    assert not reasons(trained, doctor={"splits": {}})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"num_train_steps": 6, "losses": [0.7]},
            r"6 optimizer steps are few; raise num_train_epochs from 3, or "
            r"lower train_batch_size from 32\.",
        ),
        (
            {"losses": [0.7, 0.69], "recipe": {"learning_rate": 0.1}},
            r"learning_rate=0\.1 is high for this model, and .* try 2e-03\.",
        ),
        (
            {"losses": [0.7, 0.69], "recipe": {"learning_rate": 1e-6}},
            r"learning_rate=1e-06 is low, and the loss did not fall; try 2e-03",
        ),
        ({"losses": [0.7, 0.69]}, r"the .* did not fall \(0\.7 to 0\.69\)"),
        ({"losses": [0.7, 0.01]}, r"the 100 .* learned \(loss 0\.01\), but"),
        (
            {"train": {"tokens": {"unknown_word_share": 0.2}}},
            r"20\.0 % of the words are \[UNK\] in this vocabulary",
        ),
        (
            {"train": {"labels": MOSTLY_B}},
            r"91\.0 % of the training rows have the label b, .*=balanced",
        ),
        (
            {"doctor": {"repeated": {"contradicting_texts": 8}}},
            r"8 texts have several labels in the training rows",
        ),
        ({"examples": {"train": 100, "dev": 2}}, r"dev has 2 rows, too few"),
    ],
)
def test_each_reason_is_seen_in_the_run(trained, changes, expected) -> None:
    line = reasons(trained, **changes)
    assert re.match(expected, line)
    assert "\n" not in line


def test_random_weights_are_the_first_of_three_reasons(trained) -> None:
    arrays = {
        name: np.ones_like(array) if name.endswith("gamma") else array
        for name, array in trained.arrays.items()
    }
    random = dataclasses.replace(trained, arrays=arrays)
    lines = reasons(
        random,
        losses=[0.7],
        num_train_steps=3,
        train={"tokens": {"unknown_word_share": 0.2}},
        examples={"train": 100, "dev": 2},
    ).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("start has random weights, which were never")
    assert lines[1].startswith("20.0 % of the words are [UNK]")
    assert lines[2].startswith("3 optimizer steps are few")


@pytest.mark.parametrize(
    ("score", "baseline", "costs", "expected"),
    [
        (0.6, 0.5, (), False),
        (0.5, 0.5, (), True),
        (0.1, float("nan"), (), False),
        (-0.1, float("nan"), (), True),
        (float("nan"), 0.5, (), True),
        (1.5, 2.0, ("error",), False),
        (2.0, 2.0, ("error",), True),
        (2.0, float("nan"), ("error",), False),
        (float("nan"), 2.0, ("error",), True),
    ],
)
def test_degenerate_is_no_better_than_the_baseline(
    score, baseline, costs, expected
) -> None:
    found = {
        "main_metric": "error",
        "dev": {"dev": {"error": score}},
        "majority": {"dev": {"error": baseline}},
        "lower_is_better": costs,
    }
    assert is_degenerate(found) is expected


def test_a_cost_is_not_shown_times_100() -> None:
    assert summarize({"f1": 0.5, "error": 0.5}, ["error"]) == (
        "f1 50.00, error 0.50"
    )
    assert summarize({"points": 3.25, "pearson": -0.5}, []) == (
        "points 3.25, pearson -50.00"
    )
    assert score_scale([0.4, None, float("nan"), 1.0], False) == 100
    assert score_scale([0.4, 1.2], False) == 1
    assert score_scale([0.4], True) == 1
    assert score(0.456, 100) == "45.6"
    assert score(0.456, 1) == "0.456"
    assert score(None, 1) == score(None, 100) == ""
