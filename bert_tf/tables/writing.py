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
# Rows of a row group.
_ROWS = 1 << 13
Values = Mapping[str, Any]


def to_json(rows: Iterable[Values]) -> bytes:
    """Formats rows as JSON lines."""
    return "".join(
        f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows
    ).encode()


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
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False)
    return value


def to_cells(rows: Sequence[Values], ending: str, header: bool) -> bytes:
    """Formats rows, which have the same columns, as CSV or TSV.

    A label's probability is a column, and lists are JSON. Cells of TSV are not
    quoted; see `refuse_tabs`.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    if ending == TSV:
        table = csv.writer(text, _Tabs)
    cells = [_flat(row) for row in rows]
    if header:
        table.writerows([*cells[:1]])
    table.writerows(map(_as_text, row.values()) for row in cells)
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

    A label's probability is a column. Values of different types in one column,
    such as numbers and texts, are written as JSON.
    """
    import pyarrow as pa
    import pyarrow.parquet

    types: dict[str, Any] = {}
    for rows in _chunks(source):
        for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
            try:
                kind = pa.array([row.get(name) for row in rows]).type
                merged = pa.unify_schemas(
                    [
                        pa.schema({name: each})
                        for each in (types.get(name, pa.null()), kind)
                    ],
                    promote_options="permissive",
                )
                types[name] = merged.field(name).type
            except pa.ArrowException:
                types[name] = pa.json_(pa.string())
    storage = {
        name: pa.string() if _is_written_as_json(kind) else kind
        for name, kind in types.items()
    }
    schema = pa.schema(storage)
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for rows in _chunks(source):
            columns = {
                name: [
                    json.dumps(row[name], ensure_ascii=False)
                    if _is_written_as_json(kind) and name in row
                    else row.get(name)
                    for row in rows
                ]
                for name, kind in types.items()
            }
            writer.write_table(pa.table(columns, schema))


def _is_written_as_json(kind: Any) -> bool:
    """Whether Parquet has no column of a type."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return _is_written_as_json(kind.value_type)
    if pa.types.is_struct(kind):
        return not kind.num_fields or any(
            _is_written_as_json(field.type) for field in kind
        )
    return isinstance(kind, pa.JsonType)


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
