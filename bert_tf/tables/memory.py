"""Tables in memory: DataFrames, data sets, columns and lists of rows."""

import datetime
import decimal
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.tables.delimited import SelectedRows
from bert_tf.tables.json_rows import select_cells

# Rows of a data set that are read together.
_ROWS = 1000
# Types whose texts are unambiguous.
_SPELLED = (decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)


def is_list(value: Any) -> bool:
    """Whether a value is a collection, and no text."""
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def is_table(data: Any) -> bool:
    """Whether data are one of the tables of `rows_in_memory`."""
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], Mapping)
    return isinstance(data, Mapping) or any(
        hasattr(data, name)
        for name in ("columns", "column_names", "read_next_batch")
    )


def rows_in_memory(data: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table as values by column.

    Args:
      data: a mapping of columns, a list of mappings, a DataFrame of pandas or
        polars, a Table, RecordBatch or RecordBatchReader of pyarrow, or a
        Dataset or IterableDataset of `datasets`, whose classes have their
        names.
      name: its name in errors.

    Raises:
      UserError: it is none of these, its columns have different lengths, or
        there are no rows.
    """
    rows: Iterator[Mapping[str, Any]]
    if not is_table(data):
        raise UserError(
            f"{name} is {excerpt(data)}; give a DataFrame, a Dataset, a "
            "mapping of columns, a list of rows, or the path of a file."
        )
    if isinstance(data, list):
        rows = iter(data)
    elif hasattr(data, "to_pylist"):
        rows = iter(data.to_pylist())
    elif hasattr(data, "read_next_batch"):
        rows = (row for batch in data for row in batch.to_pylist())
    elif hasattr(data, "iter_rows"):
        # Of polars, whose lists are objects of its own.
        rows = data.iter_rows(named=True)
    elif hasattr(data, "column_names"):
        rows = _with_names_of_classes(data)
    else:
        names = getattr(data, "columns", data)
        rows = _zipped({key: data[key] for key in names}, name)
    is_empty = True
    for number, row in enumerate(rows):
        is_empty = False
        if not isinstance(row, Mapping):
            raise UserError(
                f"{name}, row {number}: is {excerpt(row)}; give a mapping of "
                "columns to cells."
            )
        yield {str(key): value for key, value in row.items()}
    if is_empty:
        raise UserError(f"{name}: has no rows.")


def _zipped(
    columns: Mapping[Any, Any], name: str
) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of columns, which must be lists of one length."""
    for column, cells in columns.items():
        if not is_list(cells):
            raise UserError(
                f"{name}: {column!r} is {excerpt(cells)}; give a list of "
                "the cells of this column."
            )
    counts = {column: len(cells) for column, cells in columns.items()}
    if len(set(counts.values())) != 1 or not any(counts.values()):
        shown = ", ".join(f"{n} of {column}" for column, n in counts.items())
        raise UserError(
            f"{name}: has {shown or 'no columns'}; give as many of each, at "
            "least one."
        )
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def _with_names_of_classes(data: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of a data set with classes by name."""
    features = getattr(data, "features", None) or {}
    names = {
        column: element.names
        for column, feature in features.items()
        # That of a list has the feature of its elements.
        for element in (feature, getattr(feature, "feature", feature))
        if isinstance(getattr(element, "names", None), list)
    }
    for columns in data.iter(_ROWS):
        for column in names.keys() & columns.keys():
            columns[column] = [
                class_name(each, names[column]) for each in columns[column]
            ]
        for row in zip(*columns.values(), strict=True):
            yield dict(zip(columns, row, strict=True))


def class_name(number: Any, names: Sequence[str]) -> Any:
    """The name of a class, or of each in a list; None of -1, no label."""
    if is_list(number):
        return [class_name(each, names) for each in number]
    if number is None or not 0 <= int(number) < len(names):
        return None
    return names[int(number)]


def read_memory(
    data: Any,
    name: str,
    required: Sequence[str],
    optional: Sequence[str],
    whole: bool,
    encoding_errors: str,
) -> SelectedRows:
    """Reads columns of a table in memory; see `json_rows.read_json_rows`."""
    for number, row in enumerate(rows_in_memory(data, name)):
        place = f"{name}, row {number}"
        try:
            values = _plain_values(row, place, encoding_errors)
            cells = select_cells(
                values, required, optional, place, encoding_errors
            )
        except Fault as fault:
            yield number, fault
        else:
            every = {}
            if whole:
                every = {key: plain(cell, str) for key, cell in values.items()}
            yield number, (cells, every)


def _plain_values(
    row: Mapping[str, Any], place: str, encoding_errors: str
) -> dict[str, Any]:
    """The cells of a row in types that JSON has, and cells of other types."""
    values: dict[str, Any] = {}
    name = ""

    def decoded(cell: Any) -> Any:
        # Older Arrow files have bytes for texts.
        if isinstance(cell, bytes):
            return decoded_text(cell, f"{place}: {name!r}", encoding_errors)
        return cell

    for name, cell in row.items():  # noqa: B007
        values[name] = plain(cell, decoded)
    return values


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, or pandas' NA or NaT."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and math.isnan(cell)


def plain(
    cell: Any,
    other: Callable[[Any], Any],
    text: Callable[[str], str] = lambda text: text,
) -> Any:
    """Converts a cell to types that JSON has; a missing one to None.

    Args:
      cell: the cell.
      other: converts a value of another type, or raises an error.
      text: converts a text, or raises an error.
    """
    if is_missing(cell):
        return None
    if isinstance(cell, np.generic | np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return [plain(each, other, text) for each in cell]
    if isinstance(cell, Mapping):
        return {str(k): plain(each, other, text) for k, each in cell.items()}
    if isinstance(cell, str):
        return text(cell)
    if isinstance(cell, int) or (
        isinstance(cell, float) and math.isfinite(cell)
    ):
        return cell
    return str(cell) if isinstance(cell, _SPELLED) else other(cell)


def decoded_text(text: bytes, place: str, encoding_errors: str) -> str:
    """Decodes a text; raises `Fault` for bytes that are not UTF-8."""
    try:
        return text.decode("utf-8", encoding_errors)
    except UnicodeDecodeError:
        raise Fault(
            "bytes that are not UTF-8",
            f"{place} is {excerpt(text)}, which is not UTF-8; correct it or "
            "pass `encoding_errors`=replace.",
        ) from None
