"""Files that others made: regular, and of a bounded size, or not opened."""

import gzip
import os
import pathlib
import stat
from typing import Any

from bert_tf.errors import UserError, excerpt

# Of settings, vocabularies and names, which are read whole.
LARGEST_FILE = 64 << 20
# Of a compressed file, whose size does not tell.
LONGEST_LINE = 64 << 20
_LONGEST_NAME = 300
_KINDS = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def unusable(path: str | os.PathLike, error: Exception) -> UserError:
    """One line of why the system takes no file of a name."""
    name = os.fspath(path)
    if len(name) > _LONGEST_NAME or not name.isprintable():
        name = excerpt(name)
    reason = getattr(error, "strerror", None) or str(error)
    return UserError(f"{name}: cannot be read ({reason}).")


def demand_regular(path: str | os.PathLike) -> None:
    """Refuses pipes, sockets and devices, which block who opens them.

    A file that is missing, or cannot be looked at, is left to who opens it.

    Raises:
      UserError: `path` is, or links to, one of these.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    for is_kind, name in _KINDS.items():
        if is_kind(mode):
            raise UserError(
                f"{path}: is {name}, not a regular file; remove it or put "
                "the file itself there."
            )


def read_bytes(path: str | os.PathLike) -> bytes:
    """Reads a file of settings, names or tokens whole.

    Raises:
      UserError: it is no regular file, cannot be read, or is larger than
        `LARGEST_FILE`.
      FileNotFoundError: there is none.
      IsADirectoryError: it is a folder.
    """
    demand_regular(path)
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (FileNotFoundError, IsADirectoryError):
        raise
    # A ValueError is that of a NUL in the name.
    except (OSError, ValueError) as error:
        raise unusable(path, error) from None
    if len(data) > LARGEST_FILE:
        raise UserError(
            f"{path}: is larger than {LARGEST_FILE >> 20} MB, which no such "
            "file is; is it a file of another kind?"
        )
    return data


def read_text(path: str | os.PathLike) -> str:
    """Reads a UTF-8 file as `read_bytes` does; its line ends become LF.

    Raises:
      UnicodeDecodeError: it is not UTF-8; others as `read_bytes`.
    """
    text = read_bytes(path).decode("utf-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


class BoundedLines:
    """For a reader of a compressed file: refuses lines that fill the memory.

    Attributes:
      path: the file's name, for the error.
    """

    path: str | os.PathLike

    def readline(self, size: int | None = -1, /) -> bytes:
        """The next line; `size` is the most bytes to read of it."""
        is_bounded = size is not None and 0 <= size <= LONGEST_LINE
        most = size if is_bounded else LONGEST_LINE + 1
        line: bytes = super().readline(most)  # type: ignore[misc]
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{self.path}: unpacks to a line of more than "
                f"{LONGEST_LINE >> 20} MB; is it a file of another kind?"
            )
        return line


class GzipReader(BoundedLines, gzip.GzipFile):
    """A .gz file, opened for reading bytes.

    Args:
      path: the file.
      file: it, where it is open already.
    """

    def __init__(self, path: str | os.PathLike, file: Any = None) -> None:
        self.path = pathlib.Path(path)
        super().__init__(path if file is None else None, "rb", fileobj=file)
