"""Do the probabilities mean what they say: calibration of a classifier.

Every function takes NumPy arrays and returns plain numbers for JSON.
"""

from typing import TypedDict

import numpy as np

# Guo et al. 2017, section 4: "we use M = 15 bins".
NUM_BINS = 15


class ReliabilityBin(TypedDict):
    """One bar of a reliability diagram.

    Attributes:
      low: the bin holds probabilities above this (the first one 0 too).
      high: and up to this.
      count: how many probabilities it holds.
      mean_probability: their mean; None where there are none.
      share_true: the share of them that came true; None where there are none.
    """

    low: float
    high: float
    count: int
    mean_probability: float | None
    share_true: float | None


def reliability_bins(
    probabilities: np.ndarray, outcomes: np.ndarray, num_bins: int = NUM_BINS
) -> list[ReliabilityBin]:
    """Sorts probabilities into bins of equal width, beside what came true.

    The reliability diagram of DeGroot and Fienberg 1983; the bins are those
    of Guo et al. 2017, section 2: bin m of M holds ((m - 1) / M, m / M].

    Args:
      probabilities: float [N], of one event each, in [0, 1].
      outcomes: bool [N], whether the event came true.
      num_bins: M.
    """
    upper_edges = np.arange(1, num_bins + 1) / num_bins
    indices = np.searchsorted(upper_edges, probabilities, side="left")
    # A softmax in float32 can sum to a hair more than 1.
    indices = np.minimum(indices, num_bins - 1)
    bins: list[ReliabilityBin] = []
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


def expected_calibration_error(bins: list[ReliabilityBin]) -> float:
    """How far probabilities and what came true are apart, on average.

    Guo et al. 2017, "On calibration of modern neural networks", equation 3:
    the sum over the bins of (share of all examples in it) x |share that came
    true - mean probability|. 0 is perfect, 1 the worst.

    Args:
      bins: from `reliability_bins`, not all of them empty.
    """
    total = sum(each["count"] for each in bins)
    return (
        sum(
            each["count"] * abs(share - mean)
            for each in bins
            if (share := each["share_true"]) is not None
            and (mean := each["mean_probability"]) is not None
        )
        / total
    )


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
) -> dict[str, object]:
    """Calibration of the most probable class.

    Args:
      probabilities: float [N, C], rows that sum to 1.
      label_ids: int [N], the true class.

    Returns:
      "bins" of the confidence (probability of the most probable class),
      "expected_calibration_error", "brier_score", "mean_confidence" and
      "share_true" (of the most probable class).
    """
    confidences = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == label_ids
    bins = reliability_bins(confidences, right)
    targets = np.eye(probabilities.shape[1])[label_ids]
    return {
        "bins": bins,
        "expected_calibration_error": expected_calibration_error(bins),
        "brier_score": brier_score(probabilities, targets),
        "mean_confidence": float(confidences.mean()),
        "share_true": float(right.mean()),
    }


def label_calibration(
    probabilities: np.ndarray, targets: np.ndarray
) -> dict[str, object]:
    """Calibration of independent labels, all of them pooled.

    Args:
      probabilities: float [N, C], each label's own.
      targets: 0 and 1, [N, C].

    Returns:
      As `class_calibration`, over the N x C probabilities that a label holds.
    """
    pooled, outcomes = probabilities.reshape(-1), targets.reshape(-1) > 0
    bins = reliability_bins(pooled, outcomes)
    return {
        "bins": bins,
        "expected_calibration_error": expected_calibration_error(bins),
        "brier_score": brier_score(pooled[:, None], outcomes[:, None]),
        "mean_confidence": float(pooled.mean()),
        "share_true": float(outcomes.mean()),
    }
