"""Similarities and exact search, against one pair at a time in float64."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bert_tf.families.data import similarity as module
from bert_tf.families.data.similarity import HAMMING, SIMILARITIES, nearest

RANDOM = np.random.default_rng(0)
QUERIES, CORPUS = (
    RANDOM.normal(size=(count, 11)).astype(np.float32) for count in (6, 90)
)
PAIRWISE = {
    "cosine": lambda a, b: a @ b / np.sqrt((a @ a) * (b @ b)),
    "dot": lambda a, b: a @ b,
    "euclidean": lambda a, b: -np.sqrt(((a - b) ** 2).sum()),
    "manhattan": lambda a, b: -np.abs(a - b).sum(),
}


def matrix(function, queries, corpus):
    queries, corpus = queries.astype(float), corpus.astype(float)
    return np.array([[function(a, b) for b in corpus] for a in queries])


@pytest.mark.parametrize("name", PAIRWISE)
def test_each_similarity_and_the_search_by_it(name, monkeypatch):
    # Near ones, whose distance the difference of squares would lose.
    queries = np.concatenate([QUERIES, CORPUS[:3] * 1.00001])
    expected = matrix(PAIRWISE[name], queries, CORPUS)
    found = SIMILARITIES[name](queries, CORPUS)
    assert found.dtype == np.float32
    assert_allclose(found, expected, atol=2e-6)
    monkeypatch.setattr(module, "_SCORES", 100)
    blocks = np.array_split(CORPUS, [40, 41, 70])
    indices, scores = nearest(queries, blocks, 7, name)
    order = np.argsort(-expected, axis=1)[:, :7]
    assert_array_equal(indices, order)
    best = np.take_along_axis(expected, order, 1)
    assert_allclose(scores, best, atol=2e-6)


def test_bits():
    queries, corpus = QUERIES > 0, CORPUS > 0
    packed = [np.packbits(each, axis=1) for each in (queries, corpus)]
    indices, scores = nearest(packed[0], [packed[1]], 4, HAMMING)
    distances = (queries[:, None] != corpus).sum(-1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :4]
    assert_array_equal(indices, order)
    assert_array_equal(scores, -np.take_along_axis(distances, order, 1))


def test_vectors_that_become_ever_more_similar():
    """Every block exceeds all results before."""
    corpus = np.arange(300, dtype=np.float32)[:, None] // 2
    blocks = np.array_split(corpus, 6)
    indices, _ = nearest(np.ones((2, 1), np.float32), blocks, 3, "dot")
    assert_array_equal(indices, [[298, 299, 296]] * 2)
