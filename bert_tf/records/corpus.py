"""Reading a corpus in blocks of whole documents, and resuming anywhere.

The cuts between blocks depend on the files alone. In files of the format
`sentences` there is one a line, and a blank line, or the end of a file, ends a
document; files of other formats are read by `bert_tf.corpora`.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from bert_tf.corpora.raw_documents import DOCUMENT_BYTES
from bert_tf.corpora.reading import Document, DocumentSplitter, reader_of
from bert_tf.corpora.recipe import SENTENCES, CorpusRecipe
from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import ByteStream, Position
from bert_tf.files import decode_line

# A block is closed at the first end of a document after this many bytes, and
# in the middle of one only when that alone keeps memory bounded.
BLOCK_BYTES = 8 << 20

# Sentences above this length are named to the user: a record keeps at most
# max_seq_length tokens of them.
LONG_LINE_CHARACTERS = 10_000


@dataclasses.dataclass(frozen=True)
class LongLine:
    """A line of unusual length: its sentence in the block and its place."""

    sentence: int
    path: str
    line: int


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole documents that stand together in a corpus.

    Attributes:
      number: counted from 0.
      corpus: name of the corpus.
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
    corpus: str
    sentences: list[bytes]
    document_starts: list[int]
    long_lines: list[LongLine]
    end: Position
    bytes_read: int
    cut: bool


class _Lines:
    """The lines of a block while it is read."""

    def __init__(self, number: int) -> None:
        self._begin(number)

    def _begin(self, number: int) -> None:
        self.number = number
        self.sentences: list[bytes] = []
        self.document_starts: list[int] = []
        self.long_lines: list[LongLine] = []
        self.in_document = False
        self.size = 0

    def add(self, text: str, path: str, line: int) -> None:
        if not text:
            self.in_document = False
            return
        if not self.in_document:
            self.document_starts.append(len(self.sentences))
            self.in_document = True
        if len(text) > LONG_LINE_CHARACTERS:
            self.long_lines.append(LongLine(len(self.sentences), path, line))
        self.sentences.append(text.encode("utf-8"))

    def add_document(self, document: Document, path: str) -> None:
        for sentence in document.sentences:
            self.add(sentence, path, document.line)
            self.size += len(self.sentences[-1])
        self.in_document = document.cut

    def is_full(self) -> bool:
        return self.size >= DOCUMENT_BYTES or (
            self.size >= BLOCK_BYTES and not self.in_document
        )

    def close(self, corpus: str, end: Position, bytes_read: int) -> Block:
        """Gives the block and begins the next one."""
        block = Block(
            number=self.number,
            corpus=corpus,
            sentences=self.sentences,
            document_starts=self.document_starts,
            long_lines=self.long_lines,
            end=end,
            bytes_read=bytes_read,
            cut=self.in_document,
        )
        self._begin(self.number + 1)
        return block


def _fill_with_lines(
    lines: _Lines, file: CorpusFile, start: Position, errors: str
) -> Iterator[tuple[Position, int]]:
    """Adds the lines of a file; stops wherever the block is full.

    Yields:
      The place, and the bytes of the file that were read.
    """
    offset, number = start.offset, start.line
    with ByteStream(pathlib.Path(file.path), start) as stream:
        for line in stream.lines():
            number += 1
            offset += len(line)
            lines.size += len(line)
            text = decode_line(line, file.path, number, errors)
            lines.add(text.strip(), file.path, number)
            if lines.is_full():
                yield (
                    stream.position(start.file, offset, number),
                    stream.disk_bytes(),
                )


def _fill_with_documents(
    lines: _Lines,
    file: CorpusFile,
    start: Position,
    recipe: CorpusRecipe,
    splitter: DocumentSplitter,
) -> Iterator[tuple[Position, int]]:
    """As `_fill_with_lines`, for the other formats."""
    reader = reader_of(file, recipe)
    for document in splitter.documents(reader, start):
        lines.add_document(document, file.path)
        if lines.is_full():
            yield document.end, document.disk_bytes


def read_blocks(
    files: Sequence[CorpusFile],
    start: Position,
    number: int,
    recipe: CorpusRecipe,
    workers: int = 1,
) -> Iterator[Block]:
    """Reads the corpora from a place on, block by block.

    Args:
      files: the input files in their order, those of a corpus together.
      start: where to begin: the end of an earlier block.
      number: the number of the first block to read.
      recipe: how the files are read.
      workers: processes that take documents apart.

    Yields:
      Blocks of about `BLOCK_BYTES` of one corpus each; the last one ends at
      the end of the last file.

    Raises:
      UserError: a file is damaged or not of its format; a line is not UTF-8.
    """
    lines = _Lines(number)
    finished = sum(file.size() for file in files[: start.file])
    with DocumentSplitter(workers) as splitter:
        for index in range(start.file, len(files)):
            file = files[index]
            if file.format == SENTENCES:
                stops = _fill_with_lines(
                    lines, file, start, recipe.encoding_errors
                )
            else:
                stops = _fill_with_documents(
                    lines, file, start, recipe, splitter
                )
            for end, disk_bytes in stops:
                yield lines.close(file.corpus, end, finished + disk_bytes)
            start = Position(index + 1)
            lines.in_document = False
            finished += file.size()
            ends_corpus = (
                start.file == len(files)
                or files[start.file].corpus != file.corpus
            )
            if ends_corpus or lines.is_full():
                yield lines.close(file.corpus, start, finished)
