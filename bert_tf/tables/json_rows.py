"""Reads rows of cells from JSON lines."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.errors import Fault, excerpt
from bert_tf.files import TextLine, json_object, whole_text
from bert_tf.tables.delimited import (
    Cell,
    SelectedRows,
    listed,
    without_last_blanks,
)

# The value of a missing key; None is a null.
_MISSING = object()


def read_json_rows(
    path: str,
    lines: Iterable[TextLine],
    required: Sequence[str],
    optional: Sequence[str],
    whole: bool,
    encoding_errors: str,
) -> SelectedRows:
    """Reads one JSON object per line. Numbers keep their spelling.

    Args:
      path: the file, for errors.
      lines: its lines.
      required: columns that every row must have.
      optional: columns that rows may lack.
      whole: whether to yield the whole objects too.
      encoding_errors: "strict" or "replace".
    """

    def selected(line: TextLine) -> tuple[tuple[Cell, ...], dict[str, Any]]:
        if line.fault:
            raise line.fault
        place = f"{path}, row {line.number}"
        if not line.text.strip():
            raise Fault("blank lines", f"{place}: is blank; remove it.")
        values = json_object(
            line.text, place, loads=lambda text: _as_written(text, place)
        )
        cells = select_cells(values, required, optional, place, encoding_errors)
        return cells, json_object(line.text, place) if whole else {}

    for line in without_last_blanks(lines, lambda line: not line.text.strip()):
        try:
            yield line.number, selected(line)
        except Fault as fault:
            yield line.number, fault


def select_cells(
    values: Mapping[str, Any],
    required: Sequence[str],
    optional: Sequence[str],
    place: str,
    encoding_errors: str,
) -> tuple[Cell, ...]:
    """Returns some cells of a row.

    A column a.b is the key b of the object a, or of each object in a list a.

    Args:
      values: the values of the row by column, of types that JSON has.
      required: columns that the row must have.
      optional: columns that it may lack.
      place: file and row, for errors.
      encoding_errors: "strict" or "replace".

    Raises:
      Fault: a column is missing, or has neither texts nor numbers.
    """

    cells = {
        name: _cell(values, name, place, encoding_errors)
        for name in (*required, *optional)
    }
    for name in required:
        if cells[name] is None:
            raise Fault(
                "a missing key",
                f"{place}: has no {name!r}; its keys are "
                f"{listed(tuple(_keys(values))) or 'none'}. Correct the row, "
                "or name another column.",
            )
    return tuple(cells.values())


def _cell(
    values: Mapping[str, Any], name: str, place: str, encoding_errors: str
) -> Cell:
    value = _value_of(values, name)
    if value is _MISSING:
        return None
    where = f"{place}: {name!r}"
    if isinstance(value, list):
        return tuple(_scalar(each, where, encoding_errors) for each in value)
    return _scalar(value, where, encoding_errors)


def _scalar(value: Any, where: str, encoding_errors: str) -> str:
    """The text of a value; raises `Fault` if it is no text or number."""
    if isinstance(value, str):
        if "\0" in value:
            raise Fault(
                "NUL characters",
                f"{where} holds a NUL character; remove it.",
            )
        return whole_text(str(value), where, encoding_errors)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, int | float):
        return repr(value)
    raise Fault(
        "no text or number",
        f"{where} is {excerpt(value)}; it must be a text, a number or a list "
        "of them.",
    )


class _Number(str):
    """A number as spelled in a file, which errors show without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _as_written(text: str, place: str) -> Any:
    """Parses JSON with numbers as text; refuses duplicate keys."""

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key in values:
                raise Fault(
                    "a key twice", f"{place}: the key {key!r} occurs twice."
                )
            values[key] = value
        return values

    return json.loads(
        text,
        object_pairs_hook=without_repeats,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_Number,
    )


def _holds_objects(value: Any) -> bool:
    """Whether a value is an object, or a list with one."""
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(each, dict) for each in parts)


def _value_of(values: Mapping[str, Any], name: str) -> Any:
    """Returns the value of a column in a JSON object, or `_MISSING`."""
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


def _keys(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields the columns of a JSON object."""
    for key, value in values.items():
        if not _holds_objects(value):
            yield key
            continue
        first = value[0] if isinstance(value, list) else value
        inner = first if isinstance(first, dict) else {}
        yield from (f"{key}.{name}" for name in inner)
