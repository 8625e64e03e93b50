"""Ranks documents by the scores of a cross-encoder for a query."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, whole_number
from bert_tf.families.data.retrieval_scores import best_first
from bert_tf.families.rows import batches_by_length
from bert_tf.families.text_classification.answers import (
    SentenceModel,
    text_answers,
    text_rows,
)
from bert_tf.families.text_classification.config import REGRESSION
from bert_tf.files import STANDARD_STREAM, check_output, open_output
from bert_tf.inference.cells import check_text
from bert_tf.inference.load import LoadedModel
from bert_tf.progress import Progress
from bert_tf.side_by_side import side_by_side
from bert_tf.tables.list_cells import entries_of
from bert_tf.tables.table import (
    TXT,
    Dialect,
    Table,
    existing_files,
    known_format,
    text_of,
)
from bert_tf.tables.writing import JSONL, to_json
from bert_tf.text.given_texts import members
from bert_tf.text.layout import HOST, pack_rows, take, tokenize

# At most this many pairs are sorted by length together.
_PAIRS = 1 << 14
Ranking = list[dict[str, Any]]


def is_cross_encoder(model: LoadedModel) -> bool:
    """Whether a model scores pairs of texts by a number."""
    served = model.served
    return isinstance(served, SentenceModel) and (
        (served.usage.label_kind, served.usage.num_texts) == (REGRESSION, 2)
    )


def require_cross_encoder(model: LoadedModel) -> None:
    """Raises `UserError` unless a model scores pairs of texts by a number."""
    if is_cross_encoder(model):
        return
    if model.served.modules is not None:
        raise UserError(
            f"{model.folder}: computes a vector of each text and no score of "
            "pairs; compare vectors with bert_tf.search, or with `similarity` "
            "of the loaded model."
        )
    advice = ""
    if model.served.task == "text regression":
        advice = " Load it with `task`=text_pair_regression if it is one."
    raise UserError(
        f"{model.folder}: is a model of {model.served.task}; documents are "
        "ranked by a cross-encoder, a classifier of pairs with one output, as "
        f"`task`=ranking trains.{advice}"
    )


def pair_scores(
    model: LoadedModel,
    queries: Sequence[str],
    documents: Sequence[str],
    pairs: np.ndarray,
    progress: Progress | None = None,
) -> np.ndarray:
    """Scores pairs of queries and documents, each tokenized once.

    Args:
      model: a cross-encoder; see `require_cross_encoder`.
      queries: Q queries.
      documents: N documents.
      pairs: int [P, 2], the query and the document of each pair.
      progress: is advanced by each pair.

    Returns:
      float32 [P].

    Raises:
      UserError: a score is not finite.
    """
    served: Any = model.served
    with tf.device(HOST):
        texts = [
            tokenize(served.tokenizer, list(each))
            for each in (queries, documents)
        ]
    scores = np.empty(len(pairs), np.float32)
    for begin in range(0, len(pairs), _PAIRS):
        part = slice(begin, begin + _PAIRS)
        with tf.device(HOST):
            chosen = tf.constant(pairs[part], tf.int32)
            packing = served.tokenizer.packing
            example, first, second = text_rows(
                [take(each, chosen[:, i]) for i, each in enumerate(texts)],
                packing,
                served.usage,
            )
            rows = pack_rows(first, second, packing)
            lengths = rows.lengths.numpy()
        batches = list(batches_by_length(lengths, model.batch_size))

        def compute(
            chosen: np.ndarray, rows: Any = rows, lengths: Any = lengths
        ) -> np.ndarray:
            with tf.device(HOST):
                inputs = rows.batch(chosen, int(lengths[chosen[0]]))
            with tf.device(model.device):
                return served.compiled_logits(inputs).numpy()

        logits = np.empty((len(lengths), 1), np.float32)
        results = side_by_side(compute, batches)
        for chosen, found in zip(batches, results, strict=True):
            logits[chosen] = found
            if progress:
                progress.update(len(chosen))
        # The windows of a pair.
        means = tf.math.segment_mean(logits, example)
        answers = text_answers(means, served.usage, served.activation)
        scores[part] = answers["score"].numpy()
    if not np.isfinite(scores).all():
        raise UserError(
            f"{model.folder}: the score of a pair is not finite; the model "
            "needs `precision`=float32."
        )
    return scores


def rank(
    model: LoadedModel,
    query: str,
    documents: Iterable[str],
    top_k: int | None = None,
) -> Ranking:
    """Ranks the documents of a query; see `LoadedModel.rank`."""
    require_cross_encoder(model)
    texts = [
        check_text(each, f"`documents`[{number}]")
        for number, each in enumerate(members(documents, "`documents`"))
    ]
    if not texts:
        raise UserError("`documents`: is empty; give at least one text.")
    ((_, ranking),) = _rankings(
        model, [(check_text(query, "`query`"), texts)], top_k
    )
    return ranking


def _rankings(
    model: LoadedModel,
    rows: Sequence[tuple[str, Sequence[str]]],
    top_k: int | None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, Ranking]]:
    """Yields queries with their documents, ranked, from one sorted batch."""
    if top_k is not None:
        top_k = whole_number("top_k", top_k, 1)
    queries = [query for query, _ in rows]
    documents = [text for _, texts in rows for text in texts]
    counts = [len(texts) for _, texts in rows]
    pairs = np.stack(
        [np.repeat(np.arange(len(rows)), counts), np.arange(len(documents))],
        axis=1,
    )
    scores = pair_scores(model, queries, documents, pairs, progress)
    ends = np.cumsum(counts)[:-1]
    for (query, texts), found in zip(rows, np.split(scores, ends), strict=True):
        yield (
            query,
            [
                {"corpus_id": n, "score": float(found[n]), "text": texts[n]}
                for n in best_first(found)[:top_k].tolist()
            ],
        )


def rank_file(
    model: LoadedModel,
    source: str,
    output: str | os.PathLike,
    query: str = "",
    query_column: str = "query",
    document_column: str = "",
    top_k: int | None = None,
) -> str:
    """Ranks the documents of a file, or those of each of its rows.

    Args:
      model: a cross-encoder.
      source: a table, see `Table`; or with `query` a text file, of a document
        per line.
      output: a .jsonl file; "-" is standard output. With `query`, a line is a
        document, best first, with corpus_id, its row from 0, score and text;
        without, a line is a row with its query and the ranking as results.
      query: a query whose documents are the rows of the file; empty takes
        queries and lists of documents from the rows.
      query_column: the column of the queries.
      document_column: the column of a document, or of lists of them; empty is
        text, or documents for lists.
      top_k: number of documents that are written; None for all.

    Returns:
      A summary line.

    Raises:
      UserError: the model is no cross-encoder, a file cannot be read or
        written, or a row has no text.
    """
    require_cross_encoder(model)
    files = existing_files(source, "input")
    if str(output) != STANDARD_STREAM:
        check_output(output, (JSONL,), files)
    is_text = query and not known_format(files[0])
    table = Table(source, Dialect(TXT if is_text else ""))
    column = document_column or ("text" if query else "documents")
    count = 0
    progress = Progress("ranking", 0, 0, " documents", passing=True)
    with progress, open_output(output) as file:
        if query:
            texts = [
                _text(row.cells[0], column, row.place)
                for row in table.read([column])
            ]
            count = len(texts)
            group = [(query, texts)]
            for _, ranking in _rankings(model, group, top_k, progress):
                file.write(to_json(ranking))
        else:
            for rows in _groups(table, query_column, column):
                count += sum(len(texts) for _, texts in rows)
                for text, ranking in _rankings(model, rows, top_k, progress):
                    file.write(to_json([{"query": text, "results": ranking}]))
    return f"{output}: {count:,} documents ranked."


def _groups(
    table: Table, query_column: str, column: str
) -> Iterator[list[tuple[str, Sequence[str]]]]:
    """Yields the queries and documents of rows, some thousands at a time."""
    group: list[tuple[str, Sequence[str]]] = []
    size = 0
    for row in table.rows([query_column, column]):
        if row.fault:
            raise row.fault
        query, cell = row.cells
        documents = entries_of(cell)
        if not documents:
            raise UserError(
                f"{row.place}: {column!r} holds no list of documents; give "
                "one, or a `query` for all rows."
            )
        group.append((_text(query, query_column, row.place), documents))
        size += len(documents)
        if size >= _PAIRS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _text(cell: Any, column: str, place: str) -> str:
    """Returns the text of a cell; raises `UserError` if there is none."""
    text = text_of(cell, column, place)
    if not text.strip():
        raise UserError(
            f"{place}: the text in {column!r} is empty; correct the row."
        )
    return text
