"""The worst mistakes of a model on rows with known answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.finetuning.report.kind import NUM_MISTAKES
from bert_tf.finetuning.report.sentence_rows import DevPrediction


def _worst(badness: np.ndarray, wrong: np.ndarray) -> list[int]:
    """Indices of the wrong rows, the worst first; ties keep their order."""
    order = np.argsort(-badness, kind="stable")
    return [int(index) for index in order if wrong[index]][:NUM_MISTAKES]


def _described(row: DevPrediction) -> dict[str, Any]:
    return {
        "identifier": row.identifier,
        "row": row.row,
        "text_a": row.text_a,
        "text_b": row.text_b,
        "label": row.label,
        "prediction": row.prediction,
    }


def class_mistakes(
    rows: Sequence[DevPrediction], labels: Sequence[str]
) -> dict[str, Any]:
    """The wrong rows whose predicted class had the highest probability.

    Args:
      rows: with one class as their label.
      labels: the classes, in the order of the probabilities.

    Returns:
      "total", the number of all wrong rows, and "worst", the description of
      some with "confidence" (probability of the predicted class) and
      "label_probability" (of the true one).
    """
    wrong = np.array([row.label != row.prediction for row in rows])
    confidence = np.array(
        [row.probability(labels.index(row.prediction)) for row in rows]
    )
    worst = [
        _described(rows[index])
        | {
            "confidence": float(confidence[index]),
            "label_probability": rows[index].probability(
                labels.index(rows[index].label)
            ),
        }
        for index in _worst(confidence, wrong)
    ]
    return {"total": int(wrong.sum()), "worst": worst}


def regression_mistakes(rows: Sequence[DevPrediction]) -> dict[str, Any]:
    """The rows with the largest errors, whatever their sign.

    Args:
      rows: with a number as their label.

    Returns:
      "total", the number of all rows that are not exact, and "worst", the
      description of some with "error" (prediction - label).
    """
    errors = np.array([row.prediction - row.label for row in rows])
    wrong = errors != 0
    worst = [
        _described(rows[index]) | {"error": float(errors[index])}
        for index in _worst(np.abs(errors), wrong)
    ]
    return {"total": int(wrong.sum()), "worst": worst}


def multi_label_mistakes(
    rows: Sequence[DevPrediction], labels: Sequence[str]
) -> dict[str, Any]:
    """The rows with the surest wrong decision about any one label.

    Args:
      rows: with a list of classes as their label.
      labels: the classes, in the order of the probabilities.

    Returns:
      "total", the number of rows with any wrong decision, and "worst", the
      description of some with "missed" and "added" (labels, each with its
      probability) and "confidence" (the largest probability given to the
      wrong side of a label).
    """
    wrong, confidence = [], []
    for row in rows:
        decided_wrong = set(row.label) ^ set(row.prediction)
        wrong.append(bool(decided_wrong))
        confidence.append(
            max(
                (_wrong_side(row, labels, each) for each in decided_wrong),
                default=0.0,
            )
        )
    worst = []
    for index in _worst(np.array(confidence), np.array(wrong)):
        row = rows[index]
        truth, answer = set(row.label), set(row.prediction)
        given = {label: row.probability(k) for k, label in enumerate(labels)}
        worst.append(
            _described(row)
            | {
                "confidence": confidence[index],
                "missed": {x: given[x] for x in labels if x in truth - answer},
                "added": {x: given[x] for x in labels if x in answer - truth},
            }
        )
    return {"total": sum(wrong), "worst": worst}


def _wrong_side(row: DevPrediction, labels: Sequence[str], label: str) -> float:
    """The probability given to what is not so about one label."""
    probability = row.probability(labels.index(label))
    return 1 - probability if label in row.label else probability
