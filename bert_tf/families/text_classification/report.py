"""Report statistics of texts with a class, a value or a set of labels.

Rows are those of dev_predictions.jsonl: "label" and "prediction" are a class,
a number, or a list of labels; "probabilities" has one value per class and is
missing for numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.report.statistics import (
    class_statistics,
    label_calibration,
    per_label,
    worst_mistakes,
)

_SCATTER_POINTS = 2000
_RESIDUAL_BINS = 31
_SHOWN = ("identifier", "row", "text_a", "text_b", "label", "prediction")

Row = Mapping[str, Any]


def statistics(
    rows: Sequence[Row], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Statistics of the dev rows, by the type of the labels."""
    labels = results["labels"]
    shown = [{name: row[name] for name in _SHOWN} for row in rows]
    if not labels:
        return _regression_statistics(rows, shown)
    probabilities = np.array([row["probabilities"] for row in rows])
    if isinstance(rows[0]["label"], str):
        index = {label: i for i, label in enumerate(labels)}
        truth = np.array([index[row["label"]] for row in rows])
        predicted = np.array([index[row["prediction"]] for row in rows])
        return class_statistics(truth, predicted, probabilities, labels, shown)
    return _multi_label_statistics(rows, shown, labels, probabilities)


def _multi_label_statistics(
    rows: Sequence[Row],
    shown: Sequence[Row],
    labels: Sequence[str],
    probabilities: np.ndarray,
) -> dict[str, Any]:
    """Scores of each label, calibration, and the rows with wrong labels.

    A mistake is as bad as its most confident wrong decision about a label.
    """
    # bool [N, C]
    truth, predicted = (
        np.array([[label in row[key] for label in labels] for row in rows])
        for key in ("label", "prediction")
    )
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
        "num_examples": len(rows),
        "exact_matches": int((~wrong).all(axis=1).sum()),
        "per_label": per_label(
            labels,
            (truth & predicted).sum(axis=0),
            predicted.sum(axis=0),
            truth.sum(axis=0),
        ),
        "calibration": label_calibration(probabilities, truth),
        "mistakes": worst_mistakes(
            confidence,
            wrong.any(axis=1),
            [
                {
                    **row,
                    "confidence": float(confidence[i]),
                    "missed": chosen(i, truth[i] & ~predicted[i]),
                    "added": chosen(i, predicted[i] & ~truth[i]),
                }
                for i, row in enumerate(shown)
            ],
        ),
    }


def _regression_statistics(
    rows: Sequence[Row], shown: Sequence[Row]
) -> dict[str, Any]:
    """True and predicted values, their differences, and the largest errors.

    An error is prediction - label: "mean_error" above 0 means that the model
    predicts too high.
    """
    truth = np.array([row["label"] for row in rows], np.float64)
    predicted = np.array([row["prediction"] for row in rows], np.float64)
    errors = predicted - truth
    # Symmetric about 0, which makes a bias of the model visible.
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
        "mistakes": worst_mistakes(
            np.abs(errors),
            errors != 0,
            [
                {**row, "error": float(error)}
                for row, error in zip(shown, errors, strict=True)
            ],
        ),
    }
