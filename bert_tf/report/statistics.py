"""Numbers that several reports compute, as values for JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.recipe import Settings

# Guo et al. 2017, section 4: "we use M = 15 bins".
NUM_BINS = 15
# A larger confusion matrix is not readable.
_MATRIX_CLASSES = 30
_CONFUSIONS = 10
_CURVE_POINTS = 400


def setting_rows(
    recipe: Mapping[str, Any],
    recipe_type: type[Settings],
    changed_defaults: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Every setting of a run with its default, changed settings first.

    Args:
      recipe: recipe.json, whose keys may be those of another version.
      recipe_type: the type of the run's recipe.
      changed_defaults: settings whose defaults the task changes.
    """
    defaults = {**recipe_type().to_dict(), **changed_defaults}
    fields = recipe_type.__dataclass_fields__
    rows = [
        {
            "name": name,
            "value": value,
            "default": defaults.get(name),
            "help": fields[name].metadata["help"] if name in fields else "",
            "changed": name not in defaults or value != defaults[name],
        }
        for name, value in recipe.items()
    ]
    return sorted(rows, key=lambda row: not row["changed"])


def curve_points(
    histories: Mapping[str, Sequence[Mapping[str, float | None]]], key: str
) -> list[dict[str, Any]]:
    """A number over the steps of each seed, at most 400 points each.

    A longer series is averaged over blocks of consecutive points.

    Args:
      histories: the rows of history.jsonl by seed.
      key: the name of the number.
    """
    found = []
    for seed, rows in histories.items():
        points = [
            (step, value)
            for row in rows
            if (step := row["step"]) is not None
            and (value := row.get(key)) is not None
        ]
        size = -(-len(points) // _CURVE_POINTS)
        blocks = [
            points[begin : begin + size]
            for begin in range(0, len(points), size or 1)
        ]
        if blocks:
            found.append(
                {
                    "seed": seed,
                    # The middle of a block may not be a step of the run.
                    "steps": [block[-1][0] for block in blocks],
                    "values": [
                        sum(value for _, value in block) / len(block)
                        for block in blocks
                    ],
                }
            )
    return found


def confusion_matrix(
    counts: np.ndarray, labels: Sequence[str]
) -> dict[str, Any]:
    """A confusion matrix, true classes in rows and predicted ones in columns.

    Args:
      counts: int [C, C].
      labels: the C classes; of more than 30, the most frequent ones are kept
        and the others are pooled.

    Returns:
      "labels", "counts" and "pooled", the number of classes that are pooled in
      an additional last row and column.
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
    """The most frequent pairs of a true class and another predicted class."""
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
    correct: np.ndarray,
    predicted: np.ndarray,
    true: np.ndarray,
) -> list[dict[str, Any]]:
    """Precision, recall and F1 of each label.

    See van Rijsbergen 1979, chapter 7. A ratio with denominator 0 is None.

    Args:
      labels: the C labels.
      correct: int [C], rows whose true and predicted label it is.
      predicted: int [C], rows predicted with it.
      true: int [C], rows that have it.
    """
    return [
        {
            "label": label,
            "count": int(true[i]),
            "predicted": int(predicted[i]),
            "precision": share(correct[i], predicted[i]),
            "recall": share(correct[i], true[i]),
            "f1": share(2 * correct[i], predicted[i] + true[i]),
        }
        for i, label in enumerate(labels)
    ]


def share(part: float, whole: float) -> float | None:
    """The ratio of two numbers; None if the second is 0."""
    return float(part / whole) if whole else None


def reliability_bins(
    probabilities: np.ndarray, outcomes: np.ndarray, num_bins: int = NUM_BINS
) -> list[dict[str, Any]]:
    """Computes the bins of a reliability diagram.

    DeGroot and Fienberg 1983; the bins have equal widths as in Guo et al. 2017,
    section 2: bin m of M holds ((m - 1) / M, m / M].

    Args:
      probabilities: float [N], of one event each, in [0, 1].
      outcomes: bool [N], whether the event is true.
      num_bins: M.

    Returns:
      For each bin "low" and "high", the "count" of its probabilities, their
      "mean_probability" and "share_true", which are None for an empty bin.
    """
    upper_edges = np.arange(1, num_bins + 1) / num_bins
    indices = np.searchsorted(upper_edges, probabilities, side="left")
    # A softmax in float32 can sum to slightly more than 1.
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
    """The mean distance between probabilities and observed shares.

    Guo et al. 2017, "On calibration of modern neural networks", equation 3:
    the sum over the bins of (share of all examples in the bin) x |observed
    share - mean probability|. 0 is perfect, 1 the worst.

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
    """The mean squared distance between probabilities and truth.

    Brier 1950, "Verification of forecasts expressed in terms of probability",
    equation 2: the mean over the examples of the sum over the classes of
    (probability - target) squared. 0 is perfect; the worst is 2, or 1 for a
    single event, [N, 1].

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
    """Calibration of independent labels, pooled over all labels.

    Args:
      probabilities: float [N, C], of each label.
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
