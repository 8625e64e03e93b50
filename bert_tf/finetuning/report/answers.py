"""The parts of a report's page about the model's answers, row by row."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.finetuning.report import figures
from bert_tf.finetuning.report.html import (
    figure,
    hundredths,
    inline,
    number,
    passage,
    section,
    table,
)

# More classes than this get numbers for column heads, and smaller print.
_NAMED_COLUMNS = 8
_LISTED_LABELS = 60
# A matrix of so few classes leaves room for a table beside it.
_SIDE_BY_SIDE = 4


def answer_sections(numbers: Mapping[str, Any]) -> list[str]:
    """Answers, calibration and mistakes, of whichever kind the task is.

    Args:
      numbers: from `report_numbers`.
    """
    answers = numbers["predictions"]
    calibration = ""
    if "confusion_matrix" in answers:
        first = _classes(answers)
        calibration = _calibration(
            answers["calibration"],
            "confidence",
            "Confidence is the probability that the model gives to its own "
            "answer.",
            "The Brier score (1950) is the mean squared distance of the "
            "probabilities from the truth, summed over the classes: 0 is "
            "perfect, 2 the worst.",
        )
        heads = [_class_verdict(x) for x in answers["mistakes"]["worst"]]
        order = "the surest wrong answers first"
    elif "scatter" in answers:
        first = _regression(answers)
        heads = [_number_verdict(x) for x in answers["mistakes"]["worst"]]
        order = "the largest errors first"
    else:
        first = _labels(answers)
        calibration = _calibration(
            answers["calibration"],
            "probability that a label holds",
            "Every label of every row counts as one probability.",
            "The Brier score (1950) is the mean squared distance of the "
            "probabilities from the truth: 0 is perfect, 1 the worst.",
        )
        heads = [_set_verdict(x) for x in answers["mistakes"]["worst"]]
        order = "the surest wrong decision about any label first"
    mistakes = _mistakes(answers, heads, order)
    return [first, calibration, mistakes]


def _classes(answers: Mapping[str, Any]) -> str:
    confusions = [
        (
            inline(each["label"]),
            inline(each["prediction"]),
            f"{each['count']:,}",
            hundredths(each["share_of_label"]),
        )
        for each in answers["confusions"]
    ]
    is_many = len(answers["per_label"]) > 2
    is_small = len(answers["per_label"]) <= _SIDE_BY_SIDE
    return section(
        "answers",
        "Which classes are taken for which",
        '<div class="pictures"><div>' if is_small else "",
        _matrix(answers["confusion_matrix"]),
        '<p class="note">Each cell counts rows: their true class to the left, '
        "the predicted one on top; the darker, the larger its share of the "
        "row. Framed: right answers.</p>",
        "</div><div>" if is_small else "",
        table(
            "The confusions met most often",
            ("True", "Predicted", "Rows", "% of the true class"),
            confusions,
            (0, 1),
        )
        if is_many and confusions
        else "",
        _per_label(answers["per_label"], "class"),
        "</div></div>" if is_small else "",
    )


def _matrix(matrix: Mapping[str, Any]) -> str:
    """The confusion matrix as a table, so that it can be read aloud."""
    names = [inline(label) for label in matrix["labels"]]
    if matrix["pooled"]:
        names.append(f"{matrix['pooled']:,} other classes")
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
        '<table aria-label="Confusion matrix: true class in rows, predicted '
        'class in columns"><thead><tr><th scope="col">True \\ predicted</th>'
        f"{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
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


def _per_label(rows: Sequence[Mapping[str, Any]], noun: str) -> str:
    often = sorted(rows, key=lambda row: -row["count"])[:_LISTED_LABELS]
    kept = [row for row in rows if row in often]
    is_small = len(rows) <= _SIDE_BY_SIDE
    cells = [
        (
            inline(row["label"]),
            f"{row['count']:,}",
            f"{row['predicted']:,}",
            hundredths(row["precision"]),
            hundredths(row["recall"]),
            hundredths(row["f1"]) if is_small else _metered(row["f1"]),
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
        + f'<p class="note">True, predicted: rows. The others are x 100. '
        f"Precision: the share of the rows given the {noun} that have it. "
        f"Recall: the share of the rows that have the {noun} that were given "
        f"it. F1: their harmonic mean (van Rijsbergen 1979).{more}</p>"
    )


def _metered(share: float | None) -> str:
    width = 100 * (share or 0.0)
    return (
        '<span class="meter" aria-hidden="true">'
        f'<i style="width:{width:.1f}%"></i></span>{hundredths(share)}'
    )


def _labels(answers: Mapping[str, Any]) -> str:
    total, exact = answers["num_examples"], answers["exact_matches"]
    return section(
        "answers",
        "Each label by itself",
        f"<p>{exact:,} of {total:,} rows ({hundredths(exact / total)} %) got "
        "exactly their labels.</p>",
        _per_label(answers["per_label"], "label"),
    )


def _regression(answers: Mapping[str, Any]) -> str:
    scatter, residuals = answers["scatter"], answers["residuals"]
    every = scatter["every"]
    some = f" One row in {every} is drawn." if every > 1 else ""
    svg = figures.true_and_predicted(scatter["true"], scatter["predicted"])
    cloud = figure(
        svg,
        f"Predicted over true values of {len(scatter['true']):,} rows; the "
        f"mean absolute error is {number(residuals['mean_absolute_error'])}",
        "A point is a row: its true value across, the predicted one up. On "
        f"the dashed line they agree.{some}",
    )
    svg = figures.error_histogram(
        residuals["edges"], residuals["counts"], residuals["mean_error"]
    )
    histogram = figure(
        svg,
        "Histogram of the errors, from "
        f"{number(residuals['edges'][0])} to {number(residuals['edges'][-1])}; "
        f"their mean is {number(residuals['mean_error'])}",
        "How many rows are off by how much. Right of 0 the model guesses too "
        "high; the dashed line is the mean error.",
    )
    rows = [
        (name, number(residuals[key]))
        for name, key in (
            ("Mean error (predicted - true)", "mean_error"),
            ("Mean absolute error", "mean_absolute_error"),
            ("Median absolute error", "median_absolute_error"),
            ("Root mean squared error", "root_mean_squared_error"),
        )
    ]
    return section(
        "answers",
        "True and predicted values",
        f'<div class="pictures">{cloud}{histogram}</div>',
        table("Errors, in units of the label", ("Error", "Value"), rows),
    )


def _calibration(
    calibration: Mapping[str, Any], event: str, about: str, brier: str
) -> str:
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


def _mistakes(
    answers: Mapping[str, Any], heads: Sequence[str], order: str
) -> str:
    mistakes, total = answers["mistakes"], answers["num_examples"]
    wrong = mistakes["total"]
    if not wrong:
        return section(
            "mistakes", "Mistakes", f"<p>None in {total:,} rows.</p>"
        )
    items = "".join(
        f"<li>{_item(each, head)}</li>\n"
        for each, head in zip(mistakes["worst"], heads, strict=True)
    )
    return section(
        "mistakes",
        "Worst mistakes",
        f'<p class="note">{wrong:,} of {total:,} rows '
        f"({hundredths(wrong / total)} %) are not answered exactly; these are "
        f"{len(heads)} of them, {order}. Many of them being wrongly labelled "
        "in the file is common, and worth knowing.</p>",
        f'<ol class="mistakes">{items}</ol>',
    )


def _item(mistake: Mapping[str, Any], head: str) -> str:
    texts = passage(mistake["text_a"])
    if mistake["text_b"] is not None:
        texts = f'<div class="pair">{texts}{passage(mistake["text_b"])}</div>'
    return (
        f'<p class="verdict">{head}<span class="where">line '
        f"{mistake['row']:,}, id {inline(mistake['identifier'])}</span></p>"
        f"{texts}"
    )


def _class_verdict(mistake: Mapping[str, Any]) -> str:
    return (
        f"<span>Predicted <b>{inline(mistake['prediction'])}</b> at "
        f"{hundredths(mistake['confidence'])} %</span>"
        f"<span>True <b>{inline(mistake['label'])}</b>, given "
        f"{hundredths(mistake['label_probability'])} %</span>"
    )


def _number_verdict(mistake: Mapping[str, Any]) -> str:
    error = mistake["error"]
    return (
        f"<span>Predicted <b>{number(mistake['prediction'])}</b></span>"
        f"<span>True <b>{number(mistake['label'])}</b></span>"
        f"<span>Off by {'+' if error > 0 else ''}{number(error)}</span>"
    )


def _set_verdict(mistake: Mapping[str, Any]) -> str:
    parts = [f"<span>True <b>{inline(mistake['label'])}</b></span>"]
    for word, key in (("Missed", "missed"), ("Wrongly given", "added")):
        listed = ", ".join(
            f"<b>{inline(label)}</b> at {hundredths(probability)} %"
            for label, probability in mistake[key].items()
        )
        if listed:
            parts.append(f"<span>{word} {listed}</span>")
    return "".join(parts)
