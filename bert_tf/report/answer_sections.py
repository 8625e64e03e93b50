"""Sections on the answers of a model, which several families have."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.report.figures import Curve, Curves, Panel, histogram
from bert_tf.report.formats import bar, html, inline, percent, words
from bert_tf.report.sections import (
    Column,
    Entry,
    Figure,
    Lines,
    ReportTable,
    Section,
    fact_table,
)
from bert_tf.report.statistics import (
    confusion_matrix,
    confusions,
    per_label,
)
from bert_tf.report.texts import MarkedText

Row = Mapping[str, Any]
PAPER_ON_DEV = (
    "BERT base and BERT large are the published numbers of Devlin et al. 2019 "
    "on the official dev set, or on the test set where it says so."
)
_CLASS_FACTS = (
    *("row", "identifier", "prediction", "confidence"),
    *("label", "label_probability"),
)
# How many of the worst mistakes are listed.
MISTAKES = 20
# With more classes, nothing stands next to their tables.
_FEW_CLASSES = 4
_SIMILARITY_BINS = 40


class ReportWords(NamedTuple):
    """What the report of a family calls things.

    Attributes:
      unit: an example, in the plural.
      baseline: what the baseline does.
      about_paper: which numbers the published ones are.
      threshold: what the threshold is, if results.json has one.
    """

    unit: str
    baseline: str
    about_paper: str = PAPER_ON_DEV
    threshold: str = "threshold"


def class_sections(
    truth: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    labels: Sequence[str],
    rows: Sequence[Row],
    texts: Callable[[Row], Sequence[MarkedText]],
    calibration: tuple[Sequence[Row], bool],
    noun: str = "class",
) -> list[Section]:
    """Confusion matrix, scores of each class, calibration and mistakes.

    Args:
      truth: int [N], the true classes.
      predicted: int [N], the predicted classes.
      probabilities: float [N, C].
      labels: the C classes.
      rows: what report.json holds of each of the N rows.
      texts: the texts of a row.
      calibration: the first arguments of `calibration_section`.
      noun: what a class is called.
    """
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (truth, predicted), 1)
    pairs = confusions(counts, labels)
    wrong = [
        {
            **row,
            "confidence": float(probabilities[i, predicted[i]]),
            "label_probability": float(probabilities[i, truth[i]]),
        }
        for i, row in enumerate(rows)
        if truth[i] != predicted[i]
    ]
    answers = confusion_section(counts, labels, "rows", noun)
    table = ReportTable(
        "Most frequent confusions", pairs, {"share_of_label": percent}
    )
    return [
        answers._replace(
            parts=[*answers.parts, table],
            numbers={**answers.numbers, "confusions": pairs},
        ),
        calibration_section(
            *calibration,
            "Confidence is the probability that the model gives to its answer.",
            f", summed over each {noun}: 0 is perfect, 2 the worst.",
        ),
        mistakes_section(
            sorted(wrong, key=lambda row: -row["confidence"]),
            len(rows),
            "rows, the most confident wrong answers first. Check these rows "
            "for wrong labels in the file",
            _CLASS_FACTS,
            texts,
        ),
    ]


def confusion_section(
    counts: np.ndarray,
    labels: Sequence[str],
    unit: str,
    noun: str,
    other: str = "",
) -> Section:
    """Confusion matrix and scores of each class.

    Args:
      counts: int [C, C], by true and predicted class; one more if `other`.
      labels: the C classes.
      unit: what is counted.
      noun: what a class is called.
      other: what is no class.
    """
    matrix = confusion_matrix(counts, [*labels, other] if other else labels)
    names = [*matrix["labels"]]
    if matrix["pooled"]:
        names.append(f"{matrix['pooled']} others")
    rows = [
        [name, *((n, n / max(sum(line), 1)) for n in line)]
        for name, line in zip(names, matrix["counts"], strict=True)
    ]

    def shaded(cell: tuple[int, float]) -> str:
        return html('<span style="--share:{1:.2f}">{0}</span>', *cell)

    columns = [Column(0, "True \\ predicted", inline)]
    columns += [Column(n, name, shaded) for n, name in enumerate(names, 1)]
    scores = per_label(
        labels, np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)
    )
    return Section(
        "answers",
        f"Confusion by {noun}",
        [
            ReportTable(
                "Confusion matrix",
                rows,
                columns=columns,
                note=f"Cells count {unit} by true {noun} (rows) and predicted "
                f"{noun} (columns). The color is the share of the row.",
                is_wide=len(names) > _FEW_CLASSES,
            ),
            label_table(scores, unit, noun),
        ],
        {"confusion_matrix": matrix, "per_label": scores},
    )


def label_table(rows: Sequence[Row], unit: str, noun: str) -> ReportTable:
    """Precision, recall and F1 from `statistics.per_label`.

    Args:
      rows: of the labels.
      unit: what is counted.
      noun: what a label is called.
    """
    return ReportTable(
        f"Scores of each {noun}",
        rows,
        {"precision": percent, "recall": percent, "f1": bar},
        note=f"Count and predicted are numbers of {unit}; the others are "
        f"x 100. Precision: of the {unit} predicted as this {noun}, the share "
        f"that is correct. Recall: of the {unit} with this {noun}, the share "
        "that is found. F1: their harmonic mean (van Rijsbergen 1979). "
        f"\u2013: there are no {unit} to take a share of.",
        is_wide=len(rows) > _FEW_CLASSES,
    )


def calibration_section(
    measured: Sequence[Row], is_offered: bool, about: str, brier: str
) -> Section:
    """Calibration from `statistics`, with reliability diagrams.

    Args:
      measured: the numbers; of a calibrated model those before and after; none
        if they are not known.
      is_offered: whether the model could be calibrated and is not.
      about: what the probabilities are of, in a sentence.
      brier: ends the definition of the Brier score.
    """
    parts: list[Any] = []
    lines = [
        "Expected calibration error (Guo et al. 2017): the mean distance "
        "between probability and observed share over bins of equal width, "
        "weighted by their number of cases; 0 is perfect."
    ]
    numbers = {}
    if measured:
        numbers["calibration"] = measured[-1]
        caption = (
            f"{about} A calibrated model is correct in 80 % of the cases that "
            "it gives a probability of 80 %: its bars touch the dashed line. "
            "Bars below the line are overconfident, bars above it "
            "underconfident."
        )
        lines[0] += (
            " The Brier score (1950) is the mean squared distance between "
            f"probabilities and truth{brier}"
        )
        parts = [
            Figure(_reliability(measured[0]["bins"]), caption),
            fact_table("Calibration", measured[0]),
        ]
    if len(measured) > 1:
        before, after = measured
        numbers["calibration_before"] = before
        rows = [
            {"name": words(name), "before": before[name], "after": value}
            for name, value in after.items()
            if name != "bins"
        ]
        parts = [
            parts[0]._replace(caption=f"Before calibration. {caption}"),
            Figure(_reliability(after["bins"]), "After calibration."),
            ReportTable("Calibration", rows),
        ]
        lines.append(
            "The logits are divided by a temperature that was fitted to these "
            "rows, so the numbers after it are slightly optimistic."
        )
    if is_offered:
        lines.append(
            "The setting calibrate (bert-tf finetune --calibrate) lowers this "
            "error: it divides the logits by a temperature, which is fitted to "
            "the dev rows. The most probable answers stay the same."
        )
    if parts or is_offered:
        parts.append(Lines(lines))
    title = "Calibration: do the probabilities match the accuracy?"
    return Section("calibration", title, parts, numbers)


def _reliability(bins: Sequence[Mapping[str, Any]]) -> Curves:
    """A reliability diagram, and the number of cases of each bin."""
    middles = [(each["low"] + each["high"]) / 2 for each in bins]
    filled = [each for each in bins if each["count"]]
    shares = [each["share_true"] for each in filled]
    means = [each["mean_probability"] for each in filled]
    bars = [each["share_true"] or 0.0 for each in bins]
    ends = [0.0, 1.0]
    diagram = [
        Curve("observed share", middles, bars, style="bars"),
        Curve("mean probability", means, shares, color=2, style="points"),
        Curve("perfect", ends, ends, color=1, style="ideal"),
    ]
    counts = [each["count"] for each in bins]
    cases = [Curve("", middles, counts, style="bars")]
    panels = [
        Panel(diagram, "probability", "observed share"),
        Panel(cases, "probability", "cases"),
    ]
    return Curves(panels, (4.8, 2.4))


def similarity_section(
    relevant: np.ndarray, others: np.ndarray, noun: str, about: str = ""
) -> Section:
    """Histogram of the scores of relevant and other pairs.

    Args:
      relevant: float [R], the scores of queries with relevant documents.
      others: float [O], the scores of queries with other documents.
      noun: what a score is called.
      about: which other pairs these are, in a sentence.
    """
    every = np.concatenate([relevant, others])
    edges = np.histogram_bin_edges(every, _SIMILARITY_BINS)
    pairs = {"relevant": relevant, "other": others}
    counts = {
        name: np.histogram(values, edges)[0].tolist()
        for name, values in pairs.items()
    }
    means = {
        f"mean of {name}": float(values.mean()) if len(values) else None
        for name, values in pairs.items()
    }
    drawn = histogram(edges.tolist(), counts, (noun, "pairs"), dict(means))
    caption = f"The {noun} of relevant documents and of others. {about}"
    return Section(
        "similarity",
        f"How far apart are relevant and other documents by {noun}?",
        [Figure(drawn, caption.strip())],
        {"similarity": {"edges": edges.tolist(), **counts, **means}},
    )


def mistakes_section(
    wrong: Sequence[Row],
    num_examples: int,
    about: str,
    facts: Sequence[str],
    texts: Callable[[Row], Sequence[MarkedText]],
) -> Section:
    """Lists the worst mistakes.

    Args:
      wrong: what report.json holds of the rows that are not answered exactly,
        the worst first.
      num_examples: the number of all rows.
      about: what rows are called, how they are sorted, and how to read them.
      facts: the keys that are shown.
      texts: the texts of a row.
    """
    worst = wrong[:MISTAKES]
    share = percent(len(wrong) / num_examples)
    line = (
        f"{len(wrong):,} of {num_examples:,} ({share} %) are not answered "
        f"exactly; here are {len(worst)} {about}."
    )
    entries = [
        Entry({name: row[name] for name in facts}, texts(row)) for row in worst
    ]
    numbers = {
        "num_examples": num_examples,
        "mistakes": {"total": len(wrong), "worst": worst},
    }
    return Section(
        "mistakes", "Worst mistakes", [Lines([line]), *entries], numbers
    )
