"""Report statistics of texts with a class, a value or a set of labels.

Rows are those of dev_predictions.jsonl: "label" and "prediction" are a class,
a number, or the list of the classes that hold; "probabilities" has one of each
class, and is not there for numbers.
"""

from collections.abc import Mapping, Sequence
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
    """What the answers to the dev rows show, by the form of the labels."""
    labels = results["labels"]
    if not labels:
        return _regression_statistics(rows)
    if isinstance(rows[0]["label"], str):
        return _class_statistics(rows, labels)
    return _multi_label_statistics(rows, labels)


def _class_statistics(
    rows: Sequence[Row], labels: Sequence[str]
) -> dict[str, Any]:
    """Confusion matrix, per-class scores, calibration and mistakes."""
    index = {label: i for i, label in enumerate(labels)}
    truth = np.array([index[row["label"]] for row in rows])
    predicted = np.array([index[row["prediction"]] for row in rows])
    probabilities = np.array([row["probabilities"] for row in rows])
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (truth, predicted), 1)
    numbers = np.arange(len(rows))
    confidence = probabilities[numbers, predicted]
    of_label = probabilities[numbers, truth]
    wrong = truth != predicted
    return {
        "num_examples": len(rows),
        "confusion_matrix": confusion_matrix(counts, labels),
        "confusions": confusions(counts, labels),
        "per_label": per_label(
            labels, np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)
        ),
        "calibration": class_calibration(probabilities, truth),
        "mistakes": {
            "total": int(wrong.sum()),
            "worst": [
                _described(rows[i])
                | {
                    "confidence": float(confidence[i]),
                    "label_probability": float(of_label[i]),
                }
                for i in _worst(confidence, wrong)
            ],
        },
    }


def _multi_label_statistics(
    rows: Sequence[Row], labels: Sequence[str]
) -> dict[str, Any]:
    """Per-label scores, calibration and mistakes."""
    truth = _indicators([row["label"] for row in rows], labels)
    predicted = _indicators([row["prediction"] for row in rows], labels)
    probabilities = np.array([row["probabilities"] for row in rows])
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
        "mistakes": _multi_label_mistakes(
            rows, labels, truth, predicted, probabilities
        ),
    }


def _indicators(
    sets: Sequence[Sequence[str]], labels: Sequence[str]
) -> np.ndarray:
    """Bool [N, C], true where the row holds the label."""
    return np.array([[label in each for label in labels] for each in sets])


def _regression_statistics(rows: Sequence[Row]) -> dict[str, Any]:
    """Points of true and predicted values, errors and mistakes.

    "mean_absolute_error" is the mean of |prediction - label|,
    "root_mean_squared_error" the root of the mean of its square, "mean_error"
    the mean of prediction - label (above 0: the model guesses too high).
    """
    truth = np.array([row["label"] for row in rows], np.float64)
    predicted = np.array([row["prediction"] for row in rows], np.float64)
    errors = predicted - truth
    # Symmetric, so that a bias of the model is seen at once.
    reach = float(np.abs(errors).max()) or 1.0
    counts, edges = np.histogram(errors, _RESIDUAL_BINS, (-reach, reach))
    every = -(-len(rows) // _SCATTER_POINTS)
    wrong = errors != 0
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
        "mistakes": {
            "total": int(wrong.sum()),
            "worst": [
                _described(rows[i]) | {"error": float(errors[i])}
                for i in _worst(np.abs(errors), wrong)
            ],
        },
    }


def _multi_label_mistakes(
    rows: Sequence[Row],
    labels: Sequence[str],
    truth: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
) -> dict[str, Any]:
    """The rows with the surest wrong decision about any one label.

    Args:
      rows: N rows.
      labels: C labels.
      truth: bool [N, C], the labels that hold.
      predicted: bool [N, C], those that were given.
      probabilities: float [N, C].
    """
    wrong = truth != predicted
    of_wrong_side = np.where(truth, 1 - probabilities, probabilities)
    confidence = np.where(wrong, of_wrong_side, 0.0).max(axis=1)

    def chosen(i: int, mask: np.ndarray) -> dict[str, float]:
        return {
            label: float(probabilities[i, k])
            for k, label in enumerate(labels)
            if mask[k]
        }

    return {
        "total": int(wrong.any(axis=1).sum()),
        "worst": [
            _described(rows[i])
            | {
                "confidence": float(confidence[i]),
                "missed": chosen(i, truth[i] & ~predicted[i]),
                "added": chosen(i, predicted[i] & ~truth[i]),
            }
            for i in _worst(confidence, wrong.any(axis=1))
        ],
    }


def _worst(badness: np.ndarray, wrong: np.ndarray) -> list[int]:
    """Indices of the wrong rows, the worst first; ties keep their order."""
    order = np.argsort(-badness, kind="stable")
    return [int(index) for index in order if wrong[index]][:NUM_MISTAKES]


def _described(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in _DESCRIBED}
