"""Tables of text, read strictly: every row whole, every error with its row."""

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf.errors import UserError
from bert_tf.finetuning.data.table_formats import (
    JSONL,
    READERS,
    Cell,
    Record,
    excerpt,
    format_of,
)
from bert_tf.progress import notice


class Row(NamedTuple):
    """The wanted cells of one row.

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
class Table:
    """What was read of a file.

    Attributes:
      path: the file.
      columns: all its columns; their numbers, from 0, where it has no header.
      rows: its rows, at least one.
      broken_rows: rows that were passed over.
    """

    path: str
    columns: tuple[str, ...]
    rows: list[Row]
    broken_rows: int = 0


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is to be read.

    Attributes:
      format: tsv, csv or jsonl; empty goes by the file's name.
      header: whether the first row names the columns.
      encoding_errors: "strict" or "replace".
      skip_bad_rows: whether rows with too few or too many cells are passed
        over, with a notice, instead of being errors.
      chosen: whether the user says all this in a recipe, so that errors may
        advise another choice.
    """

    format: str = ""
    header: bool = True
    encoding_errors: str = "strict"
    skip_bad_rows: bool = False
    chosen: bool = False


def read_table(
    path: str,
    wanted: Sequence[str],
    optional: Sequence[str] = (),
    dialect: Dialect = Dialect(),
) -> Table:
    """Reads some columns of a table.

    Args:
      path: a TSV, CSV or JSON-lines file; .gz is unpacked.
      wanted: columns that must be there, by name or number (from 0, or from
        -1 backwards; a name comes first).
      optional: columns that may be missing.
      dialect: how to read it.

    Returns:
      The table; a row's cells are those of `wanted`, then of `optional`.

    Raises:
      UserError: the file cannot be read, is empty or a header alone, lacks a
        wanted column or names it twice, or has a broken row.
    """
    kind = dialect.format or format_of(path)
    records = READERS[kind](path, dialect.encoding_errors)
    if kind == JSONL:
        table = _of_objects(path, records, wanted, optional, dialect)
    else:
        table = _of_cells(path, records, wanted, optional, dialect)
    if not table.rows:
        raise UserError(
            f"{path}: has a header and no rows."
            if table.columns
            else f"{path}: is empty."
        )
    if table.broken_rows:
        notice(
            f"{path}: {table.broken_rows} broken rows are passed over "
            "(bad_rows=skip)."
        )
    return table


def _of_cells(
    path: str,
    records: Iterator[Record],
    wanted: Sequence[str],
    optional: Sequence[str],
    dialect: Dialect,
) -> Table:
    """Reads a TSV or CSV file, all rows as wide as the first one."""
    first = next(records, None)
    if dialect.header:
        # Nothing but blank lines is an empty file.
        while first is not None and first.cells == [""]:
            first = next(records, None)
    if first is None:
        return Table(path, (), [])
    width = len(first.cells)
    if dialect.header:
        columns = tuple(str(cell).strip() for cell in first.cells)
    else:
        columns = tuple(map(str, range(width)))
    places: list[int | None] = [
        _place(path, columns, name, dialect) for name in wanted
    ]
    places += [
        _place(path, columns, name, dialect)
        if _is_there(columns, name)
        else None
        for name in optional
    ]
    rows: list[Row] = []
    broken = 0
    body = records if dialect.header else _chain(first, records)
    for position, record in enumerate(_without_last_blanks(body, width)):
        if len(record.cells) != width:
            if not dialect.skip_bad_rows:
                raise _broken(path, record, columns, dialect.header)
            broken += 1
            continue
        cells = tuple(None if p is None else record.cells[p] for p in places)
        rows.append(Row(record.row, position, cells))
    if not rows and broken:
        raise UserError(f"{path}: all {broken} rows are broken.")
    return Table(path, columns, rows, broken)


def _of_objects(
    path: str,
    records: Iterator[Record],
    wanted: Sequence[str],
    optional: Sequence[str],
    dialect: Dialect,
) -> Table:
    """Reads a JSON-lines file, whose rows may have keys in any order."""
    columns: dict[str, None] = {}
    rows = []
    broken: list[UserError] = []
    records = _without_last_blanks(records, 2)
    for position, record in enumerate(records):
        keys = record.keys or []
        columns.update(dict.fromkeys(keys))
        missing = [name for name in wanted if name not in keys]
        if missing or record.keys is None:
            broken.append(_lacks(path, record, missing))
            if not dialect.skip_bad_rows:
                raise broken[0]
            continue
        values = dict(zip(keys, record.cells, strict=True))
        cells = tuple(values.get(name) for name in (*wanted, *optional))
        rows.append(Row(record.row, position, cells))
    if not rows and broken:
        # A misspelt column, more likely than so many broken rows.
        raise broken[0]
    return Table(path, tuple(columns), rows, len(broken))


def _lacks(path: str, record: Record, missing: Sequence[str]) -> UserError:
    place = f"{path}, row {record.row}"
    if record.keys is None:
        return UserError(
            f"{place}: is blank; remove it, or pass `bad_rows`=skip."
        )
    return UserError(
        f"{place}: has no {missing[0]!r}; its keys are "
        f"{_listed(record.keys)}. Mend the row, or pass `bad_rows`=skip."
    )


def _chain(first: Record, others: Iterator[Record]) -> Iterator[Record]:
    yield first
    yield from others


def _without_last_blanks(
    records: Iterator[Record], width: int
) -> Iterator[Record]:
    """Drops empty lines at the end of a file, where they cannot be rows."""
    blanks: list[Record] = []
    for record in records:
        if width > 1 and record.cells == [""] and record.keys is None:
            blanks.append(record)
            continue
        yield from blanks
        blanks = []
        yield record


def _is_number(name: str, columns: Sequence[str]) -> bool:
    try:
        return -len(columns) <= int(name) < len(columns)
    except ValueError:
        return False


def _is_there(columns: Sequence[str], name: str) -> bool:
    return name in columns or _is_number(name, columns)


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
    near = difflib.get_close_matches(name, columns, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    advice = ""
    if dialect.chosen and len(columns) == 1:
        advice = _other_separator(columns[0])
    if dialect.chosen and not (near or advice):
        advice = (
            " If its first row is a row like the others, pass "
            "`header`=False and name columns by number, from 0."
        )
    raise UserError(
        f"{path}: has no column {name!r}.{hint} Its columns are "
        f"{_listed(columns)}.{advice}"
    )


def _other_separator(header: str) -> str:
    """What to say of a header that was not split."""
    if "\t" in header:
        return " Its header has tabs; pass `format`=tsv."
    if "," in header:
        return " Its header has commas; pass `format`=csv."
    if ";" in header:
        return " Its header has semicolons; write commas or tabs instead."
    return ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(excerpt(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _broken(
    path: str, record: Record, columns: Sequence[str], header: bool
) -> UserError:
    count = len(record.cells)
    named = f"the header {len(columns)}" if header else f"others {len(columns)}"
    begin = excerpt(" | ".join(str(cell) for cell in record.cells))
    return UserError(
        f"{path}, row {record.row}: has {count} cell{'s' * (count != 1)} and "
        f"{named} ({begin}); mend the row, or pass `bad_rows`=skip."
    )
