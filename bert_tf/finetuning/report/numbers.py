"""The numbers of a report: what its tables and pictures show, for JSON."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.kinds.own_file import OwnFileRecipe
from bert_tf.finetuning.report.calibration import (
    class_calibration,
    label_calibration,
)
from bert_tf.finetuning.report.mistakes import (
    class_mistakes,
    multi_label_mistakes,
    regression_mistakes,
)
from bert_tf.finetuning.report.run_files import (
    FACTS,
    RESULTS,
    DevPrediction,
    RunFiles,
)

# What stays readable as a table of colours.
MATRIX_CLASSES = 30
_CONFUSIONS = 10
_CURVE_POINTS = 400
_SCATTER_POINTS = 2000
_RESIDUAL_BINS = 31


def report_numbers(run: RunFiles) -> dict[str, Any]:
    """Everything that the page shows.

    Args:
      run: the files of a finished run.
    """
    results = run.results
    main_split = next(iter(results["dev"]))
    return {
        "task": results["task"],
        "model": results["model"],
        "finished": _written_time(results.get("finished")),
        "main_metric": results["main_metric"],
        "main_split": main_split,
        "labels": results["labels"],
        "examples": results.get("examples", {}),
        "settings": settings(run.recipe),
        "doctor": results["doctor"],
        "scores": scores(results),
        "paper_note": results.get("paper_note"),
        "curves": curves(run.histories, results["main_metric"]),
        "seeds": results.get("seeds", []),
        "summary": results.get("summary", {}),
        "facts": {x: results[x] for x in FACTS if results.get(x) is not None},
        "predictions": prediction_numbers(run.predictions, results["labels"]),
    }


def _written_time(time: str | None) -> str | None:
    """An ISO 8601 time to the minute, as people write it."""
    if time is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(time)
    except (TypeError, ValueError):
        raise UserError(
            f"{RESULTS}: finished is {time!r}; it takes an ISO 8601 time."
        ) from None
    zone = f" {moment.tzname()}" if moment.tzinfo else ""
    return f"{moment:%Y-%m-%d %H:%M}{zone}"


def settings(recipe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every setting beside its default, those that differ first.

    Args:
      recipe: recipe.json, whose keys may be of another version.
    """
    # It has the settings of all kinds of tasks on sentences.
    defaults = OwnFileRecipe().to_dict()
    helps = {
        name: field.metadata.get("help", "")
        for name, field in OwnFileRecipe.__dataclass_fields__.items()
    }
    rows = [
        {
            "name": name,
            "value": value,
            "default": defaults.get(name),
            "help": helps.get(name, ""),
            "changed": name not in defaults or value != defaults[name],
        }
        for name, value in recipe.items()
    ]
    return sorted(rows, key=lambda row: not row["changed"])


def scores(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each metric of each split beside the baseline and the paper."""
    return [
        {
            "split": split,
            "metric": metric,
            "value": value,
            "majority": results["majority"][split].get(metric),
            "paper": _paper(results["paper"], split, metric),
        }
        for split, metrics in results["dev"].items()
        for metric, value in metrics.items()
    ]


def _paper(
    paper: Mapping[str, Mapping[str, float]], split: str, metric: str
) -> Mapping[str, float]:
    """The paper's numbers by model; "accuracy_mismatched" is one split's."""
    own = f"{metric}_{split.partition('_')[2]}"
    return paper.get(own, paper.get(metric, {}))


def curves(
    histories: Mapping[str, list[dict[str, float | None]]], main_metric: str
) -> dict[str, list[dict[str, Any]]]:
    """The series over the steps, one a seed.

    A longer series is cut into blocks of equal length, and the point is the
    mean of the block.
    """
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
                (row["step"], row[key])
                for row in rows
                if row.get(key) is not None and row["step"] is not None
            ]
            if points:
                steps, values = zip(*_block_means(points), strict=True)
                found[name].append(
                    {"seed": seed, "steps": list(steps), "values": list(values)}
                )
    return found


def _block_means(
    points: list[tuple[float, float]],
) -> list[tuple[float, float]]:
    length = -(-len(points) // _CURVE_POINTS)
    blocks = [points[i : i + length] for i in range(0, len(points), length)]
    # The last step of a block is a step of the run, its middle may be none.
    return [
        (block[-1][0], sum(value for _, value in block) / len(block))
        for block in blocks
    ]


def prediction_numbers(
    rows: Sequence[DevPrediction], labels: Sequence[str]
) -> dict[str, Any]:
    """What the answers to the dev rows show, by the kind of the labels."""
    if not labels:
        return regression_numbers(rows)
    if isinstance(rows[0].label, list):
        return multi_label_numbers(rows, labels)
    return class_numbers(rows, labels)


def class_numbers(
    rows: Sequence[DevPrediction], labels: Sequence[str]
) -> dict[str, Any]:
    """Confusion matrix, per-class scores, calibration and mistakes."""
    index = {label: i for i, label in enumerate(labels)}
    truth = np.array([index[row.label] for row in rows])
    answers = np.array([index[row.prediction] for row in rows])
    probabilities = np.array([row.probabilities for row in rows])
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (truth, answers), 1)
    right = np.diag(counts)
    return {
        "num_examples": len(rows),
        "confusion_matrix": confusion_matrix(counts, labels),
        "confusions": _confusions(counts, labels),
        "per_label": per_label(
            labels, right, counts.sum(axis=0), counts.sum(axis=1)
        ),
        "calibration": class_calibration(probabilities, truth),
        "mistakes": class_mistakes(rows, labels),
    }


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


def _confusions(
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
            "precision": _share(right[i], predicted[i]),
            "recall": _share(right[i], true[i]),
            "f1": _share(2 * right[i], predicted[i] + true[i]),
        }
        for i, label in enumerate(labels)
    ]


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None


def multi_label_numbers(
    rows: Sequence[DevPrediction], labels: Sequence[str]
) -> dict[str, Any]:
    """Per-label scores, calibration and mistakes."""
    truth = _indicators([row.label for row in rows], labels)
    answers = _indicators([row.prediction for row in rows], labels)
    probabilities = np.array([row.probabilities for row in rows])
    return {
        "num_examples": len(rows),
        "exact_matches": int((truth == answers).all(axis=1).sum()),
        "per_label": per_label(
            labels,
            (truth & answers).sum(axis=0),
            answers.sum(axis=0),
            truth.sum(axis=0),
        ),
        "calibration": label_calibration(probabilities, truth),
        "mistakes": multi_label_mistakes(rows, labels),
    }


def _indicators(
    sets: Sequence[Sequence[str]], labels: Sequence[str]
) -> np.ndarray:
    """Bool [N, C], true where the row holds the label."""
    return np.array([[label in each for label in labels] for each in sets])


def regression_numbers(rows: Sequence[DevPrediction]) -> dict[str, Any]:
    """Points of true and predicted values, errors and mistakes.

    "mean_absolute_error" is the mean of |prediction - label|,
    "root_mean_squared_error" the root of the mean of its square, "mean_error"
    the mean of prediction - label (above 0: the model guesses too high).
    """
    truth = np.array([row.label for row in rows], np.float64)
    answers = np.array([row.prediction for row in rows], np.float64)
    errors = answers - truth
    # Symmetric, so that a bias of the model is seen at once.
    reach = float(np.abs(errors).max()) or 1.0
    counts, edges = np.histogram(errors, _RESIDUAL_BINS, (-reach, reach))
    every = -(-len(rows) // _SCATTER_POINTS)
    return {
        "num_examples": len(rows),
        "scatter": {
            "every": every,
            "true": truth[::every].tolist(),
            "predicted": answers[::every].tolist(),
        },
        "residuals": {
            "edges": edges.tolist(),
            "counts": counts.tolist(),
            "mean_error": float(errors.mean()),
            "mean_absolute_error": float(np.abs(errors).mean()),
            "root_mean_squared_error": float(np.sqrt(np.square(errors).mean())),
            "median_absolute_error": float(np.median(np.abs(errors))),
        },
        "mistakes": regression_mistakes(rows),
    }
