"""The report of texts with a class, a value or a set of labels."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families.calibration import calibrations
from bert_tf.report.answer_sections import (
    ReportWords,
    Row,
    calibration_section,
    class_sections,
    label_table,
    mistakes_section,
    similarity_section,
)
from bert_tf.report.figures import Curve, Curves, Panel, histogram
from bert_tf.report.sections import Figure, Section, fact_table
from bert_tf.report.statistics import per_label
from bert_tf.report.texts import MarkedText

WORDS = ReportWords(
    "rows",
    "the most frequent answer or the mean of the training rows, or of rankings "
    "a random order",
    "BERT base and BERT large are the published numbers of Devlin et al. 2019, "
    "which were scored on the hidden test set.",
    "Probability from which a label is predicted",
)
_SCATTER_POINTS = 2000
_RESIDUAL_BINS = 31
_FACTS = ("identifier", "row", "label", "prediction")


def sections(rows: Sequence[Row], results: Mapping[str, Any]) -> list[Section]:
    """The sections of the dev rows, by the type of the labels.

    Args:
      rows: of dev_predictions.jsonl: "label" and "prediction" are a class, a
        number, or a list of labels; "probabilities" has one value per class
        and is missing for numbers. Of a ranking, "prediction" and "relevance"
        have one value per document.
      results: the contents of results.json.
    """
    if "documents" in rows[0]:
        return _ranking_sections(rows)
    labels = results["labels"]
    names = (*_FACTS, "text_a", "text_b")
    shown = [{name: row[name] for name in names} for row in rows]
    if not labels:
        return _regression_sections(shown)
    probabilities = np.array([row["probabilities"] for row in rows])
    measured = functools.partial(calibrations, rows, results, probabilities)
    if isinstance(rows[0]["label"], str):
        index = {label: i for i, label in enumerate(labels)}
        truth = np.array([index[row["label"]] for row in rows])
        predicted = np.array([index[row["prediction"]] for row in rows])
        return class_sections(
            *(truth, predicted, probabilities, labels, shown, _texts),
            measured(truth),
        )
    return _multi_label_sections(shown, labels, probabilities, measured)


def _texts(row: Row) -> list[MarkedText]:
    pair = row["text_a"], row["text_b"]
    return [MarkedText(text) for text in pair if text is not None]


def _multi_label_sections(
    rows: Sequence[Row],
    labels: Sequence[str],
    probabilities: np.ndarray,
    measured: Callable[[np.ndarray], tuple[Sequence[Row], bool]],
) -> list[Section]:
    """Scores of each label, calibration, and the rows with wrong labels.

    A mistake is as bad as its most confident wrong decision about a label.
    """
    # bool [N, C]
    truth, predicted = (
        np.array([[label in row[key] for label in labels] for row in rows])
        for key in ("label", "prediction")
    )
    confidence = np.where(truth, 1 - probabilities, probabilities)

    def chosen(i: int, mask: np.ndarray) -> dict[str, float]:
        pairs = zip(labels, probabilities[i].tolist(), mask, strict=True)
        return {label: share for label, share, holds in pairs if holds}

    is_wrong = truth != predicted
    wrong = [
        {
            **row,
            "confidence": float(confidence[i, is_wrong[i]].max()),
            "missed": chosen(i, truth[i] & ~predicted[i]),
            "added": chosen(i, predicted[i] & ~truth[i]),
        }
        for i, row in enumerate(rows)
        if is_wrong[i].any()
    ]
    wrong.sort(key=lambda row: -row["confidence"])
    exact = len(rows) - len(wrong)
    table = per_label(
        labels,
        (truth & predicted).sum(axis=0),
        predicted.sum(axis=0),
        truth.sum(axis=0),
    )
    return [
        Section(
            "answers",
            "Scores of each label",
            [label_table(table, "rows", "label")],
            {"exact_matches": exact, "per_label": table},
        ),
        calibration_section(
            *measured(truth),
            "The probabilities of all labels of all rows are pooled.",
            ": 0 is perfect, 1 the worst.",
        ),
        mistakes_section(
            wrong,
            len(rows),
            "rows, the most confident wrong decision about a label first. "
            "Check these rows for wrong labels in the file",
            (*_FACTS, "missed", "added"),
            _texts,
        ),
    ]


def _regression_sections(rows: Sequence[Row]) -> list[Section]:
    """True and predicted values, their differences, and the largest errors.

    An error is prediction - label: "mean_error" above 0 means that the model
    predicts too high.
    """
    truth, predicted = (
        np.array([row[key] for row in rows], np.float64)
        for key in ("label", "prediction")
    )
    errors = predicted - truth
    # Symmetric about 0, which makes a bias of the model visible.
    reach = float(np.abs(errors).max()) or 1.0
    counts, edges = np.histogram(errors, _RESIDUAL_BINS, (-reach, reach))
    every = -(-len(rows) // _SCATTER_POINTS)
    scatter = {
        "every": every,
        "true": truth[::every].tolist(),
        "predicted": predicted[::every].tolist(),
    }
    residuals = {
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "mean_error": float(errors.mean()),
        "mean_absolute_error": float(np.abs(errors).mean()),
        "root_mean_squared_error": float(np.sqrt(np.square(errors).mean())),
        "median_absolute_error": float(np.median(np.abs(errors))),
    }
    wrong = [
        {**row, "error": float(error)}
        for row, error in zip(rows, errors, strict=True)
        if error
    ]
    wrong.sort(key=lambda row: -abs(row["error"]))
    caption = "A point is a row. On the dashed line, both values are equal."
    if every > 1:
        caption += f" One row in {every} is drawn."
    true, drawn = scatter["true"], scatter["predicted"]
    ends = [min(*true, *drawn), max(*true, *drawn)]
    points = [
        Curve("perfect", ends, ends, color=1, style="ideal"),
        Curve("rows", true, drawn, style="dots"),
    ]
    panel = Panel(points, "true value", "predicted value")
    distribution = histogram(
        residuals["edges"],
        {"rows": residuals["counts"]},
        ("predicted - true", "rows"),
        {"mean": residuals["mean_error"]},
    )
    about = "The errors. The model predicts too high to the right of 0."
    return [
        Section(
            "answers",
            "True and predicted values",
            [
                Figure(Curves([panel]), caption),
                Figure(distribution, about),
                fact_table("Errors (predicted - true)", residuals),
            ],
            {"scatter": scatter, "residuals": residuals},
        ),
        mistakes_section(
            wrong,
            len(rows),
            "rows, the largest errors first. Check these rows for wrong labels "
            "in the file",
            (*_FACTS, "error"),
            _texts,
        ),
    ]


def _ranking_sections(rows: Sequence[Row]) -> list[Section]:
    """The scores of relevant and other documents, and the worst rankings."""
    is_relevant, scores = (
        np.array([value for row in rows for value in row[key]])
        for key in ("relevance", "prediction")
    )
    is_relevant = is_relevant > 0
    by_query: dict[str, list[tuple[float, float, str]]] = {}
    for row in rows:
        by_query.setdefault(row["query"], []).extend(
            zip(
                *(row["prediction"], row["relevance"], row["documents"]),
                strict=True,
            )
        )
    worst: list[dict[str, Any]] = []
    for query, documents in by_query.items():
        ranked = sorted(documents, key=lambda each: -each[0])
        gains = np.array([gain for _, gain, _ in ranked])
        if not 0 < np.sum(gains > 0) < len(gains):
            continue
        rank = int(np.argmax(gains > 0))
        worst.append(
            {
                "query": query,
                "rank": rank + 1,
                "documents": len(ranked),
                "score": ranked[rank][0],
                "top_score": ranked[0][0],
                "relevant": ranked[rank][2],
                "top": ranked[0][2],
            }
        )
    wrong = sorted(
        (each for each in worst if each["rank"] > 1),
        key=lambda each: (-each["rank"], each["score"] - each["top_score"]),
    )
    return [
        similarity_section(scores[is_relevant], scores[~is_relevant], "score"),
        mistakes_section(
            wrong,
            len(worst),
            "queries, the lowest rank of the first relevant document first. "
            "Check their labels in the file",
            ("rank", "documents", "score", "top_score"),
            lambda row: [
                MarkedText(row["query"], "query"),
                MarkedText(row["relevant"], "relevant"),
                MarkedText(row["top"], "ranked first"),
            ],
        ),
    ]
