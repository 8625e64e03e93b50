"""Why a training is no better than the baseline, from the data of the run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints import Checkpoint
from bert_tf.families.checks import MUCH_UNKNOWN, percent

# The most reasons that are given, the likeliest first.
_SHOWN = 3
# Fewer steps seldom train a new head.
_FEW_STEPS = 50
# A training loss above the first part of the first row did not fall; below the
# second, the rows were learned.
_NOT_FALLEN, _LEARNED = 0.9, 0.3
# The learning rate of an encoder of this width, and how far from it is far.
_LEARNING_RATE, _WIDTH, _FAR = 5e-5, 768, 5
_MAJORITY, _FEW_DEV_ROWS, _CONTRADICTIONS = 0.8, 30, 0.05


def is_degenerate(results: Mapping[str, Any]) -> bool:
    """Whether a run's main score on dev is no better than the baseline.

    Args:
      results: the contents of results.json.
    """
    metric = results["main_metric"]
    score = next(iter(results["dev"].values()))[metric]
    baseline = next(iter(results["majority"].values()))[metric]
    if math.isnan(score):
        return True
    if metric in results.get("lower_is_better", ()):
        return bool(score >= baseline)
    # The correlation with a constant baseline is NaN, and counts as 0.
    return bool(score <= np.nan_to_num(baseline))


def likely_reasons(
    results: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
    initial: Checkpoint,
) -> list[str]:
    """Why a run learned nothing, in lines that say what to try.

    Args:
      results: the contents of results.json.
      history: the rows of history.jsonl.
      initial: the model that the run started from.

    Returns:
      The likeliest reasons, at most three.
    """
    data = _reasons_in_data(results)
    found = [
        *_untrained(initial, results),
        *data[:1],
        *_reasons_in_training(results, history, initial.config.hidden_size),
        *data[1:],
    ]
    return found[:_SHOWN]


def _untrained(
    initial: Checkpoint, results: Mapping[str, Any]
) -> Iterator[str]:
    """Random weights: every scale of a layer norm is still 1."""
    scales = [
        array
        for name, array in initial.arrays.items()
        if name.startswith("bert/encoder/") and name.endswith("/gamma")
    ]
    if scales and all(np.all(np.asarray(array) == 1.0) for array in scales):
        yield (
            f"{results['model']} has random weights, which were never "
            "pre-trained; start from a pre-trained model."
        )


def _reasons_in_data(results: Mapping[str, Any]) -> list[str]:
    doctor = results["doctor"]
    train = doctor.get("splits", {}).get(doctor.get("train_split"), {})
    found = []
    unknown = train.get("tokens", {}).get("unknown_word_share", 0.0)
    if unknown > MUCH_UNKNOWN:
        found.append(
            f"{percent(unknown)} of the words are [UNK] in this vocabulary; "
            "choose a model of this language and kind of text."
        )
    rows = results["train_rows"]
    doubtful = doctor.get("repeated", {}).get("contradicting_texts", 0)
    if doubtful > _CONTRADICTIONS * rows:
        found.append(
            f"{doubtful:,} texts have several labels in the training rows; "
            "look at the labels."
        )
    labels = train.get("labels", {})
    majority = labels.get("majority_share", 0.0)
    if majority > _MAJORITY:
        name = max(labels["counts"], key=labels["counts"].__getitem__)
        found.append(
            f"{percent(majority)} of the training rows have the label {name}, "
            "which is hard to beat; try class_weights=balanced, and look at "
            "macro F1."
        )
    dev = next(iter(results["dev"]))
    dev_rows = results["examples"][dev]
    if dev_rows < _FEW_DEV_ROWS:
        found.append(
            f"{dev} has {dev_rows:,} rows, too few to tell one model from "
            "another; evaluate on more."
        )
    return found


def _reasons_in_training(
    results: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
    width: int,
) -> Iterator[str]:
    recipe, steps = results["recipe"], results["num_train_steps"]
    rate, usual = recipe["learning_rate"], _LEARNING_RATE * _WIDTH / width
    losses = [row["loss"] for row in history if "loss" in row]
    # One row does not show whether the loss fell.
    fell = len(losses) > 1 and losses[-1] < _NOT_FALLEN * losses[0]
    if steps < _FEW_STEPS and not fell:
        yield (
            f"{steps:,} optimizer steps are few; raise num_train_epochs from "
            f"{recipe['num_train_epochs']:g}, or lower train_batch_size from "
            f"{recipe['train_batch_size']}."
        )
    if not fell and rate > _FAR * usual:
        yield (
            f"learning_rate={rate:g} is high for this model, and the loss did "
            f"not fall; try {usual:.0e}."
        )
    elif not fell and rate * _FAR < usual:
        yield (
            f"learning_rate={rate:g} is low, and the loss did not fall; try "
            f"{usual:.0e}."
        )
    elif len(losses) > 1 and not fell and steps >= _FEW_STEPS:
        yield (
            f"the training loss did not fall ({losses[0]:.3g} to "
            f"{losses[-1]:.3g}); try another learning_rate than {rate:g}, and "
            "look at the texts and labels."
        )
    if len(losses) > 1 and losses[-1] < _LEARNED * losses[0]:
        yield (
            f"the {results['train_rows']:,} training rows are learned (loss "
            f"{losses[-1]:.2g}), but what was learned does not hold in dev; "
            "train on more rows, and compare the labels of both."
        )
