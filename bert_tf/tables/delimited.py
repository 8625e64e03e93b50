"""Reads rows of cells from TSV and CSV, and detects the delimiter."""

import collections
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.files import (
    CARRIAGE_RETURN,
    TextLine,
    refuse_carriage_return,
)
from bert_tf.progress import log

# A text, or in JSON a list of texts; None if the row of a JSON-lines file lacks
# the key, or the file lacks the column.
Cell: TypeAlias = str | tuple[str, ...] | None
# For each row the line that it begins on, counted from 1, and either its
# requested cells with all its values by column, or its fault.
SelectedRows: TypeAlias = Iterator[
    tuple[int, tuple[tuple[Cell, ...], Mapping[str, Any]] | Fault]
]
# The same with all cells of a row.
Cells: TypeAlias = Iterator[tuple[int, list[str] | Fault]]
R = TypeVar("R")
DELIMITERS = {",": "commas", ";": "semicolons", "|": "pipes", "\t": "tabs"}
_STATEMENT = re.compile(r'"?sep=([^"\w])"?', re.IGNORECASE)
# The most lines of a row after a malformed one, until a well-formed row is
# found: a quote that is never closed would consume the rest of the file.
_MAX_LINES_WHILE_LOST = 100


def stated_delimiter(line: str) -> str:
    """The delimiter of Excel's line sep=; before a header; or ""."""
    match = _STATEMENT.fullmatch(line.strip("\r\n"))
    return match[1] if match else ""


def find_delimiter(
    path: str,
    default: str,
    first: str,
    required: Sequence[str],
    header: bool,
) -> str:
    """Detects the delimiter of a file by its first line.

    It is the delimiter of the format if that yields the required columns, or
    else the only delimiter that does. If none does, and the format's delimiter
    does not split the line, it is the only delimiter that splits it.

    Args:
      path: the file, for errors.
      default: the delimiter of the format, a tab or a comma.
      first: the first line of the file.
      required: columns that must exist, by name or number.
      header: whether the line names the columns.

    Raises:
      UserError: several other delimiters yield the columns.
    """
    text = first.strip("\r\n")
    columns = {
        each: columns_of(cells, header)
        for each in DELIMITERS
        for cells in csv.reader([text.replace("\r", " ")], delimiter=each)
    }
    if default == "\t":
        columns[default] = columns_of(text.split(default), header)
    found = [
        each
        for each, names in columns.items()
        if all(has_column(names, name) for name in required)
    ]
    if default in found:
        return default
    if len(found) > 1:
        shown = " or by ".join(DELIMITERS[each] for each in found)
        raise UserError(
            f"{path}: its columns may be divided by {shown} "
            f"({excerpt(text)}); divide them by {DELIMITERS[default]}."
        )
    if not found and len(columns[default]) == 1:
        found = [each for each, names in columns.items() if len(names) > 1]
    if len(found) != 1:
        return default
    log(
        f"{path}: its columns are divided by {DELIMITERS[found[0]]}, as its "
        "first line shows; it is read as CSV with these."
    )
    return found[0]


def columns_of(first: Sequence[str], header: bool) -> tuple[str, ...]:
    """Returns the names of the columns, given the first row."""
    if header:
        return tuple(cell.strip() for cell in first)
    return tuple(map(str, range(len(first))))


def has_column(columns: Sequence[str], name: str) -> bool:
    """Whether a column exists, by name or number."""
    try:
        return name in columns or -len(columns) <= int(name) < len(columns)
    except ValueError:
        return False


def read_tsv(path: str, lines: Iterable[TextLine]) -> Cells:
    """Splits lines at tabs; quotation marks are ordinary characters.

    Raises:
      UserError: the first line holds a carriage return, as in a file whose
        lines end in them.
    """
    for position, (number, text, fault) in enumerate(lines):
        if position == 0:
            refuse_carriage_return(text.encode(), path, number)
        text = text.removesuffix("\n").removesuffix("\r")
        yield number, fault or text.split("\t")


def read_csv(path: str, lines: Iterator[TextLine], delimiter: str) -> Cells:
    """Splits lines at delimiters outside of quotation marks.

    After a malformed row, reading resumes at the first later line at which a
    row with as many cells as the first one begins.
    """
    # Python's default limit of 128 kB is less than long texts have.
    csv.field_size_limit(2**31 - 1)
    ahead: collections.deque[TextLine] = collections.deque()
    row: list[TextLine] = []
    lost: tuple[int, str] | None = None
    width = 0

    def texts() -> Iterator[str]:
        """Yields lines to the reader, first those that are read again."""
        while not lost or len(row) < _MAX_LINES_WHILE_LOST:
            line = ahead.popleft() if ahead else next(lines, None)
            if line is None:
                return
            row.append(line)
            yield line.text

    def fault_until(end: int) -> tuple[int, Fault]:
        """Returns the fault of the malformed lines before line `end`."""
        assert lost
        begin, text = lost
        if end > begin + 1:
            text += f" Lines {begin} to {end - 1} are taken for this row."
        return begin, Fault("not CSV", f"{path}, row {begin}: {text}")

    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    last = 0
    while True:
        row.clear()
        try:
            cells = next(reader) or [""]
        except StopIteration:
            break
        except csv.Error as error:
            cells = []
            lost = lost or (row[0].number, _explained(error))
            if not width:
                raise fault_until(0)[1] from None
            reader = csv.reader(texts(), delimiter=delimiter, strict=True)
        width = width or len(cells)
        number, last = row[0].number, row[-1].number
        if lost and len(cells) != width:
            ahead.extendleft(reversed(row[1:]))
            continue
        if lost:
            yield fault_until(number)
            lost = None
        faults = [line.fault for line in row if line.fault]
        yield number, faults[0] if faults else cells
    if lost:
        yield fault_until(last + 1)


def _explained(error: csv.Error) -> str:
    if "new-line character" in str(error):
        return CARRIAGE_RETURN
    return (
        f"is not CSV ({error}); a cell with a comma, a quote or a line end is "
        'written in "...", quotes inside it doubled.'
    )


def without_last_blanks(
    rows: Iterable[R], is_blank: Callable[[R], bool]
) -> Iterator[R]:
    """Drops blank lines at the end of a file."""
    blanks = []
    for row in rows:
        if is_blank(row):
            blanks.append(row)
            continue
        yield from blanks
        blanks.clear()
        yield row


def listed(names: Sequence[str]) -> str:
    """Lists names for an error."""
    shown = ", ".join(excerpt(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
