"""The documents of files in any format as sentences, in order.

Documents are found in this process and split into sentences in worker
processes (this module, run); what comes out depends on the files alone.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator
from typing import Self

from bert_tf.corpora.data_sets import DataSet
from bert_tf.corpora.recipe import (
    BLANK_LINE,
    FILE,
    JSONL,
    LINE,
    TEXT,
    TFDS,
    WIKIPEDIA,
    CorpusRecipe,
)
from bert_tf.corpora.sentences import split_sentences
from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import (
    DOCUMENT_BYTES,
    ByteStream,
    DocumentReader,
    Position,
    RawDocument,
    decode,
)
from bert_tf.corpora.wikipedia import WikipediaDump
from bert_tf.errors import UserError, excerpt
from bert_tf.files import json_object, whole_text
from bert_tf.processes import WorkerPool, serve

# Documents are sent to a worker in batches of about this size.
_BATCH_BYTES = 1 << 18
_BATCHES_PER_WORKER = 3
_BLANK_LINES = re.compile(r"\n\s*\n")
_KEYS_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class PlainText:
    """A file of text; sentences may go over line ends, not over blank lines."""

    path: str
    document_end: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """See `DocumentReader`; blank documents are left out."""
        with ByteStream(pathlib.Path(self.path), start) as stream:
            lines: list[bytes] = []
            size, offset, number = 0, start.offset, start.line

            def document(cut: bool) -> RawDocument:
                return RawDocument(
                    b"".join(lines),
                    number - len(lines) + 1,
                    stream.position(start.file, offset, number),
                    stream.disk_bytes(offset),
                    cut,
                )

            for line in stream.short_lines(start.line):
                offset += len(line)
                number += 1
                blank = not line.strip()
                if lines or not blank:
                    lines.append(line)
                    size += len(line)
                too_long = size >= DOCUMENT_BYTES
                ends = self.document_end == LINE or (
                    blank and self.document_end == BLANK_LINE
                )
                if lines and (too_long or ends):
                    yield document(cut=not ends)
                    lines, size = [], 0
            if lines:
                yield document(cut=False)

    def paragraphs(self, document: RawDocument) -> list[str]:
        """See `DocumentReader`."""
        text = decode(
            document.content, self.path, document.line, self.encoding_errors
        )
        text = text.removeprefix("\ufeff")
        return _BLANK_LINES.split(text) if self.document_end == FILE else [text]


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """A file of JSON lines; a line end in a text ends a paragraph."""

    path: str
    text_field: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[RawDocument]:
        """See `DocumentReader`; blank lines are left out."""
        with ByteStream(pathlib.Path(self.path), start) as stream:
            offset, number = start.offset, start.line
            for line in stream.short_lines(start.line):
                offset += len(line)
                number += 1
                if line.strip():
                    yield RawDocument(
                        line,
                        number,
                        stream.position(start.file, offset, number),
                        stream.disk_bytes(offset),
                    )

    def paragraphs(self, document: RawDocument) -> list[str]:
        """See `DocumentReader`."""
        line = decode(
            document.content, self.path, document.line, self.encoding_errors
        )
        place = f"{self.path}, line {document.line}"
        values = json_object(line, place, self.text_field)
        if self.text_field not in values:
            keys = ", ".join(map(str, list(values)[:_KEYS_SHOWN])) or "none"
            raise UserError(
                f"{place}: has no key {self.text_field!r} (its keys: {keys}); "
                "pass the key of the text as `text_field`."
            )
        text = values[self.text_field]
        if not isinstance(text, str):
            raise UserError(
                f"{place}: {self.text_field!r} is {excerpt(text)}; it must "
                "be a text."
            )
        where = f"{place}: {self.text_field!r}"
        return whole_text(text, where, self.encoding_errors).split("\n")


@dataclasses.dataclass(frozen=True)
class Document:
    """A document of whole sentences.

    Attributes:
      sentences: without surrounding blanks, none empty.
      line: the line or row of the file that it begins on, counted from 1.
      end: the place after it.
      disk_bytes: bytes of the file that were read up to there.
      cut: whether it was too long and continues as another one.
    """

    sentences: list[str]
    line: int
    end: Position
    disk_bytes: int
    cut: bool


def reader_of(file: CorpusFile, recipe: CorpusRecipe) -> DocumentReader:
    """The reader for a file of any format but sentences."""
    errors = recipe.encoding_errors
    if file.format == TEXT:
        return PlainText(file.path, recipe.document_end, errors)
    if file.format == JSONL:
        return JsonLines(file.path, recipe.text_field, errors)
    if file.format == WIKIPEDIA:
        return WikipediaDump.open(file.path, errors)
    if file.format == TFDS:
        return DataSet(file.path, recipe.text_field, errors)
    raise ValueError(f"{file.format} is no format of documents")


def sentences_of(reader: DocumentReader, raw: RawDocument) -> list[str]:
    """The sentences of a document."""
    return [
        sentence
        for paragraph in reader.paragraphs(raw)
        for sentence in split_sentences(paragraph)
    ]


class DocumentSplitter:
    """Splits documents into sentences, in processes that start when needed.

    With one worker it is done in this process.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._started = contextlib.ExitStack()
        self._pool: WorkerPool | None = None

    def documents(
        self, reader: DocumentReader, start: Position
    ) -> Iterator[Document]:
        """The documents of a file from a place on, in order."""
        if self._workers == 1:
            for raw in reader.documents(start):
                yield _document(raw, sentences_of(reader, raw))
            return
        if self._pool is None:
            self._pool = self._started.enter_context(
                WorkerPool("bert_tf.corpora.reading", None, self._workers)
            )
        pending: collections.deque[
            tuple[list[RawDocument], concurrent.futures.Future]
        ] = collections.deque()
        for batch in _batches(reader.documents(start)):
            if isinstance(batch, Exception):
                # What stands before the damage comes first.
                yield from _answered(pending, 0)
                raise batch
            future = self._pool.submit((reader, batch))
            waiting = [dataclasses.replace(raw, content=b"") for raw in batch]
            pending.append((waiting, future))
            left = _BATCHES_PER_WORKER * self._workers - 1
            yield from _answered(pending, left)
        yield from _answered(pending, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._started.close()


def _document(raw: RawDocument, sentences: list[str]) -> Document:
    return Document(sentences, raw.line, raw.end, raw.disk_bytes, raw.cut)


def _batches(
    raws: Iterator[RawDocument],
) -> Iterator[list[RawDocument] | Exception]:
    """Batches of documents; an error when reading comes as the last one."""
    batch: list[RawDocument] = []
    size = 0
    try:
        for raw in raws:
            batch.append(raw)
            size += len(raw.content)
            if size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except Exception as error:
        if batch:
            yield batch
        yield error
        return
    if batch:
        yield batch


def _answered(
    pending: collections.deque[
        tuple[list[RawDocument], concurrent.futures.Future]
    ],
    left: int,
) -> Iterator[Document]:
    """The documents of the oldest batches, until `left` batches remain."""
    while len(pending) > left:
        batch, future = pending.popleft()
        for raw, sentences in zip(batch, future.result(), strict=True):
            yield _document(raw, sentences)


def _answer(
    question: tuple[DocumentReader, list[RawDocument]],
) -> list[list[str]]:
    reader, batch = question
    return [sentences_of(reader, raw) for raw in batch]


if __name__ == "__main__":
    serve(lambda settings: _answer)
