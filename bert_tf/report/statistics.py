"""What a report is made of, and the numbers that several task families have.

Every function returns values of types that JSON knows.
"""

import dataclasses
import datetime
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.recipe import Settings

# Of the mistakes, the worst ones that are described.
NUM_MISTAKES = 20
# Numbers of results.json that are shown where they are there.
_FACTS = (
    "num_parameters",
    "num_train_steps",
    "best_step",
    "stopped_early",
    "threshold",
    "train_seconds",
    "examples_per_second",
    "eval_examples_per_second",
)
_CURVE_POINTS = 400
# Guo et al. 2017, section 4: "we use M = 15 bins".
NUM_BINS = 15
# What stays readable as a table of colours.
_MATRIX_CLASSES = 30
_CONFUSIONS = 10


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """What a report is made of.

    Attributes:
      results: what results.json holds.
      recipe: what recipe.json holds.
      histories: the rows of history.jsonl, by seed; by "" where there is one
        training only.
      predictions: the rows of dev_predictions.jsonl, one or more.
    """

    results: Mapping[str, Any]
    recipe: Mapping[str, Any]
    histories: Mapping[str, Sequence[Mapping[str, float | None]]]
    predictions: Sequence[Mapping[str, Any]]


def run_statistics(
    run: FinishedRun, recipe_types: Sequence[type[Settings]]
) -> dict[str, Any]:
    """What a report shows of any run, whatever its task.

    Args:
      run: the run, its numbers finite or None.
      recipe_types: together they have the settings of all tasks of the family.
    """
    results = run.results
    finished = results.get("finished")
    if finished is not None:
        moment = datetime.datetime.fromisoformat(finished)
        finished = f"{moment:%Y-%m-%d %H:%M} {moment.tzname() or ''}".rstrip()
    return {
        "task": results["task"],
        "model": results["model"],
        "finished": finished,
        "main_metric": results["main_metric"],
        "main_split": next(iter(results["dev"])),
        "labels": results["labels"],
        "examples": results.get("examples", {}),
        "settings": settings(run.recipe, recipe_types),
        "doctor": results["doctor"],
        "scores": [
            {
                "split": split,
                "metric": metric,
                "value": value,
                "majority": results["majority"][split].get(metric),
                "paper": _paper(results["paper"], split, metric),
            }
            for split, metrics in results["dev"].items()
            for metric, value in metrics.items()
        ],
        "paper_note": results.get("paper_note"),
        "curves": curves(run.histories, results["main_metric"]),
        "seeds": results.get("seeds", []),
        "summary": results.get("summary", {}),
        "facts": {x: results[x] for x in _FACTS if results.get(x) is not None},
        # Only of tasks that have such scores.
        **{x: results[x] for x in ("lower_is_better",) if x in results},
    }


def settings(
    recipe: Mapping[str, Any], recipe_types: Sequence[type[Settings]]
) -> list[dict[str, Any]]:
    """Every setting beside its default, those that differ first.

    Args:
      recipe: recipe.json, whose keys may be of another version.
      recipe_types: of these it is the one that knows most of its keys.
    """
    recipe_type = max(
        recipe_types, key=lambda kind: len(recipe.keys() & kind.kinds().keys())
    )
    defaults, fields = recipe_type().to_dict(), recipe_type.__dataclass_fields__
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


def _paper(
    paper: Mapping[str, Mapping[str, float]], split: str, metric: str
) -> Mapping[str, float]:
    """The paper's numbers by model; "accuracy_mismatched" is one split's."""
    own = f"{metric}_{split.partition('_')[2]}"
    return paper.get(own, paper.get(metric, {}))


def curves(
    histories: Mapping[str, Sequence[Mapping[str, float | None]]],
    main_metric: str,
) -> dict[str, list[dict[str, Any]]]:
    """The series over the steps, one a seed; long ones as means of blocks."""
    names = {
        "training_loss": "loss",
        "held_out_loss": "eval_loss",
        "training_metric": main_metric,
        "held_out_metric": f"eval_{main_metric}",
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name, key in names.items():
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
                series = {
                    "seed": seed,
                    # The middle of a block may be no step of the run.
                    "steps": [block[-1][0] for block in blocks],
                    "values": [
                        sum(value for _, value in block) / len(block)
                        for block in blocks
                    ],
                }
                found[name].append(series)
    return found


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean, median, spread (the sample's, n - 1) and range of each score.

    Args:
      rows: the scores of each training by name.
    """
    found = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        found[name] = {
            "mean": statistics.fmean(values),
            "median": statistics.median(values),
            "standard_deviation": statistics.stdev(values),
            "least": min(values),
            "most": max(values),
        }
    return found


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
