"""Parts of a report's page that several kinds of tasks have."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.finetuning.report import figures
from bert_tf.finetuning.report.html import (
    figure,
    hundredths,
    inline,
    section,
    table,
)

# More classes than this get numbers for column heads, and smaller print.
_NAMED_COLUMNS = 8
_LISTED_LABELS = 60
# A matrix of so few classes leaves room for a table beside it.
_SIDE_BY_SIDE = 4
CONFIDENCE = "confidence"
ABOUT_CONFIDENCE = (
    "Confidence is the probability that the model gives to its own answer."
)
ABOUT_BRIER = (
    "The Brier score (1950) is the mean squared distance of the probabilities "
    "from the truth, summed over the {}: 0 is perfect, 2 the worst."
)


def matrix_table(
    matrix: Mapping[str, Any], noun: str, nouns: str, counted: str
) -> str:
    """A confusion matrix as a table, so that it can be read aloud.

    Args:
      matrix: from `confusion.confusion_matrix`.
      noun: what it confuses.
      nouns: the same of several.
      counted: what its cells count.
    """
    names = [inline(label) for label in matrix["labels"]]
    if matrix["pooled"]:
        names.append(f"{matrix['pooled']:,} other {nouns}")
    is_dense = len(names) > _NAMED_COLUMNS
    tops = [str(i + 1) for i in range(len(names))] if is_dense else names
    lefts = (
        [f"{i + 1} \u00b7 {name}" for i, name in enumerate(names)]
        if is_dense
        else names
    )
    head = "".join(f'<th scope="col">{top}</th>' for top in tops)
    body = "".join(
        f'<tr><th scope="row">{left}</th>{_matrix_cells(counts, i)}</tr>\n'
        for i, (left, counts) in enumerate(
            zip(lefts, matrix["counts"], strict=True)
        )
    )
    return (
        f'<div class="scroll matrix{" dense" if is_dense else ""}" '
        'role="region" aria-label="Confusion matrix" tabindex="0">'
        f'<table aria-label="Confusion matrix: true {noun} in rows, predicted '
        f'{noun} in columns"><thead><tr><th scope="col">True \\ predicted</th>'
        f"{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
        f'<p class="note">Each cell counts {counted}: their true {noun} to the '
        "left, the predicted one on top; the darker, the larger its share of "
        "the row. Framed: right answers.</p>"
    )


def _matrix_cells(counts: Sequence[int], row: int) -> str:
    total = sum(counts)
    cells = []
    for column, count in enumerate(counts):
        share = count / total if total else 0.0
        # From white to the dark blue of the pictures, in steps of one class.
        red, green, blue = (
            round(255 + (end - 255) * share) for end in (0, 84, 140)
        )
        ink = "#fff" if share > 0.67 else "#1f2933"
        kind = ' class="right"' if column == row else ""
        shown_count = f"{count:,}" if count else "\u00b7"
        cells.append(
            f'<td{kind} style="background:rgb({red},{green},{blue});'
            f'color:{ink}">{shown_count}</td>'
        )
    return "".join(cells)


def is_small(rows: Sequence[Any]) -> bool:
    """Whether a matrix of so many labels leaves room for a table beside it."""
    return len(rows) <= _SIDE_BY_SIDE


def label_table(
    rows: Sequence[Mapping[str, Any]], noun: str, counted: str
) -> str:
    """Precision, recall and F1 of each label.

    Args:
      rows: from `confusion.per_label`.
      noun: what each of them is.
      counted: what is counted.
    """
    often = sorted(rows, key=lambda row: -row["count"])[:_LISTED_LABELS]
    kept = [row for row in rows if row in often]
    cells = [
        (
            inline(row["label"]),
            f"{row['count']:,}",
            f"{row['predicted']:,}",
            hundredths(row["precision"]),
            hundredths(row["recall"]),
            hundredths(row["f1"]) if is_small(rows) else metered(row["f1"]),
        )
        for row in kept
    ]
    left = len(rows) - len(kept)
    more = f" {left:,} rarer ones are in report.json." if left else ""
    if any(None in row.values() for row in kept):
        more = f" \u2013: no row to take a share of.{more}"
    return (
        table(
            f"Each {noun} by itself",
            (
                noun.capitalize(),
                "True",
                "Predicted",
                "Precision",
                "Recall",
                "F1",
            ),
            cells,
        )
        + f'<p class="note">True, predicted: {counted}. The others are '
        f"x 100. Precision: the share of the {counted} given the {noun} that "
        f"have it. Recall: the share of the {counted} that have the {noun} "
        f"that were given it. F1: their harmonic mean (van Rijsbergen 1979)."
        f"{more}</p>"
    )


def metered(share: float | None) -> str:
    """A share times 100 with a bar."""
    width = 100 * (share or 0.0)
    return (
        '<span class="meter" aria-hidden="true">'
        f'<i style="width:{width:.1f}%"></i></span>{hundredths(share)}'
    )


def calibration_section(
    calibration: Mapping[str, Any], event: str, about: str, brier: str
) -> str:
    """Whether the probabilities can be believed.

    Args:
      calibration: from `calibration.class_calibration` or its like.
      event: what the probability is of, for the axis.
      about: the same in a sentence.
      brier: what the Brier score is here, in a sentence.
    """
    error = calibration["expected_calibration_error"]
    picture = figure(
        figures.reliability(calibration["bins"], event),
        "Reliability diagram: "
        + "; ".join(
            f"{each['low']:.2f} to {each['high']:.2f}: {each['count']:,} with "
            f"{hundredths(each['share_true'])} % true"
            for each in calibration["bins"]
            if each["count"]
        ),
        f"{about} Of all answers given with 80 % probability, 80 % should "
        "come true: then the bars touch the dashed line. Bars below it are "
        "overconfident, above it too modest. White dots mark the mean "
        "probability of a bar. Below: how many there are of each.",
    )
    rows = [
        ("Expected calibration error", f"{error:.3f}"),
        ("Brier score", f"{calibration['brier_score']:.3f}"),
        (f"Mean {event}", f"{calibration['mean_confidence']:.3f}"),
        ("Share that came true", f"{calibration['share_true']:.3f}"),
    ]
    return section(
        "calibration",
        "Calibration: can the probabilities be believed?",
        f'<div class="pictures">{picture}<div>',
        table("Calibration", ("Number", "Value"), rows),
        '<p class="note">Expected calibration error (Guo et al. 2017): the '
        "mean distance between probability and share that came true, over "
        f"{len(calibration['bins'])} bins of equal width, weighted by how many "
        f"rows a bin holds; 0 is perfect. {brier}</p></div></div>",
    )


def mistakes_section(
    total: int,
    wrong: int,
    items: Sequence[str],
    order: str,
    note: str,
    unit: str,
) -> str:
    """The worst mistakes, one below the other.

    Args:
      total: how many examples there are.
      wrong: how many of them are wrong.
      items: some of these as HTML.
      order: how they are ordered, in words.
      note: what to think of them, in a sentence.
      unit: what an example is called.
    """
    if not wrong:
        return section(
            "mistakes", "Mistakes", f"<p>None in {total:,} {unit}.</p>"
        )
    listed = "".join(f"<li>{item}</li>\n" for item in items)
    return section(
        "mistakes",
        "Worst mistakes",
        f'<p class="note">{wrong:,} of {total:,} {unit} '
        f"({hundredths(wrong / total)} %) are not answered exactly; these are "
        f"{len(items)} of them, {order}. {note}</p>",
        f'<ol class="mistakes">{listed}</ol>',
    )


def verdict(parts: Sequence[str], where: str) -> str:
    """The line above a mistake.

    Args:
      parts: what was predicted and what is true, as HTML.
      where: where the example stands, as HTML.
    """
    spans = "".join(f"<span>{part}</span>" for part in parts)
    return f'<p class="verdict">{spans}<span class="where">{where}</span></p>'
