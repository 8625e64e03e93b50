"""The report of a retrieval: scores, similarities and the worst queries."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.files import write_text
from bert_tf.report.answer_sections import (
    MISTAKES,
    mistakes_section,
    similarity_section,
)
from bert_tf.report.formats import score, words
from bert_tf.report.render import REPORT_FILE, write_page
from bert_tf.report.sections import (
    Column,
    Page,
    ReportTable,
    Section,
    merged_numbers,
)
from bert_tf.report.texts import MarkedText

if TYPE_CHECKING:
    from bert_tf.inference.retrieval import Retrieval

_FACTS = ("query_id", "ndcg@10", "rank", "relevant_documents")


def write_report(
    folder: pathlib.Path,
    retrieval: "Retrieval",
    similarity: str,
    similarities: tuple[np.ndarray, np.ndarray],
    worst: Sequence[dict[str, Any]],
    texts_at: Callable[[set[int]], Mapping[int, str]],
) -> None:
    """Writes report.html and report.json.

    Args:
      folder: takes them.
      retrieval: the scores.
      similarity: the name of the similarity.
      similarities: those of relevant and of other pairs.
      worst: the queries that are not answered perfectly, the worst first, with
        the indices of a "relevant" and of the "first" document, or None.
      texts_at: returns documents by their indices.

    Raises:
      UserError: a library is not installed.
    """
    keys = ("relevant", "first")
    shown = worst[:MISTAKES]
    texts = texts_at(
        {each[key] for each in shown for key in keys if each[key] is not None}
    )
    rows = [
        each | {key: texts.get(each[key]) for key in keys} for each in shown
    ]
    names = next(iter(retrieval.scores.values()))
    table = ReportTable(
        "Scores x 100",
        [
            {"score": words(name)}
            | {key: each[name] for key, each in retrieval.scores.items()}
            for name in names
        ],
        columns=[
            Column("score", "Score"),
            *(
                Column(ranking, ranking, lambda value: score(value, 100))
                for ranking in retrieval.scores
            ),
        ],
        note="Means over the queries. nDCG has linear gains, as in BEIR; all "
        "other scores take every document with a gain as relevant. BM25 "
        "compares words in lower case, without stemming, with k1 = 0.9 and "
        "b = 0.4, as BEIR's baseline.",
    )
    sections = [
        Section(
            "scores",
            "How well are relevant documents found?",
            [table],
            {"scores": retrieval.scores},
        ),
        similarity_section(
            *similarities,
            similarity,
            "The others are a sample of all pairs of a query and a document.",
        ),
        mistakes_section(
            [*rows, *worst[len(rows) :]],
            retrieval.num_queries,
            "queries, the lowest nDCG@10 of the last ranking first. A query "
            "without a rank has no relevant document among the first 100",
            _FACTS,
            lambda row: [
                MarkedText(row[key] or "", label)
                for key, label in (
                    ("query", "query"),
                    ("relevant", "relevant"),
                    ("first", "ranked first"),
                )
            ],
        ),
    ]
    facts = {
        "queries": retrieval.num_queries,
        "documents": retrieval.num_documents,
    }
    text = json.dumps(
        {"data": retrieval.data, **facts, **merged_numbers(sections)}
    )
    write_text(folder / "report.json", text + "\n")
    title = f"Retrieval: {retrieval.data}"
    write_page(folder / REPORT_FILE, Page(title, facts, sections))
