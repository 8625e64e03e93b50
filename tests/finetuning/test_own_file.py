"""Own files: which columns, which files, and the split."""

import collections
import dataclasses

import numpy as np
import pytest

from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.data.user_files import split_off_dev
from bert_tf.finetuning.recipe import UserTableRecipe
from bert_tf.finetuning.text_classification.user_file import UserFileTask
from tests.finetuning.own_files import error_of, recipe, rows

OWN = UserFileTask(name="sentence")


# Which columns, which files.


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"text_columns": ""}, "`text_columns`=: name one column"),
        ({"text_columns": "a,b,c"}, "`text_columns`=a,b,c: name one column"),
        ({"text_columns": "a,"}, "`text_columns`=a,: name one"),
        ({"text_columns": "a, a"}, "`text_columns`=a, a: names one column"),
        (
            {"text_columns": "a,l", "label_column": "l"},
            "`label_column`=l: is one of the text_columns",
        ),
    ],
)
def test_columns_that_cannot_be(settings, expected):
    line = error_of(OWN.resolve, recipe(**settings))
    assert line.startswith(expected)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("label_kind", "class", "classes, regression, multi_label"),
        ("format", "xlsx", "tsv, csv, jsonl"),
        ("encoding_errors", "ignore", "strict, replace"),
        ("bad_rows", "drop", "error, skip"),
        ("empty_text", "skip", "error, keep, drop"),
        ("label_separator", "", "at least one character"),
        ("dev_share", 1.0, "above 0, below 1"),
        ("dev_seed", -1, "0 to"),
    ],
)
def test_settings_that_cannot_be(name, value, expected):
    line = error_of(lambda: UserTableRecipe(**{name: value}))
    assert line.startswith(f"{name} is {value!r}; it takes ")
    assert expected in line


def test_pairs_in_all_formats(tmp_path):
    files = {
        "t.tsv": 'q\ta\ty\nwho "\tme, me\t1\nwhy\tso\t0\n',
        "t.csv": 'q,a,y\n"who ""","me, me",1\nwhy,so,0\n',
        "t.jsonl": '{"q": "who \\"", "a": "me, me", "y": 1}\n'
        '{"y": 0, "q": "why", "a": "so"}\n',
    }
    for name, text in files.items():
        path = rows(tmp_path, text, name)
        settings = UserTableRecipe(
            train_file=name,
            dev_file=name,
            data_dir=str(tmp_path),
            text_columns="q,a",
            label_column="y",
        )
        examples = OWN.resolve(settings).load("train", settings)
        assert [e[:4] for e in examples] == [
            ('who "', "me, me", "1", "0"),
            ("why", "so", "0", "1"),
        ]
        assert {e.path for e in examples} == {path}


def test_missing_files_and_columns(tmp_path):
    path = rows(tmp_path, "l\tt\na\tx\nb\ty\n")
    settings = recipe(train_file=path)
    task = OWN.resolve(settings)
    line = error_of(task.load, "train", settings)
    assert line.startswith("`label_column`=...: name the column")
    settings = recipe(test_file=path)
    assert error_of(task.load, "train", settings).startswith(
        "`train_file`=...: name the file"
    )
    assert error_of(task.splits, ("test",), recipe()).startswith(
        "`test_file`=...: name the file"
    )
    assert task.splits(("test",), settings) == ("test",)


def test_a_test_file_needs_no_labels(tmp_path):
    without = rows(tmp_path, "t\nx\ny\n", "a.tsv")
    some = rows(tmp_path, "t\tl\nx\ta\ny\t\n", "b.tsv")
    for path, labels in ((without, [None, None]), (some, ["a", None])):
        settings = recipe(test_file=path, label_column="l")
        task = OWN.resolve(settings)
        examples = task.load("test", settings)
        assert [e.label for e in examples] == labels
    line = error_of(task.targets, examples, ("a", "b"))
    assert line.startswith(f"{some}, row 3: has no label")


# The split.


def many(labels):
    return [
        Example(f"text {n}", None, label, str(n), n + 2, "f")
        for n, label in enumerate(labels)
    ]


def test_the_split_is_stratified():
    labels = ["a"] * 700 + ["b"] * 200 + ["c"] * 90 + ["d"] * 9 + ["e"]
    np.random.default_rng(0).shuffle(labels)
    examples = many(labels)
    train, dev = split_off_dev(examples, 0.1, 1)
    counts = collections.Counter(e.label for e in dev)
    assert sum(counts.values()) == 100
    for label, wanted in {"a": 70, "b": 20, "c": 9, "d": 1, "e": 0}.items():
        assert abs(counts[label] - wanted) <= 1
    # The only row of a label is one to learn from.
    assert counts["e"] == 0
    assert sorted(train + dev, key=lambda e: e.row) == examples
    assert train == sorted(train, key=lambda e: e.row)


def test_the_split_is_a_function_of_its_seed():
    examples = many("ab" * 50)
    assert split_off_dev(examples, 0.2, 3) == split_off_dev(examples, 0.2, 3)
    assert split_off_dev(examples, 0.2, 3) != split_off_dev(examples, 0.2, 4)


def test_no_text_is_on_both_sides():
    examples = [
        e._replace(text_a=f"text {n // 3} ")
        for n, e in enumerate(many("ab" * 60))
    ]
    train, dev = split_off_dev(examples, 0.25, 0)
    assert not {e.text_a for e in train} & {e.text_a for e in dev}
    assert 24 <= len(dev) <= 36


def test_numbers_and_sets_are_stratified_too():
    values = [float(n % 10) for n in range(200)]
    _, dev = split_off_dev(many(values), 0.2, 0)
    assert set(collections.Counter(e.label for e in dev).values()) <= {3, 4, 5}
    sets = [("u",), ("u", "v"), (), ("v", "w")] * 40 + [("rare",)]
    _, dev = split_off_dev(many(sets), 0.25, 0)
    assert {e.label for e in dev} >= {("u",), ("u", "v"), (), ("v", "w")}


def test_too_few_rows_to_split():
    line = error_of(split_off_dev, many("ab"), 0.1, 0)
    assert line.startswith("f: 2 rows of 2 different labels leave none for dev")
    line = error_of(
        split_off_dev, many([f"text {n}" for n in range(50)]), 0.1, 0
    )
    assert "50 rows of 50 different labels" in line


def test_without_a_dev_file(tmp_path, capsys):
    body = "".join(f"{'ab'[n % 2]}\ttext {n}\n" for n in range(40))
    path = rows(tmp_path, "l\tt\n" + body)
    settings = recipe(train_file=path, label_column="l", dev_share=0.2)
    task = OWN.resolve(settings)
    assert task.splits(("dev",), settings) == ("dev",)
    train, dev = task.load("train", settings), task.load("dev", settings)
    assert (len(train), len(dev)) == (32, 8)
    assert not set(train) & set(dev)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"{path}: no dev_file, so 8 of 40 rows are kept for dev "
        "(dev_share=0.2, dev_seed=12345)."
    ]
    # Another training seed, the same dev set.
    other = dataclasses.replace(settings, seed=5)
    assert OWN.resolve(other).load("dev", other) == dev
    other = dataclasses.replace(settings, dev_seed=5)
    assert OWN.resolve(other).load("dev", other) != dev
