"""Writes rows as JSON lines, CSV, TSV and Parquet, and reads them again."""

import csv
import io
import itertools
import json
import pathlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.errors import Fault

JSONL, CSV, TSV, PARQUET = ".jsonl", ".csv", ".tsv", ".parquet"
ENDINGS = (JSONL, CSV, TSV, PARQUET)
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
# In place of a type: the values are written as JSON.
_JSON = "json"
# What pyarrow raises for values that have no type in common.
_NO_TYPE = (ValueError, TypeError, OverflowError)
# Rows of a row group.
_ROWS = 1 << 13
Values = Mapping[str, Any]


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def to_json(rows: Iterable[Values]) -> bytes:
    """Formats rows as JSON lines."""
    return "".join(f"{_as_json(row)}\n" for row in rows).encode()


def _flat(row: Values) -> dict[str, Any]:
    """A row whose probabilities by label are a column each."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and name == "probabilities":
            cells |= {f"probability of {n}": each for n, each in value.items()}
        else:
            cells[name] = value
    return cells


def _as_text(value: Any) -> Any:
    """Lists and objects as JSON; other values as they are."""
    return _as_json(value) if isinstance(value, list | tuple | dict) else value


def without_formula(value: Any) -> Any:
    """Puts ' before a text that spreadsheets would take for a formula.

    OWASP, "CSV Injection".
    """
    is_formula = isinstance(value, str) and value.startswith(_FORMULAS)
    return f"'{value}" if is_formula else value


def to_cells(
    rows: Sequence[Values], ending: str, header: bool, escape_formulas: bool
) -> bytes:
    """Formats rows, which have the same columns, as CSV or TSV.

    A label's probability is a column, and lists are JSON. Cells of TSV are not
    quoted; see `refuse_tabs`.

    Args:
      rows: the rows.
      ending: ".csv" or ".tsv".
      header: whether to write the names of the columns first.
      escape_formulas: whether to apply `without_formula` to each cell.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    if ending == TSV:
        table = csv.writer(text, _Tabs)
    cells = [_flat(row) for row in rows]
    if header:
        table.writerows([*cells[:1]])
    for row in cells:
        texts = map(_as_text, row.values())
        table.writerow(
            map(without_formula, texts) if escape_formulas else texts
        )
    return text.getvalue().encode()


class _Tabs(csv.Dialect):
    """TSV, whose cells hold no character that would be quoted."""

    delimiter = "\t"
    lineterminator = "\n"
    quoting = csv.QUOTE_NONE


def refuse_tabs(row: Values) -> None:
    """Raises `Fault` if a row has a cell that TSV cannot hold."""
    for name, value in _flat(row).items():
        if any(each in str(_as_text(value)) for each in "\t\r\n"):
            raise Fault(
                "a tab or line end",
                f"{name!r} holds a tab or a line end, which TSV cannot; write "
                "CSV, JSON lines or Parquet.",
            )


def json_to_parquet(source: pathlib.Path, target: pathlib.Path) -> None:
    """Converts a file of JSON lines to Parquet, in constant memory.

    A label's probability is a column. Columns that no type of Parquet holds,
    such as one of numbers and texts, are written as JSON.
    """
    import pyarrow as pa

    types: dict[str, Any] = {}
    for rows in _chunks(source):
        for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
            before = types.get(name, pa.null())
            try:
                kind = pa.array([row.get(name) for row in rows]).type
                schemas = [pa.schema({name: each}) for each in (before, kind)]
                merged = pa.unify_schemas(schemas, promote_options="permissive")
                types[name] = merged.field(name).type
            except _NO_TYPE:
                types[name] = _JSON
    for name, kind in types.items():
        if kind != _JSON and _has_no_column(kind):
            types[name] = _JSON
    # A whole number may be too large for the type of a later fraction.
    while odd := _write_parquet(source, target, types):
        types[odd] = _JSON


def _write_parquet(
    source: pathlib.Path, target: pathlib.Path, types: Mapping[str, Any]
) -> str:
    """Writes columns of types; returns one whose values are not, or ""."""
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema(
        {n: pa.string() if t == _JSON else t for n, t in types.items()}
    )
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for rows in _chunks(source):
            columns = {}
            for name, kind in types.items():
                values = [row.get(name) for row in rows]
                if kind == _JSON:
                    values = [
                        None if each is None else _as_json(each)
                        for each in values
                    ]
                try:
                    columns[name] = pa.array(values, schema.field(name).type)
                except _NO_TYPE:
                    return name
            writer.write_table(pa.table(columns, schema))
    return ""


def _has_no_column(kind: Any) -> bool:
    """Whether a type holds objects without keys, which Parquet cannot."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return _has_no_column(kind.value_type)
    fields = [*kind] if pa.types.is_struct(kind) else [None]
    return not fields or any(f and _has_no_column(f.type) for f in fields)


def _chunks(path: pathlib.Path) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of a file of JSON lines, some thousands at a time."""
    with path.open(encoding="utf-8") as file:
        while lines := list(itertools.islice(file, _ROWS)):
            yield [_flat(json.loads(line)) for line in lines]


def read_written(path: pathlib.Path) -> Generator[dict[str, Any], None, None]:
    """Yields the rows of a file that this module wrote, as they are there."""
    if path.suffix == PARQUET:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                yield from batch.to_pylist()
        return
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8", newline="") as lines:
        if path.suffix == JSONL:
            yield from map(json.loads, lines)
        elif path.suffix == CSV:
            yield from csv.DictReader(lines)
        else:
            yield from csv.DictReader(lines, dialect=_Tabs)
