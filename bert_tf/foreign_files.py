"""Opens files of model folders safely: only regular ones of a bounded size."""

import bz2
import contextlib
import gzip
import io
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, ClassVar

from bert_tf.errors import UserError, excerpt, one_line

# Bytes of files of settings, vocabularies and names, which are read whole.
LARGEST_FILE = 64 << 20
# Bytes of a line in a compressed file.
LONGEST_LINE = 64 << 20
_MAX_SHOWN_NAME = 300
_KINDS = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def unusable(path: str | os.PathLike, error: Exception) -> UserError:
    """Returns the error for a path that the system refuses."""
    name = os.fspath(path)
    if len(name) > _MAX_SHOWN_NAME or not name.isprintable():
        name = excerpt(name)
    reason = getattr(error, "strerror", None) or str(error)
    if "\0" in os.fspath(path):
        # Python 3.13 has other words.
        reason = "embedded null byte"
    return UserError(f"{name}: cannot be read ({reason}).")


def demand_regular(path: str | os.PathLike) -> None:
    """Refuses pipes, sockets and devices, on which `open` may block.

    A missing or inaccessible file is accepted.

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


def demand_file(path: str | os.PathLike) -> None:
    """Refuses what is no regular file, or missing.

    Raises:
      UserError: `path` is no file.
    """
    demand_regular(path)
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such file.")


@contextlib.contextmanager
def refuse_damage(
    path: str | os.PathLike, *kinds: type[Exception]
) -> Iterator[None]:
    """Turns errors of some types about a weights file into `UserError`."""
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        reason = one_line(error)
        raise UserError(f"{path}: damaged weights file ({reason}).") from None


def file_beside(index: pathlib.Path, name: object) -> pathlib.Path:
    """Returns the path of a file that an index of weights names.

    Raises:
      UserError: the name has a folder, or the file is missing or a link out of
        the folder.
    """
    folder = index.parent
    is_name = isinstance(name, str) and name not in ("", ".", "..")
    if not is_name or set(str(name)) & set("/\\\0"):
        raise UserError(
            f"{index}: names the file {name!r}; it takes the plain names of "
            "files beside it."
        )
    path = folder / str(name)
    if not path.is_file():
        raise UserError(f"{index}: names the file {name}, which is missing.")
    here = folder.resolve()
    allowed = [here]
    if here.parent.name == "snapshots":
        # The hub's cache keeps the files of all snapshots there, and links.
        allowed.append(here.parent.parent / "blobs")
    if path.resolve().parent not in allowed:
        raise UserError(
            f"{index}: names the file {name}, a link out of the folder; put "
            "the file itself there."
        )
    return path


def read_bytes(path: str | os.PathLike) -> bytes:
    """Reads a whole file of settings, names or tokens.

    Raises:
      UserError: the file is not regular, cannot be read, or is larger than
        `LARGEST_FILE`.
      FileNotFoundError: there is no such file.
      IsADirectoryError: it is a folder.
    """
    demand_regular(path)
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (FileNotFoundError, IsADirectoryError):
        raise
    # ValueError: a NUL in the name.
    except (OSError, ValueError) as error:
        raise unusable(path, error) from None
    if len(data) > LARGEST_FILE:
        raise UserError(
            f"{path}: is larger than {LARGEST_FILE >> 20} MB; is it a file of "
            "another kind?"
        )
    return data


def read_text(path: str | os.PathLike) -> str:
    """Reads a UTF-8 file as `read_bytes` does; line ends become LF.

    Raises:
      UnicodeDecodeError: the file is not UTF-8; others as `read_bytes`.
    """
    text = read_bytes(path).decode("utf-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


class BoundedLines:
    """Mix-in for readers of compressed files that refuses very long lines.

    Attributes:
      path: the file's name, for the error.
      disk: the compressed file, which is closed with the reader.
      kind: the name of its format, for errors.
    """

    path: str | os.PathLike
    disk: BinaryIO
    kind: ClassVar[str]

    def readline(self, size: int | None = -1, /) -> bytes:
        """Reads the next line, or at most `size` bytes of it."""
        is_bounded = size is not None and 0 <= size <= LONGEST_LINE
        most = size if is_bounded else LONGEST_LINE + 1
        line: bytes = super().readline(most)  # type: ignore[misc]
        if len(line) > LONGEST_LINE:
            raise UserError(
                f"{self.path}: unpacks to a line of more than "
                f"{LONGEST_LINE >> 20} MB; is it a file of another kind?"
            )
        return line

    def close(self) -> None:
        """Closes the reader and the compressed file."""
        super().close()  # type: ignore[misc]
        self.disk.close()


class GzipReader(BoundedLines, gzip.GzipFile):
    """The content of an open .gz file as bytes."""

    kind = "gzip"

    def __init__(self, path: str | os.PathLike, disk: BinaryIO) -> None:
        self.path, self.disk = path, disk
        super().__init__(mode="rb", fileobj=disk)


class Bz2Reader(BoundedLines, bz2.BZ2File):  # type: ignore[misc]
    """The content of an open .bz2 file as bytes."""

    kind = "bz2"

    def __init__(self, path: str | os.PathLike, disk: BinaryIO) -> None:
        self.path, self.disk = path, disk
        super().__init__(disk)


class ZstdReader(BoundedLines, io.BufferedReader):
    """The content of an open .zst file as bytes."""

    kind = "Zstandard"

    def __init__(self, path: str | os.PathLike, disk: BinaryIO) -> None:
        # Python has no Zstandard before 3.14.
        import pyarrow

        self.path, self.disk = path, disk
        super().__init__(pyarrow.CompressedInputStream(disk, "zstd"))


# The end of a compressed file's name to its first bytes and its reader.
PACKED: dict[str, tuple[re.Pattern[bytes], Callable[..., Any]]] = {
    ".gz": (re.compile(rb"\x1f\x8b\x08"), GzipReader),
    ".bz2": (re.compile(rb"BZh[1-9]1AY&SY"), Bz2Reader),
    ".zst": (re.compile(rb"\x28\xb5\x2f\xfd"), ZstdReader),
}
