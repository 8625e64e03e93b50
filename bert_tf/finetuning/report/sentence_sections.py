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
from bert_tf.finetuning.report.parts import (
    ABOUT_BRIER,
    ABOUT_CONFIDENCE,
    CONFIDENCE,
    calibration_section,
    is_small,
    label_table,
    matrix_table,
    mistakes_section,
    verdict,
)


def sentence_sections(numbers: Mapping[str, Any]) -> list[str]:
    """Answers, calibration and mistakes, of whatever form the labels are.

    Args:
      numbers: from `report_numbers`.
    """
    answers = numbers["predictions"]
    calibration = ""
    if "confusion_matrix" in answers:
        first = _classes(answers)
        calibration = calibration_section(
            answers["calibration"],
            CONFIDENCE,
            ABOUT_CONFIDENCE,
            ABOUT_BRIER.format("classes"),
        )
        heads = [_class_verdict(x) for x in answers["mistakes"]["worst"]]
        order = "the surest wrong answers first"
    elif "scatter" in answers:
        first = _regression(answers)
        heads = [_number_verdict(x) for x in answers["mistakes"]["worst"]]
        order = "the largest errors first"
    else:
        first = _labels(answers)
        calibration = calibration_section(
            answers["calibration"],
            "probability that a label holds",
            "Every label of every row counts as one probability.",
            "The Brier score (1950) is the mean squared distance of the "
            "probabilities from the truth: 0 is perfect, 1 the worst.",
        )
        heads = [_set_verdict(x) for x in answers["mistakes"]["worst"]]
        order = "the surest wrong decision about any label first"
    mistakes = mistakes_section(
        answers["num_examples"],
        answers["mistakes"]["total"],
        [
            _item(each, head)
            for each, head in zip(
                answers["mistakes"]["worst"], heads, strict=True
            )
        ],
        order,
        "Many of them being wrongly labelled in the file is common, and worth "
        "knowing.",
        "rows",
    )
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
    beside = is_small(answers["per_label"])
    return section(
        "answers",
        "Which classes are taken for which",
        '<div class="pictures"><div>' if beside else "",
        matrix_table(answers["confusion_matrix"], "class", "classes", "rows"),
        "</div><div>" if beside else "",
        table(
            "The confusions met most often",
            ("True", "Predicted", "Rows", "% of the true class"),
            confusions,
            (0, 1),
        )
        if is_many and confusions
        else "",
        label_table(answers["per_label"], "class", "rows"),
        "</div></div>" if beside else "",
    )


def _labels(answers: Mapping[str, Any]) -> str:
    total, exact = answers["num_examples"], answers["exact_matches"]
    return section(
        "answers",
        "Each label by itself",
        f"<p>{exact:,} of {total:,} rows ({hundredths(exact / total)} %) got "
        "exactly their labels.</p>",
        label_table(answers["per_label"], "label", "rows"),
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


def _item(mistake: Mapping[str, Any], head: Sequence[str]) -> str:
    texts = passage(mistake["text_a"])
    if mistake["text_b"] is not None:
        texts = f'<div class="pair">{texts}{passage(mistake["text_b"])}</div>'
    where = f"line {mistake['row']:,}, id {inline(mistake['identifier'])}"
    return f"{verdict(head, where)}{texts}"


def _class_verdict(mistake: Mapping[str, Any]) -> list[str]:
    return [
        f"Predicted <b>{inline(mistake['prediction'])}</b> at "
        f"{hundredths(mistake['confidence'])} %",
        f"True <b>{inline(mistake['label'])}</b>, given "
        f"{hundredths(mistake['label_probability'])} %",
    ]


def _number_verdict(mistake: Mapping[str, Any]) -> list[str]:
    error = mistake["error"]
    return [
        f"Predicted <b>{number(mistake['prediction'])}</b>",
        f"True <b>{number(mistake['label'])}</b>",
        f"Off by {'+' if error > 0 else ''}{number(error)}",
    ]


def _set_verdict(mistake: Mapping[str, Any]) -> list[str]:
    parts = [f"True <b>{inline(mistake['label'])}</b>"]
    for word, key in (("Missed", "missed"), ("Wrongly given", "added")):
        listed = ", ".join(
            f"<b>{inline(label)}</b> at {hundredths(probability)} %"
            for label, probability in mistake[key].items()
        )
        if listed:
            parts.append(f"{word} {listed}")
    return parts
