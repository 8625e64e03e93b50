"""Files of answers: index and prediction, and JSON lines for the report."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.data.examples import Example, Predictions
from bert_tf.finetuning.data.table_formats import TSV
from bert_tf.finetuning.data.tables import Dialect, read_table

_COLUMNS = ("index", "prediction")


def write_cells(path: str | os.PathLike, cells: Mapping[str, str]) -> None:
    """Writes index and prediction, in the form gluebenchmark.com takes.

    Args:
      path: where to.
      cells: the answer to each index.
    """
    lines = ["\t".join(_COLUMNS)]
    lines += [f"{index}\t{cell}" for index, cell in cells.items()]
    write_text(path, "\n".join(lines) + "\n")


def read_cells(path: str) -> dict[str, tuple[str, str]]:
    """Reads such a file.

    Returns:
      To each index, its cell and its file and row, for errors.

    Raises:
      UserError: it is broken or an index occurs twice.
    """
    answers: dict[str, tuple[str, str]] = {}
    for row in read_table(path, _COLUMNS, (), Dialect(format=TSV)).rows:
        index, value = map(str, row.cells)
        place = f"{path}, row {row.number}"
        if index in answers:
            raise UserError(f"{place}: the index {index!r} occurs twice.")
        answers[index] = (value, place)
    return answers


def matched(
    answers: Mapping[str, Any],
    examples: Sequence[Any],
    predictions: str,
    references: str,
) -> list[Any]:
    """The answers in the order of the examples.

    Args:
      answers: the answer to each index.
      examples: with identifier and row.
      predictions: the file of the answers, for errors.
      references: the file of the examples, for errors.

    Raises:
      UserError: an answer is missing, or is to no example.
    """
    for example in examples:
        if example.identifier not in answers:
            raise UserError(
                f"{predictions}: has no index {example.identifier}, which is "
                f"row {example.row} of {references}; predict every row."
            )
    if len(answers) > len(examples):
        known = {example.identifier for example in examples}
        index = next(index for index in answers if index not in known)
        raise UserError(
            f"{predictions}: has an index {index!r}, which {references} with "
            f"its {len(examples)} rows does not have."
        )
    return [answers[example.identifier] for example in examples]


def write_answer_lines(
    path: str | os.PathLike,
    examples: Sequence[Example],
    answers: Predictions,
) -> None:
    """Writes every row with its label and the answer, a JSON line each."""
    lines = []
    for index, example in enumerate(examples):
        line = {
            "identifier": example.identifier,
            "row": example.row,
            "text_a": example.text_a,
            "text_b": example.text_b,
            "label": example.label,
            "prediction": answers.values[index],
        }
        if answers.probabilities is not None:
            row = answers.probabilities[index]
            line["probabilities"] = [float(p) for p in row]
        lines.append(json.dumps(line))
    write_text(path, "\n".join(lines) + "\n")
