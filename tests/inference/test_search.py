"""The nearest vectors, compared with a plain sort of all cosines."""

import subprocess
import sys

import numpy as np
import pytest

from bert_tf.families.data import similarity
from bert_tf.inference import corpus as corpus_file
from bert_tf.inference.embed import embed
from bert_tf.inference.quantized_vectors import quantize
from bert_tf.inference.search import search
from tests.families.pretrained.extraction_models import save_model, some_texts
from tests.frames import Frame
from tests.user_errors import error_of


def vectors(count, width=5, seed=0):
    random = np.random.default_rng(seed)
    # Whole numbers, so that several are equal.
    return random.integers(-1, 2, (count, width)).astype(np.float32)


def floats(count, seed, width=19):
    random = np.random.default_rng(seed)
    return random.normal(size=(count, width)).astype(np.float32)


def cosines(queries, corpus):
    """In float64, one pair at a time."""
    found = np.zeros((len(queries), len(corpus)))
    for i, query in enumerate(queries.astype(float)):
        for j, row in enumerate(corpus.astype(float)):
            lengths = np.sqrt(query @ query) * np.sqrt(row @ row)
            found[i, j] = query @ row / lengths if lengths else 0.0
    return found


@pytest.mark.parametrize("rows", [7, 64, 1000])
@pytest.mark.parametrize("top_k", [1, 10, 500])
def test_the_best_of_all(rows, top_k, monkeypatch):
    for module in (similarity, corpus_file):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", rows)
    monkeypatch.setattr(similarity, "_SCORES", 300)
    queries, corpus = vectors(23), vectors(150, seed=1)
    places, scores = search(queries, corpus, top_k)
    everything = cosines(queries, corpus)
    # Of equal ones the first in the corpus.
    order = np.argsort(-everything.round(5), axis=1, kind="stable")[:, :top_k]
    best = np.take_along_axis(everything, order, 1)
    np.testing.assert_allclose(scores, best, atol=1e-6)
    same = np.take_along_axis(everything, places, 1)
    np.testing.assert_allclose(scores, same, atol=1e-6)
    assert all(len(set(row)) == min(top_k, 150) for row in places.tolist())
    assert (np.diff(scores, axis=1) <= 0).all()


def test_equal_ones_stand_in_the_order_of_the_corpus(monkeypatch):
    for module in (similarity, corpus_file):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 4)
    places, _ = search(np.ones((2, 3)), np.ones((11, 3)), 6)
    assert places.tolist() == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_bytes_are_compared_as_what_they_stand_for(precision, name):
    queries, corpus = floats(5, seed=2), floats(60, seed=3)
    ranges = corpus.min(0), corpus.max(0)
    packed = quantize(corpus, precision, np.stack(ranges))
    indices, scores = search(
        *(queries, packed, 9),
        similarity=name,
        precision=precision,
        calibration=corpus,
    )
    step = (ranges[1] - ranges[0]) / 255
    levels = packed.astype(int) + (128 if precision == "int8" else 0)
    vectors = (ranges[0] + step * (levels + 0.5)).astype(np.float32)
    # Half a step at most, beside rounding.
    assert (abs(vectors - corpus) <= step * 0.51).all()
    expected = search(queries, vectors, 9, similarity=name)
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_allclose(scores, expected[1], atol=1e-5)


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_candidates_by_bits_are_rescored_by_the_query(precision, monkeypatch):
    for module in (similarity, corpus_file):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 32)
    queries, corpus = floats(5, seed=2), floats(300, seed=3)
    packed = quantize(corpus, precision)
    indices, scores = search(queries, packed, 3, precision=precision)
    signs = np.where(corpus > 0, 1.0, -1.0)
    distances = (np.sign(queries)[:, None] != signs).sum(-1)
    expected = cosines(queries, signs)
    for query in range(5):
        near = np.argsort(distances[query], kind="stable")[:12]
        best = near[np.argsort(-expected[query, near], kind="stable")[:3]]
        np.testing.assert_array_equal(indices[query], best)
        np.testing.assert_allclose(
            scores[query], expected[query, best], atol=1e-6
        )
    one = search(queries[1], packed, 3, precision=precision)
    np.testing.assert_array_equal(one[0], indices[1])


def test_large_numbers_are_finite():
    corpus = np.float32([[1e30, 0], [0, 1e-30]])
    indices, scores = search([0, 1], corpus, 1, similarity="dot")
    assert (indices.tolist(), scores.tolist()) == ([1], [np.float32(1e-30)])


def test_texts_with_a_model(tmp_path, eagerly):
    folder = save_model(tmp_path / "m")
    corpus = some_texts(12)
    queries = [corpus[7], corpus[2]]
    places, scores = search(queries, corpus, 1, model=folder)
    np.testing.assert_allclose(scores, 1, atol=1e-5)
    assert [corpus[place] for place in places[:, 0]] == queries
    # Vectors that were made before.
    again, _ = search(queries, embed(folder, corpus), 1, model=folder)
    np.testing.assert_array_equal(again, places)
    # One text is one row, as `embed` gives one vector.
    for one in (queries[0], embed(folder, queries[0])):
        place, score = search(one, corpus, 1, model=folder)
        np.testing.assert_array_equal(place, places[0])
        np.testing.assert_allclose(score, scores[0], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ((vectors(2), vectors(3, 4)), "`queries` are 5 wide and `corpus` is 4"),
        ((vectors(2)[None], vectors(3)), "`queries` is array("),
        ((vectors(2), []), "`corpus` is []; give a matrix"),
        ((vectors(2), [[1.0], [2.0, 3.0]]), "`corpus` is [[1.0], [2.0, 3.0]]"),
        ((vectors(2), 5), "`corpus` is 5; give a matrix of numbers"),
        ((["a"], vectors(2)), "`queries` is ['a'], text; give `model`"),
        (("a", vectors(2)), "`queries` is 'a', text; give `model`, which"),
        ((b"a", vectors(2)), "`queries` is one string, b'a'; give a list"),
        ((vectors(2), {"a": [1]}), "`corpus` is a mapping with the keys 'a'"),
        (
            (Frame({"a": ["x"], "b": ["y"]}), vectors(2)),
            "`queries` is a table with the columns a, b; give one column",
        ),
        ((vectors(2), vectors(3) + [[0], [np.nan], [0]]), "`corpus`[1] holds"),
        ((vectors(2), vectors(3), 0), "`top_k`=0: give a whole number"),
        ((vectors(2), vectors(3), 1.5), "`top_k`=1.5: give a whole number"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments, start):
    assert error_of(search, *arguments).startswith(start)


@pytest.mark.parametrize(
    ("corpus", "settings", "start"),
    [
        (floats(3, 0), {"similarity": "angle"}, "`similarity`='angle': takes"),
        (floats(3, 0), {"precision": "int4"}, "`precision`='int4': takes one"),
        (floats(3, 0), {"precision": "int8"}, "`corpus` is array("),
        (np.int8([[]]), {"precision": "binary"}, "`corpus` is 0 wide, and `qu"),
        (np.int8([]), {"precision": "binary"}, "`corpus` is array([], dtype="),
        (np.zeros((2, 19), np.int8), {"precision": "int8"}, "`calibration` is"),
        (
            np.zeros((2, 4), np.uint8),
            {"precision": "ubinary"},
            "`corpus` is 4 wide, and `queries` are 19, which `precision`=",
        ),
    ],
)
def test_quantized_vectors_that_are_refused(corpus, settings, start):
    line = error_of(search, floats(2, 1), corpus, **settings)
    assert line.startswith(start)


def test_vectors_need_numpy_alone():
    code = (
        "import sys, bert_tf, numpy; "
        "bert_tf.search(numpy.ones((1, 2)), numpy.ones((3, 2))); "
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
