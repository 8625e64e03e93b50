"""Reading a corpus in blocks of whole documents, and resuming anywhere.

One sentence a line; a blank line, or the end of a file, ends a document. The
cuts between blocks depend on the files alone.
"""

import dataclasses
import gzip
import pathlib
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from bert_tf.errors import UserError
from bert_tf.files import decode_line, open_bytes

# A block is closed at the first end of a document after this many bytes, and
# in the middle of one only when that alone keeps memory bounded.
BLOCK_BYTES = 8 << 20
DOCUMENT_BYTES = 4 * BLOCK_BYTES

# Sentences above this length are named to the user: a record keeps at most
# max_seq_length tokens of them.
LONG_LINE_CHARACTERS = 10_000


@dataclasses.dataclass(frozen=True)
class Position:
    """A place between two lines: file number, byte and lines before it."""

    file: int = 0
    offset: int = 0
    line: int = 0


@dataclasses.dataclass(frozen=True)
class LongLine:
    """A line of unusual length: its sentence in the block and its place."""

    sentence: int
    path: str
    line: int


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole documents that stand together in the corpus.

    Attributes:
      number: counted from 0.
      sentences: UTF-8 without surrounding white space, none empty.
      document_starts: the sentence each document begins with, none empty.
      long_lines: lines of unusual length.
      end: where the next block begins; the file number is the number of files
        at the end of the corpus.
      bytes_read: bytes of the input files (compressed ones as they are) up to
        the end of this block.
      cut: whether the last document was too long and goes on in the next
        block.
    """

    number: int
    sentences: list[bytes]
    document_starts: list[int]
    long_lines: list[LongLine]
    end: Position
    bytes_read: int
    cut: bool


class _Lines:
    """The lines of a block while it is read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sentences: list[bytes] = []
        self.document_starts: list[int] = []
        self.long_lines: list[LongLine] = []
        self.in_document = False
        self.size = 0

    def add(self, text: str, path: pathlib.Path, line: int) -> None:
        if not text:
            self.in_document = False
            return
        if not self.in_document:
            self.document_starts.append(len(self.sentences))
            self.in_document = True
        if len(text) > LONG_LINE_CHARACTERS:
            self.long_lines.append(
                LongLine(len(self.sentences), str(path), line)
            )
        self.sentences.append(text.encode("utf-8"))

    def is_full(self) -> bool:
        return self.size >= DOCUMENT_BYTES or (
            self.size >= BLOCK_BYTES and not self.in_document
        )

    def closed(self, end: Position, bytes_read: int) -> Block:
        return Block(
            number=self.number,
            sentences=self.sentences,
            document_starts=self.document_starts,
            long_lines=self.long_lines,
            end=end,
            bytes_read=bytes_read,
            cut=self.in_document,
        )


def _open_at(path: pathlib.Path, offset: int) -> tuple[BinaryIO, BinaryIO]:
    """Opens a file for its text at an offset, and the file on the disk."""
    file = open_bytes(path)
    file.seek(offset)
    return file, file.fileobj if isinstance(file, gzip.GzipFile) else file


def read_blocks(
    files: Sequence[pathlib.Path], start: Position, number: int, errors: str
) -> Iterator[Block]:
    """Reads the corpus from a place on, block by block.

    Args:
      files: the input files in their order.
      start: where to begin: the end of an earlier block.
      number: the number of the first block to read.
      errors: "strict" or "replace", for bytes that are not UTF-8.

    Yields:
      Blocks of about `BLOCK_BYTES`; the last one ends at the corpus' end.

    Raises:
      UserError: a line is not UTF-8, or a .gz file is damaged.
    """
    lines = _Lines(number)
    finished = sum(path.stat().st_size for path in files[: start.file])
    for index in range(start.file, len(files)):
        path = files[index]
        offset, line_number = start.offset, start.line
        try:
            text_file, disk_file = _open_at(path, offset)
            with text_file:
                for line in text_file:
                    line_number += 1
                    offset += len(line)
                    lines.size += len(line)
                    text = decode_line(line, path, line_number, errors)
                    lines.add(text.strip(), path, line_number)
                    if lines.is_full():
                        place = Position(index, offset, line_number)
                        yield lines.closed(place, finished + disk_file.tell())
                        lines = _Lines(lines.number + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path}: damaged gzip file ({error}).") from None
        start = Position(index + 1)
        lines.in_document = False
        finished += path.stat().st_size
        if lines.is_full() or start.file == len(files):
            yield lines.closed(start, finished)
            lines = _Lines(lines.number + 1)
