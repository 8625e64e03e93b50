"""Tables of text, read strictly: every row whole, every error with its row.

Rows are read one at a time, lists of cells (TSV, CSV; delimited.py) or values
by key (JSON lines), those that are broken too.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from bert_tf.errors import Fault, UserError, did_you_mean, excerpt
from bert_tf.files import (
    TextLine,
    json_object,
    read_faulty_lines,
    whole_text,
)
from bert_tf.finetuning.data.delimited import (
    columns_of,
    find_delimiter,
    has_column,
    read_csv,
    read_tsv,
    stated_delimiter,
)
from bert_tf.finetuning.data.faults import Faults
from bert_tf.finetuning.recipe import (
    FORMATS,
    JSONL,
    TSV,
    UserFilesRecipe,
)
from bert_tf.progress import log

# What one cell holds: text, or in JSON a list of texts; None where the row of a
# JSON-lines file lacks the key, or no row has the column.
Cell: TypeAlias = str | tuple[str, ...] | None
# The line that each row begins on, counted from 1, and its requested cells, or
# what is wrong with it.
_Selected: TypeAlias = Iterator[tuple[int, tuple[Cell, ...] | Fault]]
# A column that a row of JSON does not have; None is a null.
_MISSING = object()
E = TypeVar("E")
R = TypeVar("R")


class MissingColumn(UserError):
    """A file lacks a column, whose name is `column`."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


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


class BadRow(NamedTuple):
    """A row that cannot be used.

    Attributes:
      number: the line that it begins on, counted from 1.
      position: how many rows come before it, broken ones included.
      fault: why.
    """

    number: int
    position: int
    fault: Fault


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is to be read.

    Attributes:
      format: one of FORMATS; empty goes by the file's name.
      header: whether the first row names the columns.
      encoding_errors: "strict" or "replace".
      bad_rows: what becomes of rows with a fault; see `Faults`.
      chosen: whether the user says all this in a recipe, so that errors may
        advise another choice.
    """

    format: str = ""
    header: bool = True
    encoding_errors: str = "strict"
    bad_rows: str = "error"
    chosen: bool = False

    @classmethod
    def of_recipe(cls, recipe: UserFilesRecipe) -> Self:
        """How a recipe says that the user's own files are to be read."""
        return cls(
            format=recipe.format,
            header=recipe.header,
            encoding_errors=recipe.encoding_errors,
            bad_rows=recipe.bad_rows,
            chosen=True,
        )


def read_table(
    path: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
    dialect: Dialect = Dialect(),
) -> list[Row]:
    """Reads some columns of a table; see `iterate_rows`.

    Returns:
      Its rows, at least one.

    Raises:
      UserError: as of `iterate_rows`, or rows are broken: all that are, in a
        table.
    """
    rows = iterate_rows(path, required, optional, dialect)
    return collect(rows, lambda row: row, Faults(path, dialect.bad_rows))


def iterate_rows(
    path: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
    dialect: Dialect = Dialect(),
    file: Iterable[bytes] | None = None,
) -> Iterator[Row | BadRow]:
    """Reads some columns of a table of any size, broken rows included.

    Args:
      path: a TSV, CSV or JSON-lines file; .gz is unpacked.
      required: columns that must be there, by name or number (from 0, or from
        -1 backwards; a name comes first).
      optional: columns that may be missing.
      dialect: how to read it.
      file: what to read, of which `path` is the name, instead of opening it.

    Yields:
      Its rows, at least one; their cells are those of `required`, then of
      `optional`.

    Raises:
      UserError: the file cannot be read, is empty or a header alone, lacks a
        required column or names it twice, or its header is broken.
    """
    kind = dialect.format or format_of(path)
    lines = read_faulty_lines(
        path, dialect.encoding_errors, file, whole_lines=kind == JSONL
    )
    if kind == JSONL:
        selected = _read_jsonl(path, lines, required, optional, dialect)
    else:
        selected = _select_columns(
            path, kind, lines, required, optional, dialect
        )
    position = -1
    for position, (number, cells) in enumerate(selected):
        if isinstance(cells, Fault):
            yield BadRow(number, position, cells)
        else:
            yield Row(number, position, cells)
    if position < 0:
        fault = "is empty" if kind == JSONL else "has a header and no rows"
        raise UserError(f"{path}: {fault}.")


def collect(
    rows: Iterable[Row | BadRow], make: Callable[[Row], E], faults: Faults
) -> list[E]:
    """Makes something of every row, and settles the faults of all.

    Args:
      rows: the rows of a table.
      make: makes it of one, or raises `Fault`.
      faults: takes the faults.
    """
    made: list[E] = []
    for row in rows:
        if isinstance(row, BadRow):
            faults.add(row.number, row.fault)
            continue
        try:
            made.append(make(row))
        except Fault as fault:
            faults.add(row.number, fault)
    faults.settle(len(made))
    return made


def text_of(cell: Cell, column: str, place: str) -> str:
    """A cell that must be a text; raises `UserError` for a list."""
    if isinstance(cell, str):
        return cell
    raise Fault(
        "a list for a text",
        f"{place}: {column!r} is a list, {excerpt(cell)}; it must be a text.",
    )


def handle_empty_texts(
    path: str,
    rows: Iterable[Row | BadRow],
    columns: Sequence[str],
    empty_text: str,
) -> Iterator[Row | BadRow]:
    """Keeps, drops or faults rows with an empty text, as `empty_text` says.

    The text columns' cells are a row's first ones.

    Raises:
      UserError: nothing is left.
    """
    if empty_text == "keep":
        yield from rows
        return
    dropped = total = 0
    for row in rows:
        total += 1
        if isinstance(row, BadRow):
            yield row
            continue
        empty = [
            (column, cell)
            for column, cell in zip(columns, row.cells, strict=False)
            if isinstance(cell, str) and not cell.strip()
        ]
        if not empty:
            yield row
        elif empty_text == "drop":
            dropped += 1
        else:
            column, cell = empty[0]
            fault = Fault(
                "an empty text",
                f"{path}, row {row.number}: the text in {column!r} is empty "
                f"({excerpt(cell)}); correct the row, or pass "
                "`empty_text`=keep or `empty_text`=drop.",
            )
            yield BadRow(row.number, row.position, fault)
    if dropped == total:
        raise UserError(f"{path}: all texts are empty.")
    if dropped:
        log(
            f"{path}: {dropped} of {total} rows have an empty text and are "
            "dropped (empty_text=drop)."
        )


def _read_jsonl(
    path: str,
    lines: Iterable[TextLine],
    required: Sequence[str],
    optional: Sequence[str],
    dialect: Dialect,
) -> _Selected:
    """Reads one JSON object a line; numbers become text as they are written.

    A column a.b is the key b of the object a, or of each object of a list a.
    """

    def scalar(value: Any, place: str) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None:
            return ""
        if not isinstance(value, str):
            raise Fault(
                "no text or number",
                f"{place} is {excerpt(value)}; it must be a text, a number or "
                "a list of them.",
            )
        if "\0" in value:
            raise Fault(
                "NUL characters",
                f"{place} holds a NUL character; remove it.",
            )
        return whole_text(value, place, dialect.encoding_errors)

    def cell(values: dict[str, Any], name: str, place: str) -> Cell:
        value = _value_of(values, name)
        where = f"{place}: {name!r}"
        if value is _MISSING:
            return None
        if isinstance(value, list):
            return tuple(scalar(each, where) for each in value)
        return scalar(value, where)

    def cells_of(line: TextLine) -> tuple[Cell, ...]:
        if line.fault:
            raise line.fault
        place = f"{path}, row {line.number}"
        if not line.text.strip():
            raise Fault("blank lines", f"{place}: is blank; remove it.")
        values = json_object(line.text, place, as_written=True)
        cells = {
            name: cell(values, name, place) for name in (*required, *optional)
        }
        for name in required:
            if cells[name] is None:
                raise Fault(
                    "a missing key",
                    f"{place}: has no {name!r}; its keys are "
                    f"{_listed(tuple(_keys(values)))}. Correct the row.",
                )
        return tuple(cells.values())

    for line in _without_last_blanks(lines, lambda line: not line.text.strip()):
        try:
            yield line.number, cells_of(line)
        except Fault as fault:
            yield line.number, fault


def _holds_objects(value: Any) -> bool:
    """Whether a value is an object, or a list with one."""
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(each, dict) for each in parts)


def _value_of(values: dict[str, Any], name: str) -> Any:
    """What a row of JSON has in a column, or `_MISSING`."""
    if name in values:
        return _MISSING if _holds_objects(values[name]) else values[name]
    outer, _, inner = name.rpartition(".")
    parts = values.get(outer)
    if isinstance(parts, dict):
        return parts.get(inner, _MISSING)
    if not isinstance(parts, list) or not _holds_objects(parts):
        return _MISSING
    if not all(isinstance(each, dict) and inner in each for each in parts):
        return _MISSING
    return [each[inner] for each in parts]


def _keys(values: dict[str, Any]) -> Iterator[str]:
    """The names by which cells of a JSON object can be read."""
    for key, value in values.items():
        if not _holds_objects(value):
            yield key
            continue
        first = value[0] if isinstance(value, list) else value
        inner = first if isinstance(first, dict) else {}
        yield from (f"{key}.{name}" for name in inner)


def format_of(path: str) -> str:
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
    kind: str,
    lines: Iterator[TextLine],
    required: Sequence[str],
    optional: Sequence[str],
    dialect: Dialect,
) -> _Selected:
    """Selects cells of rows that are all as wide as the first one."""
    if dialect.header:
        # Nothing but blank lines is an empty file.
        lines = itertools.dropwhile(
            lambda line: not line.text.strip("\r\n"), lines
        )
    begin = next(lines, None)
    stated = stated_delimiter(begin.text) if begin and dialect.chosen else ""
    if stated:
        begin = next(lines, None)
    if begin is None:
        raise UserError(f"{path}: is empty.")
    lines = itertools.chain([begin], lines)
    delimiter = stated or ("\t" if kind == TSV else ",")
    # An explicit format is trusted.
    if dialect.chosen and dialect.format != TSV and not stated:
        delimiter = find_delimiter(
            path, kind, begin.text, required, dialect.header
        )
    if kind == TSV and delimiter == "\t":
        raw = read_tsv(path, lines)
    else:
        raw = read_csv(path, lines, delimiter)
    number, first = next(raw)
    if isinstance(first, Fault):
        raise first
    width = len(first)
    columns = columns_of(first, dialect.header)
    if not dialect.header:
        raw = itertools.chain([(number, first)], raw)
    if width > 1:
        # Of one column, an empty line is a row with an empty text.
        raw = _without_last_blanks(raw, lambda row: row[1] == [""])
    places: list[int | None] = [
        _place(path, columns, name, dialect) for name in required
    ]
    places += [
        _place(path, columns, name, dialect)
        if has_column(columns, name)
        else None
        for name in optional
    ]
    named = "the header" if dialect.header else "others"
    for number, cells in raw:
        if isinstance(cells, Fault):
            yield number, cells
        elif len(cells) == width:
            yield number, tuple(None if p is None else cells[p] for p in places)
        else:
            yield (
                number,
                Fault(
                    "number of cells",
                    f"{path}, row {number}: has {len(cells)} "
                    f"cell{'s' * (len(cells) != 1)} and {named} {width} "
                    f"({excerpt(' | '.join(cells))}); correct the row.",
                ),
            )


def _without_last_blanks(
    rows: Iterable[R], is_blank: Callable[[R], bool]
) -> Iterator[R]:
    """Drops the blank lines at the end of a file, which are no rows."""
    blanks = []
    for row in rows:
        if is_blank(row):
            blanks.append(row)
            continue
        yield from blanks
        blanks.clear()
        yield row


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
    if has_column(columns, name):
        return range(len(columns))[int(name)]
    if not dialect.header:
        raise MissingColumn(
            f"{path}: has no column {name!r}; without a header its "
            f"{len(columns)} columns are called 0 to {len(columns) - 1}.",
            name,
        )
    near = did_you_mean(name, columns, repr)
    advice = ""
    if dialect.chosen and f'"{name}"' in columns:
        near, advice = "", " If these are quoted as in CSV, pass `format`=csv."
    elif dialect.chosen and len(columns) == 1 and dialect.format == TSV:
        advice = " If no tabs divide them, leave out `format`=tsv."
    elif dialect.chosen and not near:
        advice = (
            " If its first row is a row like the others, pass `header`=False "
            "and name columns by number, from 0."
        )
    raise MissingColumn(
        f"{path}: has no column {name!r}.{near} Its columns are "
        f"{_listed(columns)}.{advice}",
        name,
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(excerpt(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
