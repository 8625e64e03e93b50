"""The data doctor's numbers against counts by hand, and its findings."""

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
from bert_tf.families.text_classification.kinds import UserFileTask
from bert_tf.families.text_classification.recipe import UserTableRecipe
from bert_tf.text.tokenizer import BertTokenizer
from tests.letters_tokenizer import Letters

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c ##d e ; &".split()
TOKENIZER = BertTokenizer(TOKENS)
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


def examine(task, recipe, tokenizer=TOKENIZER):
    names = (task.train_split, *task.splits(task.dev_splits, recipe))
    splits = {name: task.load(name, recipe) for name in names}
    return task.examine(recipe, tokenizer, splits)


def examined(path, text, tokenizer=TOKENIZER, **settings):
    """The examination of one file as train and dev."""
    path.write_text(text, encoding="utf-8")
    files = {"train_file": str(path), "dev_file": str(path)}
    columns = {"text_columns": "t", "label_column": "l"}
    recipe = UserTableRecipe(**files | columns | settings)
    return examine(UserFileTask("own").resolve(recipe), recipe, tokenizer)


def test_numbers_and_findings(tmp_path):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    dev.write_text(DEV, encoding="utf-8")
    found = examined(train, TRAIN, dev_file=str(dev), max_seq_length=6)
    numbers = json.loads(json.dumps(found.numbers, allow_nan=False))
    part = numbers["splits"]["train"]
    assert part["file"] == str(train)
    assert (part["rows"], numbers["splits"]["dev"]["rows"]) == (8, 3)
    assert part["texts_per_row"] == 1
    labels = {"counts": {"x": 6, "y": 2}, "majority_share": 0.75}
    assert part["labels"] == labels
    assert numbers["labels_not_in_train"] == {"dev": {"z": 1}}
    # Six tokens fit; seven and eleven do not. Special tokens are no pieces.
    pieces = 2 + 4 + 2 + 2 + 9 + 2 + 5 + 4
    assert part["tokens"] == {
        "percentiles": {"50": 6, "90": 11, "95": 11, "99": 11, "100": 11},
        "mean": (4 + 6 + 4 + 4 + 11 + 4 + 7 + 6) / 8,
        "cut": 2,
        "cut_share": 0.25,
        "unknown_piece_share": pytest.approx(4 / pieces),
        "unknown_word_share": pytest.approx(4 / (pieces - 2)),
        "rows_with_unknown": 3,
        "unknown_words": {"zebra": 2, "\u2603": 1, "amp": 1},
    }
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
    assert found.lines[:7] == [
        "data of own:",
        f"  train: 8 rows ({train})",
        "    labels: x 6 (75.0 %), y 2 (25.0 %)",
        "    tokens: 6 (50 %), 11 (90 %), 11 (95 %), 11 (99 %), 11 (longest)",
        "    cut at 6 tokens: 2 rows, 25.0 %",
        "    unknown: 14.3 % of words, in 3 rows: 'zebra', '\u2603', 'amp'",
        "    HTML tags or entities: 1 row, first row 8, 'a &amp; b'",
    ]
    lines = "\n".join(found.lines)
    for text in (
        "  rows that occur again in train: 2 rows, 25.0 % (rows 2 and 5)",
        "1 with another label (row 4 of train, row 3 of dev)",
        "  remark: 25.0 % of the inputs lose their end; max_seq_length=11",
        "  remark: many words are unknown",
        "  remark: 1 texts have two labels; the first is row 2",
        "  remark: dev scores will be inflated: 1 of its rows",
        "  remark: label 'z' of dev (1 row) is not in train",
    ):
        assert text in lines
    rows = {
        (each.kind, each.text.split()[0]): (each.file, list(each.rows))
        for each in found.findings
        if each.rows
    }
    assert rows == {
        ("suspicious", "HTML"): (str(train), [8]),
        ("repeated", "rows"): (str(train), [2, 5]),
        ("in_train", "rows"): (str(dev), [3]),
        ("remark", "1"): (str(train), [2]),
        ("remark", "dev"): (str(dev), [3]),
    }


def test_pairs_count_both_texts(tmp_path):
    found = examined(
        tmp_path / "t.tsv",
        "p\tq\tl\na b\tc\t1.5\nzebra\ta \x07 zebra\t-1\n",
        text_columns="p,q",
        label_kind="regression",
    )
    numbers = found.numbers
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
    text = "\n".join(found.lines)
    assert "-1 to 1.5, mean 0.250, deviation 1.250, 2 " in text
    assert "train: 2 rows, pairs" in text


def test_remarks_on_labels(tmp_path):
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
    rows = [f"a b {n},{k}" for k, count in counts.items() for n in range(count)]
    found = examined(tmp_path / "t.csv", "\n".join(["t,l", *rows]))
    begins = ("label", "few rows")
    found = [
        each.text
        for each in found.findings
        if each.kind == "remark" and each.text.startswith(begins)
    ]
    assert "'class 1' (2 rows), 'rare' (2 rows);" in found.pop()
    meant = {line.split("'")[1]: line for line in found}
    for label, words in {
        "Positive ": "a misspelling; did you mean 'positive' (30 rows)?",
        "postive": "a misspelling; did you mean 'positive' (30 rows)?",
        "1.0": "is the same number as '01' (8 rows);",
        "cafe\u0301": "another Unicode form, 'cafe\\u0301' and 'caf\\xe9';",
    }.items():
        assert words in meant.pop(label)
    assert not meant


@pytest.mark.parametrize(
    ("texts", "remark"),
    [
        (('"a ""b"" c"', "d", '"e"'), True),
        (('"a" b', '"c"', '"d"'), False),
        (('"a', 'b"', '"d"', '"e"'), False),
        (('"c"', "d", "e"), False),
        (("a", "b", "c"), False),
    ],
)
def test_quotes_of_csv_in_tsv(tmp_path, texts, remark):
    rows = [f"{text}\t{n % 2}" for n, text in enumerate(texts)]
    found = examined(tmp_path / "t.tsv", "\n".join(["t\tl", *rows]))
    assert any("pass format=csv" in line for line in found.lines) == remark


def test_a_vocabulary_without_unk_has_no_line_of_unknown_words(tmp_path):
    path, letters = tmp_path / "t.tsv", Letters().tokenizer()
    found = examined(path, "t\tl\nab\tx\ncd\ty\n", tokenizer=letters)
    lines = [line.strip().partition(":")[0] for line in found.lines]
    assert "tokens" in lines
    assert "unknown" not in lines


def test_empty_texts_and_several_labels(tmp_path):
    found = examined(
        tmp_path / "t.tsv",
        "t\tl\na\tu,v\n \tu\nb\t\nc\tv\n",
        label_kind="multi_label",
        empty_text="keep",
    )
    part = found.numbers["splits"]["train"]
    assert part["empty_texts"] == 1
    assert part["labels"] == {
        "counts": {"u": 2, "v": 2},
        "labels_per_row": 1.0,
        "rows_without": 1,
    }
    text = "\n".join(found.lines)
    assert "u 2 (50.0 %), v 2 (50.0 %); 1.00 a row, 1" in text
    assert "empty texts: 1 row" in text


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("plain, <b is less than a> 3 & 4; AT&T; R&D\tx\n", set()),
        ("na\u00efve \u2019so\u2019 \u00e2ge \u00c9t\u00e9 S\u00c3O", set()),
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
    numbers = examine(task, recipe, tokenizer).numbers
    found = numbers["splits"]["train"]["suspicious"]
    # Seen in the file by eye.
    assert found[CONTROL]["first_row"] == 2920
    assert found[MOJIBAKE]["first_row"] == 4108
    assert numbers["in_train"]["dev"]["rows"] == 6
    assert numbers["splits"]["train"]["tokens"]["percentiles"]["100"] == 125
