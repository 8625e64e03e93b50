"""`Table`, read strictly, with a fault for each malformed row.

Rows are read one at a time as lists of cells (TSV, CSV; delimited.py), values
by key (JSON lines; json_rows.py), columns (Parquet, Arrow, Feather;
arrow_rows.py) or from memory (memory.py). A format is a function in `FORMATS`.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import sys
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple, Self, TypeVar

from bert_tf.errors import Fault, UserError, did_you_mean, excerpt
from bert_tf.files import (
    PARQUET,
    STANDARD_STREAM,
    TextLine,
    arrow_kind,
    expand_inputs,
    open_bytes,
    read_faulty_lines,
    unpacked_name,
)
from bert_tf.progress import log
from bert_tf.tables.delimited import (
    DELIMITERS,
    Cell,
    SelectedRows,
    columns_of,
    find_delimiter,
    has_column,
    listed,
    read_csv,
    read_tsv,
    stated_delimiter,
    without_last_blanks,
)
from bert_tf.tables.faults import Faults
from bert_tf.tables.list_cells import entries_of

E = TypeVar("E")
# A text per line.
TXT = "txt"
ARROW = (PARQUET, "feather", "arrow")
# Bytes of a line that may tell the format.
_MOST_OF_A_LINE = 1 << 20


class MissingColumn(UserError):
    """The error of a file that lacks the column `column`."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


class EmptyTable(UserError):
    """The error of a table without rows."""


class Row(NamedTuple):
    """The requested cells of a row, or its fault.

    Attributes:
      number: the line that it begins on, counted from 1; in memory, its
        position.
      position: the number of rows before it, including malformed ones.
      cells: the cells in the order of the request; None for an optional column
        that does not exist.
      columns: the values of all columns, if requested: texts, or in JSON any
        values.
      fault: the fault of a malformed row, or None.
      path: its file, or the name of data in memory.
    """

    number: int
    position: int
    cells: tuple[Cell, ...] = ()
    columns: Mapping[str, Any] = {}
    fault: Fault | None = None
    path: str = ""

    @property
    def place(self) -> str:
        """File and row, for errors."""
        return f"{self.path}, row {self.number}"


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The format of a file.

    Attributes:
      format: one of FORMATS; empty derives it from the file's name.
      header: whether the first row names the columns.
      encoding_errors: "strict" or "replace".
      bad_rows: the handling of rows with a fault; see `Faults`.
      chosen: whether the user chose these values, so that errors may advise to
        change them.
      blank_rows: whether a blank line is a row of empty cells, and no fault.
    """

    format: str = ""
    header: bool = True
    encoding_errors: str = "strict"
    bad_rows: str = "error"
    chosen: bool = False
    blank_rows: bool = False

    @classmethod
    def of_recipe(cls, recipe: Any) -> Self:
        """Returns the format that a `UserFilesRecipe` describes."""
        return cls(
            format=recipe.format,
            header=recipe.header,
            encoding_errors=recipe.encoding_errors,
            bad_rows=recipe.bad_rows,
            chosen=True,
        )


class Selection(NamedTuple):
    """The columns to read; see `Table.rows`."""

    required: Sequence[str]
    optional: Sequence[str]
    whole: bool


class Format(NamedTuple):
    """A format of tables.

    Attributes:
      read: yields the rows of a file, given its path, its lines, the columns
        and the dialect.
      is_text: whether it has lines; otherwise `read` opens the path.
    """

    read: Callable[[str, Iterator[TextLine], Selection, Dialect], SelectedRows]
    is_text: bool = True


class Table:
    """Rows of named columns, which are read one after the other.

    Args:
      source: a path, several of them or globs, comma-separated, or "-" for
        standard input; or data in memory, see `memory.rows_in_memory`. Files
        are in TSV, CSV, JSON lines, Parquet, Arrow or Feather; text may be
        packed as .gz, .bz2 or .zst.
      dialect: the format of its files.
      argument: the argument that it was given as, for errors.

    Attributes:
      name: what errors call it.
      files: the paths of its files, in the order in which they are read.

    Raises:
      UserError: a path or glob names no file.
    """

    def __init__(
        self,
        source: Any,
        dialect: Dialect = Dialect(),
        argument: str = "input",
    ):
        self.dialect = dialect
        self._data = source
        self.files: tuple[str, ...] = ()
        self.name = f"`{argument}`"
        if isinstance(source, str | os.PathLike):
            self.name = os.fspath(source)
            self.files = files_of(self.name, argument)
        # The file that is being read, and the bytes of those before.
        self._disk: Any = None
        self._bytes_before = 0

    @property
    def is_stored(self) -> bool:
        """Whether it consists of files that can be read again."""
        return bool(self.files) and STANDARD_STREAM not in self.files

    def read(
        self, required: Sequence[str], optional: Sequence[str] = ()
    ) -> list[Row]:
        """Reads some columns of all rows; see `rows`.

        Raises:
          UserError: see `rows`; or rows are malformed.
        """
        faults = Faults(self.name, self.dialect.bad_rows)
        rows = self.rows(required, optional)
        return list(convert_rows(rows, lambda row: row, faults))

    def rows(
        self,
        required: Sequence[str],
        optional: Sequence[str] = (),
        whole: bool = False,
    ) -> Generator[Row, None, None]:
        """Reads some columns.

        Args:
          required: columns that must exist, by name or else by number, from 0,
            or from -1 backwards.
          optional: columns that may be missing.
          whole: whether rows have the values of all columns too.

        Yields:
          Its rows, at least one, including malformed ones; their cells are
          those of `required`, then of `optional`.

        Raises:
          UserError: a file cannot be read, there are no rows, a required
            column is missing or not unique, or a header is malformed.
        """
        selection = Selection(required, optional, whole)
        position = -1
        self._bytes_before = 0
        for path in self.files or (self.name,):
            # An exception closes the file at once.
            with contextlib.closing(self._selected(path, selection)) as rows:
                for number, found in rows:
                    position += 1
                    if isinstance(found, Fault):
                        yield Row(number, position, (), {}, found, path)
                    else:
                        cells, columns = found
                        yield Row(number, position, cells, columns, None, path)
        if position < 0:
            raise EmptyTable(f"{self.name}: has no rows.")

    def _selected(
        self, path: str, selection: Selection
    ) -> Generator[tuple[int, Any], None, None]:
        """Yields the rows of a file, or of data in memory."""
        errors = self.dialect.encoding_errors
        if not self.files:
            # Most tables are files.
            from bert_tf.tables.memory import read_memory

            yield from read_memory(self._data, path, *selection, errors)
            return
        name = self.dialect.format or format_of(path)
        read, is_text = _TXT if name == TXT else FORMATS[name]
        if not is_text:
            yield from read(path, iter(()), selection, self.dialect)
            return
        with contextlib.ExitStack() as stack:
            file: Any = sys.stdin.buffer
            if path != STANDARD_STREAM:
                file = stack.enter_context(open_bytes(path))
                disk = getattr(file, "disk", file)
                # A pipe has no position.
                self._disk = disk if disk.seekable() else None
            whole_lines = name in ("jsonl", TXT)
            lines = read_faulty_lines(path, errors, file, whole_lines)
            stack.enter_context(contextlib.closing(lines))
            yield from read(path, lines, selection, self.dialect)
            if self._disk:
                self._bytes_before += self._disk.tell()
                self._disk = None

    @functools.cached_property
    def num_rows(self) -> int:
        """The number of its rows; 0 if it is unknown before they are read."""
        if not self.files:
            rows = self._data
            if isinstance(rows, Mapping):
                rows = next(iter(rows.values()), ())
            return len(rows) if hasattr(rows, "__len__") else 0
        if not all(arrow_kind(path) == PARQUET for path in self.files):
            return 0
        import pyarrow.parquet

        metadata = map(pyarrow.parquet.read_metadata, self.files)
        return sum(each.num_rows for each in metadata)

    @functools.cached_property
    def bytes_in_files(self) -> int:
        """The size of its files; 0 if reading does not advance in bytes."""
        if not self.is_stored or any(map(arrow_kind, self.files)):
            return 0
        return sum(map(os.path.getsize, self.files))

    @property
    def bytes_read(self) -> int:
        """The bytes of its files that have been read."""
        return self._bytes_before + (self._disk.tell() if self._disk else 0)

    @property
    def fingerprint(self) -> list[Any]:
        """Identifies the content of its files by path, size and time."""
        if not self.is_stored:
            return [STANDARD_STREAM]
        status = [os.stat(path) for path in self.files]
        return [
            part
            for path, each in zip(self.files, status, strict=True)
            for part in (os.path.abspath(path), each.st_size, each.st_mtime_ns)
        ]


def files_of(paths: str, argument: str) -> tuple[str, ...]:
    """Expands a path, or comma-separated paths and globs.

    Raises:
      UserError: one of several names no file; the line names the argument.
    """
    is_one = not (set(paths) & set("*?[,"))
    if is_one or paths == STANDARD_STREAM or os.path.exists(paths):
        return (paths,)
    return tuple(map(str, expand_inputs(paths, argument)))


def existing_files(paths: str, argument: str) -> tuple[str, ...]:
    """Expands paths as `files_of` does; a single one must exist too."""
    files = files_of(paths, argument)
    for path in files:
        if path != STANDARD_STREAM and not os.path.exists(path):
            raise UserError(f"`{argument}`={path}: no such file.")
    return files


def only_file(paths: str, content: str) -> str:
    """Returns the path of a file that may be given as a glob.

    Raises:
      UserError: it names several files; `content` says what they hold.
    """
    files = files_of(paths, "input")
    if len(files) > 1:
        raise UserError(
            f"{paths}: names {len(files)} files, and {content} are read from "
            "one; join them, or give a table."
        )
    return files[0]


def convert_rows(
    rows: Iterable[Row], make: Callable[[Row], E], faults: Faults
) -> Iterator[E]:
    """Converts rows by `make`, which may raise `Fault`, and reports faults.

    Raises:
      UserError: rows are malformed, after the last row.
    """
    num_good = 0
    for row in rows:
        try:
            if row.fault:
                raise row.fault
            made = make(row)
        except Fault as fault:
            faults.add(row.number, fault, row.path)
        else:
            num_good += 1
            yield made
    faults.settle(num_good)


def text_of(cell: Cell, column: str, place: str) -> str:
    """Returns the text of a cell; raises `Fault` for a list."""
    if isinstance(cell, str):
        return cell
    raise Fault(
        "a list for a text",
        f"{place}: {column!r} is a list, {excerpt(cell)}; it must be a text.",
    )


def texts_of(
    cells: Sequence[Cell], columns: Sequence[str], place: str
) -> tuple[str, ...]:
    """Returns the texts of several columns, or of one column of lists."""
    if len(columns) > 1:
        pairs = zip(cells, columns, strict=True)
        return tuple(text_of(cell, column, place) for cell, column in pairs)
    (cell,) = cells
    if entries := entries_of(cell):
        return entries
    raise Fault(
        "no list of texts",
        f"{place}: {columns[0]!r} is the one column of choices and has no "
        f"list of them, {excerpt(cell)}; name several columns, or give a list "
        "as in JSON.",
    )


def handle_empty_texts(
    path: str,
    rows: Iterable[Row],
    columns: Sequence[str],
    empty_text: str,
) -> Iterator[Row]:
    """Keeps or drops rows with an empty text, or marks them as faults.

    Args:
      path: the file, for errors.
      rows: the rows; their first cells are those of the text columns.
      columns: the names of the text columns.
      empty_text: "keep", "drop" or "error".

    Raises:
      UserError: no row is left.
    """
    if empty_text == "keep":
        yield from rows
        return
    dropped = total = 0
    for row in rows:
        total += 1
        # A row with a fault has no cells.
        empty = [
            (column, cell)
            for column, cell in zip(columns, row.cells, strict=False)
            if isinstance(cell, str) and not cell.strip()
        ]
        if not empty:
            yield row
        elif empty_text == "drop":
            dropped += 1
        else:
            column, cell = empty[0]
            fault = Fault(
                "an empty text",
                f"{row.place}: the text in {column!r} is empty "
                f"({excerpt(cell)}); correct the row, or pass "
                "`empty_text`=keep or `empty_text`=drop.",
            )
            yield row._replace(fault=fault)
    if dropped == total:
        raise UserError(f"{path}: all texts are empty.")
    if dropped:
        log(
            f"{path}: {dropped} of {total} rows have an empty text and are "
            "dropped (empty_text=drop)."
        )


def named_columns(
    settings: Mapping[str, Sequence[str]], path: str = ""
) -> list[str]:
    """Returns the columns that settings name; errors name the file `path`.

    Raises:
      UserError: a setting names no column, or a column is named twice.
    """
    found: list[str] = []
    for setting, names in settings.items():
        given = f"`{setting}`={','.join(names) or '...'}"
        for name in names or [""]:
            if not name:
                where = f" in {path}" if path else ""
                raise UserError(f"{given}: name the column(s){where}.")
            if name in found:
                raise UserError(
                    f"{given}: the column {name!r} is named twice; texts and "
                    "label need different columns."
                )
            found.append(name)
    return found


def known_format(path: str) -> str:
    """Derives the format from a file's name; empty if it is no table's.

    Parquet, Arrow and Feather files are identified by their first bytes under
    any name.
    """
    if arrow_kind(path):
        return PARQUET
    name = unpacked_name(path)
    return next((known for known in FORMATS if name.endswith(f".{known}")), "")


def format_of(path: str) -> str:
    """Derives the format from a file's name, or else from its first line.

    Raises:
      UserError: neither tells it.
    """
    if known := known_format(path) or _format_by_content(path):
        return known
    raise UserError(
        f"{path}: neither name nor first line tells the format; end the name "
        f"in {' or '.join(f'.{known}' for known in FORMATS)} (.gz behind it "
        "will do), or pass `format`=tsv."
    )


def _format_by_content(path: str) -> str:
    """Recognises JSON lines, TSV and CSV by the first line of a file."""
    # Reading from a pipe would consume its data.
    if not os.path.isfile(path):
        return ""
    with open_bytes(path) as file:
        line = file.readline(_MOST_OF_A_LINE).strip(b"\xef\xbb\xbf\r\n")
    # A cut object has no end.
    if line.startswith(b"{") and line[-1:] == b"}":
        found = "jsonl"
    elif b"\t" in line:
        found = "tsv"
    elif any(each.encode() in line for each in DELIMITERS):
        found = "csv"
    else:
        return ""
    log(f"{path}: its first line looks like {found}, and is read as such.")
    return found


def _read_json_lines(
    path: str, lines: Iterator[TextLine], selection: Selection, dialect: Dialect
) -> SelectedRows:
    # Most tables are delimited.
    from bert_tf.tables.json_rows import read_json_rows

    return read_json_rows(path, lines, *selection, dialect.encoding_errors)


def _read_arrow(
    path: str, lines: Iterator[TextLine], selection: Selection, dialect: Dialect
) -> SelectedRows:
    del lines
    if path == STANDARD_STREAM:
        raise UserError(
            f"`format`={dialect.format}: standard input is read as text; name "
            "a file."
        )
    # pyarrow takes a third of a second.
    from bert_tf.tables.arrow_rows import ArrowTable

    table = ArrowTable(path)
    indices = _indices(path, table.columns, selection, Dialect())
    names = [None if i is None else table.columns[i] for i in indices]
    yield from table.rows(names, selection.whole, dialect.encoding_errors)


def _read_delimited(
    default: str,
    path: str,
    lines: Iterator[TextLine],
    selection: Selection,
    dialect: Dialect,
) -> SelectedRows:
    """Reads rows that must have as many cells as the first one.

    Args:
      default: the delimiter of the format, a tab of TSV or a comma of CSV.
      path, lines, selection, dialect: see `Format`.
    """
    required, _, whole = selection
    if dialect.header:
        # A file of blank lines is empty.
        lines = itertools.dropwhile(
            lambda line: not line.text.strip("\r\n"), lines
        )
    begin = next(lines, None)
    stated = stated_delimiter(begin.text) if begin and dialect.chosen else ""
    if stated:
        begin = next(lines, None)
    if begin is None:
        raise UserError(f"{path}: is empty.")
    lines = itertools.chain([begin], lines)
    delimiter = stated or default
    # An explicit format is trusted.
    if dialect.chosen and dialect.format != "tsv" and not stated:
        delimiter = find_delimiter(
            path, default, begin.text, required, dialect.header
        )
    if default == delimiter == "\t":
        raw = read_tsv(path, lines)
    else:
        raw = read_csv(path, lines, delimiter)
    number, first = next(raw)
    if isinstance(first, Fault):
        raise first
    width = len(first)
    columns = columns_of(first, dialect.header)
    if not dialect.header:
        raw = itertools.chain([(number, first)], raw)
    if width > 1:
        # With one column, a blank line is a row with an empty text.
        raw = without_last_blanks(raw, lambda row: row[1] == [""])
    indices = _indices(path, columns, selection, dialect)
    named = "the header" if dialect.header else "others"
    # Columns without a unique name are called by their number.
    names = [
        str(index) if not name or name in columns[:index] else name
        for index, name in enumerate(columns)
    ]
    for number, cells in raw:
        if dialect.blank_rows and cells == [""]:
            cells = [""] * width
        if isinstance(cells, Fault):
            yield number, cells
        elif len(cells) == width:
            chosen = tuple([None if i is None else cells[i] for i in indices])
            pairs = zip(names, cells, strict=False) if whole else ()
            yield number, (chosen, dict(pairs))
        else:
            yield (
                number,
                Fault(
                    "number of cells",
                    f"{path}, row {number}: has {len(cells)} "
                    f"cell{'s' * (len(cells) != 1)} and {named} {width} "
                    f"({excerpt(' | '.join(cells))}); correct the row.",
                ),
            )


def _indices(
    path: str, columns: Sequence[str], selection: Selection, dialect: Dialect
) -> list[int | None]:
    """Returns the indices of the selected columns; None for missing ones.

    Raises:
      UserError: a required column is missing, or a name is not unique.
    """
    return [
        _index(path, columns, name, dialect)
        if name in selection.required or has_column(columns, name)
        else None
        for name in (*selection.required, *selection.optional)
    ]


def _index(
    path: str, columns: Sequence[str], name: str, dialect: Dialect
) -> int:
    """Returns the index of a column; raises `UserError` if it has none."""
    if columns.count(name) > 1:
        indices = [str(i) for i, c in enumerate(columns) if c == name]
        raise UserError(
            f"{path}: {len(indices)} columns are called {name!r}; name one by "
            f"its number, {' or '.join(indices)}."
        )
    if name in columns:
        return columns.index(name)
    if has_column(columns, name):
        return range(len(columns))[int(name)]
    if not dialect.header:
        raise MissingColumn(
            f"{path}: has no column {name!r}; without a header its "
            f"{len(columns)} columns are called 0 to {len(columns) - 1}.",
            name,
        )
    near = did_you_mean(name, columns, repr)
    advice = ""
    if dialect.chosen and f'"{name}"' in columns:
        near, advice = "", " If these are quoted as in CSV, pass `format`=csv."
    elif dialect.chosen and len(columns) == 1 and dialect.format == "tsv":
        advice = " If no tabs divide them, leave out `format`=tsv."
    elif dialect.chosen and not near:
        advice = (
            " If its first row names no columns, pass `header`=False and name "
            "columns by number, from 0."
        )
    raise MissingColumn(
        f"{path}: has no column {name!r}.{near} Its columns are "
        f"{listed(columns)}.{advice}",
        name,
    )


def _read_txt(
    path: str, lines: Iterator[TextLine], selection: Selection, dialect: Dialect
) -> SelectedRows:
    """Reads lines as rows of one column, whatever it is called."""
    del path, selection, dialect
    for number, text, fault in lines:
        line = text.removesuffix("\n").removesuffix("\r")
        yield number, fault or ((line,), {})


# The end of a file's name, which is also `format` of a recipe, to its format.
FORMATS = {
    "tsv": Format(functools.partial(_read_delimited, "\t")),
    "csv": Format(functools.partial(_read_delimited, ",")),
    "jsonl": Format(_read_json_lines),
    **dict.fromkeys(ARROW, Format(_read_arrow, is_text=False)),
}
_TXT = Format(_read_txt)
