"""Strict reading of the user's text files, and atomic writing of files."""

import contextlib
import errno
import functools
import glob
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import IO, Any, BinaryIO, NamedTuple

from bert_tf.errors import Fault, UserError, excerpt, one_line
from bert_tf.foreign_files import PACKED
from bert_tf.progress import log

try:
    import fcntl
except ImportError:  # Windows has none.
    fcntl = None  # type: ignore[assignment]

# The name of standard input and output.
STANDARD_STREAM = "-"
PARQUET = "parquet"
# The first bytes of Parquet, plain and encrypted, of Feather's first version,
# of Arrow, which is Feather's second, and of its streams.
_ARROW_BEGINS = {
    PARQUET: b"PAR1",
    "encrypted": b"PARE",
    "feather 1": b"FEA1",
    "arrow": b"ARROW1",
    "stream": b"\xff\xff\xff\xff",
}
ENCODING_ERRORS = ("strict", "replace")
# A partial of another machine is removed after this time without a write.
_SECONDS_UNTIL_ABANDONED = 24 * 60 * 60
_UNKNOWN = "0"
_BOM = "\ufeff"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def expand_inputs(
    patterns: str, argument: str = "inputs"
) -> list[pathlib.Path]:
    """Expands comma-separated paths and globs to a sorted list of files.

    Args:
      patterns: paths and globs; `**` matches any depth of folders.
      argument: the name of the argument or flag, for error messages.

    Raises:
      UserError: there is no pattern, a pattern matches nothing, a path is a
        directory or not readable, or all files are empty.
    """
    files: set[pathlib.Path] = set()
    given = [p.strip() for p in patterns.split(",") if p.strip()]
    if not given:
        raise UserError(f"`{argument}`: give one or more files or globs.")
    for pattern in given:
        matches = sorted(glob.glob(pattern, recursive=True))
        if not matches:
            raise UserError(f"`{argument}`={pattern}: no such file.")
        for match in map(pathlib.Path, matches):
            if match.is_dir():
                raise UserError(
                    f"`{argument}`={match}: is a directory; name its files, "
                    f"for example {match}/*.txt"
                )
            if not os.access(match, os.R_OK):
                raise UserError(f"`{argument}`={match}: cannot be read.")
            files.add(match)
    if not any(f.stat().st_size for f in files):
        raise UserError(f"`{argument}`={patterns}: the files are empty.")
    return sorted(files)


def unpacked_name(path: str | os.PathLike) -> str:
    """A file's name in lower case, without .gz, .bz2 or .zst."""
    name = str(path).lower()
    return name.removesuffix(next(filter(name.endswith, PACKED), ""))


def open_bytes(path: str | os.PathLike) -> Any:
    """Opens a file for reading bytes.

    Files of gzip, bzip2 and Zstandard, which are known by their name or their
    first bytes, are decompressed; `disk` is then the compressed file.

    Raises:
      UserError: it does not exist or is a folder.
    """
    try:
        file = open(path, "rb")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name a file.") from None
    # A pipe is read once.
    begin = file.peek(16)
    for ending, (first, reader) in PACKED.items():
        if first.match(begin) or str(path).lower().endswith(ending):
            return reader(path, file)
    return file


def damaged(error: Exception, path: str | os.PathLike, file: Any) -> Exception:
    """The error of a compressed file, given one raised while reading it.

    Errors of the operating system, which have a number, are returned as such.
    """
    if getattr(error, "errno", None) is not None:
        return error
    kind = getattr(file, "kind", "compressed")
    return UserError(f"{path}: damaged {kind} file ({one_line(error)}).")


def decode_line(
    line: bytes, path: str | os.PathLike, number: int, errors: str = "strict"
) -> str:
    """Decodes one line of UTF-8.

    Args:
      line: the bytes of the line.
      path: the file, for the error.
      number: the line's number, counted from 1.
      errors: "strict", which raises `UserError`, or "replace" (U+FFFD for
        invalid bytes).
    """
    try:
        return line.decode("utf-8", errors=errors)
    except UnicodeDecodeError as error:
        raise Fault(
            "not UTF-8",
            f"{path}, line {number}: byte {error.start + 1} "
            f"(0x{line[error.start]:02x}) is not UTF-8; convert the file or "
            "pass `encoding_errors`=replace.",
        ) from None


class TextLine(NamedTuple):
    """A line of a text file.

    Attributes:
      number: counted from 1.
      text: with its line end; U+FFFD for invalid characters.
      fault: the error of an invalid line, or None.
    """

    number: int
    text: str
    fault: Fault | None


def read_lines(
    path: str | os.PathLike,
    encoding_errors: str,
    file: Iterable[bytes] | None = None,
    whole_lines: bool = False,
) -> Iterator[tuple[int, str]]:
    """Reads the lines of a text file; see `read_faulty_lines`.

    Raises:
      UserError: the file is missing, damaged or UTF-16, or a line is invalid.
    """
    for number, text, fault in read_faulty_lines(
        path, encoding_errors, file, whole_lines
    ):
        if fault:
            raise fault
        yield number, text


def read_faulty_lines(
    path: str | os.PathLike,
    encoding_errors: str,
    file: Iterable[bytes] | None = None,
    whole_lines: bool = False,
) -> Generator[TextLine, None, None]:
    """Reads the lines of a file, including invalid ones.

    Lines end only at line feeds, because Unicode's other line ends occur in
    texts. A byte-order mark at the beginning is dropped.

    Args:
      path: the file; see `open_bytes`.
      encoding_errors: "strict" or "replace"; see `decode_line`.
      file: the open file; None opens `path`.
      whole_lines: whether a carriage return inside a line is an error; see
        `refuse_carriage_return`.
    """
    opened: Any = open_bytes(path) if file is None else file
    try:
        with contextlib.ExitStack() as stack:
            lines = stack.enter_context(opened) if file is None else opened
            for number, line in enumerate(lines, start=1):
                fault = None
                try:
                    if number == 1 or b"\0" in line:
                        _refuse_no_text(line, path, number)
                    if whole_lines:
                        refuse_carriage_return(line, path, number)
                    text = decode_line(line, path, number, encoding_errors)
                except Fault as found:
                    fault = found
                    text = line.decode("utf-8", "replace")
                    text = text.replace("\0", "\ufffd")
                if number == 1:
                    text = text.removeprefix(_BOM)
                yield TextLine(number, text, fault)
    except (EOFError, OSError, zlib.error) as error:
        raise damaged(error, path, opened) from None


CARRIAGE_RETURN = (
    "holds a carriage return inside a line; convert the line ends, for example "
    "with tr '\\r' '\\n'."
)


def refuse_carriage_return(
    line: bytes, path: str | os.PathLike, number: int
) -> None:
    """Raises `Fault` for a carriage return inside a line.

    A file whose lines end in carriage returns would be read as one line.
    """
    if b"\r" in line and b"\r" in line.rstrip(b"\r\n"):
        raise Fault(
            "a carriage return", f"{path}, line {number}: {CARRIAGE_RETURN}"
        )


def _refuse_no_text(line: bytes, path: str | os.PathLike, number: int) -> None:
    """Raises `UserError` for a UTF-16 file, and `Fault` for a NUL byte."""
    if number == 1 and line.startswith(_UTF_16):
        raise UserError(
            f"{path}: is UTF-16; convert it to UTF-8, for example "
            "with iconv -f UTF-16 -t UTF-8."
        )
    nul = line.find(b"\0")
    if nul >= 0:
        raise Fault(
            "NUL bytes",
            f"{path}, line {number}: byte {nul + 1} is NUL; convert the file "
            "to UTF-8 or remove it with tr -d '\\000'.",
        )


def json_object(
    line: str,
    place: str,
    key: str = "key",
    loads: Callable[[str], Any] = json.loads,
) -> dict[str, Any]:
    """Parses a line of a JSON-lines file.

    Args:
      line: the line.
      place: file and line, for errors.
      key: an example of a key, for errors.
      loads: parses JSON.

    Raises:
      UserError: the line is no JSON object.
    """
    try:
        value = loads(line.removeprefix(_BOM))
    except UserError:
        raise
    # ValueError includes numbers of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise Fault(
            "not JSON",
            f"{place}: {excerpt(line.strip())} is not JSON ({error}).",
        ) from None
    if not isinstance(value, dict):
        raise Fault(
            "no JSON object",
            f"{place}: {excerpt(line.strip())} is no object; write "
            f'{{"{key}": "...", ...}}.',
        )
    return value


def whole_text(text: str, place: str, encoding_errors: str = "") -> str:
    """Returns a text without lone surrogates.

    JSON can escape a lone surrogate, which cannot be encoded. It is replaced by
    U+FFFD if `encoding_errors` is "replace".

    Raises:
      UserError: otherwise; it names `place`.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        if encoding_errors != "replace":
            remedy = "correct it"
            if encoding_errors:
                remedy += " or pass `encoding_errors`=replace"
            raise Fault(
                "half of a character",
                f"{place} is {excerpt(text)}, with half of a surrogate pair, "
                f"which is no character; {remedy}.",
            ) from None
        pairs = text.encode("utf-16", "surrogatepass")
        return pairs.decode("utf-16", "replace")
    return text


@contextlib.contextmanager
def partial_path(
    path: str | os.PathLike, folder: pathlib.Path | None = None
) -> Iterator[pathlib.Path]:
    """Yields a hidden path for writing `path`, and removes it afterwards.

    Its name is .NAME.MACHINE-PROCESS-START.partial. The partial of a killed
    process is removed by the next writer of the same `path`: on the same
    machine if no process with that number and start time runs; from another
    machine or container, whose processes are not visible, if nothing was
    written to it for a day.

    Args:
      path: the file or folder to write.
      folder: the folder of the partial; by default that of `path`.
    """
    path = pathlib.Path(path)
    folder = folder or path.parent
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.name, folder)
    process = os.getpid()
    owner = f"{_machine()}-{process}-{_start_of(process)}"
    partial = folder / f".{path.name}.{owner}.partial"
    try:
        yield partial
    finally:
        _remove(partial)


# Machine and start are missing in names of earlier versions.
_OWNER = r"(?:([0-9a-f]{8})-)?(\d+)(?:-(\d+))?"


def _partials_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"\.{re.escape(name)}\.{_OWNER}\.partial")


def remove_partials(folder: pathlib.Path) -> None:
    """Removes all partials in a folder and its subfolders.

    Only for a folder that this process has `locked`.
    """
    name = re.compile(rf"\..+\.{_OWNER}\.partial")
    for left in sorted(folder.rglob(".*.partial")):
        if name.fullmatch(left.name):
            _remove(left)


def _remove_abandoned(name: str, folder: pathlib.Path) -> None:
    """Removes the partials of killed processes that wrote a name."""
    partials = _partials_of(name)
    for left in os.listdir(folder) if folder.is_dir() else ():
        # A fast test first, because folders of records hold many files.
        if not left.startswith(f".{name}."):
            continue
        match = partials.fullmatch(left)
        # A partial that cannot be removed does not fail a run.
        with contextlib.suppress(OSError):
            if match and _is_abandoned(folder / left, *match.groups()):
                _remove(folder / left)


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_abandoned(
    partial: pathlib.Path, machine: str | None, process: str, start: str | None
) -> bool:
    """Returns whether the writer of a partial was killed."""
    # On Windows os.kill would interrupt the process.
    if machine in (None, _machine()) and sys.platform != "win32":
        found = _start_of(int(process))
        return not found or (found != _UNKNOWN and start not in (None, found))
    parts = [partial, *partial.rglob("*")]
    newest = max(part.stat().st_mtime for part in parts)
    return time.time() - newest > _SECONDS_UNTIL_ABANDONED


@functools.cache
def _machine() -> str:
    """Returns an id of the machine and of the container's process namespace."""
    name = platform.node()
    with contextlib.suppress(OSError):
        name += os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _start_of(process: int) -> str:
    """Returns the start time of a local process; empty if it does not run.

    It distinguishes processes whose number is reused. It is `_UNKNOWN` on
    systems without /proc.
    """
    if sys.platform == "win32":
        return _UNKNOWN
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return ""
    except PermissionError:
        pass
    try:
        line = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return _UNKNOWN
    # proc(5): the name, with any characters, is in parentheses.
    state, *fields = line.rpartition(")")[2].split()
    # A zombie has not been waited for by its parent.
    return "" if state in "ZX" else fields[18]


def sync(path: str | os.PathLike) -> None:
    """Flushes a file, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def written_beside(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a path that is renamed to `path` when the block succeeds.

    The file or folder appears complete or not at all; on an error an older
    `path` is unchanged. A folder is never replaced by a file. See
    `partial_path`.
    """
    path = pathlib.Path(path)
    with partial_path(path) as beside:
        try:
            yield beside
            if path.is_dir():
                if not beside.is_dir():
                    raise IsADirectoryError(
                        errno.EISDIR, os.strerror(errno.EISDIR), str(path)
                    )
                shutil.rmtree(path)
            os.replace(beside, path)
        except OSError as error:
            # The error of a full disk names no file.
            error.filename = error.filename or str(path)
            raise


@contextlib.contextmanager
def open_output(output: str | os.PathLike) -> Iterator[BinaryIO]:
    """Opens a file that appears when it is complete; "-" is standard output."""
    if str(output) == STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with written_beside(output) as beside, open(beside, "wb") as file:
        yield file


@contextlib.contextmanager
def new_folder(
    path: str | os.PathLike, argument: str = "output_dir"
) -> Iterator[pathlib.Path]:
    """Yields an empty folder that becomes `path` when the block succeeds.

    Files that others write to `path` in the meantime are not replaced. On an
    error everything is restored, including parents. An existing empty folder
    keeps its inode. Partials of killed runs are removed.

    Args:
      path: the folder, missing or empty.
      argument: the argument with the path, for errors.

    Raises:
      UserError: `path` is not empty, a file, or inside a file.
    """
    path = pathlib.Path(os.path.realpath(path))
    refuse_filled(path, argument)
    is_there = path.is_dir()
    made = [p for p in path.parents if not p.exists()]
    # Inside an empty folder, which may be a mount point.
    place = path if is_there else path.parent
    try:
        with partial_path(path, place) as beside:
            beside.mkdir()
            yield beside
            refuse_filled(path, argument)
            if is_there:
                for file in sorted(beside.iterdir()):
                    os.rename(file, path / file.name)
            else:
                # Fails if another run has created the folder.
                os.rename(beside, path)
    except OSError as error:
        # Not the hidden name.
        error.filename = str(path)
        raise
    finally:
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()


def refuse_filled(
    path: str | os.PathLike, argument: str = "output_dir"
) -> None:
    """Refuses a folder with files; removes partials of killed runs.

    Raises:
      UserError: `path` is not empty, a file, or inside a file.
    """
    path = pathlib.Path(os.path.realpath(path))
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise UserError(
                f"`{argument}`={path}: {place} is a file, no folder."
            )
    for folder in (path, path.parent):
        _remove_abandoned(path.name, folder)
    partials = _partials_of(path.name)
    if path.is_dir() and any(
        not partials.fullmatch(left.name) for left in path.iterdir()
    ):
        raise UserError(
            f"`{argument}`={path}: is not empty; name a folder that is not "
            "there yet."
        )


def check_output(
    output: str | os.PathLike,
    endings: Sequence[str],
    inputs: Iterable[str | os.PathLike] = (),
) -> None:
    """Raises `UserError` for an invalid path of an output file.

    The path must have one of the suffixes `endings`, and be no folder and none
    of the `inputs`, of which "-" is standard input.
    """
    path = pathlib.Path(output)
    if path.suffix not in endings:
        raise UserError(
            f"`output`={output}: the name tells the format; end it in "
            f"{' or '.join(endings)}."
        )
    if path.is_dir():
        raise UserError(f"`output`={output}: is a folder; name a file.")
    for source in inputs:
        is_file = str(source) != STANDARD_STREAM
        if is_file and path.exists() and path.samefile(source):
            raise UserError(
                f"`output`={output}: is the input; name another file."
            )


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a UTF-8 text file with LF line ends, whole or not at all."""
    with written_beside(path) as beside:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def locked(
    lock_file: str | pathlib.Path, folder: str | os.PathLike
) -> Iterator[None]:
    """Locks a folder by a file until the block or the process ends.

    On systems without file locks (Windows) a warning is logged.

    Raises:
      UserError: another process holds the lock.
    """
    if fcntl is None:
        log(
            f"warning: {folder}: this system has no fcntl to lock it with; "
            "make sure that no other run writes there."
        )
    lock = lock_now(lock_file)
    if lock is None:
        raise UserError(
            f"`output_dir`={folder}: another run is writing there; wait "
            "for it or choose another folder."
        )
    with lock:
        yield


def lock_now(lock_file: str | os.PathLike) -> IO | None:
    """Locks a file, created if missing; returns None if it is locked.

    Closing the file releases the lock, which child processes inherit. On
    systems without locks the file is only opened.
    """
    lock = open(lock_file, "w")
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
    return lock


def free_bytes(path: pathlib.Path) -> float:
    """Free bytes of the disk of a folder, which need not exist yet."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    disk = shutil.disk_usage(place)
    # Some network file systems do not know their size.
    return disk.free if disk.total else math.inf


def arrow_kind(path: str) -> str:
    """Identifies Parquet, Arrow and Feather files by their first bytes.

    Returns:
      A key of `_ARROW_BEGINS`; empty for other files and if it is no file.
    """
    # Reading from a pipe would consume its data.
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            begin = file.read(max(map(len, _ARROW_BEGINS.values())))
    except (OSError, ValueError):
        return ""
    kinds = (k for k, b in _ARROW_BEGINS.items() if begin.startswith(b))
    return next(kinds, "")
