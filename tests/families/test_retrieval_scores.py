"""Scores of rankings against sentence-transformers and pytrec_eval."""

import json
import pathlib

import numpy as np
import pytest

from bert_tf.families.data.retrieval_scores import (
    best_first,
    mean_scores,
    ranking_scores,
)

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "ranking"
RECORDED = json.loads((GOLDEN / "retrieval.json").read_text(encoding="utf-8"))


def test_scores_of_two_programs():
    corpus, queries = (np.array(RECORDED[n]) for n in ("corpus", "queries"))
    corpus /= np.linalg.norm(corpus, axis=1, keepdims=True)
    rows = []
    for number, query in enumerate(queries):
        relevance = RECORDED["relevance"][f"q{number}"]
        ranked = best_first(corpus @ query)[:100]
        gains = np.array([relevance.get(f"d{n}", 0.0) for n in ranked])
        relevant = np.array([*relevance.values()], float)
        rows.append((gains, relevant))
    binary = mean_scores(
        ranking_scores(gains.clip(max=1), relevant.clip(max=1))
        for gains, relevant in rows
    )
    assert binary == pytest.approx(RECORDED["sentence_transformers"], abs=1e-12)
    graded = mean_scores(ranking_scores(*row) for row in rows)
    names = ("ndcg@10", "map@100", "recall@10", "precision@10")
    found = [graded[name] for name in names]
    expected = [*RECORDED["pytrec_eval"].values()]
    assert found == pytest.approx(expected, abs=1e-6)
    # The gains matter for nDCG alone.
    different = {name for name in graded if graded[name] != binary[name]}
    assert different == {"ndcg@10"}


def test_a_ranking_without_relevant_documents():
    scores = ranking_scores(np.zeros(3), np.ones(2))
    assert set(scores.values()) == {0.0}
    assert ranking_scores(np.zeros(0), np.ones(2)) == scores


def test_a_cut_ranking():
    # Relevant documents at the ranks 1, 3 and 101, and one that is not ranked.
    gains = np.zeros(120)
    gains[[0, 2, 100]] = 1
    scores = ranking_scores(gains, np.ones(4))
    assert scores["map@100"] == pytest.approx((1 + 2 / 3) / 4)
    scores = ranking_scores(np.ones(120), np.ones(120))
    assert scores["map@100"] == scores["ndcg@10"] == 1
    assert scores["recall@10"] == pytest.approx(10 / 120)


def test_ties_keep_their_order():
    assert best_first([1.0, 3.0, 1.0, 3.0]).tolist() == [1, 3, 0, 2]
