"""The text of plain and compressed files as bytes, from any position on."""

import bisect
import bz2
import contextlib
import dataclasses
import io
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol, Self

from bert_tf.errors import UserError
from bert_tf.files import (
    damaged,
    decode_line,
    open_bytes,
    refuse_carriage_return,
)
from bert_tf.foreign_files import BoundedLines

_READ_BYTES = 1 << 18
# A longer document is cut, so that memory stays bounded.
DOCUMENT_BYTES = 32 << 20
# No line or wiki page of text is this long; binary files have such lines.
MAX_LINE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class Position:
    """A position in a corpus, between two documents or lines.

    Attributes:
      file: index of the file.
      offset: bytes of the file's text before the position; rows in a data set.
      line: lines before the position.
      stream: byte of the .bz2 file where the compressed stream around the
        position begins; reading can start there.
      stream_offset: bytes of text before that stream.
    """

    file: int = 0
    offset: int = 0
    line: int = 0
    stream: int = 0
    stream_offset: int = 0


class _Bz2Reader(io.RawIOBase):
    """Reads concatenated bz2 streams and records where each begins."""

    def __init__(self, path: pathlib.Path, start: Position) -> None:
        self._path = path
        self.disk = open(path, "rb")
        self.disk.seek(start.stream)
        self.starts = [(start.stream_offset, start.stream)]
        self._offset = start.stream_offset
        self._decompressor = bz2.BZ2Decompressor()
        self._has_input = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.disk.close()
        super().close()

    def _damaged(self, reason: str) -> UserError:
        return UserError(
            f"{self._path}: damaged bz2 file ({reason}); download or pack it "
            "again."
        )

    # RawIOBase's own type, collections.abc.Buffer, is new in Python 3.12.
    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            data = b""
            if self._decompressor.eof:
                data = self._decompressor.unused_data
                at = self.disk.tell() - len(data)
                data = data or self.disk.read(_READ_BYTES)
                if not data:
                    return 0
                self._decompressor = bz2.BZ2Decompressor()
                self.starts.append((self._offset, at))
            elif self._decompressor.needs_input:
                data = self.disk.read(_READ_BYTES)
                if not data and self._has_input:
                    raise self._damaged("it ends in the middle of its data")
                if not data:
                    return 0
            self._has_input = True
            try:
                text = self._decompressor.decompress(data, len(buffer))
            except OSError as error:
                raise self._damaged(str(error).lower()) from None
            if text:
                buffer[: len(text)] = text
                self._offset += len(text)
                return len(text)


class _Bz2Buffer(BoundedLines, io.BufferedReader):
    """The lines of a .bz2 file."""

    def __init__(self, path: pathlib.Path, stream: _Bz2Reader) -> None:
        self.path, self.disk = path, stream.disk
        super().__init__(stream, _READ_BYTES)


class ByteStream:
    """The text of a file as bytes, opened at a position."""

    def __init__(self, path: pathlib.Path, start: Position) -> None:
        self._path = path
        self._start = start
        self._file: Any
        self._bz2: _Bz2Reader | None = None
        if path.name.endswith(".bz2"):
            self._bz2 = _Bz2Reader(path, start)
            self._file = _Bz2Buffer(path, self._bz2)
            self._skip(start.offset - start.stream_offset)
        else:
            self._file = open_bytes(path)
            if self._file.seekable():
                with self._translate_damage():
                    self._file.seek(start.offset)
            else:
                self._skip(start.offset)
        self._disk: BinaryIO = getattr(self._file, "disk", self._file)

    def _skip(self, size: int) -> None:
        """Reads `size` bytes of text."""
        while size and (data := self.read(min(size, _READ_BYTES))):
            size -= len(data)

    @contextlib.contextmanager
    def _translate_damage(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError, zlib.error) as error:
            raise damaged(error, self._path, self._file) from None

    def line_batches(self) -> Iterator[list[bytes]]:
        """Yields the lines from the position on, line ends included."""
        with self._translate_damage():
            line = self._start.line
            while lines := self._file.readlines(_READ_BYTES):
                if not line:
                    refuse_carriage_return(lines[0], self._path, 1)
                line += len(lines)
                yield lines

    def bounded_lines(self) -> Iterator[tuple[bytes, int, int]]:
        """Yields each line with the offset and line number after it.

        Raises:
          UserError: a line exceeds `MAX_LINE_BYTES`.
        """
        offset, line = self._start.offset, self._start.line
        with self._translate_damage():
            while data := self._file.readline(MAX_LINE_BYTES):
                line += 1
                if len(data) == MAX_LINE_BYTES and data[-1:] != b"\n":
                    raise UserError(
                        f"{self._path}, line {line}: has more than "
                        f"{MAX_LINE_BYTES >> 20} MB; is it a file of "
                        "another kind?"
                    )
                if line == 1:
                    refuse_carriage_return(data, self._path, line)
                offset += len(data)
                yield data, offset, line

    def read(self, size: int) -> bytes:
        """Returns the next bytes, empty at the end of the file."""
        with self._translate_damage():
            return bytes(self._file.read(size))

    def disk_bytes(self, offset: int) -> int:
        """Returns the bytes read from disk, given the text bytes consumed."""
        return offset if self._file is self._disk else self._disk.tell()

    def position(self, file: int, offset: int, line: int) -> Position:
        """Returns a position that was read already, to resume from later."""
        if self._bz2 is None:
            return Position(file, offset, line)
        starts = self._bz2.starts
        index = bisect.bisect_right(starts, offset, key=lambda s: s[0]) - 1
        # Positions only move forward, so earlier streams are not needed.
        del starts[:index]
        return Position(file, offset, line, starts[0][1], starts[0][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._disk.close()


def decode(content: bytes, path: str, first_line: int, errors: str) -> str:
    """Decodes lines of UTF-8; an error names the line."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        lines = content.split(b"\n")
    return "\n".join(
        decode_line(line, path, number, errors)
        for number, line in enumerate(lines, start=first_line)
    )


@dataclasses.dataclass(frozen=True)
class Document:
    """A document, as bytes of its file or as sentences.

    Attributes:
      content: its bytes; empty once it is split into sentences.
      line: line or row of the file where it begins, counted from 1.
      end: the position after it.
      disk_bytes: bytes of the file read up to there.
      cut: whether it was too long and continues as the next document.
      sentences: its sentences, stripped, none empty.
    """

    content: bytes
    line: int
    end: Position
    disk_bytes: int
    cut: bool = False
    sentences: list[str] = dataclasses.field(default_factory=list)


class DocumentReader(Protocol):
    """Reads files of one format; picklable.

    Finding documents is cheap and sequential; extracting their paragraphs is
    expensive and runs in worker processes.
    """

    def documents(self, start: Position) -> Iterator[Document]:
        """Yields the documents from a position on, not yet split."""

    def paragraphs(self, document: Document) -> list[str]:
        """Returns the text of a document; no sentence spans two paragraphs.

        Raises:
          UserError: the document has no text field, or is not UTF-8; the
            message names the line.
        """
