"""Reading a corpus in blocks of whole documents, and resuming anywhere.

The cuts between blocks depend on the files alone. In files of the format
`sentences` there is one a line, and a blank line, or the end of a file, ends a
document; files of other formats are read by `bert_tf.corpora`.
"""

import bisect
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.corpora.reading import Document, DocumentSplitter, reader_of
from bert_tf.corpora.recipe import SENTENCES, CorpusRecipe
from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import DOCUMENT_BYTES, ByteStream, Position
from bert_tf.files import decode_line

# A block is closed at the first end of a document after this many bytes, and
# in the middle of one only when that alone keeps memory bounded.
BLOCK_BYTES = 8 << 20

# Sentences above this length are named to the user: a record keeps at most
# max_seq_length tokens of them.
LONG_LINE_CHARACTERS = 10_000

# What str.strip takes off the ends of an ASCII text.
_ASCII_BLANKS = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"


@dataclasses.dataclass(frozen=True)
class LongLine:
    """A line of unusual length: its sentence in the block and its place."""

    sentence: int
    path: str
    line: int


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Whole documents that stand together in a corpus.

    Attributes:
      number: counted from 0.
      corpus: name of the corpus.
      text: the sentences, UTF-8 without surrounding white space, none empty;
        a line end stands behind each.
      sentence_bytes: bytes of each sentence without its line end, int64 [s].
      document_starts: the sentence each document begins with, none empty.
      long_lines: lines of unusual length.
      end: where the next block begins; the file number is the number of files
        at the end of the corpus.
      bytes_read: bytes of the input files (compressed ones as they are) up to
        the end of this block.
      cut: whether the last document was too long and continues in the next
        block.
    """

    number: int
    corpus: str
    text: bytes
    sentence_bytes: np.ndarray
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

    def add(
        self, sentences: Sequence[bytes], path: str, lines: Sequence[int]
    ) -> None:
        """Adds sentences of a document, none empty, and their line numbers."""
        if not sentences:
            return
        if not self.in_document:
            self.document_starts.append(len(self.sentences))
            self.in_document = True
        if max(map(len, sentences)) > LONG_LINE_CHARACTERS:
            self.long_lines += [
                LongLine(len(self.sentences) + index, path, lines[index])
                for index, sentence in enumerate(sentences)
                if len(sentence.decode("utf-8")) > LONG_LINE_CHARACTERS
            ]
        self.sentences += sentences

    def is_full(self) -> bool:
        return self.size >= DOCUMENT_BYTES or (
            self.size >= BLOCK_BYTES and not self.in_document
        )

    def close(self, corpus: str, end: Position, bytes_read: int) -> Block:
        """Gives the block and begins the next one."""
        block = Block(
            number=self.number,
            corpus=corpus,
            text=b"\n".join([*self.sentences, b""]),
            sentence_bytes=np.fromiter(
                map(len, self.sentences), np.int64, len(self.sentences)
            ),
            document_starts=self.document_starts,
            long_lines=self.long_lines,
            end=end,
            bytes_read=bytes_read,
            cut=self.in_document,
        )
        self._begin(self.number + 1)
        return block


def _stripped(
    lines: Sequence[bytes], path: str, number: int, errors: str
) -> list[bytes]:
    """Lines of UTF-8, after `number` others, without white space around."""
    return [
        line.strip(_ASCII_BLANKS)
        if line.isascii()
        else decode_line(line, path, place, errors).strip().encode("utf-8")
        for place, line in enumerate(lines, start=number + 1)
    ]


def _fill_with_lines(
    lines: _Lines, file: CorpusFile, start: Position, errors: str
) -> Iterator[tuple[Position, int]]:
    """Adds the lines of a file; stops wherever the block is full.

    Yields:
      The place, and the bytes of the file that were read.
    """
    offset, number = start.offset, start.line
    with ByteStream(pathlib.Path(file.path), start) as stream:
        for batch in stream.line_batches():
            sentences = _stripped(batch, file.path, number, errors)
            # Where each line ends, counted from the beginning of the batch.
            ends = list(itertools.accumulate(map(len, batch)))
            blanks = [i for i, text in enumerate(sentences) if not text]
            blanks.append(len(batch))
            done = 0
            while done < len(batch):
                before = ends[done - 1] if done else 0
                blank = blanks[bisect.bisect_left(blanks, done)]
                too_long = bisect.bisect_left(
                    ends, before + DOCUMENT_BYTES - lines.size, done
                )
                stop = min(blank + 1, too_long + 1, len(batch))
                run = sentences[done : min(blank, stop)]
                first = number + done + 1
                lines.add(run, file.path, range(first, first + len(run)))
                lines.in_document &= blank >= stop
                lines.size += ends[stop - 1] - before
                done = stop
                if lines.is_full():
                    place = offset + ends[done - 1]
                    yield (
                        stream.position(start.file, place, number + done),
                        stream.disk_bytes(place),
                    )
            offset += ends[-1]
            number += len(batch)


def _fill_with_documents(
    lines: _Lines, file: CorpusFile, documents: Iterator[Document]
) -> Iterator[tuple[Position, int]]:
    """As `_fill_with_lines`, for the other formats."""
    for document in documents:
        sentences = [text.encode("utf-8") for text in document.sentences]
        lines.add(sentences, file.path, [document.line] * len(sentences))
        lines.size += sum(map(len, sentences))
        lines.in_document = document.cut
        if lines.is_full():
            yield document.end, document.disk_bytes


def read_blocks(
    files: Sequence[CorpusFile],
    start: Position,
    number: int,
    recipe: CorpusRecipe,
    workers: int = 1,
) -> Iterator[Block]:
    """Reads the corpora from the end of an earlier block on, block by block.

    Args:
      files: in their order, those of a corpus together.
      start: where to begin.
      number: the number of the first block to read.
      recipe: how the files are read.
      workers: processes that split documents into sentences.

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
                errors = recipe.encoding_errors
                stops = _fill_with_lines(lines, file, start, errors)
            else:
                documents = splitter.documents(reader_of(file, recipe), start)
                stops = _fill_with_documents(lines, file, documents)
            for end, disk_bytes in stops:
                yield lines.close(file.corpus, end, finished + disk_bytes)
            start = Position(index + 1)
            lines.in_document = False
            finished += file.size()
            last = start.file == len(files)
            ends_corpus = last or files[start.file].corpus != file.corpus
            if ends_corpus or lines.is_full():
                yield lines.close(file.corpus, start, finished)
