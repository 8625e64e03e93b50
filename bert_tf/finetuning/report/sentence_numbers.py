"""The numbers of a report on sentences: what its tables show, for JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.report.calibration import (
    class_calibration,
    label_calibration,
)
from bert_tf.finetuning.report.checks import PREDICTIONS
from bert_tf.finetuning.report.confusion import (
    confusion_matrix,
    confusions,
    per_label,
)
from bert_tf.finetuning.report.sentence_mistakes import (
    class_mistakes,
    multi_label_mistakes,
    regression_mistakes,
)
from bert_tf.finetuning.report.sentence_rows import DevPrediction

_SCATTER_POINTS = 2000
_RESIDUAL_BINS = 31


def sentence_numbers(
    rows: Sequence[DevPrediction], results: Mapping[str, Any]
) -> dict[str, Any]:
    """What the answers to the dev rows show, by the kind of the labels.

    Raises:
      UserError: some labels are lists and some are not.
    """
    labels = results["labels"]
    if not labels:
        return regression_numbers(rows)
    kinds = {isinstance(row.label, list) for row in rows}
    if len(kinds) > 1:
        raise UserError(
            f"{PREDICTIONS}: some labels are lists and some are not; all rows "
            "must be of one kind."
        )
    if kinds == {True}:
        return multi_label_numbers(rows, labels)
    return class_numbers(rows, labels)


def class_numbers(
    rows: Sequence[DevPrediction], labels: Sequence[str]
) -> dict[str, Any]:
    """Confusion matrix, per-class scores, calibration and mistakes."""
    index = {label: i for i, label in enumerate(labels)}
    truth = np.array([index[row.label] for row in rows])
    answers = np.array([index[row.prediction] for row in rows])
    probabilities = np.array([row.probabilities for row in rows])
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (truth, answers), 1)
    right = np.diag(counts)
    return {
        "num_examples": len(rows),
        "confusion_matrix": confusion_matrix(counts, labels),
        "confusions": confusions(counts, labels),
        "per_label": per_label(
            labels, right, counts.sum(axis=0), counts.sum(axis=1)
        ),
        "calibration": class_calibration(probabilities, truth),
        "mistakes": class_mistakes(rows, labels),
    }


def multi_label_numbers(
    rows: Sequence[DevPrediction], labels: Sequence[str]
) -> dict[str, Any]:
    """Per-label scores, calibration and mistakes."""
    truth = _indicators([row.label for row in rows], labels)
    answers = _indicators([row.prediction for row in rows], labels)
    probabilities = np.array([row.probabilities for row in rows])
    return {
        "num_examples": len(rows),
        "exact_matches": int((truth == answers).all(axis=1).sum()),
        "per_label": per_label(
            labels,
            (truth & answers).sum(axis=0),
            answers.sum(axis=0),
            truth.sum(axis=0),
        ),
        "calibration": label_calibration(probabilities, truth),
        "mistakes": multi_label_mistakes(rows, labels),
    }


def _indicators(
    sets: Sequence[Sequence[str]], labels: Sequence[str]
) -> np.ndarray:
    """Bool [N, C], true where the row holds the label."""
    return np.array([[label in each for label in labels] for each in sets])


def regression_numbers(rows: Sequence[DevPrediction]) -> dict[str, Any]:
    """Points of true and predicted values, errors and mistakes.

    "mean_absolute_error" is the mean of |prediction - label|,
    "root_mean_squared_error" the root of the mean of its square, "mean_error"
    the mean of prediction - label (above 0: the model guesses too high).
    """
    truth = np.array([row.label for row in rows], np.float64)
    answers = np.array([row.prediction for row in rows], np.float64)
    errors = answers - truth
    # Symmetric, so that a bias of the model is seen at once.
    reach = float(np.abs(errors).max()) or 1.0
    counts, edges = np.histogram(errors, _RESIDUAL_BINS, (-reach, reach))
    every = -(-len(rows) // _SCATTER_POINTS)
    return {
        "num_examples": len(rows),
        "scatter": {
            "every": every,
            "true": truth[::every].tolist(),
            "predicted": answers[::every].tolist(),
        },
        "residuals": {
            "edges": edges.tolist(),
            "counts": counts.tolist(),
            "mean_error": float(errors.mean()),
            "mean_absolute_error": float(np.abs(errors).mean()),
            "root_mean_squared_error": float(np.sqrt(np.square(errors).mean())),
            "median_absolute_error": float(np.median(np.abs(errors))),
        },
        "mistakes": regression_mistakes(rows),
    }
