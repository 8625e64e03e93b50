"""Tables of tagged words have the words of the same file in CoNLL's format."""

import csv
import dataclasses
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from bert_tf.families.token_classification.conll_files import read_conll
from bert_tf.families.token_classification.recipe import UserTagRecipe
from bert_tf.families.token_classification.task import (
    UserTokenClassificationTask,
)
from tests.frames import DataSet, Frame
from tests.user_errors import error_of

WORDS = [["Ada", 'met "Bob"', "."], ["[1]", ",", "Rome"]]
TAGS = [["B-PER", "I-PER", "O"], ["O", "O", "B-LOC"]]
NAMES = ["O", "B-PER", "I-PER", "B-LOC"]
NUMBERS = [[NAMES.index(tag) for tag in row] for row in TAGS]
TASK = UserTokenClassificationTask(name="tagging")
BOTH = [*zip(WORDS, TAGS, strict=True)]


def read(path, labelled=True, **settings):
    recipe = UserTagRecipe(train_file=str(path), **settings)
    return TASK.read_file(str(path), recipe, labelled)


def written(rows) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def word_rows(sentence=None, blank=()):
    """Rows of a word and its tag, with a column or blank rows of sentences."""
    for number, (words, tags) in enumerate(BOTH):
        for place, pair in enumerate(zip(words, tags, strict=True)):
            yield pair if sentence is None else (sentence(number, place), *pair)
        if blank is not None:
            yield blank


def json_rows(tags, names=("tokens", "ner_tags")):
    rows = (
        dict(zip(names, x, strict=True)) for x in zip(WORDS, tags, strict=True)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def kaggle(number, place):
    return "" if place else f"Sentence: {number + 1}"


TEXTS = {
    "kaggle.csv": written(
        [("Sentence #", "Word", "Tag"), *word_rows(kaggle, None)]
    ),
    "filled.tsv": "sentence_id\ttoken\tlabel\n"
    + "".join(
        "\t".join(map(str, row)) + "\n"
        for row in word_rows(lambda number, _: number, None)
    ),
    "blank.csv": written([("word", "tag"), *word_rows()]),
    "commas.csv": written([("word", "tag"), *word_rows(blank=("", ""))]),
    "lists.jsonl": json_rows(TAGS),
    "lists.txt": json_rows(TAGS, ("words", "tags")),
    "repr.csv": written([("Tokens", "NER_Tags"), *BOTH]),
    "json.csv": written(
        [("tokens", "tags"), *(map(json.dumps, x) for x in BOTH)]
    ),
}


@pytest.fixture
def expected(tmp_path):
    path = tmp_path / "conll.txt"
    lines = ("\t".join(pair) for pair in word_rows(blank=()))
    path.write_text("\n".join(lines) + "\n")
    return read_conll(str(path))


def assert_equal(found, expected) -> None:
    assert (found.words, found.tags) == (expected.words, expected.tags)
    for name in ("sentence_starts", "document_starts"):
        assert (getattr(found, name) == getattr(expected, name)).all()


@pytest.mark.parametrize("name", TEXTS)
def test_tables_of_words_and_of_lists(name, tmp_path, expected) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name])
    found = read(path)
    assert_equal(found, expected)
    assert len(found.rows) == len(found.words)
    # A file to predict needs no tags.
    untagged = read(path, labelled=False)
    assert_equal(dataclasses.replace(untagged, tags=expected.tags), expected)
    assert untagged.tags == []
    whole = read(path, unmarked="file")
    assert whole.document_starts.tolist() == [0, 2]


def test_columns_of_other_names(tmp_path, expected) -> None:
    path = tmp_path / "t.csv"
    rows = [("s", "w", "t"), *word_rows(kaggle, None)]
    path.write_text(written(rows))
    names = {"text_columns": "w", "label_column": "t", "sentence_column": "s"}
    assert_equal(read(path, **names), expected)
    line = error_of(read, path)
    assert line.startswith(f"{path}: has no column called tokens or words ")
    assert line.endswith(
        "but 's', 'w', 't'; name yours with `text_columns`=..."
    )


def test_several_files(tmp_path, expected) -> None:
    for number, (words, tags) in enumerate(BOTH):
        row = {"tokens": words, "tags": tags}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row))
    assert_equal(read(tmp_path / "*.jsonl"), expected)


def test_tags_that_are_numbers(tmp_path, expected) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json_rows(NUMBERS))
    assert_equal(read(path, label_names=", ".join(NAMES)), expected)
    for names in ("", "O,B-PER"):
        line = error_of(read, path, label_names=names)
        assert line.startswith(f"{path}: its tags are numbers from 0 to 3; ")
    # `datasets` writes their names.
    table = pa.table({"tokens": WORDS, "ner_tags": NUMBERS})
    classes = {"names": NAMES, "_type": "ClassLabel"}
    features = {"ner_tags": {"feature": classes, "_type": "List"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)
    assert_equal(read(path), expected)


@pytest.mark.parametrize("kind", [dict, Frame, DataSet, pa.table])
def test_tables_in_memory(kind, tmp_path, expected) -> None:
    data = kind({"tokens": WORDS, "tags": TAGS})
    file = TASK.stored(data, "`train`", {})
    path = tmp_path / f"train.{file.ending}"
    path.write_text(file.text)
    assert_equal(read(path), expected)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([["a", "b"], ["O"]], "has 2 words and 1 tags; give each word one."),
        ([["a", " "], ["O", "O"]], "has the word ' '; a word has visible"),
        ([["a\tb"], ["O"]], "has the word 'a\\tb'; a word has visible chara"),
        ([["a"], "O"], "has words ('a',) and tags 'O'; give a list of each"),
        ([["a", "b"], ["O", "X-PER"]], "the tag 'X-PER' has no prefix"),
        ([["a", "b"], ["B-PER", ""]], "the tag '' is empty; write O"),
    ],
)
def test_rows_that_are_wrong(rows, fault, tmp_path) -> None:
    path = tmp_path / "t.jsonl"
    lines = [(["x", "y"], ["B-PER", "O"]), rows]
    keys = ("tokens", "tags")
    path.write_text(
        "\n".join(json.dumps(dict(zip(keys, x, strict=True))) for x in lines)
    )
    assert error_of(read, path).startswith(f"{path}, row 2: {fault}")


def test_a_table_without_words(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("word,tag\n,\n,\n")
    assert error_of(read, path) == f"{path}: has no words."
