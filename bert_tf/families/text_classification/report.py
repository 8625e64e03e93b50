"""Statistics of text classifiers for the report.

Rows are the lines of dev_predictions.jsonl: "label" and "prediction" are a
class, a number, or a list of labels; "probabilities" are those of all labels,
and are missing for numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.statistics import (
    NUM_MISTAKES,
    class_calibration,
    confusion_matrix,
    confusions,
    label_calibration,
    per_label,
)

_SCATTER_POINTS = 2000
_RESIDUAL_BINS = 31
_DESCRIBED = ("identifier", "row", "text_a", "text_b", "label", "prediction")

Row = Mapping[str, Any]


def statistics(
    rows: Sequence[Row], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Computes the statistics of dev predictions by the kind of label."""
    labels = results["labels"]
    if not labels:
        return _regression_statistics(rows)
    if isinstance(rows[0]["label"], str):
        return _class_statistics(rows, labels)
    return _multi_label_statistics(rows, labels)


def _class_statistics(
    rows: Sequence[Row], labels: Sequence[str]
) -> dict[str, Any]:
    """Computes confusion matrix, per-class scores, calibration, mistakes."""
    index = {label: i for i, label in enumerate(labels)}
    truth = np.array([index[row["label"]] for row in rows])
    predicted = np.array([index[row["prediction"]] for row in rows])
    probabilities = np.array([row["probabilities"] for row in rows])
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (truth, predicted), 1)
    numbers = np.arange(len(rows))
    confidence = probabilities[numbers, predicted]
    of_label = probabilities[numbers, truth]
    return {
        "num_examples": len(rows),
        "confusion_matrix": confusion_matrix(counts, labels),
        "confusions": confusions(counts, labels),
        "per_label": per_label(
            labels, np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)
        ),
        "calibration": class_calibration(probabilities, truth),
        "mistakes": _mistakes(
            rows,
            truth != predicted,
            confidence,
            lambda i: {
                "confidence": float(confidence[i]),
                "label_probability": float(of_label[i]),
            },
        ),
    }


def _multi_label_statistics(
    rows: Sequence[Row], labels: Sequence[str]
) -> dict[str, Any]:
    """Computes per-label scores, calibration and mistakes."""
    truth = _indicators([row["label"] for row in rows], labels)
    predicted = _indicators([row["prediction"] for row in rows], labels)
    probabilities = np.array([row["probabilities"] for row in rows])
    wrong = truth != predicted
    mistaken = np.where(truth, 1 - probabilities, probabilities)
    confidence = np.where(wrong, mistaken, 0.0).max(axis=1)

    def chosen(i: int, mask: np.ndarray) -> dict[str, float]:
        return {
            label: float(probabilities[i, k])
            for k, label in enumerate(labels)
            if mask[i, k]
        }

    return {
        "num_examples": len(rows),
        "exact_matches": int((truth == predicted).all(axis=1).sum()),
        "per_label": per_label(
            labels,
            (truth & predicted).sum(axis=0),
            predicted.sum(axis=0),
            truth.sum(axis=0),
        ),
        "calibration": label_calibration(probabilities, truth),
        # By the most confident mistake about any label.
        "mistakes": _mistakes(
            rows,
            wrong.any(axis=1),
            confidence,
            lambda i: {
                "confidence": float(confidence[i]),
                "missed": chosen(i, truth & ~predicted),
                "added": chosen(i, predicted & ~truth),
            },
        ),
    }


def _indicators(
    sets: Sequence[Sequence[str]], labels: Sequence[str]
) -> np.ndarray:
    """Converts sets of labels to bool [N, C]."""
    return np.array([[label in each for label in labels] for each in sets])


def _regression_statistics(rows: Sequence[Row]) -> dict[str, Any]:
    """Computes points of true and predicted values, errors and mistakes.

    "mean_error" is the mean of prediction - label.
    """
    truth = np.array([row["label"] for row in rows], np.float64)
    predicted = np.array([row["prediction"] for row in rows], np.float64)
    errors = predicted - truth
    # Symmetric around 0, which makes a bias visible.
    reach = float(np.abs(errors).max()) or 1.0
    counts, edges = np.histogram(errors, _RESIDUAL_BINS, (-reach, reach))
    every = -(-len(rows) // _SCATTER_POINTS)
    return {
        "num_examples": len(rows),
        "scatter": {
            "every": every,
            "true": truth[::every].tolist(),
            "predicted": predicted[::every].tolist(),
        },
        "residuals": {
            "edges": edges.tolist(),
            "counts": counts.tolist(),
            "mean_error": float(errors.mean()),
            "mean_absolute_error": float(np.abs(errors).mean()),
            "root_mean_squared_error": float(np.sqrt(np.square(errors).mean())),
            "median_absolute_error": float(np.median(np.abs(errors))),
        },
        "mistakes": _mistakes(
            rows,
            errors != 0,
            np.abs(errors),
            lambda i: {"error": float(errors[i])},
        ),
    }


def _mistakes(
    rows: Sequence[Row],
    wrong: np.ndarray,
    severity: np.ndarray,
    details: Callable[[int], dict[str, Any]],
) -> dict[str, Any]:
    """Describes the wrong rows of highest severity, with details by index."""
    order = np.argsort(-severity, kind="stable")
    worst = [int(index) for index in order if wrong[index]][:NUM_MISTAKES]
    return {
        "total": int(wrong.sum()),
        "worst": [
            {name: rows[i][name] for name in _DESCRIBED} | details(i)
            for i in worst
        ],
    }
