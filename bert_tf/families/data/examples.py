"""Examples of a text or a pair, and prediction files in the format of GLUE."""

import array
import collections
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.progress import silently
from bert_tf.tables.faults import Faults
from bert_tf.tables.table import (
    Cell,
    Dialect,
    Row,
    Table,
    convert_rows,
    handle_empty_texts,
    text_of,
)

if TYPE_CHECKING:
    from bert_tf.families.recipe import TableRecipe

# Fields of an example that locate it, and do not belong to its content.
LOCATION = ("identifier", "row", "path")
# A class, a number (regression), the labels that hold (multi-label), or None
# without a label.
Label: TypeAlias = Any
# Parses the cell of a label, given file and row for errors.
ParseLabel: TypeAlias = Callable[[Cell, str], Label]


class Example(NamedTuple):
    """A row of a data set.

    Attributes:
      text_a: the text, or the first of a pair.
      text_b: the second of a pair, or None.
      label: the label; None in test files.
      identifier: the name of the row in prediction files.
      row: its line in the file, counted from 1, for errors.
      path: its file, for errors.
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


class ExampleStream(Sequence[Example]):
    """Examples of a file whose texts are not held in memory.

    The first iteration reads the file. After it, examples have their labels,
    rows and paths, with empty texts and identifiers.

    Args:
      read: reads the file, once more for each stream that `chosen` returns.
      size: the number of examples, if they have been read before.
      path: then their file, for errors.

    Attributes:
      is_read: whether the file has been read once.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[Example]],
        size: int = 0,
        path: str = "",
    ):
        self._read = read
        self._size = size
        self._path = path
        self.is_read = False
        self._is_pair = False
        self._labels: list[Label] = []
        self._rows = array.array("q")
        self._paths: list[str] = []

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        return Example(
            "",
            "" if self._is_pair else None,
            self._labels[index],
            "",
            self._rows[index],
            self._paths[index],
        )

    def __iter__(self) -> Iterator[Example]:
        if not self.is_read:
            return self._read_all()
        second = "" if self._is_pair else None
        # It takes half the time of `__getitem__`.
        return map(
            Example,
            itertools.repeat(""),
            itertools.repeat(second),
            self._labels,
            itertools.repeat(""),
            self._rows,
            self._paths,
        )

    def _read_all(self) -> Iterator[Example]:
        for example in self._read():
            self._is_pair = example.text_b is not None
            self._labels.append(example.label)
            self._rows.append(example.row)
            self._paths.append(example.path)
            yield example
        if self._path and self._size != len(self._labels):
            raise UserError(
                f"{self._path}: has changed while it was read; try again once "
                "it is complete."
            )
        self._size = len(self._labels)
        self.is_read = True

    def chosen(self, is_chosen: np.ndarray) -> "ExampleStream":
        """Returns some of the examples, bool [N], to be read again."""
        # The columns of this stream may be freed.
        read, flags = self._read, is_chosen.tobytes()
        return ExampleStream(
            lambda: itertools.compress(silently(read()), flags),
            int(is_chosen.sum()),
            self._paths[0],
        )


def choose(examples: Any, is_chosen: np.ndarray) -> Any:
    """Returns a list of some examples, or a stream of those of a stream.

    Args:
      examples: N examples that have been iterated.
      is_chosen: bool [N].
    """
    if isinstance(examples, ExampleStream):
        return examples.chosen(is_chosen)
    return list(itertools.compress(examples, is_chosen.tobytes()))


def examples_of(
    path: str,
    rows: Iterable[Row],
    columns: tuple[str, ...],
    recipe: "TableRecipe",
    parse_label: ParseLabel,
) -> Iterator[Example]:
    """Converts the rows of a table to examples.

    Identifiers are positions in the file, from 0, also if rows are dropped.

    Args:
      path: the file, for errors.
      rows: its rows: one or two texts, then the label if there is one.
      columns: the names of the text columns, for errors.
      recipe: describes the handling of empty texts and rows with faults.
      parse_label: parses the cell of a label, or None without one.

    Raises:
      UserError: a text is a list, or empty where that is not allowed, or
        `parse_label` raises it.
    """

    # Rows share the label of equal cells; numbers may all differ.
    parsed: dict[Cell, Label] = {}

    def make(row: Row) -> Example:
        texts = [
            cell if isinstance(cell, str) else text_of(cell, column, row.place)
            for cell, column in zip(row.cells, columns, strict=False)
        ]
        labels = row.cells[len(columns) :]
        cell = labels[0] if labels else None
        label = parsed.get(cell)
        if label is None:
            label = parse_label(cell, row.place)
            if not isinstance(label, float):
                parsed[cell] = label
        return Example(
            text_a=texts[0],
            text_b=texts[1] if len(texts) == 2 else None,
            label=label,
            identifier=str(row.position),
            row=row.number,
            path=row.path,
        )

    rows = handle_empty_texts(path, rows, columns, recipe.empty_text)
    return convert_rows(rows, make, Faults(path, recipe.bad_rows))


def known_label(example: Any) -> Any:
    """Returns an example's label; raises `UserError` if it has none."""
    if example.label is None:
        raise UserError(
            f"{example.path}, row {example.row}: has no label; a file with "
            "labels is needed to train and to evaluate."
        )
    return example.label


def typical(labels: Sequence[Any]) -> Any:
    """Returns the mean of numbers, or the smallest most frequent label."""
    if isinstance(labels[0], float):
        return math.fsum(labels) / len(labels)
    counts = collections.Counter(labels)
    most = max(counts.values())
    return min(label for label in counts if counts[label] == most)


def names_in(label: Label) -> tuple[str, ...]:
    """Returns the names in a label, none in a number."""
    if isinstance(label, tuple):
        return label
    return (label,) if isinstance(label, str) else ()


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Returns the distinct labels, sorted by value if all are numbers."""
    labels = set(labels)
    try:
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    except ValueError:
        return tuple(sorted(labels))


_COLUMNS = ("index", "prediction")


def write_predictions(
    path: str | os.PathLike, predictions: Mapping[str, str]
) -> None:
    """Writes index and prediction in the format of gluebenchmark.com."""
    lines = ["\t".join(_COLUMNS)]
    lines += [f"{index}\t{cell}" for index, cell in predictions.items()]
    write_text(path, "\n".join(lines) + "\n")


def read_predictions(
    path: str, examples: Sequence[Any]
) -> list[tuple[Any, str, str]]:
    """Reads the predictions for the examples of a file.

    Returns:
      For each example: the example, the cell of its prediction, and file and
      row of the latter, for errors.

    Raises:
      UserError: the file is malformed, an index occurs twice or is unknown, or
        the prediction of an example is missing.
    """
    answers: dict[str, tuple[str, str]] = {}
    # No row may be skipped.
    dialect = Dialect(format="tsv", bad_rows="")
    for row in Table(path, dialect).read(_COLUMNS):
        index, cell = map(str, row.cells)
        place = row.place
        if index in answers:
            raise UserError(f"{place}: the index {index!r} occurs twice.")
        answers[index] = (cell, place)
    found = []
    for example in examples:
        if example.identifier not in answers:
            raise UserError(
                f"{path}: has no index {example.identifier}, which is "
                f"row {example.row} of {example.path}; predict every row."
            )
        found.append((example, *answers.pop(example.identifier)))
    if answers:
        files = ",".join(dict.fromkeys(example.path for example in examples))
        raise UserError(
            f"{path}: has an index {next(iter(answers))!r}, which "
            f"{files} with its {len(examples)} rows does not have."
        )
    return found
