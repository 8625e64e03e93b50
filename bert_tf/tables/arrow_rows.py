"""Reads rows of cells from Parquet, Arrow and Feather files.

Row groups are read one after the other, in batches, and only the columns that
are needed. Cells are those of the same table as JSON lines: numbers as they are
spelled, lists of texts, and empty texts for nulls.
"""

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

from bert_tf.errors import Fault, UserError, one_line
from bert_tf.files import PARQUET, arrow_kind
from bert_tf.foreign_files import demand_file
from bert_tf.tables.delimited import Cell, SelectedRows
from bert_tf.tables.memory import class_name, decoded_text

# Rows that are converted at a time.
_ROWS = 1024


class _Source(NamedTuple):
    """A column of the file, and the field of its structures, if any."""

    column: str
    field: str
    kind: pa.DataType


class ArrowTable:
    """An open Parquet, Arrow or Feather file, whose first bytes tell which.

    Args:
      path: the file.

    Attributes:
      columns: the names of the columns; a.b is the field b of the structure a,
        or of each structure in a list a.

    Raises:
      UserError: the file is missing, damaged, encrypted or of another format,
        or two columns have one name.
    """

    def __init__(self, path: str):
        demand_file(path)
        self._path = path
        kind = arrow_kind(path)
        if kind == "encrypted":
            raise UserError(f"{path}: is encrypted; decrypt it first.")
        if kind == "feather 1":
            raise UserError(
                f"{path}: is of Feather's first version, which is no longer "
                "read; write it as Parquet."
            )
        if not kind:
            raise UserError(
                f"{path}: is no Parquet, Arrow or Feather file; give it the "
                "name of what it is."
            )
        self._file: Any
        with self._refuse_damage("its schema"):
            if kind == PARQUET:
                self._file = pyarrow.parquet.ParquetFile(path)
                schema = self._file.schema_arrow
            else:
                opened = pyarrow.ipc.open_file
                if kind == "stream":
                    opened = pyarrow.ipc.open_stream
                self._file = opened(pa.OSFile(path))
                schema = self._file.schema
        for name in schema.names:
            if (count := schema.names.count(name)) > 1:
                raise UserError(
                    f"{path}: {count} columns are called {name!r}; write it "
                    "with distinct names."
                )
        self._sources = {
            f"{each.column}.{each.field}" if each.field else each.column: each
            for field in schema
            for each in _sources_of(field.name, field.type)
        }
        self.columns = tuple(self._sources)
        self._classes = _classes_of(schema)

    def rows(
        self, names: Sequence[str | None], whole: bool, encoding_errors: str
    ) -> SelectedRows:
        """Reads columns; see `SelectedRows`.

        Args:
          names: names in `columns`; None is a column that does not exist.
          whole: whether to yield the values of all columns too.
          encoding_errors: "strict" or "replace".

        Raises:
          UserError: a column has neither texts nor numbers nor lists of them,
            or the file is damaged.
        """
        for name in filter(None, names):
            kind = self._sources[name].kind
            if not _is_readable(kind):
                raise UserError(
                    f"{self._path}: the column {name!r} is of type {kind}; it "
                    "must hold texts, numbers or lists of them."
                )
        needed = {self._sources[name].column for name in filter(None, names)}
        number = 0
        for batch in self._batches(None if whole else sorted(needed)):
            batch = self._with_names_of_classes(batch)
            numbers = range(number + 1, number + 1 + len(batch))
            places = [f"{self._path}, row {number}" for number in numbers]
            every: list[Mapping[str, Any]] = [{}] * len(batch)
            with self._refuse_damage(f"the batch from row {numbers.start} on"):
                columns = [
                    [None] * len(batch)
                    if name is None
                    else self._cells(batch, name, places, encoding_errors)
                    for name in names
                ]
                if whole:
                    every = _values_of(batch)
            for number, values, *found in zip(
                numbers, every, *columns, strict=True
            ):
                fault = next((c for c in found if isinstance(c, Fault)), None)
                yield number, fault or (tuple(found), values)

    def _batches(self, columns: Sequence[str] | None) -> Iterator[Any]:
        """Yields batches of rows; None reads all columns."""
        if isinstance(self._file, pyarrow.parquet.ParquetFile):
            for group in range(self._file.num_row_groups):
                with self._refuse_damage(f"row group {group}"):
                    yield from self._file.iter_batches(
                        _ROWS, row_groups=[group], columns=columns
                    )
            return
        batches: Iterator[Any] = iter(())
        if isinstance(self._file, pyarrow.ipc.RecordBatchFileReader):
            numbers = range(self._file.num_record_batches)
            batches = map(self._file.get_batch, numbers)
        else:
            batches = iter(self._file)
        for number in itertools.count():
            with self._refuse_damage(f"record batch {number}"):
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)
            for begin in range(0, len(batch), _ROWS):
                yield batch.slice(begin, _ROWS)

    def _with_names_of_classes(self, batch: Any) -> Any:
        """Replaces the numbers of classes by their names."""
        for column in self._classes.keys() & set(batch.schema.names):
            names = self._classes[column]
            numbers = batch.column(column).to_pylist()
            cells = [class_name(number, names) for number in numbers]
            index = batch.schema.get_field_index(column)
            kind = batch.schema.field(index).type
            texts = pa.array(
                cells, pa.list_(pa.string()) if _is_list(kind) else pa.string()
            )
            batch = batch.set_column(index, column, texts)
        return batch

    def _cells(
        self, batch: Any, name: str, places: list[str], encoding_errors: str
    ) -> list[Cell | Fault]:
        """The cells of a column in a batch."""
        source = self._sources[name]
        array = batch.column(source.column)
        where = [f"{place}: {name!r}" for place in places]
        if not source.field:
            return _cells_of(array, where, encoding_errors)
        if not _is_list(array.type):
            return _cells_of(
                pc.struct_field(array, source.field), where, encoding_errors
            )
        return _lists_of(
            array,
            pc.struct_field(array.flatten(), source.field),
            where,
            encoding_errors,
        )

    @contextlib.contextmanager
    def _refuse_damage(self, part: str) -> Iterator[None]:
        """Turns errors of pyarrow into `UserError`."""
        try:
            yield
        except UserError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UserError(
                f"{self._path}: {part} cannot be read ({one_line(error)}); "
                "write the file again."
            ) from None


def _classes_of(schema: Any) -> dict[str, list[str]]:
    """The names of the classes of columns that `datasets` wrote."""
    written = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = json.loads(written).get("info", {}).get("features", {})
        return {
            column: list(map(str, element["names"]))
            for column, feature in features.items()
            # That of a list has the feature of its elements.
            for element in (feature, feature.get("feature", {}))
            if element.get("_type") == "ClassLabel"
        }
    # Metadata of another program; the numbers are read.
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def _sources_of(name: str, kind: Any) -> Iterator[_Source]:
    """Yields what can be read of a column of a type."""
    inner = kind.value_type if _is_list(kind) else kind
    if not pa.types.is_struct(inner):
        yield _Source(name, "", kind)
        return
    for field in inner:
        # In a list of structures, a field is a list.
        of = pa.list_(field.type) if _is_list(kind) else field.type
        yield _Source(name, field.name, of)


def _is_readable(kind: Any) -> bool:
    """Whether the cells of a type are texts, numbers or lists of them."""
    if pa.types.is_dictionary(kind):
        return _is_readable(kind.value_type)
    if _is_list(kind):
        return not _is_list(kind.value_type) and _is_readable(kind.value_type)
    return not pa.types.is_nested(kind)


def _lists_of(
    lists: Any, values: Any, where: list[str], encoding_errors: str
) -> list[Cell | Fault]:
    """The cells of lists, given all their values in one array."""
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
    owners = list(itertools.chain(*map(itertools.repeat, where, counts)))
    cells = iter(_cells_of(values, owners, encoding_errors))
    found: list[Cell | Fault] = []
    for count, is_null in zip(counts, lists.is_null().to_pylist(), strict=True):
        own = list(itertools.islice(cells, count))
        fault = next((each for each in own if isinstance(each, Fault)), None)
        found.append(fault or ("" if is_null else tuple(map(str, own))))
    return found


def _cells_of(
    array: Any, where: list[str], encoding_errors: str
) -> list[Cell | Fault]:
    """The cells of an array, with their places for errors."""
    kind, is_type = array.type, pa.types
    if is_type.is_dictionary(kind):
        return _cells_of(array.dictionary_decode(), where, encoding_errors)
    if _is_list(kind):
        return _lists_of(array, array.flatten(), where, encoding_errors)
    if is_type.is_null(kind):
        return [""] * len(array)
    if is_type.is_boolean(kind):
        words = {True: "true", False: "false", None: ""}
        return [words[value] for value in array.to_pylist()]
    if is_type.is_floating(kind):
        # As NumPy spells numbers of their precision.
        numbers = array.to_numpy(zero_copy_only=False)
        nulls = array.is_null().to_pylist()
        return [
            "" if is_null else str(number)
            for number, is_null in zip(numbers, nulls, strict=True)
        ]
    if not _is_text(kind):
        return ["" if t is None else t for t in _spelled(array).to_pylist()]
    cells: list[Cell | Fault] = []
    for raw, place in zip(_as_bytes(array).to_pylist(), where, strict=True):
        text = raw or b""
        try:
            if b"\0" in text:
                raise Fault(
                    "NUL characters",
                    f"{place} holds a NUL character; remove it.",
                )
            cells.append(decoded_text(text, place, encoding_errors))
        except Fault as fault:
            cells.append(fault)
    return cells


def _is_text(kind: Any) -> bool:
    """Whether a type holds texts, or bytes, which older writers use for it."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _as_bytes(array: Any) -> Any:
    """Texts as bytes, which need not be UTF-8."""
    return pc.cast(array, pa.large_binary())


def _spelled(array: Any) -> Any:
    """Integers, decimal numbers, dates and times as texts."""
    return pc.cast(array, pa.string())


def _values_of(batch: Any) -> list[Mapping[str, Any]]:
    """The values of all columns of each row, for JSON."""
    columns = []
    for array in batch.columns:
        if pa.types.is_temporal(array.type) or pa.types.is_decimal(array.type):
            array = _spelled(array)
        elif _is_text(array.type):
            array = _as_bytes(array)
        columns.append(map(_plain, array.to_pylist()))
    names = batch.schema.names
    return [
        dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    ]


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
