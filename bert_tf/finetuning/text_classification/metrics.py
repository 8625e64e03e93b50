"""The official scores of GLUE, and those of several labels a row.

All take NumPy arrays and compute in float64 or whole numbers. Where a score
is not defined (nothing varies, nothing was found) it is 0, without a warning.
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
            f"{predictions.shape}; they must be alike."
        )
    if not references.size:
        raise UserError("references: there are none to score.")
    return references, predictions


def accuracy(references: np.ndarray, predictions: np.ndarray) -> float:
    """The share of predictions that are right.

    Args:
      references: the answers, of any type [N].
      predictions: what was predicted, alike.
    """
    references, predictions = _checked(references, predictions)
    return int(np.sum(references == predictions)) / len(references)


def _f1(true_positives: int, found: int, wanted: int) -> float:
    """F1 of a class, from counts: found by the model, wanted by the file."""
    return 2 * true_positives / (found + wanted) if found + wanted else 0.0


def binary_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """The harmonic mean of precision and recall of class 1.

    Args:
      references: classes 0 and 1, int [N].
      predictions: alike.
    """
    references, predictions = _checked(references, predictions)
    wanted, found = references == 1, predictions == 1
    return _f1(
        int(np.sum(wanted & found)), int(np.sum(found)), int(np.sum(wanted))
    )


def macro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """The mean F1 of the classes that occur in either.

    Args:
      references: the classes, of any type [N].
      predictions: alike.
    """
    references, predictions = _checked(references, predictions)
    classes = np.union1d(references, predictions)
    return math.fsum(
        binary_f1(references == c, predictions == c) for c in classes
    ) / len(classes)


def matthews(references: np.ndarray, predictions: np.ndarray) -> float:
    """Matthews' correlation of two classes (Matthews 1975).

    Args:
      references: classes 0 and 1, int [N].
      predictions: alike.
    """
    references, predictions = _checked(references, predictions)
    wanted, found = references == 1, predictions == 1
    # Python's whole numbers: the product of four counts outgrows int64.
    both = int(np.sum(wanted & found))
    neither = int(np.sum(~wanted & ~found))
    missed = int(np.sum(wanted & ~found))
    wrong = int(np.sum(~wanted & found))
    product = (
        (both + wrong)
        * (both + missed)
        * (neither + wrong)
        * (neither + missed)
    )
    if not product:
        return 0.0
    return (both * neither - wrong * missed) / math.sqrt(product)


def pearson(references: np.ndarray, predictions: np.ndarray) -> float:
    """Pearson's correlation.

    Args:
      references: numbers [N].
      predictions: numbers [N].
    """
    references, predictions = _checked(references, predictions)
    if np.ptp(references) == 0 or np.ptp(predictions) == 0:
        return 0.0
    x, y = _standardised(references), _standardised(predictions)
    return float(np.clip(np.dot(x, y), -1.0, 1.0))


def _standardised(values: np.ndarray) -> np.ndarray:
    """Values with mean 0 and Euclidean length 1, in float64."""
    values = values.astype(np.float64)
    values = values - values.mean()
    # Divided by the largest first, so that no square is lost.
    values = values / np.max(np.abs(values))
    return values / np.linalg.norm(values)


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of their ranks.

    Args:
      values: numbers [N].

    Returns:
      float64 [N].
    """
    _, group, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


def spearman(references: np.ndarray, predictions: np.ndarray) -> float:
    """Spearman's correlation: Pearson's, of the ranks.

    Args:
      references: numbers [N].
      predictions: numbers [N].
    """
    references, predictions = _checked(references, predictions)
    return pearson(ranks(references), ranks(predictions))


def subset_accuracy(references: np.ndarray, predictions: np.ndarray) -> float:
    """The share of rows whose labels are all right.

    Args:
      references: which labels hold, bool [N, C].
      predictions: alike.
    """
    references, predictions = _checked(references, predictions)
    right = np.all(references == predictions, axis=1)
    return int(np.sum(right)) / len(right)


def label_micro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """F1 over all decisions of all labels together.

    Args:
      references: which labels hold, bool [N, C].
      predictions: alike.
    """
    return binary_f1(np.ravel(references), np.ravel(predictions))


def label_macro_f1(references: np.ndarray, predictions: np.ndarray) -> float:
    """The mean F1 of the C labels; a label that never occurs counts 0.

    Args:
      references: which labels hold, bool [N, C].
      predictions: alike.
    """
    references, predictions = _checked(references, predictions)
    count = references.shape[1]
    return (
        math.fsum(
            binary_f1(references[:, c], predictions[:, c]) for c in range(count)
        )
        / count
    )
