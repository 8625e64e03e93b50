"""Files of answers in the form of GLUE: the columns index and prediction."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.data.tables import Dialect, read_table
from bert_tf.finetuning.recipe import TSV

_COLUMNS = ("index", "prediction")


def write_predictions(
    path: str | os.PathLike, predictions: Mapping[str, str]
) -> None:
    """Writes index and prediction, in the form gluebenchmark.com takes.

    Args:
      path: where to.
      predictions: the answer to each index.
    """
    lines = ["\t".join(_COLUMNS)]
    lines += [f"{index}\t{cell}" for index, cell in predictions.items()]
    write_text(path, "\n".join(lines) + "\n")


def read_predictions(
    path: str, examples: Sequence[Any], references: str
) -> list[tuple[Any, str, str]]:
    """Reads such a file of answers to examples.

    Args:
      path: the file of the answers.
      examples: the examples, with an identifier and a row.
      references: the file that these are from, for errors.

    Returns:
      To each example, in their order: the example, the cell of its answer,
      and file and row of that, for errors.

    Raises:
      UserError: the file is broken, an index occurs twice, an answer is missing
        or is to no example.
    """
    answers: dict[str, tuple[str, str]] = {}
    for row in read_table(path, _COLUMNS, (), Dialect(format=TSV)).rows:
        index, cell = map(str, row.cells)
        place = f"{path}, row {row.number}"
        if index in answers:
            raise UserError(f"{place}: the index {index!r} occurs twice.")
        answers[index] = (cell, place)
    found = []
    for example in examples:
        if example.identifier not in answers:
            raise UserError(
                f"{path}: has no index {example.identifier}, which is "
                f"row {example.row} of {references}; predict every row."
            )
        found.append((example, *answers.pop(example.identifier)))
    if answers:
        raise UserError(
            f"{path}: has an index {next(iter(answers))!r}, which "
            f"{references} with its {len(examples)} rows does not have."
        )
    return found
