"""Rows of any number: read once for a check, compared by digests."""

import os
import threading
import tracemalloc

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.families import checks
from bert_tf.families.data.equal_rows import columns_of, digest, first_equal
from bert_tf.families.data.examples import Example, ExampleStream
from bert_tf.families.data.user_files import split_off_dev
from bert_tf.families.text_classification.kinds import UserFileTask
from bert_tf.families.text_classification.recipe import UserTableRecipe
from bert_tf.finetuning.setup import load_and_check
from bert_tf.text.tokenizer import BertTokenizer
from tests.user_errors import error_of

TOKENIZER = BertTokenizer("[PAD] [UNK] [CLS] [SEP] [MASK] a b c".split())
LABELS = {
    "classes": ["x", "y", "y ", "1", "1.0"],
    "multi_label": ["x", "x,y", "y,x", ""],
    "regression": ["0", "-0.0", "1", "1.5", "3e2"],
}


def task_of(**settings):
    recipe = UserTableRecipe(text_columns="t", label_column="l", **settings)
    return UserFileTask("own").resolve(recipe), recipe


def write(path, labels, rows=200, seed=0):
    """A file with duplicates, contradictions and a few malformed rows."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice([*"abcz"], 3)) for _ in range(rows)]
    lines = [
        "\t".join([text, draw.choice(labels), *["?"] * (n in (7, 50))])
        for n, text in enumerate(texts)
    ]
    path.write_text("\n".join(["t\tl", *lines, " \tx"]) + "\n")


def output_of(load, task, recipe, capsys):
    try:
        data = load_and_check(task, recipe, TOKENIZER, load)
        values = data.numbers, data.config
    except UserError as error:
        values = str(error)
    return values, capsys.readouterr()


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize(
    "settings",
    [
        {"dev_file": "dev.tsv"},
        {"dev_share": 0.3},
        {"dev_share": 0.3, "drop_duplicates": True},
        {"dev_file": "dev.tsv", "bad_rows": "error"},
        {"dev_file": "other.tsv"},
        {"train_file": "train.tsv,dev.tsv"},
    ],
    ids=str,
)
def test_a_stream_is_checked_as_rows_in_memory_are(
    kind, settings, tmp_path, capsys, monkeypatch
):
    """Numbers, findings, configs, errors and lines, each line once."""
    monkeypatch.setattr(checks, "_TEXTS_AT_A_TIME", 30)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "train.tsv", LABELS[kind])
    write(tmp_path / "dev.tsv", LABELS[kind], 40, seed=1)
    # Unknown labels are found after the examination.
    write(tmp_path / "other.tsv", [*LABELS[kind], "77"], 40, seed=2)
    given = {"train_file": "train.tsv", "bad_rows": "skip", "label_kind": kind}
    task, recipe = task_of(**given | settings)
    in_memory = output_of(task.load, task, recipe, capsys)
    # A task of its own, since it remembers the parts of a split file.
    task, _ = task_of(**given | settings)
    streams = []

    def load_once(split, recipe):
        streams.append(task.load_once(split, recipe))
        return streams[-1]

    assert output_of(load_once, task, recipe, capsys) == in_memory
    assert {type(each) for each in streams} == {ExampleStream}
    failed = isinstance(in_memory[0], str)
    assert failed == (
        settings.get("bad_rows") == "error"
        or (settings.get("dev_file") == "other.tsv" and kind != "regression")
    )


def test_texts_are_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "_TEXTS_AT_A_TIME", 20)
    path = tmp_path / "train.tsv"
    rows = [f"{'a' * 5000} {n}\t{'xy'[n % 2]}" for n in range(1000)]
    path.write_text("\n".join(["t\tl", *rows]))
    task, recipe = task_of(train_file=str(path), drop_duplicates=True)
    # It compiles its graphs.
    TOKENIZER.tokenize(["a"])
    tracemalloc.start()
    try:
        data = load_and_check(task, recipe, TOKENIZER, task.load_once)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(map(len, data.examples.values())) == 1000
    assert peak < path.stat().st_size / 4


def test_rows_of_a_pipe_are_held_in_memory(tmp_path):
    """A split reads the rows twice, and a pipe yields them once."""
    path, pipe = tmp_path / "train.tsv", tmp_path / "pipe"
    write(path, ["x", "y"])
    os.mkfifo(pipe)
    writer = threading.Thread(
        target=pipe.write_bytes, args=[path.read_bytes()], daemon=True
    )
    writer.start()
    given = {"bad_rows": "skip", "empty_text": "drop", "format": "tsv"}
    task, recipe = task_of(train_file=str(pipe), **given)
    data = load_and_check(task, recipe, TOKENIZER, task.load_once)
    writer.join()
    assert sum(map(len, data.examples.values())) == 198


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "train.tsv"
    rows = [f"text {n}\t{'xy'[n % 2]}\n" for n in range(30)]
    path.write_text("".join(["t\tl\n", *rows]))
    task, recipe = task_of(train_file=str(path), drop_duplicates=True)
    stream = task.load_once("dev", recipe)
    path.write_text("".join(["t\tl\n", *rows[:5]]))
    line = error_of(list, stream)
    assert line.startswith(f"{path}: has changed while it was read; ")


def test_first_equal_rows():
    """Against a dictionary, with values of every kind of label."""
    draw = np.random.default_rng(0)
    pool = [("a",), ("a", ""), ("", "a"), ("a\0",), ("'",), ("\ud800",)]
    pool += [((),), (("a",),), (None,), (1.5,), (0.0,), (-0.0,), ("-0.0",)]
    rows = [pool[n] for n in draw.integers(len(pool), size=300)]
    first = {}
    expected = [first.setdefault(row, n) for n, row in enumerate(rows)]
    digests = bytearray(b"".join(map(digest, rows)))
    found = first_equal(*columns_of(digests))
    assert found.tolist() == expected
    assert first_equal(np.zeros(0, int)).tolist() == []


def plain_split(examples, share, seed):
    """The dev rows of a split of classes, by the texts themselves."""
    strata, stratum_of = {}, {}
    for number, example in enumerate(examples):
        stratum = stratum_of.setdefault(example.text_key, example.label)
        groups = strata.setdefault(stratum, {})
        groups.setdefault(example.text_key, []).append(number)
    generator = np.random.default_rng(seed)
    dev, target = [], 0.0
    for stratum in sorted(strata, key=lambda each: (len(strata[each]), each)):
        groups = list(strata[stratum].values())
        target += share * sum(map(len, groups))
        for number in generator.permutation(len(groups))[:-1]:
            if len(dev) + len(groups[number]) / 2 <= target:
                dev += groups[number]
    return sorted(dev)


@pytest.mark.parametrize("seed", range(5))
def test_the_split_is_that_of_the_texts_themselves(seed):
    draw = np.random.default_rng(seed)
    examples = [
        Example(f" {draw.integers(150)}", None, label, "", number)
        for number, label in enumerate(draw.choice([*"aaabbc"], 400))
    ]
    _, dev = split_off_dev(examples, 0.2, seed)
    assert [e.row for e in dev] == plain_split(examples, 0.2, seed)
