"""The official scores of GLUE besides correlations, and multi-label scores.

A metric takes N labels and N predictions as NumPy arrays of the same shape, and
computes in float64 or integers. Undefined scores, for example the correlation
with a constant, are 0 without a warning.
"""

import math

import numpy as np

from bert_tf.families.data.scores import checked


def accuracy(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the share of correct predictions; any dtype, [N]."""
    references, predictions = checked(references, predictions)
    return int(np.sum(references == predictions)) / len(references)


def _counts(
    references: np.ndarray, predictions: np.ndarray
) -> tuple[int, int, int]:
    """Counts class 1 in both, in the references and in the predictions."""
    references, predictions = checked(references, predictions)
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
    references, predictions = checked(references, predictions)
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


def subset_accuracy(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the share of rows with all labels correct, bool [N, C]."""
    references, predictions = checked(references, predictions)
    correct = np.all(references == predictions, axis=1)
    return int(np.sum(correct)) / len(correct)


def label_micro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the F1 over all pairs of row and label, bool [N, C]."""
    return binary_f1(np.ravel(references), np.ravel(predictions))


def label_macro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """Computes the mean F1 of labels, bool [N, C], 0 of unused ones."""
    references, predictions = checked(references, predictions)
    count = references.shape[1]
    return (
        math.fsum(
            binary_f1(references[:, c], predictions[:, c]) for c in range(count)
        )
        / count
    )
