"""Tasks on choices: files, answers, scores, the doctor; what a model gives."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from keras import ops

from bert_tf import models
from bert_tf.checkpoints import MULTIPLE_CHOICE, load_checkpoint
from bert_tf.families.model_folder import TASK_FILE, read_config
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.multiple_choice.files import (
    ChoiceColumns,
    ChoiceExample,
    SwagFiles,
)
from bert_tf.families.multiple_choice.task import (
    MultipleChoiceTask,
    UserChoiceTask,
)
from bert_tf.families.recipe import ChoiceRecipe, UserChoiceRecipe
from bert_tf.families.task import Answered
from bert_tf.families.task_model import ChoicesObjective
from bert_tf.finetuning.run import run_finetuning
from tests.contracts.task_cases import CASES, model_folder
from tests.finetuning.sentence_runs import tokenizer
from tests.run_folders import weights
from tests.user_errors import error_of
from tools.task_files import load_task, recipe_of

USER_TASK = UserChoiceTask(name="choice")
COLUMNS = {
    "context_column": "text",
    "start_column": "start",
    "choice_columns": "options",
    "label_column": "answer",
}
HEADER = "n,sent1,sent2,ending0,ending1,ending2,ending3,label\n"


def example(number, label, count=4, context=None):
    return ChoiceExample(
        f"context {number}" if context is None else context,
        "the",
        tuple(f"film {place} {number}" for place in range(count)),
        label,
        str(number),
        number + 2,
        "f.csv",
    )


def write(path, rows):
    """A file of JSON lines: text, options and answer."""
    names = ("text", "options", "answer")
    lines = [dict(zip(names, row, strict=True)) | {"start": ""} for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def swag_file(folder, name, count, first=0):
    body = "".join(
        f"{n},the film {n - n % 2},it,a,good,bad,so,{n // 2 % 4}\n"
        for n in range(first, first + count)
    )
    (folder / name).write_text(HEADER + body)


def swag_recipe(folder, **changes):
    assignments = [f"data_dir={folder}"]
    assignments += [f"{name}={value}" for name, value in changes.items()]
    return recipe_of(load_task("swag"), "swag", assignments)


def test_the_recipe_of_swag():
    recipe = recipe_of(load_task("swag"), "swag", [])
    assert type(recipe) is ChoiceRecipe
    assert (recipe.train_batch_size, recipe.learning_rate) == (16, 2e-5)
    assert recipe.num_train_epochs == 3
    assert (recipe.train_file, recipe.dev_file) == ("train.csv", "val.csv")
    line = error_of(recipe_of, load_task("swag"), "swag", ["context_column=a"])
    assert "unknown key 'context_column'" in line


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


@pytest.mark.parametrize("name", ["train.csv", "val.csv"])
def test_one_official_file_is_split(tmp_path, capsys, name):
    swag_file(tmp_path, name, 40)
    task = MultipleChoiceTask(name="swag", data=SwagFiles())
    recipe = swag_recipe(tmp_path, dev_share=0.2)
    assert task.splits(task.dev_splits, recipe) == ("dev",)
    train, dev = task.load("train", recipe), task.load("dev", recipe)
    notice = capsys.readouterr().err
    assert f"holds {name} alone of train.csv and val.csv; it is split" in notice
    assert "8 of 40 rows are kept for dev (dev_share=0.2" in notice
    assert (len(train), len(dev)) == (32, 8)
    # Rows of a context stay together.
    assert not {e.context for e in train} & {e.context for e in dev}
    assert [e.row for e in train] == sorted(e.row for e in train)
    # Both parts are of one draw, which the seed decides.
    again = MultipleChoiceTask(name="swag", data=SwagFiles())
    assert again.load("dev", recipe) == dev
    other = recipe.override(["dev_seed=1"])
    assert again.load("dev", other) != dev


def test_no_official_file(tmp_path):
    task, recipe = load_task("swag"), swag_recipe(tmp_path)
    line = error_of(task.load, "train", recipe)
    assert line.startswith(f"`data_dir`={tmp_path}: holds neither train.csv no")
    named = recipe.override(["dev_file=", "train_file=mine.csv"])
    line = error_of(task.load, "train", named)
    assert line.startswith(f"{tmp_path}/mine.csv: no such file; name yours")
    assert "test.csv: no such file" in error_of(task.load, "test", recipe)


def test_a_recipe_without_a_label_column():
    recipe = UserChoiceRecipe(context_column="q", choice_columns="a, b")
    columns = USER_TASK.resolve(recipe).data.columns
    assert columns == ChoiceColumns("q", ("a", "b"), label=None)


def batch_of(logits, labels, mask, weights=None):
    weights = np.ones(len(labels)) if weights is None else weights
    return {"logits": ops.convert_to_tensor(np.float32(logits))}, {
        "label_ids": ops.convert_to_tensor(np.int32(labels)),
        "choice_mask": ops.convert_to_tensor(np.float32(mask)),
        "example_weights": ops.convert_to_tensor(np.float32(weights)),
    }


def test_the_loss_by_hand():
    logits = [[1.0, 2.0, 99.0], [0.5, -1.0, 3.0]]
    outputs, batch = batch_of(logits, [1, 0], [[1, 1, 0], [1, 1, 1]])
    objective = ChoicesObjective()
    losses, metrics = objective(outputs, batch)
    first = np.log(1 + np.exp(-1.0))
    second = -0.5 + np.log(np.exp([0.5, -1.0, 3.0]).sum())
    assert float(losses["loss"]) == pytest.approx(first + second, rel=1e-6)
    mean = objective.normalise(losses, objective.loss_weights(batch))
    assert float(mean["loss"]) == pytest.approx((first + second) / 2, rel=1e-6)
    right, count = metrics["accuracy"]
    assert (float(right), float(count)) == (1.0, 2.0)


def test_what_pads_has_no_gradient():
    import tensorflow as tf

    logits = tf.Variable([[0.3, -0.7, 5.0], [0.1, 0.2, -0.4]])
    _, batch = batch_of(np.zeros((2, 3)), [0, 2], [[1, 1, 0], [1, 1, 1]])
    with tf.GradientTape() as tape:
        losses, _ = ChoicesObjective()({"logits": logits}, batch)
    gradient = tape.gradient(losses["loss"], logits).numpy()
    assert gradient[0, 2] == 0
    assert (np.abs(np.delete(gradient.ravel(), 2)) > 0.05).all()
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-6)


def predictions_of(logits):
    """Answers with the best choice of each row."""
    logits = np.float32(logits)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    best = logits.argmax(axis=1).tolist()
    return {"logits": logits, "prediction": best, "probabilities": shares}


def test_scores_by_hand():
    task = MultipleChoiceTask(name="swag", data=SwagFiles())
    config = MultipleChoiceConfig("swag", (), 32, True)
    rows = [example(0, 1, count=2), example(1, 2, count=3)]
    found = predictions_of([[1, 3, -np.inf], [2, -2, 0]])
    found = task.score(Answered(rows, found, config))
    assert found.values == {"accuracy": 0.5}
    exp_logits = np.exp([2.0, -2.0, 0.0])
    losses = [np.log1p(np.exp(-2.0)), -np.log(exp_logits[2] / exp_logits.sum())]
    assert found.loss == pytest.approx(np.mean(losses))
    # Scores that are far apart overflow nothing.
    far = predictions_of([[0, 1]]) | {"logits": np.float32([[1e4, -1e4]])}
    assert task.score(
        Answered([example(0, 1)], far, config)
    ).loss == pytest.approx(2e4)


def test_the_baseline_is_the_commonest_position():
    task = MultipleChoiceTask(name="swag", data=SwagFiles())
    train = [example(n, label) for n, label in enumerate([3, 1, 3, 0])]
    dev = [example(0, 3), example(1, 1, count=2), example(2, 0)]
    assert task.baseline(train, dev) == {"accuracy": pytest.approx(1 / 3)}


def test_the_doctor():
    splits = {
        "train": [
            example(0, 0),
            example(1, 0, count=2),
            example(0, 2)._replace(row=9),
            example(3, 0)._replace(choices=("good", "bad ", "bad", "so")),
            example(4, 0)._replace(context="caf\u00e9 \u2603"),
        ],
        "dev": [
            example(0, 1)._replace(
                row=30, choices=tuple(reversed(example(0, 1).choices))
            ),
            example(7, 1)._replace(context="context 3"),
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
    assert numbers["in_train"]["dev"] == {
        "rows": 1,
        "share": 0.5,
        "first": [2, 30],
        "contexts": 2,
    }
    text = "\n".join(examined.lines)
    assert text.startswith("data of swag:\n  train: 5 rows (f.csv)\n")
    for line in (
        "    choices: 2 in 1 row, 4 in 4 rows",
        "    right ones, by position: 0 4 (80.0 %), 1 0 (0.0 %), 2 1 (20.0 %)",
        "    one choice twice: 1 row",
        "  rows that occur again in train: 1 row, 20.0 % (rows 2 and 9)",
        "  rows of dev that are in train: 1 row, 50.0 % (row 2 of train, row",
        "  dev with a context of train: 2 rows",
        "  remark: the right choice is at position 0 far more often than",
        "  remark: dev scores will be inflated: 1 of its rows",
        "  remark: many words are unknown",
    ):
        assert line in text
    cut = train["tokens"]["cut"]
    assert f"    cut at 8 tokens: {cut} choices, " in text
    assert "lose their end; max_seq_length=" in text


FILE = "predictions.tsv"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["0\t1", "1\t1"], {"accuracy": 0.5}),
        (["1\t0", "0\t1"], {"accuracy": 1.0}),
        (["0\t1", "1\t2"], f"{FILE}, row 3: the label '2' is none of 0 to 1"),
        (["0\t1", "1\t"], f"{FILE}, row 3: the label '' is none of 0 to 1"),
        (["0\t1"], f"{FILE}: has no index 1, which is row 2 of"),
    ],
)
def test_prediction_files(tmp_path, cells, expected):
    rows = [("q", ["x", "y z"], "1"), ("r", ["x", "x"], "0")]
    gold = write(tmp_path / "gold.jsonl", rows)
    file = tmp_path / FILE
    file.write_text("\n".join(["index\tprediction", *cells, ""]))
    recipe = UserChoiceRecipe(**COLUMNS)
    arguments = (recipe, gold, str(file))
    task = USER_TASK.resolve(recipe)
    if isinstance(expected, dict):
        assert task.score_file(*arguments) == expected
    else:
        line = error_of(task.score_file, *arguments)
        assert line.startswith(f"{tmp_path}/{expected}")
    line = error_of(task.score_file, recipe, "a", "b", "odds.json")
    assert line.startswith("`null_odds`=odds.json: is for questions")


@pytest.mark.parametrize(
    ("form", "cells"),
    [
        ("number", ["0", "0"]),
        ("number_from_1", ["1", "1"]),
        ("letter", ["A", "A"]),
        ("text", ["two lines", "same"]),
    ],
)
def test_files_name_choices_as_they_were_given(tmp_path, form, cells):
    """Texts with line ends fit in a cell, and of two equal ones either is."""
    recipe = UserChoiceRecipe(**COLUMNS, label_form=form)
    task = USER_TASK.resolve(recipe)
    examples = [
        example(0, 0)._replace(choices=(" two\n\tlines ", "one")),
        example(1, 2)._replace(choices=("same", "same", "other")),
    ]
    answers = predictions_of([[2, 1, -np.inf], [1, 0, 0]])
    answered = Answered(examples, answers, None)
    path = task.write_predictions(tmp_path, "dev", answered)
    lines = [f"{row}\t{cell}" for row, cell in enumerate(cells)]
    assert path.read_text().splitlines() == ["index\tprediction", *lines]
    names = {"number": "02", "number_from_1": "13", "letter": "AC"}
    labels = names.get(form) or [e.choices[e.label] for e in examples]
    rows = [
        (e.context, e.choices, label)
        for e, label in zip(examples, labels, strict=True)
    ]
    gold = write(tmp_path / "gold.jsonl", rows)
    assert task.score_file(recipe, gold, str(path)) == {"accuracy": 0.5}


def test_the_lines_of_the_report():
    examples = [example(0, 1, count=2), example(1, 2, count=3)]
    answers = predictions_of([[2, 1, -np.inf], [1, 0, 0]])
    task = USER_TASK.resolve(UserChoiceRecipe(**COLUMNS))
    first, second = task.prediction_lines(Answered(examples, answers, None))
    shares = first.pop("probabilities")
    assert shares == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.e)])
    assert len(second["probabilities"]) == 3
    assert first == {
        "identifier": "0",
        "row": 2,
        "context": "context 0",
        "start": "the",
        "choices": ["film 0 0", "film 1 0"],
        "label": 1,
        "prediction": 0,
    }


def test_models_with_another_beginning_are_refused(tmp_path):
    recipe = UserChoiceRecipe(**COLUMNS)
    config = USER_TASK.resolve(recipe).configure(recipe, [])
    assert (config.has_start, config.num_segments) == (True, 2)
    other = USER_TASK.resolve(recipe.override(["start_column="]))
    (tmp_path / TASK_FILE).write_text(json.dumps(dataclasses.asdict(config)))
    line = error_of(read_config, tmp_path, other)
    assert line.startswith(f"{tmp_path}: was fine-tuned with has_start True")


@pytest.mark.slow
def test_replicas_and_a_head_of_another_task(tmp_path, monkeypatch, capsys):
    """Two replicas that accumulate train as one; any choices take the head."""
    start = model_folder(
        tmp_path / "model",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    make = models.bert_multiple_choice
    monkeypatch.setattr(
        models, "bert_multiple_choice", functools.partial(make, dropout=0.0)
    )
    task, recipe = CASES["choices"].make(tmp_path / "files", start)
    recipe = recipe.override(["learning_rate=0.001", "num_train_epochs=1"])
    done = run_finetuning(task, recipe, tmp_path / "one", ["train"])
    other = recipe.override(
        ["strategy=mirrored", "gradient_accumulation_steps=2"]
    )
    run_finetuning(task, other, tmp_path / "two", ["train"])
    theirs = weights(tmp_path / "two" / "last")
    # Softmax does not feel the bias, so that its gradient is rounding alone.
    del theirs["cls/multiple_choice/output_bias"]
    ours = weights(tmp_path / "one" / "last")
    for name, array in theirs.items():
        np.testing.assert_allclose(array, ours[name], atol=2e-5)
    assert MULTIPLE_CHOICE in load_checkpoint(tmp_path / "one").heads
    # A head that scores choices has no labels, so another task starts from it.
    other = recipe.override(
        [
            f"init_from={tmp_path / 'one'}",
            "learning_rate=1e-9",
            "num_train_epochs=0.2",
        ]
    )
    named = UserChoiceTask(name="quiz")
    capsys.readouterr()
    again = run_finetuning(named, other, tmp_path / "three", ["train"])
    assert "initialized randomly" not in capsys.readouterr().err
    assert again["train"]["dev"] == done["train"]["dev"]
