"""Reads a corpus in blocks of whole documents, and resumes at any block.

The boundaries of blocks depend on the files only. Files of the format
`sentences` have one sentence a line; a blank line, or the end of the file, ends
a document. Files of other formats are read by `bert_tf.corpora`.
"""

import bisect
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.corpora.reading import DocumentSplitter, reader_of
from bert_tf.corpora.recipe import SENTENCES, CorpusRecipe
from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import (
    DOCUMENT_BYTES,
    ByteStream,
    Document,
    Position,
)
from bert_tf.files import decode_line

# A block ends with the document that reaches this size; it ends inside a
# document only at `DOCUMENT_BYTES`, to keep memory bounded.
BLOCK_BYTES = 8 << 20

# Longer sentences are reported: a record keeps at most max_seq_length tokens.
LONG_LINE_CHARACTERS = 10_000

# The white space that str.strip removes from ASCII text.
_ASCII_SPACE = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"


class LongLine(NamedTuple):
    """A very long line: index of its sentence in the block, file and line."""

    sentence: int
    path: str
    line: int


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Consecutive whole documents of a corpus.

    Attributes:
      number: counted from 0.
      corpus: name of the corpus.
      text: the sentences, UTF-8, stripped, none empty, each followed by a line
        end.
      sentence_bytes: bytes of each sentence without its line end, int64
        [sentences].
      document_starts: the first sentence of each document; none is empty.
      long_lines: lines of more than `LONG_LINE_CHARACTERS`.
      end: where the next block begins; at the end of the corpus, `end.file` is
        the number of files.
      bytes_read: bytes of the input files (as stored, maybe compressed) up to
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


class _BlockBuilder:
    """Collects the sentences of a block."""

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
        """Adds non-empty sentences of a document and their line numbers."""
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

    def build(self, corpus: str, end: Position, bytes_read: int) -> Block:
        """Returns the block and begins the next one."""
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


def _add_lines(
    builder: _BlockBuilder, file: CorpusFile, start: Position, errors: str
) -> Iterator[tuple[Position, int]]:
    """Adds the lines of a file; yields whenever the block is full.

    Yields:
      The position, and the bytes of the file that were read.
    """
    offset, number = start.offset, start.line
    with ByteStream(pathlib.Path(file.path), start) as stream:
        for batch in stream.line_batches():
            sentences = [
                line.strip(_ASCII_SPACE)
                if line.isascii()
                else decode_line(line, file.path, line_number, errors)
                .strip()
                .encode("utf-8")
                for line_number, line in enumerate(batch, start=number + 1)
            ]
            # Where each line ends, counted from the beginning of the batch.
            ends = list(itertools.accumulate(map(len, batch)))
            blanks = [i for i, text in enumerate(sentences) if not text]
            blanks.append(len(batch))
            done = 0
            while done < len(batch):
                before = ends[done - 1] if done else 0
                blank = blanks[bisect.bisect_left(blanks, done)]
                too_long = bisect.bisect_left(
                    ends, before + DOCUMENT_BYTES - builder.size, done
                )
                stop = min(blank + 1, too_long + 1, len(batch))
                run = sentences[done : min(blank, stop)]
                first = number + done + 1
                builder.add(run, file.path, range(first, first + len(run)))
                builder.in_document &= blank >= stop
                builder.size += ends[stop - 1] - before
                done = stop
                if builder.is_full():
                    end = offset + ends[done - 1]
                    yield (
                        stream.position(start.file, end, number + done),
                        stream.disk_bytes(end),
                    )
            offset += ends[-1]
            number += len(batch)


def _add_documents(
    builder: _BlockBuilder, file: CorpusFile, documents: Iterator[Document]
) -> Iterator[tuple[Position, int]]:
    """`_add_lines` for files of the other formats."""
    for document in documents:
        sentences = [text.encode("utf-8") for text in document.sentences]
        builder.add(sentences, file.path, [document.line] * len(sentences))
        builder.size += sum(map(len, sentences))
        builder.in_document = document.cut
        if builder.is_full():
            yield document.end, document.disk_bytes


def read_blocks(
    files: Sequence[CorpusFile],
    start: Position,
    number: int,
    recipe: CorpusRecipe,
    workers: int = 1,
) -> Iterator[Block]:
    """Reads the corpora in blocks, from the end of an earlier block on.

    Args:
      files: the files, grouped by corpus.
      start: where to begin.
      number: the number of the first block to read.
      recipe: how the files are read.
      workers: processes that split documents into sentences.

    Yields:
      Blocks of about `BLOCK_BYTES`, each of one corpus; the last one ends at
      the end of the last file.

    Raises:
      UserError: a file is damaged or not of its format; a line is not UTF-8.
    """
    builder = _BlockBuilder(number)
    finished = sum(file.size() for file in files[: start.file])
    with DocumentSplitter(workers) as splitter:
        for index in range(start.file, len(files)):
            file = files[index]
            if file.format == SENTENCES:
                errors = recipe.encoding_errors
                stops = _add_lines(builder, file, start, errors)
            else:
                documents = splitter.documents(reader_of(file, recipe), start)
                stops = _add_documents(builder, file, documents)
            for end, disk_bytes in stops:
                yield builder.build(file.corpus, end, finished + disk_bytes)
            start = Position(index + 1)
            builder.in_document = False
            finished += file.size()
            last = start.file == len(files)
            ends_corpus = last or files[start.file].corpus != file.corpus
            if ends_corpus or builder.is_full():
                yield builder.build(file.corpus, start, finished)
