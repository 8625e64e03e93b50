"""Scores the search of a model for relevant documents, beside BM25."""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.checkpoints.sentence_modules import DOCUMENT_PROMPTS, first_prompt
from bert_tf.errors import UserError, check_choice, whole_number
from bert_tf.families.data.bm25 import Bm25
from bert_tf.families.data.retrieval_scores import (
    MAP_AT,
    NDCG_AT,
    best_first,
    mean_scores,
    ranking_scores,
)
from bert_tf.families.data.similarity import COSINE, SIMILARITIES, nearest
from bert_tf.families.pretrained.settings import Settings
from bert_tf.files import write_text
from bert_tf.inference.load import LoadedModel, load
from bert_tf.inference.rank import (
    is_cross_encoder,
    pair_scores,
    require_cross_encoder,
)
from bert_tf.inference.retrieval_data import (
    RetrievalData,
    note_missing,
    read_retrieval,
    texts_at,
)
from bert_tf.inference.vectors import open_model, text_vectors
from bert_tf.progress import Progress
from bert_tf.tables.writing import to_json

RANKINGS_FILE = "rankings.jsonl"
BM25 = "BM25"
# Documents of each ranking; no score looks further.
_TOP_K = MAP_AT
# Of each block of documents, as many queries are compared with as many
# documents for the histogram of other pairs.
_SAMPLED = 32
_MAIN = f"ndcg@{NDCG_AT}"


class Rankings(NamedTuple):
    """The best documents of each query, by index in the corpus, best first."""

    indices: list[np.ndarray]
    scores: list[np.ndarray]


class Retrieval(NamedTuple):
    """The scores of rankings.

    Attributes:
      data: the name of the data.
      num_queries: Q.
      num_documents: N.
      scores: by ranking, BM25 first, and by score; see `ranking_scores`.
    """

    data: str
    num_queries: int
    num_documents: int
    scores: dict[str, dict[str, float]]

    def table(self) -> str:
        """Formats the scores x 100 as a table, a column per ranking."""
        names = [*next(iter(self.scores.values()))]
        width = max(map(len, [self.data, *names]))
        lines = ["  ".join([self.data.ljust(width), *self.scores])]
        for name in names:
            cells = [
                f"{100 * scores[name]:.2f}".rjust(len(ranking))
                for ranking, scores in self.scores.items()
            ]
            lines.append("  ".join([name.ljust(width), *cells]))
        return "\n".join(lines)


def evaluate_retrieval(
    model: str | os.PathLike | LoadedModel,
    data: str | os.PathLike,
    output_dir: str | os.PathLike | None = None,
    *,
    split: str = "test",
    reranker: str | os.PathLike | LoadedModel | None = None,
    num_reranked: int = _TOP_K,
    num_queries: int = 0,
    ignore_identical_ids: bool = False,
) -> Retrieval:
    """Ranks a corpus for each query, and scores the rankings.

        found = bert_tf.evaluate_retrieval("hub/minilm", "beir/scifact")
        found.scores["minilm"]["ndcg@10"]

    The corpus is read as a stream and compared with all queries block by block,
    exactly. The vectors are those of `encode_query` and `encode_document`, and
    their similarity is the model's. The baseline without a model is `Bm25`.

    Args:
      model: a model of vectors, a folder or loaded.
      data: a folder in BEIR's layout or a JSON file in SQuAD's; see
        `read_retrieval`.
      output_dir: takes report.html, report.json with the scores, and
        rankings.jsonl, the best documents of each query by the last ranking.
      split: the file in qrels.
      reranker: a cross-encoder that ranks the first documents again.
      num_reranked: the documents of each query that it ranks, at most 100.
      num_queries: scores only so many queries, drawn with a fixed seed; 0 for
        all.
      ignore_identical_ids: whether a document with the name of the query is
        left out of its ranking, as BEIR and MTEB do.

    Raises:
      UserError: the data are malformed or empty, or a model is of another kind.
    """
    whole_number("num_reranked", num_reranked, 1, _TOP_K)
    whole_number("num_queries", num_queries, 0)
    opened, cross_encoder = (
        each if each is None or isinstance(each, LoadedModel) else load(each)
        for each in (model, reranker)
    )
    assert opened is not None
    if cross_encoder is not None:
        require_cross_encoder(cross_encoder)
    if is_cross_encoder(opened):
        raise UserError(
            f"{opened.folder}: scores pairs and computes no vectors to search "
            "by; give it as `reranker`, with a model of vectors."
        )
    read = read_retrieval(data, split).sampled(num_queries)
    search = _Search(opened, read, ignore_identical_ids)
    name, second = map(_name, (model, reranker))
    rankings = {BM25: search.by_words(), name: search.best}
    if cross_encoder is not None:
        name = f"{name} + {second}"
        rankings[name] = _reranked(
            cross_encoder, read, search.best, num_reranked
        )
    rows = {name: search.scored(found) for name, found in rankings.items()}
    means = {name: mean_scores(found) for name, found in rows.items()}
    retrieval = Retrieval(
        read.name, len(read.queries), len(search.names), means
    )
    if output_dir is not None:
        last = [*rankings][-1]
        _write(
            *(pathlib.Path(output_dir), retrieval, search),
            *(rankings[last], rows[last]),
        )
    return retrieval


def _name(model: str | os.PathLike | LoadedModel | None) -> str:
    """Returns what a model is called in tables."""
    place = model.folder if isinstance(model, LoadedModel) else model
    return pathlib.PurePath(place or "").name


class _Search:
    """Reads the corpus once, for the rankings of a model and of BM25.

    Args:
      model: the model of vectors.
      data: the queries and the corpus.
      ignore_identical_ids: see `evaluate_retrieval`.

    Attributes:
      names: index to name of the documents.
      similarity: the name of the model's similarity.
      best: the rankings of the model.
      relevant, others: similarities of queries with relevant documents, and
        with a sample of the others.
    """

    def __init__(
        self,
        model: LoadedModel,
        data: RetrievalData,
        ignore_identical_ids: bool,
    ):
        self.data = data
        modules = model.served.modules
        self.similarity = (modules.similarity if modules else None) or COSINE
        place = f"{model.folder}: similarity_fn_name"
        check_choice(place, self.similarity, SIMILARITIES)
        self.names: list[str] = []
        self.relevant: list[float] = []
        self.others: list[float] = []
        self._skips_own = ignore_identical_ids
        self._num_compared = 0
        self._bm25 = Bm25(data.queries)
        self._queries = model.encode_query(data.queries)
        # The queries of each relevant document.
        self._asking: dict[str, list[int]] = {}
        for number, gains in enumerate(data.relevance):
            for name in gains:
                self._asking.setdefault(name, []).append(number)
        indices, scores = nearest(
            self._queries, self._blocks(model), self._most, self.similarity
        )
        if not self.names:
            raise UserError(f"{data.name}: the corpus has no documents.")
        # Of a small corpus, a ranking ends with places without documents.
        self.best = Rankings([], [])
        for number, (row, found) in enumerate(
            zip(indices, scores, strict=True)
        ):
            self._add(self.best, number, row[found > -np.inf], found)
        note_missing(data, {name: n for n, name in enumerate(self.names)})

    @property
    def _most(self) -> int:
        return _TOP_K + self._skips_own

    def _add(
        self,
        rankings: Rankings,
        query: int,
        indices: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        """Appends the ranking of a query, without the query itself."""
        scores = scores[: len(indices)]
        if self._skips_own:
            own = self.data.identifiers[query]
            is_other = [self.names[index] != own for index in indices]
            indices, scores = indices[is_other], scores[is_other]
        rankings.indices.append(indices[:_TOP_K])
        rankings.scores.append(scores[:_TOP_K])

    def _blocks(self, model: LoadedModel) -> Iterator[np.ndarray]:
        """Yields the vectors of the documents in blocks."""
        prompt = first_prompt(model.served.modules, DOCUMENT_PROMPTS)
        settings = Settings(batch_size=model.batch_size, prompt_name=prompt)
        opened = open_model(model, settings)
        random = np.random.default_rng(0)
        with Progress("reading the corpus", 0, 0, " documents") as progress:
            for chunk in text_vectors(opened, self._texts(), progress.update):
                vectors = chunk.vectors[:, 0]
                begin = self._num_compared
                self._compare(vectors, begin, random)
                self._num_compared += len(vectors)
                yield vectors

    def _texts(self) -> Iterator[str]:
        """Yields the texts of the documents, and indexes their words."""
        for name, text in self.data.corpus():
            self.names.append(name)
            self._bm25.add(text)
            yield text

    def _compare(
        self, vectors: np.ndarray, begin: int, random: np.random.Generator
    ) -> None:
        """Collects similarities of relevant and of other pairs of a block."""
        compute = SIMILARITIES[self.similarity]
        for number, vector in enumerate(vectors, start=begin):
            asking = self._asking.get(self.names[number], ())
            if asking:
                found = compute(self._queries[asking], vector[None])
                self.relevant += found[:, 0].tolist()
        queries, documents = (
            random.permutation(size)[:_SAMPLED]
            for size in (len(self._queries), len(vectors))
        )
        found = compute(self._queries[queries], vectors[documents])
        self.others += [
            float(found[i, k])
            for i, query in enumerate(queries)
            for k, document in enumerate(documents)
            if self.names[begin + document] not in self.data.relevance[query]
        ]

    def by_words(self) -> Rankings:
        """Returns the rankings of BM25."""
        rankings = Rankings([], [])
        for number in range(len(self.data.queries)):
            found = self._bm25.best(number, self._most)
            self._add(rankings, number, *found)
        return rankings

    def scored(self, rankings: Rankings) -> list[dict[str, float]]:
        """Returns the scores of each query's ranking."""
        return [
            ranking_scores(
                np.array([gains.get(self.names[n], 0.0) for n in indices]),
                np.array([*gains.values()]),
            )
            for indices, gains in zip(
                rankings.indices, self.data.relevance, strict=True
            )
        ]


def _reranked(
    model: LoadedModel, data: RetrievalData, rankings: Rankings, most: int
) -> Rankings:
    """Ranks the first documents of each ranking by a cross-encoder."""
    first = [indices[:most] for indices in rankings.indices]
    texts = texts_at(data, {n for row in first for n in row.tolist()})
    places = {number: place for place, number in enumerate(texts)}
    pairs = np.array(
        [
            (query, places[number])
            for query, row in enumerate(first)
            for number in row.tolist()
        ],
        np.int64,
    )
    with Progress("reranking", len(pairs), 0, " pairs") as progress:
        scores = pair_scores(
            model, data.queries, [*texts.values()], pairs, progress
        )
    found = Rankings([], [])
    ends = np.cumsum([len(row) for row in first])[:-1]
    for row, own in zip(first, np.split(scores, ends), strict=True):
        order = best_first(own)
        found.indices.append(row[order])
        found.scores.append(own[order])
    return found


def _write(
    folder: pathlib.Path,
    retrieval: Retrieval,
    search: _Search,
    rankings: Rankings,
    rows: Sequence[Mapping[str, float]],
) -> None:
    """Writes the report and the last rankings, of which `rows` are the scores.

    Raises:
      UserError: a library is not installed.
    """
    # Imported where a report is written.
    from bert_tf.inference.retrieval_report import write_report

    folder.mkdir(parents=True, exist_ok=True)
    data = search.data
    lines = [
        {
            "query_id": identifier,
            "results": [
                {"corpus_id": search.names[n], "score": float(score)}
                for n, score in zip(indices, scores, strict=True)
            ],
        }
        for identifier, indices, scores in zip(
            data.identifiers, *rankings, strict=True
        )
    ]
    write_text(folder / RANKINGS_FILE, to_json(lines).decode())
    index_of = {name: n for n, name in enumerate(search.names)}
    order = sorted(range(len(rows)), key=lambda n: rows[n][_MAIN])
    wrong = [n for n in order if rows[n][_MAIN] < 1]
    worst: list[dict[str, Any]] = []
    for number in wrong:
        gains, ranked = data.relevance[number], rankings.indices[number]
        names = [search.names[n] for n in ranked]
        ranks = [k for k, name in enumerate(names, start=1) if name in gains]
        best = max(gains, key=gains.__getitem__)
        worst.append(
            {
                "query_id": data.identifiers[number],
                _MAIN: rows[number][_MAIN],
                "rank": ranks[0] if ranks else None,
                "relevant_documents": len(gains),
                "query": data.queries[number],
                "relevant": index_of.get(best),
                "first": int(ranked[0]) if len(ranked) else None,
            }
        )
    write_report(
        folder,
        retrieval,
        search.similarity,
        (np.array(search.relevant), np.array(search.others)),
        worst,
        lambda indices: texts_at(data, indices),
    )
