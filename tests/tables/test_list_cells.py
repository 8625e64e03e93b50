"""Lists and objects as the text of a cell."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.tables.list_cells import entries_of, list_in, object_in

TEXTS = st.lists(st.text(max_size=8), max_size=5)


@given(TEXTS)
def test_what_json_and_python_write_is_read(texts) -> None:
    for written in (
        json.dumps(texts),
        json.dumps(texts, ensure_ascii=False),
        repr(texts),
        f" {texts!r} ",
    ):
        assert list_in(written) == tuple(texts)
    if texts:
        assert list_in(repr(tuple(texts))) == tuple(texts)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ([0, 1, 1], ("0", "1", "1")),
        (np.array([0, 1, 1]), ("0", "1", "1")),
        (np.arange(100), tuple(map(str, range(100)))),
        (np.array([1.5, 2.0]), ("1.5", "2.")),
        (np.array([]), ()),
        (np.array(["a b", "c'd"], object), ("a b", "c'd")),
        (["a, b", 'c"d'], ("a, b", 'c"d')),
        ([True, False], ("true", "false")),
        (("a",), ("a",)),
    ],
)
def test_what_to_csv_of_pandas_writes_is_read(cell, expected) -> None:
    assert list_in(str(cell)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a, b",
        "[a, b]",
        "[UNK]",
        "(1)",
        "('a')",
        "['a', 'b'",
        "['a',, 'b']",
        "['a' 'b', 'c']",
        "[['a'], ['b']]",
        "[None]",
        "[,]",
        "[__import__('os')]",
        "[1 + 1]",
        "see [1], [2]",
    ],
)
def test_other_texts_are_no_lists(text) -> None:
    assert list_in(text) is None
    assert entries_of(text) is None


def test_cells_that_are_lists_stay() -> None:
    assert entries_of(("a", "b")) == ("a", "b")
    assert entries_of("[]") == ()
    assert entries_of(None) is None


ANSWERS = {"text": ["it's", "b\n"], "answer_start": [17, -1]}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ANSWERS),
        repr(ANSWERS),
        str({name: np.array(each) for name, each in ANSWERS.items()}),
        "{'text': array([\"it's\", 'b\\n'], dtype=object), "
        "'answer_start': array([17, -1], dtype=int32)}",
    ],
)
def test_answers_of_data_sets_are_objects(text) -> None:
    assert object_in(text) == {
        "text": ("it's", "b\n"),
        "answer_start": ("17", "-1"),
    }


@pytest.mark.parametrize(
    "text", ["{}x", "{1}", "{'a': 1}", "{'a': f()}", "{" * 500 + "}" * 500]
)
def test_other_texts_are_no_objects(text) -> None:
    assert object_in(text) is None
