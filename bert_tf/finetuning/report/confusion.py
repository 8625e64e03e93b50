"""What is taken for what, and the scores of each label by itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

# What stays readable as a table of colours.
MATRIX_CLASSES = 30
_CONFUSIONS = 10


def confusion_matrix(
    counts: np.ndarray, labels: Sequence[str]
) -> dict[str, Any]:
    """How often each true class (row) got each predicted class (column).

    Args:
      counts: int [C, C].
      labels: the C classes; where there are more than fit, the ones that are
        true most often are kept and the rest is pooled.

    Returns:
      "labels", "counts" and "pooled", the number of classes in a last row and
      column that has no label of its own (0: there is none).
    """
    if len(labels) <= MATRIX_CLASSES:
        return {"labels": list(labels), "counts": counts.tolist(), "pooled": 0}
    by_size = np.argsort(-counts.sum(axis=1), kind="stable")
    kept = np.sort(by_size[: MATRIX_CLASSES - 1])
    target = np.full(len(labels), len(kept))
    target[kept] = np.arange(len(kept))
    small = np.zeros((len(kept) + 1, len(kept) + 1), np.int64)
    np.add.at(small, (target[:, None], target[None, :]), counts)
    return {
        "labels": [labels[i] for i in kept],
        "counts": small.tolist(),
        "pooled": len(labels) - len(kept),
    }


def confusions(
    counts: np.ndarray, labels: Sequence[str]
) -> list[dict[str, Any]]:
    """The pairs of a true and another predicted class met most often."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_CONFUSIONS]
    pairs = [np.unravel_index(flat, wrong.shape) for flat in order]
    return [
        {
            "label": labels[i],
            "prediction": labels[j],
            "count": int(wrong[i, j]),
            "share_of_label": float(wrong[i, j] / counts[i].sum()),
        }
        for i, j in pairs
        if wrong[i, j]
    ]


def per_label(
    labels: Sequence[str],
    right: np.ndarray,
    predicted: np.ndarray,
    true: np.ndarray,
) -> list[dict[str, Any]]:
    """Precision, recall and F1 of each label.

    van Rijsbergen 1979, chapter 7: precision is the share of the rows given
    the label that have it, recall the share of the rows that have it that
    were given it, F1 their harmonic mean. A share of nothing is None.

    Args:
      labels: the C labels.
      right: int [C], rows that have the label and were given it.
      predicted: int [C], rows that were given it.
      true: int [C], rows that have it.
    """
    return [
        {
            "label": label,
            "count": int(true[i]),
            "predicted": int(predicted[i]),
            "precision": share(right[i], predicted[i]),
            "recall": share(right[i], true[i]),
            "f1": share(2 * right[i], predicted[i] + true[i]),
        }
        for i, label in enumerate(labels)
    ]


def share(part: float, whole: float) -> float | None:
    """A part of a whole; None where there is no whole."""
    return float(part / whole) if whole else None
