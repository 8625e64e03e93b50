"""Reports on tasks that choose one of several texts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.choices.choice_recipe import OwnChoiceRecipe
from bert_tf.finetuning.report.calibration import class_calibration
from bert_tf.finetuning.report.checks import (
    check_probabilities,
    require_exactly,
)
from bert_tf.finetuning.report.choice_sections import choice_sections
from bert_tf.finetuning.report.confusion import (
    confusion_matrix,
    per_label,
    share,
)
from bert_tf.finetuning.report.kind import (
    NUM_MISTAKES,
    PAPER_ON_DEV,
    Kind,
)
from bert_tf.recipe import check_kind


class ChoiceRow(NamedTuple):
    """One line of dev_predictions.jsonl.

    Attributes:
      identifier: the row's own name.
      row: its line in the data file, counted from 1.
      context: the text.
      start: what every choice begins with.
      choices: the texts to choose from.
      label: the right one by number, from 0.
      prediction: the model's.
      probabilities: one a choice.
    """

    identifier: str
    row: int
    context: str
    start: str
    choices: list[str]
    label: int
    prediction: int
    probabilities: list[float]


def read_choice(
    line: Mapping[str, Any], results: Mapping[str, Any], place: str
) -> ChoiceRow:
    """Reads a line strictly.

    Args:
      line: the line's object.
      results: results.json.
      place: file and line, for errors.

    Raises:
      UserError: something is missing, or is not what it should be.
    """
    del results
    require_exactly(line, ChoiceRow._fields, place)
    for name, kind in (
        ("identifier", str),
        ("row", int),
        ("context", str),
        ("start", str),
        ("choices", list),
        ("label", int),
        ("prediction", int),
    ):
        check_kind(name, kind, line[name], place)
    choices = line["choices"]
    for number, choice in enumerate(choices):
        check_kind(f"choices[{number}]", str, choice, place)
    for name in ("label", "prediction"):
        if not 0 <= line[name] < len(choices):
            raise UserError(
                f"{place}: {name} is {line[name]}; it takes 0 to "
                f"{len(choices) - 1}, one of its {len(choices)} choices."
            )
    check_probabilities(
        line["probabilities"], len(choices), "one a choice", place
    )
    return ChoiceRow(**line)


def choice_numbers(
    rows: Sequence[ChoiceRow], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Positions, numbers of choices, calibration and mistakes.

    Args:
      rows: the lines of dev_predictions.jsonl.
      results: results.json.
    """
    del results
    sizes = np.array([len(row.choices) for row in rows])
    truth = np.array([row.label for row in rows])
    answers = np.array([row.prediction for row in rows])
    names = [str(place) for place in range(sizes.max())]
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (truth, answers), 1)
    probabilities = np.zeros((len(rows), len(names)))
    for index, row in enumerate(rows):
        probabilities[index, : sizes[index]] = row.probabilities
    right = truth == answers
    return {
        "num_examples": len(rows),
        "confusion_matrix": confusion_matrix(counts, names),
        "per_label": per_label(
            names, np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)
        ),
        "by_number_of_choices": [
            {
                "choices": int(size),
                "count": int((sizes == size).sum()),
                "accuracy": share(
                    right[sizes == size].sum(), (sizes == size).sum()
                ),
                "chance": 1 / int(size),
            }
            for size in np.unique(sizes)
        ],
        "calibration": class_calibration(probabilities, truth),
        "mistakes": _mistakes(rows),
    }


def _mistakes(rows: Sequence[ChoiceRow]) -> dict[str, Any]:
    """The wrong rows whose choice had the highest probability."""
    wrong = [row for row in rows if row.label != row.prediction]
    worst = sorted(wrong, key=lambda row: -row.probabilities[row.prediction])
    return {
        "total": len(wrong),
        "worst": [
            row._asdict()
            | {
                "confidence": row.probabilities[row.prediction],
                "label_probability": row.probabilities[row.label],
            }
            for row in worst[:NUM_MISTAKES]
        ],
    }


CHOICES = Kind(
    key="choices",
    read=read_choice,
    numbers=choice_numbers,
    sections=choice_sections,
    recipes=(OwnChoiceRecipe,),
    unit="rows",
    baseline=lambda labels: (
        "always the position that is right most often in training"
    ),
    published="published, dev set",
    paper_note=PAPER_ON_DEV,
)
