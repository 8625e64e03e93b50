"""Queries, a corpus and relevant documents, in BEIR's layout or SQuAD's."""

import itertools
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.progress import log
from bert_tf.tables.table import Row, Table

_QUERIES, _CORPUS, _QRELS = "queries", "corpus", "qrels"
# The columns of qrels, as BEIR names them.
_QRELS_COLUMNS = ("query-id", "corpus-id", "score")
_LAYOUT = (
    "BEIR's layout is queries.jsonl, corpus.jsonl and qrels/test.tsv; a .json "
    "file is read as SQuAD's"
)


class RetrievalData(NamedTuple):
    """Queries whose relevant documents are to be found in a corpus.

    Attributes:
      name: of the data.
      identifiers: the names of Q queries.
      queries: their texts.
      relevance: of each query the gains of its relevant documents, above 0, by
        the documents' names.
      corpus: yields the name and text of each document, from the beginning at
        every call.
    """

    name: str
    identifiers: list[str]
    queries: list[str]
    relevance: list[dict[str, float]]
    corpus: Callable[[], Iterator[tuple[str, str]]]

    def sampled(self, number: int) -> "RetrievalData":
        """Returns the data with so many queries, drawn with a fixed seed."""
        if not 0 < number < len(self.queries):
            return self
        random = np.random.default_rng(0)
        chosen = sorted(random.permutation(len(self.queries))[:number].tolist())
        return self._replace(
            identifiers=[self.identifiers[n] for n in chosen],
            queries=[self.queries[n] for n in chosen],
            relevance=[self.relevance[n] for n in chosen],
        )


def read_retrieval(
    data: str | os.PathLike, split: str = "test"
) -> RetrievalData:
    """Reads a folder in BEIR's layout, or the questions of a SQuAD file.

    queries and corpus have _id and text, the corpus perhaps title, which
    precedes the text; qrels/SPLIT has query-id, corpus-id and score. Documents
    with a score above 0 are relevant, and queries without any are left out.
    They are JSON lines, or other tables. Of SQuAD's file the documents are its
    different paragraphs, and that of an answerable question is relevant to it.

    Raises:
      UserError: a file is missing or malformed, or names an unknown query or
        one name twice.
    """
    path = pathlib.Path(data)
    if path.is_file():
        return _read_squad(path)
    files = {
        _QUERIES: _only(path, _QUERIES),
        _CORPUS: _only(path, _CORPUS),
        _QRELS: _only(path / _QRELS, split),
    }
    relevance: dict[str, dict[str, float]] = {}
    rows: dict[str, Row] = {}
    for row in Table(files[_QRELS]).read(_QRELS_COLUMNS):
        query, document, cell = map(str, row.cells)
        try:
            gain = float(cell)
        except ValueError:
            gain = np.nan
        if not np.isfinite(gain):
            raise UserError(
                f"{row.place}: the score is {excerpt(cell)}; it takes a "
                "number, 0 for documents that are not relevant."
            )
        if gain > 0:
            relevance.setdefault(query, {})[document] = gain
            rows.setdefault(query, row)
    if not relevance:
        raise UserError(
            f"{files[_QRELS]}: no document has a score above 0, so no query "
            "can be scored."
        )
    queries: dict[str, str] = {}
    for identifier, text in _texts(files[_QUERIES]):
        if identifier in relevance:
            queries[identifier] = text
    for query, row in rows.items():
        if query not in queries:
            raise UserError(
                f"{row.place}: the query {query!r} is not in "
                f"{files[_QUERIES]}; add it, or remove the row."
            )
    return RetrievalData(
        f"{path.name}, {split}",
        [*queries],
        [*queries.values()],
        [relevance[query] for query in queries],
        lambda: _texts(files[_CORPUS], "title"),
    )


def _only(folder: pathlib.Path, name: str) -> str:
    """Returns the path of the one file of a name, whatever its format."""
    found = sorted(folder.glob(f"{name}.*"))
    if len(found) != 1:
        raise UserError(
            f"{folder}: has {len(found)} files {name}.*; it takes one. "
            f"{_LAYOUT}."
        )
    return str(found[0])


def _texts(path: str, title: str = "") -> Iterator[tuple[str, str]]:
    """Yields the name and text of each row of a table, as it is read."""
    seen: set[str] = set()
    for row in Table(path).rows(["_id", "text"], [title] if title else []):
        if row.fault:
            raise row.fault
        identifier, *parts = (str(cell or "") for cell in row.cells)
        if identifier in seen:
            raise UserError(
                f"{row.place}: the _id {identifier!r} occurs twice; make them "
                "different."
            )
        seen.add(identifier)
        # BEIR, `DenseRetrievalExactSearch`: the title, a blank and the text.
        yield identifier, " ".join(parts[::-1]).strip()


def _read_squad(path: pathlib.Path) -> RetrievalData:
    # Most data are in BEIR's layout.
    from bert_tf.families.question_answering.squad_files import read_questions

    every = read_questions(
        str(path), answers_needed=False, unique_identifiers=False
    )
    questions = [each for each in every if not each.is_impossible]
    numbers = {
        context: str(number)
        for number, context in enumerate(
            dict.fromkeys(question.context for question in every)
        )
    }
    return RetrievalData(
        path.name,
        [question.identifier for question in questions],
        [question.question for question in questions],
        [{numbers[question.context]: 1.0} for question in questions],
        lambda: iter([(name, text) for text, name in numbers.items()]),
    )


def texts_at(data: RetrievalData, indices: set[int]) -> dict[int, str]:
    """Returns the texts of some documents of the corpus by their indices."""
    last = max(indices, default=-1)
    rows = itertools.islice(data.corpus(), last + 1)
    return {
        number: text
        for number, (_, text) in enumerate(rows)
        if number in indices
    }


def note_missing(data: RetrievalData, known: dict[str, int]) -> None:
    """Logs how many relevant documents the corpus lacks."""
    missing = {
        name for gains in data.relevance for name in gains if name not in known
    }
    if missing:
        log(
            f"{data.name}: {len(missing):,} relevant documents, such as "
            f"{min(missing)!r}, are not in the corpus; they count as not found."
        )
