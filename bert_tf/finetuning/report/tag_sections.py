"""The parts of a report's page about tagged words."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.finetuning.report.html import hundredths, section, table
from bert_tf.finetuning.report.marks import Mark, marked
from bert_tf.finetuning.report.parts import (
    is_small,
    label_table,
    matrix_table,
    mistakes_section,
    verdict,
)

_ERRORS = {
    "right": "Right: type and both ends",
    "other_type": "Found with both ends, but of another type",
    "other_ends": "Found in part, with another end",
    "missed": "Missed altogether",
    "invented": "Found where there is none",
}


def tag_sections(numbers: Mapping[str, Any]) -> list[str]:
    """Types, kinds of errors and mistakes.

    Args:
      numbers: from `report_numbers`.
    """
    answers = numbers["predictions"]
    mistakes = answers["mistakes"]
    return [
        _answers(answers),
        mistakes_section(
            answers["num_examples"],
            mistakes["total"],
            [_item(mistake) for mistake in mistakes["worst"]],
            "those with the most wrong entities first",
            "An entity that is underlined is right; a dashed frame is around "
            "one that was not found so, or is not so.",
            "sentences",
        ),
    ]


def _answers(answers: Mapping[str, Any]) -> str:
    errors = answers["errors"]
    there = sum(errors.values()) - errors["invented"]
    rows = [
        (
            name,
            f"{errors[key]:,}",
            hundredths(errors[key] / there)
            if there and key != "invented"
            else "\u2013",
        )
        for key, name in _ERRORS.items()
    ]
    if not answers["per_label"]:
        return section(
            "answers",
            "Entities",
            f"<p>There is no entity in {answers['num_examples']:,} sentences, "
            "and none was found.</p>",
        )
    beside = is_small(answers["per_label"])
    return section(
        "answers",
        "Which types are taken for which",
        '<div class="pictures"><div>' if beside else "",
        matrix_table(answers["confusion_matrix"], "type", "types", "entities"),
        '<p class="note">An entity whose ends are wrong counts as missed '
        "under its own type and as found where there is no entity.</p>",
        "</div><div>" if beside else "",
        label_table(answers["per_label"], "type", "entities"),
        "</div></div>" if beside else "",
        table(
            f"What became of {there:,} entities in {answers['num_words']:,} "
            "words",
            ("", "Entities", "% of those there"),
            rows,
        ),
    )


def _item(mistake: Mapping[str, Any]) -> str:
    words = mistake["words"]
    head = verdict(
        [f"<b>{mistake['wrong']:,}</b> wrong: missed, found wrongly, or both"],
        f"from line {mistake['row']:,}",
    )
    lines = "".join(
        f'<p class="who">{name}</p>{_line(words, mistake[key], remark)}'
        for name, key, remark in (
            ("True", "entities", "not found"),
            ("Predicted", "predicted", "wrong"),
        )
    )
    return f"{head}{lines}"


def _line(
    words: Sequence[str], found: Sequence[Mapping[str, Any]], remark: str
) -> str:
    """The sentence with its entities marked."""
    ends = list(itertools.accumulate(len(word) + 1 for word in words))
    begins = [0, *ends]
    marks = [
        Mark(
            begins[each["first"]],
            ends[each["last"]] - 1,
            each["kind"] if each["right"] else f"{each['kind']}, {remark}",
            "gold" if each["right"] else "given",
        )
        for each in found
    ]
    return marked(" ".join(words), marks)
