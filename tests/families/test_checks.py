"""Numbers that can be counted by hand, and the lines made of them."""

import importlib
import json

import pytest

from bert_tf.families.checks import (
    CARRIAGE_RETURN,
    CONTROL,
    HTML,
    INVISIBLE,
    MOJIBAKE,
    REPLACEMENT,
    suspicious,
)
from bert_tf.families.recipe import UserTableRecipe
from bert_tf.families.text_classification.kinds import UserFileTask
from bert_tf.text.tokenizer import BertTokenizer

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##d e ; &".split()
TRAIN = (
    "t\tl\n"
    "a b\tx\n"  # row 2, 4 tokens
    "a cd b \tx\n"  # row 3, 6 tokens, 3 words
    "a zebra\ty\n"  # row 4, 4 tokens, 1 unknown word
    " a b\ty\n"  # row 5: row 2 again, with another label
    "a b c a b c a b c\tx\n"  # row 6, 11 tokens
    "\u2603 zebra\tx\n"  # row 7, 4 tokens, 2 unknown words
    "a &amp; b\tx\n"  # row 8, with HTML; amp is unknown: 7 tokens
    "a cd b\tx\n"  # row 9: row 3 again, 6 tokens
)
DEV = "t\tl\ne e e\tx\na zebra\tx\nb\tz\n"


def look(task, recipe, tokenizer):
    names = (task.train_split, *task.splits(task.dev_splits, recipe))
    splits = {name: task.load(name, recipe) for name in names}
    return task.examine(recipe, tokenizer, splits)


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(TOKENS)


@pytest.fixture
def examined(tmp_path, tokenizer):
    (tmp_path / "train.tsv").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "dev.tsv").write_text(DEV, encoding="utf-8")
    recipe = UserTableRecipe(
        data_dir=str(tmp_path),
        train_file="train.tsv",
        dev_file="dev.tsv",
        text_columns="t",
        label_column="l",
        max_seq_length=6,
    )
    task = UserFileTask("own").resolve(recipe)
    return look(task, recipe, tokenizer)


@pytest.fixture
def numbers(examined):
    return json.loads(json.dumps(examined.numbers, allow_nan=False))


def test_rows_and_labels(numbers, tmp_path):
    train, dev = numbers["splits"]["train"], numbers["splits"]["dev"]
    assert train["file"] == str(tmp_path / "train.tsv")
    assert (train["rows"], dev["rows"]) == (8, 3)
    assert train["texts_per_row"] == 1
    assert train["labels"] == {
        "counts": {"x": 6, "y": 2},
        "majority_share": 0.75,
    }
    assert numbers["labels_not_in_train"] == {"dev": {"z": 1}}


def test_tokens(numbers):
    tokens = numbers["splits"]["train"]["tokens"]
    assert tokens["percentiles"]["50"] == 6
    assert tokens["percentiles"]["100"] == 11
    assert tokens["mean"] == (4 + 6 + 4 + 4 + 11 + 4 + 7 + 6) / 8
    # Six tokens fit; seven and eleven do not.
    assert (tokens["cut"], tokens["cut_share"]) == (2, 0.25)
    pieces = 2 + 4 + 2 + 2 + 9 + 2 + 5 + 4
    assert tokens["unknown_piece_share"] == pytest.approx(4 / pieces)
    assert tokens["unknown_word_share"] == pytest.approx(4 / (pieces - 2))
    assert tokens["rows_with_unknown"] == 3
    assert tokens["unknown_words"] == {"zebra": 2, "\u2603": 1, "amp": 1}


def test_pairs_count_both_texts(tmp_path, tokenizer):
    path = tmp_path / "t.tsv"
    path.write_text("p\tq\tl\na b\tc\t1.5\nzebra\ta \x07 zebra\t-1\n")
    recipe = UserTableRecipe(
        train_file=str(path),
        dev_file=str(path),
        text_columns="p,q",
        label_column="l",
        label_kind="regression",
    )
    task = UserFileTask("own").resolve(recipe)
    examined = look(task, recipe, tokenizer)
    numbers = examined.numbers
    part = numbers["splits"]["train"]
    assert part["texts_per_row"] == 2
    # [CLS] a b [SEP] c [SEP] and [CLS] zebra [SEP] a zebra [SEP].
    assert part["tokens"]["percentiles"]["50"] == 6
    assert part["tokens"]["rows_with_unknown"] == 1
    assert part["suspicious"][CONTROL]["first_row"] == 3
    assert part["labels"] == {
        "lowest": -1.0,
        "highest": 1.5,
        "mean": 0.25,
        "deviation": 1.25,
        "different": 2,
    }
    assert numbers["in_train"]["dev"]["rows"] == 2
    assert numbers["labels_not_in_train"] == {"dev": {}}
    text = "\n".join(examined.lines)
    assert "labels: -1 to 1.5, mean 0.250, deviation 1.250, 2 differ" in text
    assert "train: 2 rows, pairs" in text


def test_repeated_rows(numbers):
    assert numbers["repeated"] == {
        "rows": 2,
        "share": 0.25,
        "first": [2, 5],
        "contradicting_texts": 1,
        "first_contradicting_row": 2,
    }
    assert numbers["in_train"]["dev"] == {
        "rows": 1,
        "share": pytest.approx(1 / 3),
        "with_another_label": 1,
        "first": [4, 3],
    }


def test_lines(examined, tmp_path):
    lines = examined.lines
    assert lines[:7] == [
        "data of own:",
        f"  train: 8 rows ({tmp_path / 'train.tsv'})",
        "    labels: x 6 (75.0 %), y 2 (25.0 %)",
        "    tokens: 6 (50 %), 11 (90 %), 11 (95 %), 11 (99 %), 11 (longest)",
        "    cut at 6 tokens: 2 rows, 25.0 %",
        "    [UNK]: 14.3 % of words, in 3 rows: 'zebra', '\u2603', 'amp'",
        "    HTML tags or entities: 1 row, first row 8, 'a &amp; b'",
    ]
    text = "\n".join(lines)
    assert (
        "  rows that occur again in train: 2 rows, 25.0 % (rows 2 and" in text
    )
    assert "1 with another label (row 4 of train, row 3 of dev)" in text
    for remark in (
        "25.0 % of the inputs lose their end; max_seq_length=11",
        "many words are unknown",
        "1 texts have two labels; the first is row 2",
        "dev scores will be inflated: 1 of its rows",
        "label 'z' of dev (1 row) is not in train",
    ):
        assert f"  remark: {remark}" in text


def test_remarks_on_labels(tmp_path, tokenizer):
    counts = {
        "positive": 30,
        "postive": 1,
        "Positive ": 6,
        "negative": 20,
        "rare": 2,
        "class 10": 9,
        "class 1": 2,
        "1.0": 7,
        "01": 8,
        "caf\u00e9": 9,
        "cafe\u0301": 8,
    }
    path = tmp_path / "t.csv"
    rows = [f"a b {n},{k}" for k, count in counts.items() for n in range(count)]
    path.write_text("\n".join(["t,l", *rows]))
    recipe = UserTableRecipe(
        train_file=str(path),
        dev_file=str(path),
        text_columns="t",
        label_column="l",
    )
    examined = look(UserFileTask("own").resolve(recipe), recipe, tokenizer)
    begins = ("remark: label", "remark: few rows")
    lines = map(str.strip, examined.lines)
    found = [line for line in lines if line.startswith(begins)]
    assert found.pop() == (
        "remark: few rows have the label 'class 1' (2 rows), 'rare' (2 rows); "
        "collect more of them, or leave them out."
    )
    assert set(found) == {
        "remark: label 'Positive ' (6 rows) looks like a misspelling; did you "
        "mean 'positive' (30 rows)?",
        "remark: label 'postive' (1 row) looks like a misspelling; did you "
        "mean 'positive' (30 rows)?",
        "remark: label '1.0' (7 rows) is the same number as '01' (8 rows); "
        "write it in one way, or they are two classes.",
        "remark: label 'cafe\u0301' (8 rows) is 'caf\u00e9' (9 rows) in "
        "another Unicode form, 'cafe\\u0301' and 'caf\\xe9'; normalize the "
        "file to NFC, or they are two classes.",
    }
    assert len(found) == 4


@pytest.mark.parametrize(
    ("texts", "name", "remark"),
    [
        (('"a ""b"" c"', "d", '"e"'), "t.tsv", True),
        (('"a" b', '"c"', '"d"'), "t.tsv", False),
        (('"a', 'b"', '"d"', '"e"'), "t.tsv", False),
        (('"c"', "d", "e"), "t.tsv", False),
        (("a", "b", "c"), "t.tsv", False),
    ],
)
def test_quotes_of_csv_in_tsv(tmp_path, tokenizer, texts, name, remark):
    path = tmp_path / name
    rows = [f"{text}\t{n % 2}" for n, text in enumerate(texts)]
    path.write_text("\n".join(["t\tl", *rows]))
    settings = {"train_file": str(path), "dev_file": str(path)}
    settings |= {"text_columns": "t", "label_column": "l"}
    recipe = UserTableRecipe(**settings)
    examined = look(UserFileTask("own").resolve(recipe), recipe, tokenizer)
    remarks = [line for line in examined.lines if "pass format=csv" in line]
    assert len(remarks) == remark
    if remark:
        read = UserTableRecipe(**settings, format="csv")
        task = UserFileTask("own").resolve(read)
        found = [example.text_a for example in task.load("train", read)]
        assert found == ['a "b" c', "d", "e"]


def test_findings_name_the_rows_that_show_them(examined, tmp_path):
    found = {
        (each.kind, each.split): (each.file, list(each.rows))
        for each in examined.findings
        if each.rows and each.kind != "remark"
    }
    train, dev = str(tmp_path / "train.tsv"), str(tmp_path / "dev.tsv")
    assert found == {
        (HTML, "train"): (train, [8]),
        ("repeated", "train"): (train, [2, 5]),
        ("in_train", "dev"): (dev, [3]),
    }
    remarks = {
        each.text.split()[0]: (each.file, list(each.rows))
        for each in examined.findings
        if each.kind == "remark"
    }
    assert remarks["1"] == (train, [2])
    assert remarks["dev"] == (dev, [3])
    assert remarks["label"] == (dev, [])


def test_empty_texts_and_several_labels(tmp_path, tokenizer):
    path = tmp_path / "t.tsv"
    path.write_text("t\tl\na\tu,v\n \tu\nb\t\nc\tv\n")
    recipe = UserTableRecipe(
        train_file=str(path),
        dev_file=str(path),
        text_columns="t",
        label_column="l",
        label_kind="multi_label",
        empty_text="keep",
    )
    task = UserFileTask("own").resolve(recipe)
    examined = look(task, recipe, tokenizer)
    numbers = examined.numbers
    part = numbers["splits"]["train"]
    assert part["empty_texts"] == 1
    assert part["labels"] == {
        "counts": {"u": 2, "v": 2},
        "labels_per_row": 1.0,
        "rows_without": 1,
    }
    text = "\n".join(examined.lines)
    assert "u 2 (50.0 %), v 2 (50.0 %); 1.00 a row, 1 row without" in text
    assert "empty texts: 1 row" in text


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("plain, <b is less than a> 3 & 4; AT&T; R&D\tx\n", set()),
        (
            "na\u00efve \u2019quotes\u2019 \u00e2ge \u00c9t\u00e9 S\u00c3O",
            set(),
        ),
        ("\u4e2d\u6587 \u0627 \u05d0", set()),
        ("bell \x07", {CONTROL}),
        ("a \x85 b", {CONTROL}),
        ("what \ufffd is", {REPLACEMENT}),
        ("caf\u00c3\u00a9", {MOJIBAKE}),
        ("it\u00e2\u20ac\u2122s", {MOJIBAKE}),
        ("5\u00c2\u00b0", {MOJIBAKE}),
        ("a<br />b", {HTML}),
        ("<a href='x'>b", {HTML}),
        ("Q&amp;A", {HTML}),
        ("it&#39;s", {HTML}),
        ("zero\u200bwidth", {INVISIBLE}),
        ("a\r\nb", set()),
        ("a\rb", {CARRIAGE_RETURN}),
        ("soft\u00adhyphen \ufeff", {INVISIBLE}),
        ("&quot;\u200b\x00\ufffd", {HTML, INVISIBLE, CONTROL, REPLACEMENT}),
    ],
)
def test_suspicious(text, kinds):
    assert set(suspicious(text)) == kinds


def test_real_rows(shared_data):
    tokenizer = BertTokenizer(
        str(shared_data / "vocab" / "bert-base-uncased" / "vocab.txt")
    )
    task = importlib.import_module("tasks.stsb").TASK
    recipe = task.recipe_type(data_dir=str(shared_data / "glue"))
    examined = look(task, recipe, tokenizer)
    numbers = examined.numbers
    found = numbers["splits"]["train"]["suspicious"]
    # Seen in the file by eye.
    assert found[CONTROL]["first_row"] == 2920
    assert found[MOJIBAKE]["first_row"] == 4108
    assert numbers["in_train"]["dev"]["rows"] == 6
    assert numbers["splits"]["train"]["tokens"]["percentiles"]["100"] == 125
