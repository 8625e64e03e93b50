"""The bytes of plain, .gz and .bz2 files, and documents as they stand there."""

import bisect
import bz2
import contextlib
import dataclasses
import gzip
import io
import pathlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Protocol, Self

from bert_tf.errors import UserError
from bert_tf.files import decode_line, refuse_carriage_return
from bert_tf.foreign_files import BoundedLines, GzipReader

_READ_BYTES = 1 << 18
# A document of more text than this is cut, so that memory stays bounded.
DOCUMENT_BYTES = 32 << 20
# No line and no page of text is as long as this; a file of another kind has
# them.
MAX_LINE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class Position:
    """A place in a corpus, between two documents or lines.

    Attributes:
      file: number of the file.
      offset: bytes of its text before the place; in a data set, rows.
      line: lines before the place.
      stream: byte of the .bz2 file at which the compressed stream that holds
        the place begins, so that it can be entered there.
      stream_offset: bytes of text before that stream.
    """

    file: int = 0
    offset: int = 0
    line: int = 0
    stream: int = 0
    stream_offset: int = 0


class _Bz2Reader(io.RawIOBase):
    """Reads one or more bz2 streams, remembering where each begins."""

    def __init__(self, path: pathlib.Path, start: Position) -> None:
        self._path = path
        self.disk = open(path, "rb")
        self.disk.seek(start.stream)
        self.starts = [(start.stream_offset, start.stream)]
        self._offset = start.stream_offset
        self._decompressor = bz2.BZ2Decompressor()
        self._fed = False

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
                if not data and self._fed:
                    raise self._damaged("it ends in the middle of its data")
                if not data:
                    return 0
            self._fed = True
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
        self.path = path
        super().__init__(stream, _READ_BYTES)


class ByteStream:
    """A file's text as bytes, opened at a place."""

    def __init__(self, path: pathlib.Path, start: Position) -> None:
        self._path = path
        self._start = start
        self._file: BinaryIO | io.BufferedReader | gzip.GzipFile
        self._bz2: _Bz2Reader | None = None
        if path.name.endswith(".bz2"):
            self._bz2 = _Bz2Reader(path, start)
            self._file = _Bz2Buffer(path, self._bz2)
            self._disk = self._bz2.disk
            size = start.offset - start.stream_offset
            while size and (data := self._file.read(min(size, _READ_BYTES))):
                size -= len(data)
        elif path.name.endswith(".gz"):
            self._disk = open(path, "rb")
            self._file = GzipReader(path, self._disk)
            with self._translate_damage():
                self._file.seek(start.offset)
        else:
            self._file = self._disk = open(path, "rb")
            self._file.seek(start.offset)

    @contextlib.contextmanager
    def _translate_damage(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{self._path}: damaged gzip file ({error})."
            ) from None

    def line_batches(self) -> Iterator[list[bytes]]:
        """The lines from here on, with their ends, many at a time."""
        with self._translate_damage():
            line = self._start.line
            while lines := self._file.readlines(_READ_BYTES):
                self._check_line_end(lines[0], line + 1)
                line += len(lines)
                yield lines

    def short_lines(self, line: int) -> Iterator[bytes]:
        """The lines from here on, for files that may hold none.

        Args:
          line: lines before the place, for the error.
        """
        with self._translate_damage():
            while data := self._file.readline(MAX_LINE_BYTES):
                line += 1
                if len(data) == MAX_LINE_BYTES and data[-1:] != b"\n":
                    raise UserError(
                        f"{self._path}, line {line}: has more than "
                        f"{MAX_LINE_BYTES >> 20} MB; is it a file of "
                        "another kind?"
                    )
                self._check_line_end(data, line)
                yield data

    def _check_line_end(self, data: bytes, line: int) -> None:
        """Refuses a file whose lines end in carriage returns."""
        if line == 1:
            refuse_carriage_return(data, self._path, line)

    def read(self, size: int) -> bytes:
        """The next bytes, empty at the end."""
        with self._translate_damage():
            return self._file.read(size)

    def disk_bytes(self, offset: int) -> int:
        """Bytes of the file on the disk that were read.

        Args:
          offset: bytes of the text that were taken, which may be fewer.
        """
        return offset if self._file is self._disk else self._disk.tell()

    def position(self, file: int, offset: int, line: int) -> Position:
        """A place that was read already, to be entered again."""
        if self._bz2 is None:
            return Position(file, offset, line)
        starts = self._bz2.starts
        found = bisect.bisect_right(starts, offset, key=lambda s: s[0]) - 1
        # Earlier ones are not needed again.
        del starts[:found]
        return Position(file, offset, line, starts[0][1], starts[0][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._disk.close()


def decode(content: bytes, path: str, first_line: int, errors: str) -> str:
    """Decodes one or more lines of UTF-8; an error names the line."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        lines = content.split(b"\n")
    return "\n".join(
        decode_line(line, path, number, errors)
        for number, line in enumerate(lines, start=first_line)
    )


@dataclasses.dataclass(frozen=True)
class RawDocument:
    """A document before it is split into sentences.

    Attributes:
      content: its bytes.
      line: the line or row it begins on, counted from 1.
      end: the place after it.
      disk_bytes: bytes of the file that were read up to there.
      cut: whether it was too long and continues as another one.
    """

    content: bytes
    line: int
    end: Position
    disk_bytes: int
    cut: bool = False


class DocumentReader(Protocol):
    """A file in one format; it can be pickled.

    Finding documents is cheap and is done in order; splitting them is not, and
    can be done anywhere.
    """

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """The documents from a place on."""

    def paragraphs(self, document: RawDocument) -> list[str]:
        """The text of a document, of which a sentence is in one paragraph.

        Raises:
          UserError: the document has no text, or bytes that are not UTF-8;
            it names the line.
        """
