"""The documents of files in any format as sentences, in order.

Documents are found in this process and taken apart in worker processes; what
comes out depends on the files alone.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from bert_tf.corpora.data_sets import DataSet
from bert_tf.corpora.json_lines import JsonLines
from bert_tf.corpora.plain_text import PlainText
from bert_tf.corpora.raw_documents import DocumentReader, RawDocument
from bert_tf.corpora.recipe import JSONL, TEXT, TFDS, WIKIPEDIA, CorpusRecipe
from bert_tf.corpora.sentences import split_sentences
from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import Position
from bert_tf.corpora.wikipedia import WikipediaDump
from bert_tf.processes import WorkerPool, serve

# Documents are sent to a worker in batches of about this size.
_BATCH_BYTES = 1 << 18
_BATCHES_UNDER_WAY = 3


@dataclasses.dataclass(frozen=True)
class Document:
    """A document of whole sentences.

    Attributes:
      sentences: without surrounding blanks, none empty.
      line: the line or row of the file that it begins on, counted from 1.
      end: the place after it.
      disk_bytes: bytes of the file that were read up to there.
      cut: whether it was too long and goes on as another one.
    """

    sentences: list[str]
    line: int
    end: Position
    disk_bytes: int
    cut: bool


def reader_of(file: CorpusFile, recipe: CorpusRecipe) -> DocumentReader:
    """The reader for a file of any format but sentences.

    Raises:
      UserError: the file is not what its format says.
    """
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
    """Takes documents apart, in processes that start when they are needed.

    Args:
      workers: how many; with one it is done in this process.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._started = contextlib.ExitStack()
        self._pool: WorkerPool | None = None

    def documents(
        self, reader: DocumentReader, start: Position
    ) -> Iterator[Document]:
        """The documents of a file from a place on, in order.

        Raises:
          UserError: the file is damaged, or a document has no text; that of
            the first such document.
        """
        if self._workers == 1:
            for raw in reader.documents(start):
                yield _document(raw, sentences_of(reader, raw))
            return
        if self._pool is None:
            self._pool = self._started.enter_context(
                WorkerPool("bert_tf.corpora.reading", None, self._workers)
            )
        under_way: collections.deque[
            tuple[list[RawDocument], concurrent.futures.Future]
        ] = collections.deque()
        for batch in _batches(reader.documents(start)):
            if isinstance(batch, Exception):
                # What stands before the damage comes first.
                yield from _answered(under_way, 0)
                raise batch
            future = self._pool.submit((reader, batch))
            under_way.append(([_without_content(raw) for raw in batch], future))
            yield from _answered(
                under_way, _BATCHES_UNDER_WAY * self._workers - 1
            )
        yield from _answered(under_way, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._started.__exit__(kind, error, trace)


def _document(raw: RawDocument, sentences: list[str]) -> Document:
    return Document(sentences, raw.line, raw.end, raw.disk_bytes, raw.cut)


def _without_content(raw: RawDocument) -> RawDocument:
    return dataclasses.replace(raw, content=b"")


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
    under_way: collections.deque[
        tuple[list[RawDocument], concurrent.futures.Future]
    ],
    left: int,
) -> Iterator[Document]:
    """The documents of the oldest batches, until so many batches are left."""
    while len(under_way) > left:
        batch, future = under_way.popleft()
        for raw, sentences in zip(batch, future.result(), strict=True):
            yield _document(raw, sentences)


def _answer(
    question: tuple[DocumentReader, list[RawDocument]],
) -> list[list[str]]:
    reader, batch = question
    return [sentences_of(reader, raw) for raw in batch]


if __name__ == "__main__":
    serve(lambda settings: _answer)
