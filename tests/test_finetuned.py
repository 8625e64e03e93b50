"""`bert_tf.finetune`: the run of the command, from data in memory."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import bert_tf
from bert_tf.families.multiple_choice.recipe import UserChoiceRecipe
from bert_tf.families.question_answering.recipe import UserQuestionRecipe
from bert_tf.families.question_answering.squad_files import Answer
from bert_tf.families.question_answering.user_questions import (
    read_user_questions,
)
from bert_tf.families.text_classification.recipe import UserTableRecipe
from bert_tf.families.token_classification.conll_files import read_conll
from bert_tf.families.token_classification.recipe import UserTagRecipe
from bert_tf.finetuning import (
    UserChoiceTask,
    UserFileTask,
    UserQuestionAnsweringTask,
    UserTokenClassificationTask,
)
from bert_tf.finetuning.run import run_finetuning
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import model_folder, texts
from tests.frames import DataSet, Frame, RowStream
from tests.run_folders import assert_same_run
from tests.user_errors import error_of

SMALL = {
    "max_seq_length": 32,
    "train_batch_size": 8,
    "learning_rate": 1e-2,
    "num_train_epochs": 1.0,
}
TASKS = {
    task.recipe_type: task
    for task in (
        UserFileTask(name="sentence"),
        UserChoiceTask(name="choice"),
        UserQuestionAnsweringTask(name="questions"),
        UserTokenClassificationTask(name="tagging"),
    )
}
SETTINGS = {"eval_batch_size": 4, "save_checkpoints_steps": 2}
TRAIN, DEV = (
    ([e.text_a for e in rows], [e.label for e in rows])
    for rows in (texts(24, 1), texts(13, 2))
)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "model"
    return model_folder(folder, num_hidden_layers=1)


def finetuned(start, folder, train=TRAIN, **changes):
    values = {"dev": DEV, "output_dir": folder, "settings": SETTINGS, **SMALL}
    with quickly():
        return bert_tf.finetune(start, train, **values | changes)


@pytest.fixture(scope="module")
def run(start, tmp_path_factory):
    return finetuned(start, tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.witness("bert_tf.finetune is the run of the command")
def test_it_is_the_run_of_the_command(run, start, tmp_path):
    for name, (rows, labels) in (("train", TRAIN), ("dev", DEV)):
        both = zip(rows, labels, strict=True)
        lines = [json.dumps({"label": b, "text": a}) for a, b in both]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    recipe = UserTableRecipe(
        task="sentence",
        init_from=str(start),
        train_file=str(tmp_path / "train.jsonl"),
        dev_file=str(tmp_path / "dev.jsonl"),
        text_columns="text",
        label_column="label",
        **SMALL | SETTINGS,
    )
    task = UserFileTask(name="sentence")
    with quickly():
        done = run_finetuning(task, recipe, tmp_path / "out", ["train"])
    assert_same_run(run.folder, tmp_path / "out")
    assert run.scores == done["train"]["dev"]
    # And its recipe repeats it.
    saved = json.loads((run.folder / "recipe.json").read_text())
    assert set(saved) == set(recipe.to_dict())
    assert saved["train_file"] == str(run.folder / "data" / "train.jsonl")


def test_what_a_run_gives(run, eagerly):
    assert run.scores["dev"].keys() == {"accuracy", "macro_f1"}
    assert run.report == run.folder / "report.html"
    assert run.results["examples"] == {"train": 24, "dev": 13}
    answers = run.model(DEV[0])
    right = [a["label"] == b for a, b in zip(answers, DEV[1], strict=True)]
    assert np.mean(right) == pytest.approx(run.scores["dev"]["accuracy"])
    assert run.model is run.model
    assert "results" not in repr(run)


def test_it_resumes_and_refuses_other_data(run, start, tmp_path, capsys):
    """The same data in another form are the same."""
    before = shutil.copytree(run.folder, tmp_path / "before")
    other = TRAIN[0][1:], TRAIN[1][1:]
    line = error_of(finetuned, start, run.folder, other)
    assert line.startswith("`train`: is not what the run in ")
    line = error_of(finetuned, start, run.folder, learning_rate=1e-3)
    assert "learning_rate was 0.01 and is now 0.001" in line
    table = Frame({"text": TRAIN[0], "label": TRAIN[1]})
    finetuned(start, run.folder, table)
    assert "already finished: 3 of 3" in capsys.readouterr().out
    assert_same_run(run.folder, before)


def test_a_cell_that_runs_again(run, start, tmp_path, monkeypatch):
    """A finished run is replaced on request, or its neighbour is written."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(run.folder, tmp_path / "finetuned")
    (folder / "notes.txt").write_text("mine")
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["train_file"] = str(folder / "data" / "train.jsonl")
    recipe["dev_file"] = str(folder / "data" / "dev.jsonl")
    (folder / "recipe.json").write_text(json.dumps(recipe))
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    other = TRAIN[0][1:], TRAIN[1][1:]
    line = error_of(finetuned, start, folder, learning_rate=1e-3)
    assert line.endswith(
        "choose another folder, or pass `overwrite`=True to replace it."
    )
    # Nothing is lost by settings and data that do not fit.
    for changes in (
        {"num_train_epochs": 1e-3},
        {"train": ([*TRAIN[0], " "], [*TRAIN[1], "good"])},
        {"seeds": 2, "num_train_epochs": 1e-3},
    ):
        error_of(finetuned, start, folder, overwrite=True, **changes)
        assert all(p.read_bytes() == content for p, content in before.items())
    line = error_of(finetuned, folder, folder, other, overwrite=True)
    assert line.startswith(f"`init_from`={folder}: `overwrite` would remove")
    given = {"output_dir": None, "num_train_epochs": 0.4}
    for number in range(2):
        second = finetuned(start, None, other, **given)
        assert str(second.folder) == "finetuned_2", number
    assert all(p.read_bytes() == content for p, content in before.items())
    given["overwrite"] = True
    again = finetuned(start, None, other, **given)
    assert str(again.folder) == "finetuned"
    assert again.results["examples"]["train"] == len(other[0])
    assert_same_run(again.folder, second.folder)
    names = {path.name for path in (folder / "data").iterdir()}
    assert names == {"train_2.jsonl", "dev_2.jsonl"}
    assert (folder / "notes.txt").read_text() == "mine"
    several = finetuned(start, None, other, **given, seeds=2)
    assert len(several.results["seeds"]) == 2
    assert not (folder / "last").exists()
    again = finetuned(start, None, other, **given)
    assert not [*folder.glob("seed_*/recipe.json")]
    for name in ("results.json", "bert_model.safetensors"):
        (folder / name).unlink()
    line = error_of(finetuned, start, folder, other, learning_rate=1e-3)
    assert line.endswith(
        "(learning_rate was 0.01 and is now 0.001; num_train_epochs was 0.4 "
        "and is now 1.0); choose another folder, or the same values to resume "
        "that run, or pass `overwrite`=True to replace it."
    )
    # A model, records or a pre-training is never replaced.
    for name in ("bert_config.json", "records.json"):
        (tmp_path / "foreign").mkdir()
        (tmp_path / "foreign" / name).write_text("{}")
        if name == "records.json":
            (tmp_path / "foreign" / "recipe.json").write_text("{}")
        error_of(finetuned, start, tmp_path / "foreign", overwrite=True)
        assert (tmp_path / "foreign" / name).exists()
        shutil.rmtree(tmp_path / "foreign")


def test_every_setting_is_an_argument(start, tmp_path):
    """As in `settings`; one that is none is named with the nearest."""
    for name, nearest in (
        ("epochs", "num_train_epochs"),
        ("lr", "learning_rate"),
        ("batch_size", "train_batch_size"),
        ("overwite", "overwrite"),
    ):
        line = error_of(finetuned, start, tmp_path / "a", **{name: 1})
        assert line == (
            f"the settings of sentence: unknown key '{name}'. Did you mean "
            f"{nearest}?"
        )
    line = error_of(finetuned, start, tmp_path / "a", bad_rows="drop")
    assert line.startswith("the settings of sentence: bad_rows is 'drop'; it")
    line = error_of(finetuned, start, tmp_path / "a", train_file="a")
    assert line == "`train_file`: is what an argument says; leave it out."
    line = error_of(finetuned, start, tmp_path / "a", eval_batch_size=2)
    assert line.startswith("`settings`: eval_batch_size is what an argument")
    assert not (tmp_path / "a").exists()


NAN = float("nan")


def rows_of(data, recipe_type=UserTableRecipe, **settings):
    """The rows that data become, and the settings that describe them."""
    file = TASKS[recipe_type].stored(data, "`train`", settings)
    return [*map(json.loads, file.text.splitlines())], file.settings


def test_every_form_of_data_is_the_same_file():
    rows = [{"text": "a film", "label": "1"}, {"text": 'b\n"é"', "label": "2"}]
    columns = {"text": [r["text"] for r in rows], "label": ["1", "2"]}
    names = {"text_columns": "text", "label_column": "label"}
    pair = columns["text"], ("1", "2")
    for kind in (dict, Frame, DataSet, RowStream, pa.table):
        assert rows_of(kind(columns)) == (rows, names)
    assert rows_of(pair) == (rows, names)
    numbers = np.float64([0.5, 2]), np.array(["a", "b"])
    pairs = [("a", "b"), ["c", "d"]]
    found, settings = rows_of((pairs, numbers[0]), label_kind="regression")
    assert found[0] == {"text": "a", "text_b": "b", "label": 0.5}
    assert settings["text_columns"] == "text,text_b"
    table = {"q": ["a", "c"], "r": ["b", "d"], "y": [["x"], []], "no": [0, 1]}
    names = {"text_columns": "q, r", "label_column": "y"}
    found, settings = rows_of(table, **names)
    assert found == [
        {"q": "a", "r": "b", "y": ["x"]},
        {"q": "c", "r": "d", "y": []},
    ]
    assert settings == names | {"text_columns": "q,r"}
    choices = {"c": ["t"], "o": [["a", "b"]], "n": np.array([1]), "s": [None]}
    assert rows_of(Frame(choices), UserChoiceRecipe) == (
        [{"c": "t", "o": ["a", "b"], "n": 1, "s": None}],
        {},
    )


def test_labels_in_memory():
    """Whole numbers are floats in a column that lacks one."""
    found, _ = rows_of((["a", "b", "c"], [1.0, NAN, np.float32(0)]))
    assert [row["label"] for row in found] == [1, None, 0]
    several = {"label_kind": "multi_label"}
    holds = np.array([[0, 1], [1, 1]])
    for labels in (holds, holds.tolist(), holds.astype(float)):
        found, _ = rows_of((["a", "b"], labels), **several)
        assert [row["label"] for row in found] == [[0, 1], [1, 1]]
    found, settings = rows_of(
        Frame({"text": ["a", "b"], "u": [0, 1], "v": np.array([1.0, 0.0])}),
        **several,
        label_column="u, v",
    )
    assert found == [
        {"text": "a", "u": 0, "v": 1},
        {"text": "b", "u": 1, "v": 0},
    ]
    assert settings["label_column"] == "u, v"


def test_questions_in_memory(tmp_path):
    """Columns, rows and what a JSON file has are the same questions."""
    starts = {"text": np.array(["Bo"]), "answer_start": np.array([7])}
    rows = [{"question": "who?", "context": "Bo and Bo", "answers": starts}]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    recipe = UserQuestionRecipe(answer_column="answers")
    for data in (columns, Frame(columns), rows, {"data": rows}):
        file = TASKS[UserQuestionRecipe].stored(data, "`train`", {})
        path = tmp_path / f"train.{file.ending}"
        path.write_text(file.text)
        (found,) = read_user_questions(str(path), recipe)
        assert found.answers == (Answer("Bo", 7),)
    path = tmp_path / "train.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    (found,) = read_user_questions(str(path), recipe)
    assert found.answers == (Answer("Bo", 7),)


def test_tagged_words_are_read_again(tmp_path):
    data = [["a", "New York"], ["b"]], [["O", "B-LOC"], np.array(["O"])]
    file = TASKS[UserTagRecipe].stored(data, "`train`", {})
    (tmp_path / "train.txt").write_text(file.text)
    words = read_conll(str(tmp_path / "train.txt"))
    assert words.words == ["a", "New York", "b"]
    assert words.tags == ["O", "B-LOC", "O"]
    assert words.sentence_starts.tolist() == [0, 2, 3]


class NAType:
    """pandas.NA, of which nothing may be asked."""

    def __eq__(self, other):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None


def test_what_is_missing_follows_the_settings_for_rows(start, tmp_path, capsys):
    """Every fault of a table in memory is told at once, as of a file."""
    missing = [None, NAN, np.float32("nan"), NAType(), ""]
    table = Frame(
        {
            "text": [*TRAIN[0], *missing, "a text"],
            "label": [*TRAIN[1], *TRAIN[1][: len(missing)], NAN],
        }
    )
    rows = len(TRAIN[0])
    line = error_of(finetuned, start, tmp_path / "a", table)
    numbers = ", ".join(str(rows + n) for n in range(1, 6))
    assert f"an empty text: {numbers}; no label: {rows + 6}." in line
    assert f"6 of {rows + 6} rows cannot be used" in line
    dev = ["", *DEV[0][1:]], DEV[1]
    line = error_of(finetuned, start, tmp_path / "a", table, dev=dev)
    assert f"train.jsonl: 6 of {rows + 6} rows cannot be used" in line
    assert "data/dev.jsonl, row 1: the text in 'text' is empty" in line
    capsys.readouterr()
    settings = {**SETTINGS, "empty_text": "drop", "bad_rows": "skip"}
    run = finetuned(
        start, tmp_path / "b", table, settings=settings, num_train_epochs=0.4
    )
    told = capsys.readouterr().err
    assert f"5 of {rows + 6} rows have an empty text and are dropped" in told
    assert "and are skipped (bad_rows=skip)" in told
    results = json.loads((run.folder / "results.json").read_text())
    assert results["examples"]["train"] == rows


TABLE, TAGS, CHOICES = UserTableRecipe, UserTagRecipe, UserChoiceRecipe
BAD = [
    (["a", "b"], TABLE, "`train` is ['a', 'b']; for this task give (t"),
    ((["a"],), TABLE, "`train` is (['a'],); for this task"),
    ((["a"], ["b"]), CHOICES, "`train` is (['a'], ['b']); for this tas"),
    (["a"], TAGS, "`train` is ['a']; for this task give (sentences, tags)"),
    ((["a"], 1), TABLE, "`train` is (['a'], 1); for this task give"),
    (("a", "b"), TAGS, "`train` is ('a', 'b'); for this task give (sent"),
    ({"a": "x"}, CHOICES, "`train`: 'a' is 'x'; give a list of the cells"),
    (np.eye(2), TABLE, "`train` is array([[1., 0.],        [0., 1.]]); for"),
    (([], []), TABLE, "`train`: texts: is empty"),
    (([b"a"], [0]), TABLE, "`train`: texts[0] is b'a'; give a string"),
    (([1], [0]), TABLE, "`train`: texts[0] is 1; give a string"),
    ((["a", "b"], [0]), TABLE, "`train`: has 2 of text, 1 of label; give"),
    ((["a"], [["x", NAN]]), TABLE, "`train`: labels[0] is ['x', nan]; give a"),
    ((["a"], [0.5]), TABLE, "`train`: labels[0] is 0.5; give a name"),
    ((["a", "b"], [1.0, 0.5]), TABLE, "`train`: labels[1] is 0.5; give a"),
    ((["a"], [b"x"]), TABLE, "`train`: labels[0] is b'x'; give a text"),
    ((["a"], ["\ud800"]), TABLE, "`train`: labels[0] is '\\ud800', with half"),
    ({"texts": ["a"]}, TABLE, "`train`: has no column 'text'. Did you mean '"),
    ({"text": ["a"]}, TABLE, "`train`: has no column 'label'. Its columns are"),
    ({}, CHOICES, "`train`: has no columns; give"),
    ({"a": ["x"], "b": []}, CHOICES, "`train`: has 1 of a, 0 of b; give"),
    ({"a": [b"x"]}, CHOICES, "`train`: a[0] is b'x'; give a text, a number"),
    (([["a"]], []), TAGS, "`train`: has 1 sentences and 0 lists of tags"),
    (([["a"]], [["O", "O"]]), TAGS, "`train`: sentences[0] has 1 words and 2"),
    ((["a b"], [["O"]]), TAGS, "`train`: sentences[0] and its tags are no l"),
    (([["a\tb"]], [["O"]]), TAGS, "`train`: sentences[0] holds 'a\\tb'; word"),
    (([[" "]], [["O"]]), TAGS, "`train`: sentences[0] holds ' '; words and"),
    (([["a\n"]], [["O"]]), TAGS, "`train`: sentences[0] holds 'a\\n'; words"),
    (([[None]], [["O"]]), TAGS, "`train`: sentences[0] holds None; words and"),
]


@pytest.mark.parametrize(("data", "recipe_type", "line"), BAD)
def test_data_that_are_none_are_one_line(data, recipe_type, line):
    found = error_of(TASKS[recipe_type].stored, data, "`train`", {})
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"task": "sentense"}, "`task`='sentense': takes one of sentence, "),
        (
            {"settings": {"learning_rat": 1.0}},
            "the settings of sentence: unknown key 'learning_rat'. Did you "
            "mean learning_rate?",
        ),
        ({"settings": {"seed": 1}, "seed": 2}, "`settings`: seed is what an"),
        ({"settings": {"train_file": "a"}}, "`settings`: train_file is what"),
        ({"learning_rate": -1}, "the settings of sentence: learning_rate is"),
        ({"seeds": "2"}, "the settings of sentence: seeds is '2'; it takes a"),
        (
            {"task": "tagging", "train": "a.txt", "label_kind": "classes"},
            "the settings of tagging: unknown key 'label_kind'",
        ),
        ({"text_columns": "a,b"}, "`train`: has 1 text(s) a row, and `text_c"),
        ({"train": "none.csv"}, "`text_columns`=...: name the column"),
        ({"output_dir": __file__}, f"`output_dir`={__file__}: is a file"),
    ],
)
def test_arguments_that_do_not_fit_write_nothing(start, tmp_path, given, line):
    folder = tmp_path / "out"
    values = {"train": TRAIN, "output_dir": folder} | given
    assert error_of(bert_tf.finetune, start, **values).startswith(line)
    assert not folder.exists()
