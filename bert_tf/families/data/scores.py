"""Scores of numbers, such as the similarities of pairs.

They take N labels and N predictions, and compute in float64. Undefined scores,
for example the correlation with a constant, are 0 without a warning.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError


def checked(
    references: Sequence | np.ndarray, predictions: Sequence | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns labels and predictions as arrays of the same shape."""
    references, predictions = np.asarray(references), np.asarray(predictions)
    if references.shape != predictions.shape:
        raise UserError(
            f"references have shape {references.shape} and predictions "
            f"{predictions.shape}; they must have the same."
        )
    if not references.size:
        raise UserError("references: there are none to score.")
    return references, predictions


def pearson(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes Pearson's correlation of numbers, [N]."""
    references, predictions = checked(references, predictions)
    if np.ptp(references) == 0 or np.ptp(predictions) == 0:
        return 0.0
    x, y = _standardised(references), _standardised(predictions)
    return float(np.clip(np.dot(x, y), -1.0, 1.0))


def _standardised(values: np.ndarray) -> np.ndarray:
    """Standardizes values to mean 0 and Euclidean norm 1, in float64."""
    values = values.astype(np.float64)
    values = values - values.mean()
    # Dividing by the largest first prevents underflow of squares.
    values = values / np.max(np.abs(values))
    return values / np.linalg.norm(values)


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks numbers [N] from 1; ties share the mean of their ranks."""
    _, group, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


def spearman(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes Spearman's correlation of numbers, [N]."""
    references, predictions = checked(references, predictions)
    return pearson(ranks(references), ranks(predictions))


class BestThreshold(NamedTuple):
    """The best value of a score, and the threshold that gives it."""

    value: float
    threshold: float


def _by_threshold(
    labels: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts rows whose score is at least a threshold, of each distinct score.

    Returns:
      The distinct scores, descending, the rows at or above each of them, and
      those among them with the label 1.
    """
    labels, scores = checked(labels, scores)
    values, index = np.unique(-scores.astype(np.float64), return_inverse=True)
    size = len(values)
    rows = np.cumsum(np.bincount(index, minlength=size))
    correct = np.cumsum(np.bincount(index, labels == 1, minlength=size))
    return -values, rows, correct


def _best(values: np.ndarray, thresholds: np.ndarray) -> BestThreshold:
    """Returns the best value, with a threshold halfway to the next score."""
    place = int(np.argmax(values))
    between = thresholds[place : place + 2].mean()
    return BestThreshold(float(values[place]), float(between))


def best_accuracy(labels: np.ndarray, scores: np.ndarray) -> BestThreshold:
    """Computes the best accuracy of labels 0 and 1 by a threshold, [N]."""
    thresholds, rows, correct = _by_threshold(labels, scores)
    # A threshold above all scores predicts no 1.
    thresholds = np.append(np.inf, thresholds)
    rows, correct = np.append(0, rows), np.append(0, correct)
    wrong = rows - correct + correct[-1] - correct
    best = _best(1 - wrong / rows[-1], thresholds)
    if best.threshold == np.inf:
        return best._replace(threshold=float(thresholds[1]) + 1e-6)
    return best


def best_f1(labels: np.ndarray, scores: np.ndarray) -> BestThreshold:
    """Computes the best F1 of label 1 by a threshold, [N]."""
    thresholds, rows, correct = _by_threshold(labels, scores)
    return _best(2 * correct / (rows + correct[-1]), thresholds)


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    """Computes the mean precision over the ranks of labels 1, [N].

    As scikit-learn's average_precision_score: rows of equal score have one
    rank.
    """
    _, rows, correct = _by_threshold(labels, scores)
    if not correct[-1]:
        return 0.0
    gained = np.diff(correct, prepend=0)
    return float(np.sum(gained * correct / rows) / correct[-1])
