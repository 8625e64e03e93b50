"""The official scores of GLUE, and multi-label scores.

A metric takes N labels and N predictions as NumPy arrays of the same shape, and
computes in float64 or integers. Undefined scores, for example the correlation
with a constant, are 0 without a warning.
"""

import math
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError


def _checked(
    references: Sequence | np.ndarray, predictions: Sequence | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    references, predictions = np.asarray(references), np.asarray(predictions)
    if references.shape != predictions.shape:
        raise UserError(
            f"references have shape {references.shape} and predictions "
            f"{predictions.shape}; they must have the same."
        )
    if not references.size:
        raise UserError("references: there are none to score.")
    return references, predictions


def accuracy(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the share of correct predictions; any dtype, [N]."""
    references, predictions = _checked(references, predictions)
    return int(np.sum(references == predictions)) / len(references)


def _counts(
    references: np.ndarray, predictions: np.ndarray
) -> tuple[int, int, int]:
    """Counts class 1 in both, in the references and in the predictions."""
    references, predictions = _checked(references, predictions)
    gold, predicted = references == 1, predictions == 1
    # Python integers, because the product of four counts overflows int64.
    return (
        int(np.sum(gold & predicted)),
        int(np.sum(gold)),
        int(np.sum(predicted)),
    )


def binary_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the F1 of class 1, of classes 0 and 1, [N]."""
    num_correct, num_gold, num_predicted = _counts(references, predictions)
    total = num_gold + num_predicted
    return 2 * num_correct / total if total else 0.0


def macro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the mean F1 of the classes that occur; any dtype, [N]."""
    references, predictions = _checked(references, predictions)
    classes = np.union1d(references, predictions)
    return math.fsum(
        binary_f1(references == c, predictions == c) for c in classes
    ) / len(classes)


def matthews(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes Matthews' correlation (Matthews 1975) of 0 and 1, [N]."""
    num_correct, num_gold, num_predicted = _counts(references, predictions)
    count = len(references)
    product = (
        num_predicted * num_gold * (count - num_gold) * (count - num_predicted)
    )
    if not product:
        return 0.0
    # true positives * true negatives - false positives * false negatives
    covariance = num_correct * count - num_gold * num_predicted
    return covariance / math.sqrt(product)


def pearson(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes Pearson's correlation of numbers, [N]."""
    references, predictions = _checked(references, predictions)
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
    references, predictions = _checked(references, predictions)
    return pearson(ranks(references), ranks(predictions))


def subset_accuracy(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the share of rows with all labels correct, bool [N, C]."""
    references, predictions = _checked(references, predictions)
    correct = np.all(references == predictions, axis=1)
    return int(np.sum(correct)) / len(correct)


def label_micro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the F1 over all pairs of row and label, bool [N, C]."""
    return binary_f1(np.ravel(references), np.ravel(predictions))


def label_macro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the mean F1 of labels, bool [N, C], 0 of unused ones."""
    references, predictions = _checked(references, predictions)
    count = references.shape[1]
    return (
        math.fsum(
            binary_f1(references[:, c], predictions[:, c]) for c in range(count)
        )
        / count
    )
