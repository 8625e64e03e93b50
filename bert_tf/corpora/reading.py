"""Reads the documents of files of any format as sentences, in order.

Documents are found in the calling process and split into sentences by worker
processes (this module, run as a program). The result depends on the files
only, not on the number of workers.
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
    TABLE,
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
    Document,
    DocumentReader,
    Position,
    decode,
)
from bert_tf.corpora.table_texts import TableTexts
from bert_tf.corpora.wikipedia import WikipediaDump
from bert_tf.errors import UserError, excerpt
from bert_tf.files import json_object, whole_text
from bert_tf.processes import WorkerPool, serve

_BATCH_BYTES = 1 << 18
_BATCHES_PER_WORKER = 3
_BLANK_LINES = re.compile(r"\n\s*\n")
_KEYS_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class PlainText:
    """A text file; sentences may span lines, but not blank lines."""

    path: str
    document_end: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[Document]:
        """See `DocumentReader`; blank documents are skipped."""
        with ByteStream(pathlib.Path(self.path), start) as stream:
            lines: list[bytes] = []
            size, offset, number = 0, start.offset, start.line

            def document(cut: bool) -> Document:
                return Document(
                    b"".join(lines),
                    number - len(lines) + 1,
                    stream.position(start.file, offset, number),
                    stream.disk_bytes(offset),
                    cut,
                )

            for line, offset, number in stream.bounded_lines():  # noqa: B007
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

    def paragraphs(self, document: Document) -> list[str]:
        """See `DocumentReader`."""
        text = decode(
            document.content, self.path, document.line, self.encoding_errors
        )
        text = text.removeprefix("\ufeff")
        return _BLANK_LINES.split(text) if self.document_end == FILE else [text]


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """A file of JSON lines; a line end inside a text ends a paragraph."""

    path: str
    text_field: str
    encoding_errors: str

    def documents(self, start: Position) -> Iterator[Document]:
        """See `DocumentReader`; blank lines are skipped."""
        with ByteStream(pathlib.Path(self.path), start) as stream:
            for line, offset, number in stream.bounded_lines():
                if line.strip():
                    yield Document(
                        line,
                        number,
                        stream.position(start.file, offset, number),
                        stream.disk_bytes(offset),
                    )

    def paragraphs(self, document: Document) -> list[str]:
        """See `DocumentReader`."""
        line = decode(
            document.content, self.path, document.line, self.encoding_errors
        )
        location = f"{self.path}, line {document.line}"
        values = json_object(line, location, self.text_field)
        if self.text_field not in values:
            keys = ", ".join(map(str, list(values)[:_KEYS_SHOWN])) or "none"
            raise UserError(
                f"{location}: has no key {self.text_field!r} (its keys: "
                f"{keys}); pass the key of the text as `text_field`."
            )
        text = values[self.text_field]
        if not isinstance(text, str):
            raise UserError(
                f"{location}: {self.text_field!r} is {excerpt(text)}; it must "
                "be a text."
            )
        field = f"{location}: {self.text_field!r}"
        return whole_text(text, field, self.encoding_errors).split("\n")


def reader_of(file: CorpusFile, recipe: CorpusRecipe) -> DocumentReader:
    """Returns the reader of a file of any format except `sentences`."""
    errors = recipe.encoding_errors
    if file.format == TEXT:
        return PlainText(file.path, recipe.document_end, errors)
    if file.format == JSONL:
        return JsonLines(file.path, recipe.text_field, errors)
    if file.format == TABLE:
        return TableTexts(file.path, recipe.text_field, errors)
    if file.format == WIKIPEDIA:
        return WikipediaDump.open(file.path, errors)
    if file.format == TFDS:
        return DataSet(file.path, recipe.text_field, errors)
    raise ValueError(f"unknown format of documents: {file.format}")


def _split(reader: DocumentReader, document: Document) -> Document:
    sentences = [
        sentence
        for paragraph in reader.paragraphs(document)
        for sentence in split_sentences(paragraph)
    ]
    return dataclasses.replace(document, content=b"", sentences=sentences)


class DocumentSplitter:
    """Splits documents into sentences in worker processes, started on demand.

    With one worker, this process splits them.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._started = contextlib.ExitStack()
        self._pool: WorkerPool | None = None

    def documents(
        self, reader: DocumentReader, start: Position
    ) -> Iterator[Document]:
        """Yields the documents of a file from a position on, split."""
        if self._workers == 1:
            for document in reader.documents(start):
                yield _split(reader, document)
            return
        if self._pool is None:
            self._pool = self._started.enter_context(
                WorkerPool("bert_tf.corpora.reading", None, self._workers)
            )
        pending: collections.deque[concurrent.futures.Future] = (
            collections.deque()
        )

        def results(limit: int) -> Iterator[Document]:
            while len(pending) > limit:
                yield from pending.popleft().result()

        for batch in _batches(reader.documents(start)):
            if isinstance(batch, Exception):
                # Documents before the damaged place are yielded first.
                yield from results(0)
                raise batch
            pending.append(self._pool.submit((reader, batch)))
            yield from results(_BATCHES_PER_WORKER * self._workers - 1)
        yield from results(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._started.close()


def _batches(
    documents: Iterator[Document],
) -> Iterator[list[Document] | Exception]:
    """Yields batches of documents; an error while reading is the last item."""
    batch: list[Document] = []
    size = 0
    failed = None
    try:
        for document in documents:
            batch.append(document)
            size += len(document.content)
            if size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except Exception as error:
        failed = error
    if batch:
        yield batch
    if failed:
        yield failed


def _split_batch(
    task: tuple[DocumentReader, list[Document]],
) -> list[Document]:
    reader, batch = task
    return [_split(reader, document) for document in batch]


if __name__ == "__main__":
    serve(lambda settings: _split_batch)
