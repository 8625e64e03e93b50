"""Examples of one text or a pair: what text classification reads."""

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from bert_tf.errors import UserError
from bert_tf.finetuning.data.tables import (
    Cell,
    Table,
    handle_empty_texts,
    text_of,
)

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
    def text_key(self) -> tuple[str, str | None]:
        """What makes two rows the same text: all but blanks at the ends."""
        text_b = self.text_b
        return self.text_a.strip(), text_b.strip() if text_b else text_b


def examples_of(
    table: Table,
    columns: tuple[str, ...],
    has_label: bool,
    empty_text: str,
    parse_label: ParseLabel,
) -> list[Example]:
    """Makes examples of the rows of a table.

    Args:
      table: its rows have the texts first, then the label where there is one.
      columns: what its one or two text columns are called, for errors.
      has_label: whether the label's cell follows.
      empty_text: what becomes of empty texts; see `handle_empty_texts`.
      parse_label: what makes a label of a cell, or of None without one.

    Returns:
      Examples. Their identifiers are their places in the file, from 0, which
      stay when others are dropped.

    Raises:
      UserError: a text is a list, or empty where that is not allowed, or
        whatever `parse_label` raises.
    """
    examples = []
    for row in handle_empty_texts(table.path, table.rows, columns, empty_text):
        place = f"{table.path}, row {row.number}"
        texts = [
            text_of(cell, column, place)
            for cell, column in zip(row.cells, columns, strict=False)
        ]
        label = row.cells[len(columns)] if has_label else None
        examples.append(
            Example(
                text_a=texts[0],
                text_b=texts[1] if len(texts) == 2 else None,
                label=parse_label(label, place),
                identifier=str(row.position),
                row=row.number,
                path=table.path,
            )
        )
    return examples


def known_label(example: Any) -> Any:
    """An example's label; raises `UserError` if it has none."""
    if example.label is None:
        raise UserError(
            f"{example.path}, row {example.row}: has no label; a file with "
            "labels is needed to train and to evaluate."
        )
    return example.label


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
