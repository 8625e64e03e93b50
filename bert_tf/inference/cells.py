"""Checks the arguments of a loaded model, and arranges them in columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError, excerpt
from bert_tf.families.usage_options import CHOICES
from bert_tf.files import whole_text
from bert_tf.text.given_texts import members

# All columns that models take.
COLUMNS = ("text", "text_b", "question", "context", CHOICES, "start")
# One row by column: a text, or the texts of its choices.
Inputs = Mapping[str, str | tuple[str, ...]]


def length_of(cell: str | tuple[str, ...]) -> int:
    """Returns the number of characters of a cell."""
    return len(cell) if isinstance(cell, str) else sum(map(len, cell))


def column_of(name: str, rows: Sequence[Inputs]) -> list:
    """Returns a column of rows; lists of choices are padded with ""."""
    cells = [row[name] for row in rows]
    if name != CHOICES:
        return cells
    width = max(map(len, cells))
    return [[*cell, *[""] * (width - len(cell))] for cell in cells]


def cells_of(name: str, value: Any) -> Any:
    """Checks a cell or a list of cells of a column."""
    place = f"`{name}`"
    if name != CHOICES and isinstance(value, str):
        return _check_cell(name, value, place)
    cells = _listed(value, place)
    if name == CHOICES and any(isinstance(each, str) for each in cells):
        return _check_cell(name, cells, place)
    return [
        _check_cell(name, cell, f"{place}[{number}]")
        for number, cell in enumerate(cells)
    ]


def _check_cell(name: str, cell: Any, place: str) -> str | tuple[str, ...]:
    """Checks a text, or the texts of a row's choices."""
    if name == CHOICES:
        choices = enumerate(_listed(cell, place))
        return tuple(
            check_text(each, f"{place}[{number}]") for number, each in choices
        )
    return check_text(cell, place)


def check_text(cell: Any, place: str) -> str:
    """Checks a text; `place` names it in errors."""
    if not isinstance(cell, str):
        raise UserError(f"{place} is {excerpt(cell)}; give a string.")
    return whole_text(cell, place)


def _listed(value: Any, place: str) -> list:
    """Returns the members of a non-empty list."""
    found = list(members(value, place))
    if not found:
        raise UserError(f"{place} is an empty list; give at least one text.")
    return found
