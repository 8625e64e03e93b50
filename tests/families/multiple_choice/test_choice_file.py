"""Files of choices: SWAG's, own ones, every row that is wrong."""

import collections
import dataclasses
import json

import pytest

from bert_tf.families.multiple_choice import files
from bert_tf.families.multiple_choice.files import (
    SWAG_COLUMNS,
    ChoiceColumns,
    ChoiceExample,
)
from bert_tf.families.recipe import ChoiceRecipe
from tests import user_errors

SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,\
ending2,ending3,label
0,v1,7,"He rides, She","He rides, fast.",She,gold,sees him.,"says ""no"".",\
runs.,sits.,2
1,v2,8,It A dog,It rains.,A dog,gen,barks.,sleeps.,eats.,flies.,0
"""
LISTS = ChoiceColumns("question", ("options",), "answer")
COLUMNS = ChoiceColumns("q", ("a", "b", "c"), "y")


def read_choices(path, columns, label_needed=True, **settings):
    recipe = ChoiceRecipe(**settings)
    return files.read_choices(path, columns, recipe, label_needed)


def written(tmp_path, text, name="choices.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def objects(tmp_path, *rows):
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    return written(tmp_path, lines, "choices.jsonl")


def error_of(path, columns, **settings):
    line = user_errors.error_of(read_choices, path, columns, **settings)
    return line.removeprefix(path)


def test_swag(tmp_path):
    path = written(tmp_path, SWAG)
    assert read_choices(path, SWAG_COLUMNS) == [
        ChoiceExample(
            "He rides, fast.",
            "She",
            ("sees him.", 'says "no".', "runs.", "sits."),
            2,
            "0",
            2,
            path,
        ),
        ChoiceExample(
            "It rains.",
            "A dog",
            ("barks.", "sleeps.", "eats.", "flies."),
            0,
            "1",
            3,
            path,
        ),
    ]

    # Without labels, as its test.csv is.
    lines = [line.rpartition(",")[0] for line in SWAG.splitlines()]
    path = written(tmp_path, "\n".join(lines))
    examples = read_choices(path, SWAG_COLUMNS, label_needed=False)
    assert [example.label for example in examples] == [None, None]
    assert examples[1].choices[3] == "flies."
    line = error_of(path, SWAG_COLUMNS)
    assert line.startswith(": has no column 'label'.")


def test_labels_that_are_not_needed(tmp_path):
    """Are read where they are; an empty cell is none."""
    path = written(tmp_path, "q,a,b,c,y\nQ,1,2,3,\nR,4,5,6,1\n")
    examples = read_choices(path, COLUMNS, label_needed=False)
    assert [example.label for example in examples] == [None, 1]
    assert error_of(path, COLUMNS).startswith(", row 2: the label '' is none")
    nameless = ChoiceColumns("q", ("a", "b", "c"), None)
    assert read_choices(path, nameless, False)[1].label is None


def test_lists_of_different_lengths(tmp_path):
    path = objects(
        tmp_path,
        {"question": "Q", "options": ["x", 2, "z"], "answer": 1},
        {"answer": "0", "options": ["no", "yes"], "question": "R"},
    )
    first, second = read_choices(path, LISTS)
    assert first.choices == ("x", "2", "z")
    assert (first.label, second.label) == (1, 0)
    assert (first.start, second.choices) == ("", ("no", "yes"))


@pytest.mark.parametrize(
    ("form", "label", "expected"),
    [
        ("number", "2", 2),
        ("number", " 0 ", 0),
        ("number_from_1", "1", 0),
        ("letter", "C", 2),
        ("letter", "b", 1),
        ("text", "two words", 1),
        # Numbers are texts where texts are asked for.
        ("text", "2", 2),
    ],
)
def test_forms_of_labels(tmp_path, form, label, expected):
    path = written(tmp_path, f"q,a,b,c,y\nQ,one,two words,2,{label}\n")
    columns = ChoiceColumns("q", ("a", "b", "c"), "y", label_form=form)
    assert read_choices(path, columns)[0].label == expected


@pytest.mark.parametrize(
    ("form", "label", "expected"),
    [
        ("number", "3", "'3' is none of 0 to 2 for its 3 choices (label_form="),
        ("number", "-1", "'-1' is none of 0 to 2"),
        ("number", "1.0", "'1.0' is none of 0 to 2"),
        ("number", "B", "'B' is none of 0 to 2 for its 3 choices (label_form="),
        ("number", "", "'' is none of 0 to 2"),
        ("number_from_1", "0", "'0' is none of 1 to 3"),
        ("letter", "D", "'D' is none of A to C"),
        ("letter", "1", "'1' is none of A to C"),
        ("text", "three", "'three' is the text of 0 of its 3 choices; it mus"),
        ("text", "same", "'same' is the text of 2 of its 3 choices"),
    ],
)
def test_labels_that_name_no_choice(tmp_path, form, label, expected):
    path = written(tmp_path, f"q,a,b,c,y\nQ,one,same,same,{label}\n")
    columns = ChoiceColumns("q", ("a", "b", "c"), "y", label_form=form)
    line = error_of(path, columns)
    assert line.startswith(f", row 2: the label {expected}")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"question": "Q", "options": ["x", " "], "answer": 0},
            "the choice in 'options', number 1, is empty (' '); correct the "
            "row. Or pass `bad_rows`=skip.",
        ),
        (
            {"question": "Q", "options": ["x"], "answer": 0},
            "has 1 choice; it takes 2 or more.",
        ),
        (
            {"question": "Q", "options": [], "answer": 0},
            "'options' is the one column of choices and has no list of them",
        ),
        (
            {"question": "Q", "options": "x", "answer": 0},
            "'options' is the one column of choices and has no list of them, "
            "'x'; name several columns, or in JSON give a list.",
        ),
        (
            {"question": ["Q"], "options": ["x", "y"], "answer": 0},
            "'question' is a list, ('Q',); it must be a text.",
        ),
        (
            {"question": "Q", "options": ["x", "y"], "answer": [0]},
            "'answer' is a list, ('0',); it must be a text.",
        ),
        ({"question": "Q", "options": ["x", "y"]}, "has no 'answer'; its keys"),
    ],
)
def test_rows_that_are_wrong(tmp_path, row, expected):
    good = {"question": "Q", "options": ["x", "y"], "answer": 1}
    path = objects(tmp_path, good, row)
    assert error_of(path, LISTS).startswith(f", row 2: {expected}")


def test_more_choices_than_letters(tmp_path):
    options = [f"o{number}" for number in range(27)]
    path = objects(tmp_path, {"question": "Q", "options": options, "answer": 0})
    columns = dataclasses.replace(LISTS, label_form="letter")
    line = error_of(path, columns)
    assert "row 1: has 27 choices, and there are 26 letters" in line


def test_real_swag(shared_data):
    folder = shared_data / "swag"
    rows = read_choices(str(folder / "val_subset350.csv"), SWAG_COLUMNS)
    assert len(rows) == 350
    assert {len(row.choices) for row in rows} == {4}
    counts = collections.Counter(row.label for row in rows)
    assert (len(counts), max(counts.values())) == (4, 107)
    assert (rows[0].start, rows[0].label) == ("She", 2)
    assert rows[0].choices[1] == "turns with two students."
    rows = read_choices(str(folder / "train_first10.jsonl"), SWAG_COLUMNS)
    assert [row.label for row in rows[:3]] == [0, 3, 1]
