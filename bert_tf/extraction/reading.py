"""The texts of files: one a line, or a column of JSON lines."""

import contextlib
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from gzip import GzipFile
from typing import Any, BinaryIO, NamedTuple

from bert_tf.errors import UserError, excerpt
from bert_tf.files import decode_lines, json_object, open_bytes, whole_text

STANDARD_STREAM = "-"
# As google-research/bert, extract_features.py, `read_examples`.
_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)


class Line(NamedTuple):
    """A text, or a pair of them.

    Attributes:
      text: the text, or the pair.
      begin_b: where the second text begins in the line, in characters; 0 where
        it has a place of its own.
    """

    text: str | tuple[str, str]
    begin_b: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but white space."""
        parts = (self.text,) if isinstance(self.text, str) else self.text
        return not any(part.strip() for part in parts)


def read_lines(
    files: Sequence[str | pathlib.Path],
    text_columns: Sequence[str],
    encoding_errors: str = "strict",
) -> Iterator[Line]:
    """Reads the texts of files, one after the other.

    Args:
      files: text files, where " ||| " parts the two texts of a pair; files of
        JSON objects, if their names end in .jsonl; "-" is standard input, a
        text file. .gz is unpacked.
      text_columns: key of the text in JSON objects, or the two keys of a pair.
      encoding_errors: "strict" or "replace", for bytes that are not UTF-8.

    Raises:
      UserError: a file is damaged, not UTF-8, or a line is not as it should
        be.
    """
    for path in files:
        is_json = str(path).removesuffix(".gz").endswith(".jsonl")
        for number, text in _text_lines(path, encoding_errors):
            if is_json:
                place = f"{path}, line {number}"
                yield _of_json(text, text_columns, place, encoding_errors)
            else:
                yield _of_text(text)


def _text_lines(
    path: str | pathlib.Path, encoding_errors: str
) -> Iterator[tuple[int, str]]:
    """Lines without their ends, each with its number."""
    with _opened(path) as file:
        for number, text in decode_lines(file, path, encoding_errors):
            yield number, text.removesuffix("\n").removesuffix("\r")


def _opened(
    path: str | pathlib.Path,
) -> contextlib.AbstractContextManager[BinaryIO | GzipFile]:
    if str(path) == STANDARD_STREAM:
        return contextlib.nullcontext(sys.stdin.buffer)
    return open_bytes(path)


def _of_text(text: str) -> Line:
    match = _PAIR.fullmatch(text)
    if match is None:
        return Line(text)
    return Line((match[1], match[2]), match.start(2))


def _of_json(
    text: str, columns: Sequence[str], place: str, encoding_errors: str
) -> Line:
    row = json_object(text, place, columns[0])
    first, *others = (
        _cell(row, column, place, encoding_errors) for column in columns
    )
    return Line((first, others[0]) if others else first)


def _cell(
    row: dict[str, Any], column: str, place: str, encoding_errors: str
) -> str:
    if column not in row:
        raise UserError(
            f"{place}: has no {column!r}; its keys are "
            f"{', '.join(row) or 'none'}. Name the column with `text_columns`."
        )
    value = row[column]
    if not isinstance(value, str):
        raise UserError(
            f"{place}: {column!r} is {excerpt(value)}; a string is required."
        )
    return whole_text(value, f"{place}: {column!r}", encoding_errors)
