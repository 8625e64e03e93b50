"""Tasks on choices: files, settings, objective, doctor and scores."""

import numpy as np
import pytest
from keras import ops

from bert_tf.errors import UserError
from bert_tf.finetuning.data.user_files import split_off_dev
from bert_tf.finetuning.multiple_choice.files import ChoiceExample, SwagFiles
from bert_tf.finetuning.multiple_choice.objective import ChoicesObjective
from bert_tf.finetuning.multiple_choice.task import (
    MultipleChoiceTask,
    UserChoiceTask,
    choice_predictions,
)
from bert_tf.finetuning.recipe import ChoiceRecipe, UserChoiceRecipe
from tests.finetuning.multiple_choice.choice_runs import COLUMNS, rows, written
from tests.finetuning.sentence_runs import tokenizer
from tools.task_files import load_task, recipe_of

OWN = UserChoiceTask(name="choice")
HEADER = "n,sent1,sent2,ending0,ending1,ending2,ending3,label\n"


def message_of(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


def swag_file(folder, name, count, first=0):
    body = "".join(
        f"{n},the film {n},it,a,good,bad,so,{n % 4}\n"
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
    line = message_of(
        recipe_of, load_task("swag"), "swag", ["context_column=a"]
    )
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
    told = capsys.readouterr().err
    assert f"holds {name} alone of train.csv and val.csv; it is split" in told
    assert "8 of 40 rows are kept for dev (dev_share=0.2" in told
    assert (len(train), len(dev)) == (32, 8)
    assert not {e.context for e in train} & {e.context for e in dev}
    assert [e.row for e in train] == sorted(e.row for e in train)
    # Both parts are of one draw, which the seed decides.
    again = MultipleChoiceTask(name="swag", data=SwagFiles())
    assert again.load("dev", recipe) == dev
    other = recipe.override(["dev_seed=1"])
    assert again.load("dev", other) != dev


def test_no_official_file(tmp_path):
    task, recipe = load_task("swag"), swag_recipe(tmp_path)
    line = message_of(task.load, "train", recipe)
    assert line.startswith(f"`data_dir`={tmp_path}: holds neither train.csv no")
    named = recipe.override(["dev_file=", "train_file=mine.csv"])
    line = message_of(task.load, "train", named)
    assert line == f"{tmp_path}/mine.csv: no such file."
    assert "test.csv: no such file" in message_of(task.load, "test", recipe)


def test_rows_of_a_context_stay_together():
    examples = [example(n, n % 3, context=f"text {n % 7}") for n in range(42)]
    train, dev = split_off_dev(examples, 0.3, 5)
    assert sorted(e.row for e in [*train, *dev]) == list(range(2, 44))
    assert dev
    assert not {e.context for e in train} & {e.context for e in dev}


def test_own_columns_that_are_not_named():
    prepared = OWN.resolve
    line = message_of(prepared, UserChoiceRecipe(choice_columns="a,b"))
    assert line.startswith("`context_column`=...: name it, for example")
    line = message_of(prepared, UserChoiceRecipe(context_column="q"))
    assert line.startswith("`choice_columns`=...: name it")
    columns = OWN.resolve(
        UserChoiceRecipe(context_column="q", choice_columns="a, b")
    ).data.columns
    assert (columns.choices, columns.start, columns.label) == (
        ("a", "b"),
        None,
        None,
    )


def test_own_files_that_are_not_named(tmp_path):
    recipe = UserChoiceRecipe(**{**COLUMNS, "label_column": ""})
    task = OWN.resolve(recipe)
    line = message_of(task.splits, ("dev",), recipe)
    assert line == "`dev_file`=...: name the file; this mode reads it."
    path = written(tmp_path / "a.jsonl", rows(9, 1))
    line = message_of(
        task.load, "train", recipe.override([f"train_file={path}"])
    )
    assert line.startswith("`label_column`=...: name the column of the rig")
    assert path in line
    # To predict, no label is needed.
    tests = recipe.override([f"test_file={path}"])
    assert [e.label for e in task.load("test", tests)] == [None] * 9


def test_own_files_of_csv(tmp_path, capsys):
    lines = ["q;1,x,y,z,B", "q2,x2,,z2,A", "q3,x3,y3,z3,c"]
    (tmp_path / "quiz.csv").write_text("\n".join(["q,a,b,c,l", *lines]))
    recipe = UserChoiceRecipe(
        data_dir=str(tmp_path),
        dev_file="quiz.csv",
        context_column="q",
        choice_columns="a,b,c",
        label_column="l",
        label_form="letter",
    )
    line = message_of(OWN.resolve(recipe).load, "dev", recipe)
    assert "quiz.csv, row 3: the choice in 'b' is empty" in line
    skipping = recipe.override(["bad_rows=skip"])
    found = OWN.resolve(skipping).load("dev", skipping)
    assert [e.label for e in found] == [1, 2]
    assert "1 rows have no usable choices or label" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 4}, "max_seq_length is 4; it takes 5 or more."),
        ({"label_form": "word"}, "label_form is 'word'; it takes one of numb"),
        ({"dev_share": 1.0}, "dev_share is 1.0; it takes above 0, below 1."),
        ({"dev_seed": -1}, "dev_seed is -1; it takes 0 to"),
        ({"format": "xml"}, "format is 'xml'; it takes one of tsv, csv, jsonl"),
        ({"bad_rows": "no"}, "bad_rows is 'no'"),
    ],
)
def test_settings_that_cannot_be(changes, message):
    assert message_of(lambda: UserChoiceRecipe(**changes)).startswith(message)


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


def test_answers_by_hand():
    found = choice_predictions(
        np.float32([[1.0, 3.0, 9.0], [2.0, -2.0, 0.0]]), np.array([2, 3])
    )
    assert found.values == [1, 0]
    first = 1 / (1 + np.exp(-2.0))
    assert found.probabilities(0, 2) == pytest.approx([1 - first, first])
    assert sum(found.probabilities(1, 3)) == pytest.approx(1)
    odds = np.exp([2.0, -2.0, 0.0])
    wanted = -(np.log(first) + np.log(odds[2] / odds.sum())) / 2
    assert found.mean_loss([1, 2]) == pytest.approx(wanted)
    # Scores that are far apart overflow nothing.
    far = choice_predictions(np.float32([[1e4, -1e4]]), np.array([2]))
    assert far.mean_loss([1]) == pytest.approx(2e4)


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
    assert numbers["repeated"] == {"rows": 1, "first": [2, 9]}
    assert numbers["in_train"]["dev"] == {
        "rows": 1,
        "first": [2, 30],
        "contexts": 2,
    }
    text = "\n".join(examined.lines)
    assert text.startswith("data of swag:\n  train: 5 rows (f.csv)\n")
    for line in (
        "    choices: 2 in 1 rows, 4 in 4 rows",
        "    right ones, by position: 0 4 (80.0 %), 1 0 (0.0 %), 2 1 (20.0 %)",
        "    rows with one choice twice: 1",
        "  rows that occur again in train: 1 (rows 2 and 9)",
        "  rows of dev that are in train: 1 (rows 2 and 30); with a context",
        "context that is: 2",
        "  remark: the right choice is at position 0 far more often than",
        "  remark: dev scores will flatter: 1 of its rows",
        "  remark: many words are unknown",
    ):
        assert line in text
    cut = train["tokens"]["cut"]
    assert f"    cut at 8 tokens: {cut} of 18 choices" in text
    assert "lose their end; max_seq_length=" in text


def scored(tmp_path, cells, recipe=None):
    path = written(
        tmp_path / "gold.jsonl",
        [
            {"text": "q", "start": "", "options": ["x", "y z"], "answer": "1"},
            {"text": "r", "start": "", "options": ["x", "x"], "answer": "0"},
        ],
    )
    file = tmp_path / "predictions.tsv"
    file.write_text("index\tprediction\n" + "".join(cells))
    recipe = recipe or UserChoiceRecipe(**COLUMNS)
    task = OWN.resolve(recipe)
    return lambda: task.score_file(recipe, path, str(file))


def test_prediction_files(tmp_path):
    assert scored(tmp_path, ["0\t1\n", "1\t1\n"])() == {"accuracy": 0.5}
    assert scored(tmp_path, ["1\t0\n", "0\t1\n"])() == {"accuracy": 1.0}
    file = f"{tmp_path / 'predictions.tsv'}"
    for cells, wanted in (
        (["0\t1\n"], f"{file}: has no index 1, which is row 2 of"),
        (["0\t1\n", "1\t0\n", "2\t0\n"], f"{file}: has an index '2', which"),
        (["0\t1\n", "1\t2\n"], f"{file}, row 3: the label '2' is none of 0 to"),
        (["0\t1\n", "0\t1\n"], f"{file}, row 3: the index '0' occurs twice."),
        (["0\t1\n", "1\t\n"], f"{file}, row 3: the label '' is none of 0 to 1"),
    ):
        assert message_of(scored(tmp_path, cells)).startswith(wanted)
    task = OWN.resolve(UserChoiceRecipe(**COLUMNS))
    line = message_of(
        task.score_file, UserChoiceRecipe(), "a", "b", "odds.json"
    )
    assert line.startswith("`null_odds`=odds.json: is of use for questions")


def test_texts_with_line_ends_fit_in_a_file(tmp_path):
    """And of two choices that are the same, a prediction may be either."""
    recipe = UserChoiceRecipe(**COLUMNS, label_form="text")
    task = OWN.resolve(recipe)
    examples = [
        example(0, 0)._replace(choices=(" two\n\tlines ", "one")),
        example(1, 2)._replace(choices=("same", "same", "other")),
    ]
    answers = choice_predictions(
        np.float32([[2, 1, 0], [1, 0, 0]]), np.array([2, 3])
    )
    facts = task.configure(recipe, examples)
    path = task.write_predictions(tmp_path, "dev", examples, answers, facts)
    lines = ["index\tprediction", "0\ttwo lines", "1\tsame"]
    assert path.read_text().splitlines() == lines
    gold = written(
        tmp_path / "gold.jsonl",
        [
            {
                "text": e.context,
                "start": "",
                "options": e.choices,
                "answer": e.choices[e.label],
            }
            for e in examples
        ],
    )
    assert task.score_file(recipe, gold, str(path)) == {"accuracy": 0.5}


def test_more_choices_than_letters(tmp_path):
    options = [f"o{n}" for n in range(27)]
    row = {"text": "q", "start": "", "options": options, "answer": "a"}
    path = written(tmp_path / "a.jsonl", [row])
    recipe = UserChoiceRecipe(**COLUMNS, label_form="letter", dev_file=path)
    line = message_of(OWN.resolve(recipe).load, "dev", recipe)
    assert "row 1: has 27 choices, and there are 26 letters" in line


def test_real_rows(shared_data):
    columns = {
        "context_column": "sent1",
        "start_column": "sent2",
        "choice_columns": "ending0,ending1,ending2,ending3",
        "label_column": "label",
    }
    folder = shared_data / "swag"
    recipe = UserChoiceRecipe(
        data_dir=str(folder),
        train_file="train_first10.jsonl",
        dev_file="val_subset350.csv",
        **columns,
    )
    task = OWN.resolve(recipe)
    assert len(task.load("train", recipe)) == 10
    dev = task.load("dev", recipe)
    assert task.baseline(dev, dev)["accuracy"] == pytest.approx(107 / 350)
