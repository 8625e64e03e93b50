"""Examples of one text or a pair, and prediction files in the form of GLUE."""

import collections
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bert_tf.errors import UserError
from bert_tf.families.data.faults import Faults
from bert_tf.families.data.tables import (
    Cell,
    Dialect,
    Row,
    collect,
    handle_empty_texts,
    read_table,
    text_of,
)
from bert_tf.files import write_text

if TYPE_CHECKING:
    from bert_tf.families.recipe import TableRecipe

# The name of a class, a number (regression), the names of all classes that
# hold (multi-label), or None where the file has no answer.
Label: TypeAlias = Any
# Turns a label's cell into the label, given file and row for errors.
ParseLabel: TypeAlias = Callable[[Cell, str], Label]


class Example(NamedTuple):
    """One row of a data set.

    Attributes:
      text_a: the text, or the first of a pair.
      text_b: the second of a pair, or None.
      label: the answer; None in test files.
      identifier: the row's own name, for prediction files.
      row: its line in the file, counted from 1, for errors.
      path: the file it is from, for errors.
    """

    text_a: str
    text_b: str | None
    label: Label
    identifier: str
    row: int
    path: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both of a pair."""
        return (
            (self.text_a,)
            if self.text_b is None
            else (self.text_a, self.text_b)
        )

    @property
    def text_key(self) -> tuple[str, ...]:
        """The texts without blanks at their ends, by which rows are equal."""
        return tuple(text.strip() for text in self.texts)


def examples_of(
    path: str,
    rows: Iterable[Row],
    columns: tuple[str, ...],
    recipe: "TableRecipe",
    parse_label: ParseLabel,
) -> list[Example]:
    """Makes examples of the rows of a table.

    Their identifiers are their places in the file, from 0, which stay when
    others are dropped.

    Args:
      path: the file, for errors.
      rows: its rows: the texts first, then the label where there is one.
      columns: what its one or two text columns are called, for errors.
      recipe: says what becomes of empty texts and of rows with a fault.
      parse_label: what makes a label of a cell, or of None without one.

    Raises:
      UserError: rows have faults: a text is a list, or empty where that is not
        allowed, or whatever `parse_label` raises.
    """

    def make(row: Row) -> Example:
        place = f"{path}, row {row.number}"
        texts = [
            text_of(cell, column, place)
            for cell, column in zip(row.cells, columns, strict=False)
        ]
        labels = row.cells[len(columns) :]
        return Example(
            text_a=texts[0],
            text_b=texts[1] if len(texts) == 2 else None,
            label=parse_label(labels[0] if labels else None, place),
            identifier=str(row.position),
            row=row.number,
            path=path,
        )

    rows = handle_empty_texts(path, rows, columns, recipe.empty_text)
    return collect(rows, make, Faults(path, recipe.bad_rows))


def known_label(example: Any) -> Any:
    """An example's label; raises `UserError` if it has none."""
    if example.label is None:
        raise UserError(
            f"{example.path}, row {example.row}: has no label; a file with "
            "labels is needed to train and to evaluate."
        )
    return example.label


def names_in(label: Label) -> tuple[str, ...]:
    """The names in a label: a class, all that hold, or none in a number."""
    if isinstance(label, tuple):
        return label
    return (label,) if isinstance(label, str) else ()


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Different labels, sorted; by value where all are numbers."""
    labels = set(labels)
    try:
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    except ValueError:
        return tuple(sorted(labels))


def commonest(labels: Sequence[Label]) -> Label:
    """The commonest label, the first in order of equally common ones."""
    counts = collections.Counter(labels)
    most = max(counts.values())
    return min(label for label in counts if counts[label] == most)


_COLUMNS = ("index", "prediction")


def write_predictions(
    path: str | os.PathLike, predictions: Mapping[str, str]
) -> None:
    """Writes index and prediction, in the form gluebenchmark.com takes."""
    lines = ["\t".join(_COLUMNS)]
    lines += [f"{index}\t{cell}" for index, cell in predictions.items()]
    write_text(path, "\n".join(lines) + "\n")


def read_predictions(
    path: str, examples: Sequence[Any], references: str
) -> list[tuple[Any, str, str]]:
    """Reads such a file of answers to examples of the file `references`.

    Returns:
      To each example, in their order: the example, the cell of its answer,
      and file and row of that, for errors.

    Raises:
      UserError: the file is broken, an index occurs twice, an answer is missing
        or is to no example.
    """
    answers: dict[str, tuple[str, str]] = {}
    # Every row is to be predicted, so none is skipped.
    dialect = Dialect(format="tsv", bad_rows="")
    for row in read_table(path, _COLUMNS, (), dialect):
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
