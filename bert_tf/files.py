"""Reading the user's text files strictly and writing files whole or not."""

import contextlib
import errno
import fcntl
import glob
import gzip
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import BinaryIO

from bert_tf.errors import UserError

ENCODING_ERRORS = ("strict", "replace")


def expand_inputs(
    patterns: str, argument: str = "inputs"
) -> list[pathlib.Path]:
    """Expands comma-separated paths and globs to a sorted list of files.

    Raises:
      UserError: nothing given, a pattern that matches nothing, a directory,
        a file that cannot be read, or only empty files.
    """
    files: set[pathlib.Path] = set()
    wanted = [p.strip() for p in patterns.split(",") if p.strip()]
    if not wanted:
        raise UserError(f"`{argument}`: give one or more files or globs.")
    for pattern in wanted:
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
            "pass `encoding_errors`=replace."
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


@contextlib.contextmanager
def new_folder(
    path: str | pathlib.Path, argument: str = "output_dir"
) -> Iterator[pathlib.Path]:
    """Yields an empty folder that becomes `path` when the block succeeds.

    Nothing that others put at `path` meanwhile is removed or replaced. On an
    error everything is as it was, parents included. An empty folder that is
    there already stays the same folder, and what a killed run left of its
    own is removed.

    Args:
      path: the folder, not there or empty.
      argument: what names it, for errors.

    Raises:
      UserError: `path` holds something, or is or lies in a file.
    """
    path = pathlib.Path(os.path.realpath(path))
    refuse_filled(path, argument)
    is_there = path.is_dir()
    # Inside an empty folder, which may be another file system than its parent.
    beside = path if is_there else path.parent
    beside = beside / f".{path.name}.{os.getpid()}.partial"
    made = [p for p in path.parents if not p.exists()]
    beside.mkdir(parents=True)
    try:
        yield beside
        refuse_filled(path, argument)
        if is_there:
            for file in sorted(beside.iterdir()):
                os.rename(file, path / file.name)
        else:
            # Fails where another run has put something in this moment.
            os.rename(beside, path)
    except OSError as error:
        # The user knows the folder by this name, not by the hidden one.
        error.filename = str(path)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()


def refuse_filled(
    path: str | pathlib.Path, argument: str = "output_dir"
) -> None:
    """Refuses what is no new or empty folder; sweeps what the dead left.

    Raises:
      UserError: `path` holds something, or is or lies in a file.
    """
    path = pathlib.Path(os.path.realpath(path))
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise UserError(
                f"`{argument}`={path}: {place} is a file, no folder."
            )
    own = re.compile(rf"\.{re.escape(path.name)}\.(\d+)\.partial")
    for folder in (path, path.parent):
        for left in folder.iterdir() if folder.is_dir() else ():
            match = own.fullmatch(left.name)
            if match and not _is_running(int(match[1])):
                shutil.rmtree(left, ignore_errors=True)
    if path.is_dir() and any(
        not own.fullmatch(left.name) for left in path.iterdir()
    ):
        raise UserError(
            f"`{argument}`={path}: is not empty; name a folder that is not "
            "there yet."
        )


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
                f"`output_dir`={folder}: another run is writing there; wait "
                "for it or choose another folder."
            ) from None
        yield
