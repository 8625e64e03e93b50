"""The parts of a report's page about choices."""

from collections.abc import Mapping
from typing import Any

from bert_tf.finetuning.report.html import (
    hundredths,
    inline,
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
    metered,
    mistakes_section,
    verdict,
)


def choice_sections(numbers: Mapping[str, Any]) -> list[str]:
    """Answers, calibration and mistakes.

    Args:
      numbers: from `report_numbers`.
    """
    answers = numbers["predictions"]
    mistakes = answers["mistakes"]
    return [
        _answers(answers),
        calibration_section(
            answers["calibration"],
            CONFIDENCE,
            ABOUT_CONFIDENCE,
            ABOUT_BRIER.format("choices"),
        ),
        mistakes_section(
            answers["num_examples"],
            mistakes["total"],
            [_item(mistake) for mistake in mistakes["worst"]],
            "the surest wrong answers first",
            "The percentages are the probabilities that the model gives.",
            "rows",
        ),
    ]


def _answers(answers: Mapping[str, Any]) -> str:
    sizes = [
        (
            str(each["choices"]),
            f"{each['count']:,}",
            metered(each["accuracy"]),
            hundredths(each["chance"]),
        )
        for each in answers["by_number_of_choices"]
    ]
    beside = is_small(answers["per_label"])
    return section(
        "answers",
        "Which position is taken for which",
        '<p class="note">A position is the place of a choice in its row, '
        "counted from 0. Where the choices are in random order, none should "
        "be easier than another.</p>",
        '<div class="pictures"><div>' if beside else "",
        matrix_table(
            answers["confusion_matrix"], "position", "positions", "rows"
        ),
        "</div><div>" if beside else "",
        label_table(answers["per_label"], "position", "rows"),
        "</div></div>" if beside else "",
        table(
            "Accuracy x 100 by how many choices there are",
            ("Choices", "Rows", "Accuracy", "Chance"),
            sizes,
        ),
    )


def _item(mistake: Mapping[str, Any]) -> str:
    head = verdict(
        [
            f"Predicted <b>{mistake['prediction']}</b> at "
            f"{hundredths(mistake['confidence'])} %",
            f"True <b>{mistake['label']}</b>, given "
            f"{hundredths(mistake['label_probability'])} %",
        ],
        f"line {mistake['row']:,}, id {inline(mistake['identifier'])}",
    )
    start = mistake["start"]
    begins = f'<p class="note">Every choice begins: {inline(start)}</p>'
    listed = "".join(
        f"<li>{_labels(mistake, place)}{metered(probability)} %"
        f"{passage(choice)}</li>\n"
        for place, (choice, probability) in enumerate(
            zip(mistake["choices"], mistake["probabilities"], strict=True)
        )
    )
    return (
        f"{head}{passage(mistake['context'])}{begins if start else ''}"
        f'<ol class="choices" start="0">{listed}</ol>'
    )


def _labels(mistake: Mapping[str, Any], place: int) -> str:
    labels = ""
    if place == mistake["label"]:
        labels += '<b class="label gold">true</b> '
    if place == mistake["prediction"]:
        labels += '<b class="label given">predicted</b> '
    return labels
