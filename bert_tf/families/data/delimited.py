"""Lines to rows of cells: TSV, CSV, and which delimiter a file has."""

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

# What one cell holds: text, or in JSON a list of texts; None where the row of a
# JSON-lines file lacks the key, or no row has the column.
Cell: TypeAlias = str | tuple[str, ...] | None
# The line that each row begins on, counted from 1, and its requested cells with
# all of its values by column, or what is wrong with it.
SelectedRows: TypeAlias = Iterator[
    tuple[int, tuple[tuple[Cell, ...], Mapping[str, Any]] | Fault]
]


# The line that each row begins on, counted from 1, and its cells, or what is
# wrong with it.
Cells: TypeAlias = Iterator[tuple[int, list[str] | Fault]]
R = TypeVar("R")
# What may divide the columns of a file.
_DELIMITERS = {",": "commas", ";": "semicolons", "|": "pipes", "\t": "tabs"}
_STATEMENT = re.compile(r'"?sep=([^"\w])"?', re.IGNORECASE)
# Behind a row that is no CSV, how many lines a row may have until one is found
# that is whole: a quote that is never closed would take the rest of the file.
_MAX_LINES_WHILE_LOST = 100


def stated_delimiter(line: str) -> str:
    """What the line sep=; before a header says, which Excel reads; or ""."""
    match = _STATEMENT.fullmatch(line.strip("\r\n"))
    return match[1] if match else ""


def find_delimiter(
    path: str,
    own: str,
    first: str,
    required: Sequence[str],
    header: bool,
) -> str:
    """What divides the columns: what the format says, or the first line shows.

    Where the format's own delimiter does not give the columns that are asked
    for, and exactly one of the others does, it is that. If none does, a line
    that the format's own does not divide at all is divided as one other can.

    Args:
      path: the file, for errors.
      own: the format's own delimiter, a tab or a comma.
      first: its first line.
      required: columns that must be there, by name or number.
      header: whether that line names the columns.

    Raises:
      UserError: several others do.
    """
    text = first.strip("\r\n")
    columns = {
        each: columns_of(cells, header)
        for each in _DELIMITERS
        for cells in csv.reader([text.replace("\r", " ")], delimiter=each)
    }
    if own == "\t":
        columns[own] = columns_of(text.split(own), header)
    found = [
        each
        for each, names in columns.items()
        if all(has_column(names, name) for name in required)
    ]
    if own in found:
        return own
    if len(found) > 1:
        shown = " or by ".join(_DELIMITERS[each] for each in found)
        raise UserError(
            f"{path}: its columns may be divided by {shown} "
            f"({excerpt(text)}); divide them by {_DELIMITERS[own]}."
        )
    if not found and len(columns[own]) == 1:
        found = [each for each, names in columns.items() if len(names) > 1]
    if len(found) != 1:
        return own
    log(
        f"{path}: its columns are divided by {_DELIMITERS[found[0]]}, as its "
        "first line shows; it is read as CSV with these."
    )
    return found[0]


def columns_of(first: Sequence[str], header: bool) -> tuple[str, ...]:
    """What the columns are called, given the first row."""
    if header:
        return tuple(cell.strip() for cell in first)
    return tuple(map(str, range(len(first))))


def has_column(columns: Sequence[str], name: str) -> bool:
    """Whether a column has a name, or is there by number."""
    try:
        return name in columns or -len(columns) <= int(name) < len(columns)
    except ValueError:
        return False


def read_tsv(path: str, lines: Iterable[TextLine]) -> Cells:
    """Splits lines at tabs; a quotation mark is a character like any other.

    A text may hold a carriage return, but one in the first line ends it.

    Raises:
      UserError: there is such a carriage return.
    """
    for place, (number, text, fault) in enumerate(lines):
        if place == 0:
            refuse_carriage_return(text.encode(), path, number)
        text = text.removesuffix("\n").removesuffix("\r")
        yield number, fault or text.split("\t")


def read_csv(path: str, lines: Iterator[TextLine], delimiter: str) -> Cells:
    """Splits outside of quotation marks, over lines if need be.

    Behind a row that is no CSV, reading goes on at the first line after the
    one it begins on at which a row of the first one's width begins.
    """
    # Python's own limit of 128 kB is below what a long text may have.
    csv.field_size_limit(2**31 - 1)
    ahead: collections.deque[TextLine] = collections.deque()
    row: list[TextLine] = []
    lost: tuple[int, str] | None = None
    width = 0

    def texts() -> Iterator[str]:
        """The lines of a row, for the reader; those to read again first."""
        while not lost or len(row) < _MAX_LINES_WHILE_LOST:
            line = ahead.popleft() if ahead else next(lines, None)
            if line is None:
                return
            row.append(line)
            yield line.text

    def found(behind: int) -> tuple[int, Fault]:
        """The fault of what is lost up to a line."""
        assert lost
        begin, text = lost
        if behind > begin + 1:
            text += f" Lines {begin} to {behind - 1} are taken for this row."
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
                raise found(0)[1] from None
            reader = csv.reader(texts(), delimiter=delimiter, strict=True)
        width = width or len(cells)
        number, last = row[0].number, row[-1].number
        if lost and len(cells) != width:
            ahead.extendleft(reversed(row[1:]))
            continue
        if lost:
            yield found(number)
            lost = None
        fault = next((line.fault for line in row if line.fault), None)
        yield number, fault or cells
    if lost:
        yield found(last + 1)


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
    """Drops the blank lines at the end of a file, which are no rows."""
    blanks = []
    for row in rows:
        if is_blank(row):
            blanks.append(row)
            continue
        yield from blanks
        blanks.clear()
        yield row


def listed(names: Sequence[str]) -> str:
    """Names of columns, as an error lists them."""
    shown = ", ".join(excerpt(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")
