"""The rows of TSV, CSV and JSON-lines files, each with its place."""

import csv
import json
import zlib
from collections.abc import Iterator, Sequence
from gzip import BadGzipFile
from typing import Any, NamedTuple

from bert_tf.errors import UserError
from bert_tf.files import open_bytes

# What one cell holds: text, or in JSON a list of texts; None where a JSON
# object lacks the key.
Cell = str | tuple[str, ...] | None

TSV, CSV, JSONL = "tsv", "csv", "jsonl"
FORMATS = (TSV, CSV, JSONL)
_BOM = "\ufeff"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Record(NamedTuple):
    """One row as it stands in the file.

    Attributes:
      row: the line that it begins on, counted from 1.
      cells: its cells; of a JSON object, the values in the order of `keys`.
      keys: the keys of a JSON object, else None.
    """

    row: int
    cells: Sequence[Cell]
    keys: list[str] | None = None


def excerpt(text: object) -> str:
    """A value as an error shows it: quoted, and not too much of it."""
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def read_lines(path: str, encoding_errors: str) -> Iterator[tuple[int, str]]:
    """Reads a file's lines, each with its number and its line end.

    Lines end at a line feed alone: Unicode knows other ends, which stand in
    texts. A byte-order mark at the beginning is dropped.

    Args:
      path: the file; one that ends in .gz is unpacked.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.

    Raises:
      UserError: the file is missing, damaged, holds a NUL byte, or bytes that
        are not UTF-8 while encoding_errors is "strict".
    """
    try:
        with open_bytes(path) as file:
            for row, line in enumerate(file, start=1):
                if row == 1 and line.startswith(_UTF_16):
                    raise UserError(
                        f"{path}: is UTF-16; convert it to UTF-8, for example "
                        "with iconv -f UTF-16 -t UTF-8."
                    )
                text = _decode(line, path, row, encoding_errors)
                yield row, text.removeprefix(_BOM) if row == 1 else text
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name a file.") from None
    except (EOFError, BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: damaged gzip file ({error}).") from None


def _decode(line: bytes, path: str, row: int, errors: str) -> str:
    nul = line.find(b"\0")
    if nul >= 0:
        raise UserError(
            f"{path}, row {row}: byte {nul + 1} is NUL, which no text holds; "
            "convert the file to UTF-8 or remove it with tr -d '\\000'."
        )
    try:
        return line.decode("utf-8", errors=errors)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, row {row}: byte {error.start + 1} "
            f"(0x{line[error.start]:02x}) is not UTF-8; convert the file or "
            "pass `encoding_errors`=replace."
        ) from None


def read_tsv(path: str, encoding_errors: str) -> Iterator[Record]:
    """Splits lines at tabs; a quotation mark is a character like any other."""
    for row, line in read_lines(path, encoding_errors):
        line = line.removesuffix("\n").removesuffix("\r")
        yield Record(row, line.split("\t"))


def read_csv(path: str, encoding_errors: str) -> Iterator[Record]:
    """Splits at commas outside of quotation marks, over lines if need be.

    Raises:
      UserError: a quotation mark that is not closed or stands inside a cell
        that is not quoted.
    """
    # Python's own limit of 128 kB is below what a long text may have.
    csv.field_size_limit(2**31 - 1)
    lines = (line for _, line in read_lines(path, encoding_errors))
    reader = csv.reader(lines, strict=True)
    row = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "new-line character" in str(error):
                raise UserError(
                    f"{path}, row {row}: holds a carriage return inside a "
                    "line; convert the line ends, for example with tr '\\r' "
                    "'\\n'."
                ) from None
            raise UserError(
                f"{path}, row {row}: is not CSV ({error}); a cell with a "
                'comma, a quote or a line end is written in "...", quotes '
                "inside it doubled."
            ) from None
        yield Record(row, cells or [""])
        row = reader.line_num + 1


def read_jsonl(path: str, encoding_errors: str) -> Iterator[Record]:
    """Reads one JSON object a line; numbers become text as they are written.

    Raises:
      UserError: a line that is not a JSON object of texts, numbers, truth
        values, nulls or lists of them.
    """
    for row, line in read_lines(path, encoding_errors):
        if not line.strip():
            # An empty cell is what `tables` takes for an empty line.
            yield Record(row, [""])
            continue
        place = f"{path}, row {row}"
        try:
            pairs = json.loads(
                line,
                object_pairs_hook=_Pairs,
                parse_int=str,
                parse_float=str,
                parse_constant=str,
            )
        except (json.JSONDecodeError, RecursionError) as error:
            raise UserError(
                f"{place}: {excerpt(line.strip())} is not JSON ({error})."
            ) from None
        if not isinstance(pairs, _Pairs):
            raise UserError(
                f'{place}: {excerpt(line.strip())} is no object; write {{"key"'
                ": value, ...}."
            )
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise UserError(f"{place}: the key {key!r} occurs twice.")
        cells = [
            _json_cell(value, f"{place}: {key!r}", encoding_errors)
            for key, value in pairs
        ]
        yield Record(row, cells, keys)


class _Pairs(list):
    """An object's keys and values, before a second key hides the first."""


def _json_cell(value: Any, place: str, encoding_errors: str) -> Cell:
    if isinstance(value, list) and not isinstance(value, _Pairs):
        return tuple(_scalar(v, place, encoding_errors) for v in value)
    return _scalar(value, place, encoding_errors)


def _scalar(value: Any, place: str, encoding_errors: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(
            f"{place} is {excerpt(value)}; a text, a number or a list of them "
            "is wanted."
        )
    if "\0" in value:
        raise UserError(f"{place} holds a NUL character; remove it.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # Half of a pair of \\u escapes, which is no character.
        if encoding_errors == "strict":
            raise UserError(
                f"{place} is {excerpt(value)}, with half of a surrogate pair; "
                "mend it or pass `encoding_errors`=replace."
            ) from None
        return value.encode("utf-16", "surrogatepass").decode(
            "utf-16", "replace"
        )
    return value


READERS = {TSV: read_tsv, CSV: read_csv, JSONL: read_jsonl}


def format_of(path: str) -> str:
    """The format that a file's name tells, or UserError."""
    name = path.removesuffix(".gz").lower()
    for known in FORMATS:
        if name.endswith(f".{known}"):
            return known
    raise UserError(
        f"{path}: the name does not tell the format; end it in .tsv, .csv or "
        ".jsonl (.gz behind it will do), or pass `format`=tsv."
    )
