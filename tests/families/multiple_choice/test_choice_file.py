"""Files of choices, the data doctor, and heads that other tasks reuse."""

import dataclasses
import json

import numpy as np
import pytest

from bert_tf.checkpoints import MULTIPLE_CHOICE, load_checkpoint
from bert_tf.families.model_folder import TASK_FILE, read_config
from bert_tf.families.multiple_choice import files
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.multiple_choice.files import (
    SWAG_COLUMNS,
    ChoiceColumns,
    ChoiceExample,
    SwagFiles,
)
from bert_tf.families.multiple_choice.recipe import (
    ChoiceRecipe,
    UserChoiceRecipe,
)
from bert_tf.families.multiple_choice.task import (
    MultipleChoiceTask,
    UserChoiceTask,
)
from bert_tf.families.task import Answered
from bert_tf.finetuning.setup import prepare_training
from tests.finetuning.sentence_runs import tokenizer
from tests.finished_runs import finished_run
from tests.user_errors import error_of
from tools.shared_flags import load_task, recipe_of

SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,\
ending2,ending3,label
0,v1,7,"He rides, She","He rides, fast.",She,gold,sees him.,"says ""no"".",\
runs.,sits.,2
1,v2,8,It A dog,It rains.,A dog,gen,barks.,sleeps.,eats.,flies.,0
"""
LISTS = ChoiceColumns("question", ("options",), "answer")
COLUMNS = ChoiceColumns("q", ("a", "b", "c"), "y")
USER_TASK = UserChoiceTask(name="choice")
SETTINGS = {
    "context_column": "question",
    "choice_columns": "options",
    "label_column": "answer",
}


def read_choices(path, columns, label_needed=True):
    return files.read_choices(path, columns, ChoiceRecipe(), label_needed)


def written(tmp_path, text, name="choices.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def objects(tmp_path, *rows):
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    return written(tmp_path, lines, "choices.jsonl")


def refusal_of(path, columns):
    return error_of(read_choices, path, columns).removeprefix(path)


def test_swag(tmp_path):
    path = written(tmp_path, SWAG)
    choices = ("sees him.", 'says "no".', "runs.", "sits.")
    first, second = read_choices(path, SWAG_COLUMNS)
    assert first == ChoiceExample(
        "He rides, fast.", "She", choices, 2, "0", 2, path
    )
    assert (second.start, second.label, second.row) == ("A dog", 0, 3)
    # Its test.csv has no labels.
    lines = [line.rpartition(",")[0] for line in SWAG.splitlines()]
    path = written(tmp_path, "\n".join(lines))
    examples = read_choices(path, SWAG_COLUMNS, label_needed=False)
    assert [example.label for example in examples] == [None, None]
    assert examples[1].choices[3] == "flies."


def test_labels_that_are_not_needed(tmp_path):
    """Are read where they are; an empty cell is none."""
    path = written(tmp_path, "q,a,b,c,y\nQ,1,2,3,\nR,4,5,6,1\n")
    examples = read_choices(path, COLUMNS, label_needed=False)
    assert [example.label for example in examples] == [None, 1]
    assert refusal_of(path, COLUMNS).startswith(", row 2: the label '' is none")
    recipe = UserChoiceRecipe(context_column="q", choice_columns="a, b,c")
    columns = USER_TASK.resolve(recipe).data.columns
    assert columns == dataclasses.replace(COLUMNS, label=None)
    assert read_choices(path, columns, False)[1].label is None


def test_lists_of_different_lengths(tmp_path):
    path = objects(
        tmp_path,
        {"question": "Q", "options": ["x", 2, "z"], "answer": 1},
        {"answer": "0", "options": ["no", "yes"], "question": "R"},
    )
    first, second = read_choices(path, LISTS)
    assert (first.choices, first.label) == (("x", "2", "z"), 1)
    assert (second.start, second.choices) == ("", ("no", "yes"))
    # As the text of a list.
    path = objects(
        tmp_path, {"question": "Q", "options": "['x, y' 'z']", "answer": 1}
    )
    assert read_choices(path, LISTS)[0].choices == ("x, y", "z")


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
        ("number", "3", "'3' is none of 0 to 2 for its 3 choices (label_form="),
        ("number", "-1", "'-1' is none of 0 to 2"),
        ("number", "1.0", "'1.0' is none of 0 to 2"),
        ("number", "B", "'B' is none of 0 to 2"),
        ("number", "", "'' is none of 0 to 2"),
        ("number_from_1", "0", "'0' is none of 1 to 3"),
        ("letter", "D", "'D' is none of A to C"),
        ("letter", "1", "'1' is none of A to C"),
        ("text", "three", "'three' is the text of 0 of its 3 choices; it mus"),
        ("text", "same", "'same' is the text of 2 of its 3 choices"),
    ],
)
def test_forms_of_labels(tmp_path, form, label, expected):
    choices = "one,same,same" if label == "same" else "one,two words,2"
    path = written(tmp_path, f"q,a,b,c,y\nQ,{choices},{label}\n")
    columns = dataclasses.replace(COLUMNS, label_form=form)
    if isinstance(expected, int):
        assert read_choices(path, columns)[0].label == expected
    else:
        line = refusal_of(path, columns)
        assert line.startswith(f", row 2: the label {expected}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"options": ["x", " "]},
            "the choice in 'options', number 1, is empty",
        ),
        ({"options": ["x"]}, "has 1 choice; it takes 2 or more."),
        ({"options": []}, "'options' is the one column of choices and has no"),
        ({"options": "x"}, "'options' is the one column of choices and has no"),
        ({"question": ["Q"]}, "'question' is a list, ('Q',); it must"),
        ({"answer": [0]}, "'answer' is a list, ('0',); it must be a text."),
        ({"answer": None}, "has no 'answer'"),
        ({"options": ["x"] * 27, "answer": "A"}, "has 27 choices, and there"),
    ],
)
def test_rows_that_are_wrong(tmp_path, change, expected):
    good = {"question": "Q", "options": ["x", "y"], "answer": "B"}
    bad = {k: v for k, v in (good | change).items() if v is not None}
    columns = dataclasses.replace(LISTS, label_form="letter")
    line = refusal_of(objects(tmp_path, good, bad), columns)
    assert line.startswith(f", row 2: {expected}")


def test_real_swag(shared_data):
    folder = shared_data / "swag"
    rows = read_choices(str(folder / "val_subset350.csv"), SWAG_COLUMNS)
    assert len(rows) == 350
    assert {len(row.choices) for row in rows} == {4}
    labels = [row.label for row in rows]
    assert max(labels.count(label) for label in range(4)) == 107
    assert (rows[0].start, rows[0].label) == ("She", 2)
    assert rows[0].choices[1] == "turns with two students."
    rows = read_choices(str(folder / "train_first10.jsonl"), SWAG_COLUMNS)
    assert [row.label for row in rows[:3]] == [0, 3, 1]


def swag_file(folder, name, count, first=0):
    body = "".join(
        f"{n},the film {n - n % 2},it,a,good,bad,so,{n // 2 % 4}\n"
        for n in range(first, first + count)
    )
    header = "n,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
    (folder / name).write_text(header + body)


def swag_recipe(folder, **changes):
    assignments = [f"data_dir={folder}"]
    assignments += [f"{name}={value}" for name, value in changes.items()]
    return recipe_of(load_task("swag"), "swag", assignments)


def test_official_files(tmp_path, capsys):
    swag_file(tmp_path, "train.csv", 12)
    swag_file(tmp_path, "val.csv", 5, first=100)
    swag_file(tmp_path, "test.csv", 3, first=200)
    task, recipe = load_task("swag"), swag_recipe(tmp_path)
    assert task.splits(task.dev_splits, recipe) == ("dev",)
    assert task.splits(task.test_splits, recipe) == ("test",)
    sizes = [len(task.load(name, recipe)) for name in ("train", "dev", "test")]
    assert sizes == [12, 5, 3]
    assert task.load("dev", recipe)[0].context == "the film 100"
    assert capsys.readouterr().err == ""
    # Devlin et al. 2019, section 4.4.
    assert (recipe.train_batch_size, recipe.learning_rate) == (16, 2e-5)


@pytest.mark.parametrize("name", ["train.csv", "val.csv"])
def test_one_official_file_is_split(tmp_path, capsys, name):
    swag_file(tmp_path, name, 40)
    task = MultipleChoiceTask(name="swag", data=SwagFiles())
    recipe = swag_recipe(tmp_path, dev_share=0.2)
    assert task.splits(task.dev_splits, recipe) == ("dev",)
    train, dev = task.load("train", recipe), task.load("dev", recipe)
    notice = capsys.readouterr().err
    assert f"holds only {name} of train.csv and val.csv" in notice
    assert (len(train), len(dev)) == (32, 8)
    assert not {e.context for e in train} & {e.context for e in dev}


def test_no_official_file(tmp_path):
    task, recipe = load_task("swag"), swag_recipe(tmp_path)
    line = error_of(task.load, "train", recipe)
    assert line.startswith(f"`data_dir`={tmp_path}: holds neither train.csv no")
    named = recipe.override(["dev_file=", "train_file=mine.csv"])
    line = error_of(task.load, "train", named)
    assert line.startswith(f"{tmp_path}/mine.csv: no such file")
    assert "test.csv: no such file" in error_of(task.load, "test", recipe)


@pytest.mark.parametrize(
    ("form", "cells", "labels"),
    [
        ("number", ["0", "0"], "02"),
        ("number_from_1", ["1", "1"], "13"),
        ("letter", ["A", "A"], "AC"),
        ("text", ["two lines", "same"], [" two\n\tlines ", "other"]),
    ],
)
def test_files_name_choices_as_they_were_given(tmp_path, form, cells, labels):
    """Texts with line ends fit in a cell, and of two equal ones either is."""
    recipe = UserChoiceRecipe(**SETTINGS, label_form=form)
    task = USER_TASK.resolve(recipe)
    choices = (" two\n\tlines ", "one"), ("same", "same", "other")
    examples = [
        ChoiceExample("Q", "", each, 0, str(row), row)
        for row, each in enumerate(choices)
    ]
    answered = Answered(examples, {"prediction": [0, 0]}, None)
    path = task.write_predictions(tmp_path, "dev", answered)
    lines = [f"{row}\t{cell}" for row, cell in enumerate(cells)]
    assert path.read_text().splitlines() == ["index\tprediction", *lines]
    gold = objects(
        tmp_path,
        *(
            {"question": "Q", "options": each, "answer": label}
            for each, label in zip(choices, labels, strict=True)
        ),
    )
    assert task.score_file(recipe, gold, str(path)) == {"accuracy": 0.5}
    path.write_text("index\tprediction\n0\tzz\n1\t\n")
    line = error_of(task.score_file, recipe, gold, str(path))
    assert line.startswith(f"{path}, row 2: the label 'zz' is ")


def test_the_lines_of_the_report():
    choices = ("good", "bad"), ("it", "was", "so")
    logits = np.float32([[2, 1, -np.inf], [1, 0, 0]])
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    task = USER_TASK.resolve(UserChoiceRecipe(**SETTINGS))
    first, second = task.prediction_lines(
        Answered(
            [
                ChoiceExample("Q", "the", each, 1, str(row), row + 2, "f")
                for row, each in enumerate(choices)
            ],
            {"logits": logits, "prediction": [0, 0], "probabilities": shares},
            MultipleChoiceConfig("choice", (), 64, True),
        )
    )
    shares = first.pop("probabilities")
    assert shares == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.e)])
    assert len(second["probabilities"]) == 3
    assert first == {
        "identifier": "0",
        "row": 2,
        "context": "Q",
        "start": "the",
        "choices": ["good", "bad"],
        "label": 1,
        "prediction": 0,
    }


def example(number, label, count=4, **changes):
    choices = tuple(f"film {place} {number}" for place in range(count))
    found = ChoiceExample(
        f"context {number}", "the", choices, label, "", number + 2, "f.csv"
    )
    return found._replace(**changes)


def test_the_doctor():
    splits = {
        "train": [
            example(0, 0),
            example(1, 0, count=2),
            example(0, 2, row=9),
            example(3, 0, choices=("good", "bad ", "bad", "so")),
            example(4, 0, context="caf\u00e9 \u2603"),
        ],
        "dev": [
            example(0, 1, row=30, choices=example(0, 1).choices[::-1]),
            example(7, 1, context="context 3"),
        ],
    }
    task = MultipleChoiceTask(name="swag", data=SwagFiles())
    recipe = ChoiceRecipe(max_seq_length=8)
    examined = task.examine(recipe, tokenizer(), splits)
    numbers = examined.numbers
    train = numbers["splits"]["train"]
    assert (train["rows"], train["inputs"]) == (5, 18)
    assert train["choices"] == {"2": 1, "4": 4}
    assert train["right"] == {"0": 4, "1": 0, "2": 1, "3": 0}
    assert train["right_if_even"]["0"] == pytest.approx(4 / 4 + 1 / 2)
    assert train["same_choice_twice"] == 1
    assert numbers["repeated"] == {"rows": 1, "share": 0.2, "first": [2, 9]}
    shared = {"rows": 1, "share": 0.5, "first": [2, 30], "contexts": 2}
    assert numbers["in_train"]["dev"] == shared
    text = "\n".join(examined.lines)
    assert text.startswith("data of swag:\n  train: 5 rows (f.csv)\n")
    for part in (
        "2 in 1 row, 4 in 4 rows",
        "0 4 (80.0 %), 1 0 (0.0 %), 2 1 (20.0 %)",
        "one choice twice: 1 row",
        "1 row, 20.0 % (rows 2 and 9)",
        "1 row, 50.0 % (row 2 of train, row 30 of dev)",
        "dev with a context of train: 2 rows",
        "at position 0 far more often",
        "dev scores will be inflated: 1 of its rows",
        "many words are unknown",
        f"cut at 8 tokens: {train['tokens']['cut']} choices, ",
        "lose their end; max_seq_length=",
    ):
        assert part in text


def test_models_with_another_beginning_are_refused(tmp_path):
    recipe = UserChoiceRecipe(
        context_column="q", choice_columns="a", start_column="s"
    )
    task = UserChoiceTask(name="choice")
    config = task.resolve(recipe).configure(recipe, [])
    assert (config.has_start, config.texts_per_row) == (True, 2)
    other = task.resolve(recipe.override(["start_column="]))
    (tmp_path / TASK_FILE).write_text(json.dumps(dataclasses.asdict(config)))
    line = error_of(read_config, tmp_path, other)
    assert line.startswith(f"{tmp_path}: was fine-tuned with has_start True")


def test_another_task_starts_from_the_head(tmp_path):
    """It scores any choices, so that it depends on no labels."""
    run = finished_run("choices", tmp_path / "stored")
    initial = load_checkpoint(run.folder)
    assert MULTIPLE_CHOICE in initial.heads
    task = UserChoiceTask(name="quiz").resolve(run.recipe)
    recipe = run.recipe.override([f"init_from={run.folder}"])
    found = prepare_training(task, recipe, initial, tokenizer(), tmp_path)
    assert found.fresh == ()
