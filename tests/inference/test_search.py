"""The nearest vectors, compared with a plain sort of all cosines."""

import subprocess
import sys

import numpy as np
import pytest

from bert_tf.families.data import similarity
from bert_tf.inference import search as module
from bert_tf.inference.embed import embed
from bert_tf.inference.search import search
from tests.families.pretrained.extraction_models import save_model, some_texts
from tests.frames import Frame
from tests.user_errors import error_of


def vectors(count, width=5, seed=0):
    random = np.random.default_rng(seed)
    # Whole numbers, so that several are equal.
    return random.integers(-1, 2, (count, width)).astype(np.float32)


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
    monkeypatch.setattr(module, "_ROWS", rows)
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
    monkeypatch.setattr(module, "_ROWS", 4)
    places, _ = search(np.ones((2, 3)), np.ones((11, 3)), 6)
    assert places.tolist() == [[0, 1, 2, 3, 4, 5]] * 2


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


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ((vectors(2), vectors(3, 4)), "`queries` are 5 wide and `corpus` is 4"),
        ((vectors(2)[0], vectors(3)), "`queries` is array("),
        ((vectors(2), []), "`corpus` is []; give a matrix"),
        ((vectors(2), [[1.0], [2.0, 3.0]]), "`corpus` is [[1.0], [2.0, 3.0]]"),
        ((vectors(2), 5), "`corpus` is 5; give a matrix of numbers"),
        ((["a"], vectors(2)), "`queries` is ['a'], texts; give `model`"),
        (("a", vectors(2)), "`queries` is one string, 'a'; give a list"),
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


def test_vectors_need_numpy_alone():
    code = (
        "import sys, bert_tf, numpy; "
        "bert_tf.search(numpy.ones((1, 2)), numpy.ones((3, 2))); "
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
