"""Tables of text, read strictly: every row whole, every error with its row.

A format is a function here that reads the rows of a file: lists of cells (TSV,
CSV) or values by key (JSON lines).
"""

import csv
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from bert_tf.errors import UserError, did_you_mean, excerpt
from bert_tf.files import json_object, read_lines, whole_text
from bert_tf.finetuning.recipe import (
    CSV,
    FORMATS,
    JSONL,
    UserFilesRecipe,
)
from bert_tf.progress import log

# What one cell holds: text, or in JSON a list of texts; None where the row of a
# JSON-lines file lacks the key, or no row has the column.
Cell: TypeAlias = str | tuple[str, ...] | None
# The line that each row begins on, counted from 1, and its requested cells, or
# in words what is wrong with it and how to correct it.
_Selected: TypeAlias = Iterator[tuple[int, tuple[Cell, ...] | str]]
R = TypeVar("R")


class Row(NamedTuple):
    """The requested cells of one row.

    Attributes:
      number: the line that it begins on, counted from 1.
      position: how many rows come before it, broken ones included.
      cells: in the order they were asked for; None is a column that was
        optional and is not there.
    """

    number: int
    position: int
    cells: tuple[Cell, ...]


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is to be read.

    Attributes:
      format: one of FORMATS; empty goes by the file's name.
      header: whether the first row names the columns.
      encoding_errors: "strict" or "replace".
      skip_bad_rows: whether rows with too few or too many cells are skipped,
        with a notice, instead of being errors.
      chosen: whether the user says all this in a recipe, so that errors may
        advise another choice.
    """

    format: str = ""
    header: bool = True
    encoding_errors: str = "strict"
    skip_bad_rows: bool = False
    chosen: bool = False

    @classmethod
    def of_recipe(cls, recipe: UserFilesRecipe) -> Self:
        """How a recipe says that the user's own files are to be read."""
        return cls(
            format=recipe.format,
            header=recipe.header,
            encoding_errors=recipe.encoding_errors,
            skip_bad_rows=recipe.bad_rows == "skip",
            chosen=True,
        )


def read_table(
    path: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
    dialect: Dialect = Dialect(),
) -> list[Row]:
    """Reads some columns of a table.

    Args:
      path: a TSV, CSV or JSON-lines file; .gz is unpacked.
      required: columns that must be there, by name or number (from 0, or from
        -1 backwards; a name comes first).
      optional: columns that may be missing.
      dialect: how to read it.

    Returns:
      Its rows, at least one; their cells are those of `required`, then of
      `optional`.

    Raises:
      UserError: the file cannot be read, is empty or a header alone, lacks a
        required column or names it twice, or has a broken row.
    """
    kind = dialect.format or _format_of(path)
    if kind == JSONL:
        selected = _read_jsonl(path, required, optional, dialect)
    else:
        raw = (_read_csv if kind == CSV else _read_tsv)(path, dialect)
        selected = _select_columns(path, raw, required, optional, dialect)
    rows: list[Row] = []
    broken: list[str] = []
    for position, (number, cells) in enumerate(selected):
        if not isinstance(cells, str):
            rows.append(Row(number, position, cells))
            continue
        broken.append(
            f"{path}, row {number}: {cells}, or pass `bad_rows`=skip."
        )
        if not dialect.skip_bad_rows:
            raise UserError(broken[0])
    if broken and not rows:
        raise UserError(
            f"{path}: all {len(broken)} rows are broken. The first: {broken[0]}"
        )
    if not rows:
        fault = "is empty" if kind == JSONL else "has a header and no rows"
        raise UserError(f"{path}: {fault}.")
    if broken:
        log(f"{path}: {len(broken)} broken rows are skipped (bad_rows=skip).")
    return rows


def text_of(cell: Cell, column: str, place: str) -> str:
    """A cell that must be a text; raises `UserError` for a list."""
    if isinstance(cell, str):
        return cell
    raise UserError(
        f"{place}: {column!r} is a list, {excerpt(cell)}; it must be a text."
    )


def handle_empty_texts(
    path: str, rows: list[Row], columns: Sequence[str], empty_text: str
) -> list[Row]:
    """Keeps, drops or refuses rows with an empty text, as `empty_text` says.

    The text columns' cells are a row's first ones.

    Raises:
      UserError: there is one and empty_text is "error", or nothing is left.
    """
    if empty_text == "keep":
        return rows
    kept = []
    for row in rows:
        empty = [
            (column, cell)
            for column, cell in zip(columns, row.cells, strict=False)
            if isinstance(cell, str) and not cell.strip()
        ]
        if not empty:
            kept.append(row)
        elif empty_text == "error":
            column, cell = empty[0]
            raise UserError(
                f"{path}, row {row.number}: the text in {column!r} is empty "
                f"({excerpt(cell)}); correct the row, or pass "
                "`empty_text`=keep or `empty_text`=drop."
            )
    if not kept:
        raise UserError(f"{path}: all texts are empty.")
    if len(kept) < len(rows):
        log(
            f"{path}: {len(rows) - len(kept)} of {len(rows)} rows have an "
            "empty text and are dropped (empty_text=drop)."
        )
    return kept


def _read_tsv(path: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Splits lines at tabs; a quotation mark is a character like any other."""
    for number, line in read_lines(path, dialect.encoding_errors):
        line = line.removesuffix("\n").removesuffix("\r")
        yield number, line.split("\t")


def _read_csv(path: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Splits at commas outside of quotation marks, over lines if need be."""
    # Python's own limit of 128 kB is below what a long text may have.
    csv.field_size_limit(2**31 - 1)
    lines = (line for _, line in read_lines(path, dialect.encoding_errors))
    reader = csv.reader(lines, strict=True)
    number = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "new-line character" in str(error):
                raise UserError(
                    f"{path}, row {number}: holds a carriage return inside a "
                    "line; convert the line ends, for example with tr '\\r' "
                    "'\\n'."
                ) from None
            raise UserError(
                f"{path}, row {number}: is not CSV ({error}); a cell with a "
                'comma, a quote or a line end is written in "...", quotes '
                "inside it doubled."
            ) from None
        yield number, cells or [""]
        number = reader.line_num + 1


def _read_jsonl(
    path: str,
    required: Sequence[str],
    optional: Sequence[str],
    dialect: Dialect,
) -> _Selected:
    """Reads one JSON object a line; numbers become text as they are written."""

    def scalar(value: Any, place: str) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None:
            return ""
        if not isinstance(value, str):
            raise UserError(
                f"{place} is {excerpt(value)}; it must be a text, a number or "
                "a list of them."
            )
        if "\0" in value:
            raise UserError(f"{place} holds a NUL character; remove it.")
        return whole_text(value, place, dialect.encoding_errors)

    lines = read_lines(path, dialect.encoding_errors)
    for number, line in _without_last_blanks(lines, _is_blank):
        place = f"{path}, row {number}"
        if _is_blank(line):
            yield number, "is blank; remove it"
            continue
        cells: dict[str, Cell] = {}
        for key, value in json_object(line, place, as_written=True).items():
            where = f"{place}: {key!r}"
            if isinstance(value, list):
                cells[key] = tuple(scalar(each, where) for each in value)
            else:
                cells[key] = scalar(value, where)
        missing = [name for name in required if name not in cells]
        if missing:
            keys = _listed(tuple(cells))
            fault = f"has no {missing[0]!r}; its keys are {keys}"
            yield number, f"{fault}. Correct the row"
        else:
            yield number, tuple(map(cells.get, (*required, *optional)))


# What else a header that was not split has, and what to do.
_OTHER_SEPARATORS = {
    "\t": "tabs; pass `format`=tsv.",
    ",": "commas; pass `format`=csv.",
    ";": "semicolons; write commas or tabs instead.",
}


def _format_of(path: str) -> str:
    """The format that a file's name tells; raises `UserError` if none."""
    name = path.removesuffix(".gz").lower()
    for known in FORMATS:
        if name.endswith(f".{known}"):
            return known
    raise UserError(
        f"{path}: the name does not tell the format; end it in .tsv, .csv or "
        ".jsonl (.gz behind it will do), or pass `format`=tsv."
    )


def _select_columns(
    path: str,
    raw: Iterator[tuple[int, list[str]]],
    required: Sequence[str],
    optional: Sequence[str],
    dialect: Dialect,
) -> _Selected:
    """Selects cells of rows that are all as wide as the first one."""
    first = next(raw, None)
    # Nothing but blank lines is an empty file.
    while dialect.header and first is not None and first[1] == [""]:
        first = next(raw, None)
    if first is None:
        raise UserError(f"{path}: is empty.")
    width = len(first[1])
    if dialect.header:
        columns = tuple(cell.strip() for cell in first[1])
    else:
        columns = tuple(map(str, range(width)))
        raw = itertools.chain([first], raw)
    if width > 1:
        # Of one column, an empty line is a row with an empty text.
        raw = _without_last_blanks(raw, lambda cells: cells == [""])
    places: list[int | None] = [
        _place(path, columns, name, dialect) for name in required
    ]
    places += [
        _place(path, columns, name, dialect)
        if name in columns or _is_number(name, columns)
        else None
        for name in optional
    ]
    named = "the header" if dialect.header else "others"
    for number, cells in raw:
        if len(cells) == width:
            yield number, tuple(None if p is None else cells[p] for p in places)
        else:
            begin = excerpt(" | ".join(cells))
            count = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
            fault = f"has {count} and {named} {width} ({begin})"
            yield number, f"{fault}; correct the row"


def _is_blank(line: str) -> bool:
    return not line.strip()


def _without_last_blanks(
    rows: Iterator[tuple[int, R]], is_blank: Callable[[R], bool]
) -> Iterator[tuple[int, R]]:
    """Drops the blank lines at the end of a file, which are no rows."""
    blanks = []
    for row in rows:
        if is_blank(row[1]):
            blanks.append(row)
            continue
        yield from blanks
        blanks.clear()
        yield row


def _is_number(name: str, columns: Sequence[str]) -> bool:
    try:
        return -len(columns) <= int(name) < len(columns)
    except ValueError:
        return False


def _place(
    path: str, columns: Sequence[str], name: str, dialect: Dialect
) -> int:
    """Where a column stands."""
    if columns.count(name) > 1:
        places = [str(i) for i, c in enumerate(columns) if c == name]
        raise UserError(
            f"{path}: {len(places)} columns are called {name!r}; name one by "
            f"its number, {' or '.join(places)}."
        )
    if name in columns:
        return columns.index(name)
    if _is_number(name, columns):
        return range(len(columns))[int(name)]
    if not dialect.header:
        raise UserError(
            f"{path}: has no column {name!r}; without a header its "
            f"{len(columns)} columns are called 0 to {len(columns) - 1}."
        )
    hint = did_you_mean(name, columns, repr)
    advice = ""
    if dialect.chosen:
        if not hint:
            advice = (
                " If its first row is a row like the others, pass "
                "`header`=False and name columns by number, from 0."
            )
        for separator, remedy in _OTHER_SEPARATORS.items():
            if len(columns) == 1 and separator in columns[0]:
                advice = f" Its header has {remedy}"
                break
    raise UserError(
        f"{path}: has no column {name!r}.{hint} Its columns are "
        f"{_listed(columns)}.{advice}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(excerpt(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
