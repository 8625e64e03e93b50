"""The numbers of a report that several families of tasks have.

Every function returns values of types that JSON knows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Of the mistakes, the worst ones that are described.
NUM_MISTAKES = 20
# Guo et al. 2017, section 4: "we use M = 15 bins".
NUM_BINS = 15
# What stays readable as a table of colours.
_MATRIX_CLASSES = 30
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
    if len(labels) <= _MATRIX_CLASSES:
        return {"labels": list(labels), "counts": counts.tolist(), "pooled": 0}
    by_size = np.argsort(-counts.sum(axis=1), kind="stable")
    kept = np.sort(by_size[: _MATRIX_CLASSES - 1])
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


def reliability_bins(
    probabilities: np.ndarray, outcomes: np.ndarray, num_bins: int = NUM_BINS
) -> list[dict[str, Any]]:
    """Sorts probabilities into bins of equal width, beside what came true.

    The reliability diagram of DeGroot and Fienberg 1983; the bins are those
    of Guo et al. 2017, section 2: bin m of M holds ((m - 1) / M, m / M].

    Args:
      probabilities: float [N], of one event each, in [0, 1].
      outcomes: bool [N], whether the event came true.
      num_bins: M.

    Returns:
      Of each bin "low" and "high", the "count" of its probabilities, their
      "mean_probability" and "share_true"; None where there are none.
    """
    upper_edges = np.arange(1, num_bins + 1) / num_bins
    indices = np.searchsorted(upper_edges, probabilities, side="left")
    # A softmax in float32 can sum to a hair more than 1.
    indices = np.minimum(indices, num_bins - 1)
    bins = []
    for index in range(num_bins):
        inside = indices == index
        count = int(inside.sum())
        bins.append(
            {
                "low": index / num_bins,
                "high": (index + 1) / num_bins,
                "count": count,
                "mean_probability": float(probabilities[inside].mean())
                if count
                else None,
                "share_true": float(outcomes[inside].mean()) if count else None,
            }
        )
    return bins


def expected_calibration_error(bins: Sequence[Mapping[str, Any]]) -> float:
    """How far probabilities and what came true are apart, on average.

    Guo et al. 2017, "On calibration of modern neural networks", equation 3:
    the sum over the bins of (share of all examples in it) x |share that came
    true - mean probability|. 0 is perfect, 1 the worst.

    Args:
      bins: from `reliability_bins`, not all of them empty.
    """
    filled = [each for each in bins if each["count"]]
    distances = [
        each["count"] * abs(each["share_true"] - each["mean_probability"])
        for each in filled
    ]
    return sum(distances) / sum(each["count"] for each in filled)


def brier_score(probabilities: np.ndarray, targets: np.ndarray) -> float:
    """The mean squared distance of probabilities from the truth.

    Brier 1950, "Verification of forecasts expressed in terms of probability",
    equation 2: the mean over the examples of the sum over the classes of
    (probability - 1 if it is the class else 0) squared. 0 is perfect, 2 is
    being sure of a wrong class every time; one event alone, [N, 1], has 1 as
    its worst.

    Args:
      probabilities: float [N, C].
      targets: 0 and 1, [N, C].
    """
    return float(np.square(probabilities - targets).sum(axis=1).mean())


def class_calibration(
    probabilities: np.ndarray, label_ids: np.ndarray
) -> dict[str, Any]:
    """Calibration of the most probable class.

    Args:
      probabilities: float [N, C], rows that sum to 1.
      label_ids: int [N], the true class.
    """
    targets = np.eye(probabilities.shape[1])[label_ids]
    return _calibration(
        probabilities.max(axis=1),
        probabilities.argmax(axis=1) == label_ids,
        brier_score(probabilities, targets),
    )


def label_calibration(
    probabilities: np.ndarray, targets: np.ndarray
) -> dict[str, Any]:
    """Calibration of independent labels, all of them pooled.

    Args:
      probabilities: float [N, C], each label's own.
      targets: 0 and 1, [N, C].
    """
    pooled, outcomes = probabilities.reshape(-1), targets.reshape(-1) > 0
    brier = brier_score(pooled[:, None], outcomes[:, None])
    return _calibration(pooled, outcomes, brier)


def _calibration(
    probabilities: np.ndarray, outcomes: np.ndarray, brier: float
) -> dict[str, Any]:
    bins = reliability_bins(probabilities, outcomes)
    return {
        "bins": bins,
        "expected_calibration_error": expected_calibration_error(bins),
        "brier_score": brier,
        "mean_confidence": float(probabilities.mean()),
        "share_true": float(outcomes.mean()),
    }
