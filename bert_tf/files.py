"""Reading the user's text files strictly and writing files whole or not."""

import contextlib
import errno
import fcntl
import glob
import gzip
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import BinaryIO

from bert_tf.errors import UserError

ENCODING_ERRORS = ("strict", "replace")


def expand_inputs(patterns: str, flag: str = "--input") -> list[pathlib.Path]:
    """Expands comma-separated paths and globs to a sorted list of files.

    Raises:
      UserError: nothing given, a pattern that matches nothing, a directory,
        a file that cannot be read, or only empty files.
    """
    files: set[pathlib.Path] = set()
    wanted = [p.strip() for p in patterns.split(",") if p.strip()]
    if not wanted:
        raise UserError(f"{flag}: give one or more files or globs.")
    for pattern in wanted:
        matches = sorted(glob.glob(pattern, recursive=True))
        if not matches:
            raise UserError(f"{flag}={pattern}: no such file.")
        for match in map(pathlib.Path, matches):
            if match.is_dir():
                raise UserError(
                    f"{flag}={match}: is a directory; name its files, for "
                    f"example {match}/*.txt"
                )
            if not os.access(match, os.R_OK):
                raise UserError(f"{flag}={match}: cannot be read.")
            files.add(match)
    if not any(f.stat().st_size for f in files):
        raise UserError(f"{flag}={patterns}: the files are empty.")
    return sorted(files)


def open_bytes(path: str | pathlib.Path) -> BinaryIO:
    """Opens a file for reading bytes; a name ending in .gz is decompressed."""
    if str(path).endswith(".gz"):
        return gzip.open(path, "rb")
    return open(path, "rb")


def decode_line(
    line: bytes, path: str | pathlib.Path, number: int, errors: str = "strict"
) -> str:
    """Decodes one line of UTF-8.

    Args:
      line: the bytes of the line.
      path: the file the line is from, for the error.
      number: the line's number, counted from 1.
      errors: "strict" or "replace" (U+FFFD for what is not UTF-8).

    Raises:
      UserError: the bytes are not UTF-8 and errors is "strict".
    """
    try:
        return line.decode("utf-8", errors=errors)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: byte {error.start + 1} "
            f"(0x{line[error.start]:02x}) is not UTF-8; convert the file or "
            "pass --encoding_errors=replace."
        ) from None


@contextlib.contextmanager
def written_beside(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a path beside `path`, renamed to it when the block succeeds.

    The file or folder appears whole or not at all; on an error what was
    written is removed and an older `path` stays as it was. A folder is never
    replaced by a file.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
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
        # A full disk does not say which file could not grow.
        error.filename = error.filename or str(path)
        raise
    finally:
        if beside.is_dir():
            shutil.rmtree(beside)
        else:
            beside.unlink(missing_ok=True)


def write_text(path: str | pathlib.Path, text: str) -> None:
    """Writes a UTF-8 text file with LF line ends, whole or not at all."""
    with written_beside(path) as beside:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def locked(
    lock_file: str | pathlib.Path, folder: str | pathlib.Path
) -> Iterator[None]:
    """Keeps other runs out of a folder; the system ends it with the process.

    Args:
      lock_file: the file to lock, made if it is not there.
      folder: what it stands for, for the error.

    Raises:
      UserError: another process holds the lock.
    """
    with open(lock_file, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"--output_dir={folder}: another run is writing there; wait "
                "for it or choose another folder."
            ) from None
        yield
