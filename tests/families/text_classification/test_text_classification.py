"""Tasks on a user's tables: columns, files, the split, labels, predictions."""

import collections
import dataclasses
import importlib
import json
import re

import numpy as np
import pytest

from bert_tf.families.data.examples import (
    Example,
    names_in,
    read_predictions,
)
from bert_tf.families.data.user_files import split_off_dev
from bert_tf.families.task import Answered
from bert_tf.families.text_classification.kinds import (
    MultiLabelTask,
    RegressionTask,
    SentenceTask,
    UserFileTask,
    UserTexts,
)
from bert_tf.families.text_classification.recipe import UserTableRecipe
from tests.inference.serving_models import text_config
from tests.user_errors import error_of

USER_TASK = UserFileTask(name="sentence")


def recipe_of(**settings):
    return UserTableRecipe(**{"text_columns": "t", **settings})


def write(tmp_path, text, name="train.tsv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def load(path, **settings):
    recipe = recipe_of(
        train_file=path, dev_file=path, label_column="l", **settings
    )
    task = USER_TASK.resolve(recipe)
    return task, task.load("train", recipe)


def labelled(labels):
    return [
        Example(f"text {n}", None, label, str(n), n + 2, "f")
        for n, label in enumerate(labels)
    ]


# Columns and files.


def test_pairs(tmp_path):
    path = write(tmp_path, 'q,a,y\n"who ""","me, me",1\nwhy,so,0\n', "t.csv")
    recipe = recipe_of(
        train_file="t.csv",
        dev_file="t.csv",
        data_dir=str(tmp_path),
        text_columns="q, a",
        label_column="y",
    )
    assert USER_TASK.resolve(recipe).load("train", recipe) == [
        Example('who "', "me, me", "1", "0", 2, path),
        Example("why", "so", "0", "1", 3, path),
    ]


def test_a_test_file_needs_no_labels(tmp_path):
    """Labels that it has are read."""
    path = write(tmp_path, "t\tl\nx\ta\ny\t\n", "b.tsv")
    recipe = recipe_of(test_file=path, train_file=path, label_column="l")
    task = USER_TASK.resolve(recipe)
    examples = task.load("test", recipe)
    assert [e.label for e in examples] == ["a", None]
    line = error_of(task.targets, examples, ("a", "b"))
    assert line.startswith(f"{path}, row 3: has no label")


# Scores of the task.


def cost(labels, predictions):
    return (10 * (predictions > labels) + (predictions < labels)).mean()


def test_own_scores_take_the_place_of_the_kinds(tmp_path):
    task = UserFileTask(
        name="own", scores={"cost": cost}, lower_is_better=("cost",)
    )
    for kind in ("classes", "regression"):
        found = task.resolve(recipe_of(label_kind=kind, label_column="l"))
        assert (found.main_metric, [*found.scores]) == ("cost", ["cost"])
        assert found.lower_is_better == ("cost",)
    found = UserFileTask(name="own", main_metric="macro_f1").resolve(
        recipe_of()
    )
    assert (found.main_metric, len(found.scores)) == ("macro_f1", 2)
    # "b" is 1 and "a" 0: two of the one, one of the other.
    path = write(tmp_path, "t\tl\nx\ta\ny\ta\nz\tb\nu\tb\n")
    answers = tmp_path / "answers.tsv"
    answers.write_text("index\tprediction\n0\tb\n1\tb\n2\ta\n3\tb\n")
    recipe = recipe_of(label_column="l")
    scores = task.resolve(recipe).score_file(recipe, path, str(answers))
    assert scores == {"cost": (10 + 10 + 1 + 0) / 4}
    for settings in ({"main_metric": "f"}, {"lower_is_better": ("f",)}):
        bad = dataclasses.replace(task, **settings)
        line = error_of(bad.resolve, recipe)
        assert line.startswith("task own: 'f' is none of its scores, cost;")


def test_the_example_names_the_file_that_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = importlib.import_module("tasks.example_user_file").TASK
    recipe = task.recipe_type(**task.defaults)
    line = error_of(task.resolve(recipe).load, "train", recipe)
    assert line.startswith("mails.csv: no such file; ")
    assert "`train_file`=..., " in line
    assert "`data_dir`=..." in line


# The split.


def test_the_split_is_stratified():
    labels = ["a"] * 700 + ["b"] * 200 + ["c"] * 90 + ["d"] * 9 + ["e"]
    np.random.default_rng(0).shuffle(labels)
    examples = labelled(labels)
    train, dev = split_off_dev(examples, 0.1, 1)
    counts = collections.Counter(e.label for e in dev)
    assert sum(counts.values()) == 100
    for label, expected in {"a": 70, "b": 20, "c": 9, "d": 1, "e": 0}.items():
        assert abs(counts[label] - expected) <= 1
    # The only row of a label stays in training.
    assert counts["e"] == 0
    assert sorted(train + dev, key=lambda e: e.row) == examples
    assert train == sorted(train, key=lambda e: e.row)
    values = [float(n % 10) for n in range(200)]
    _, dev = split_off_dev(labelled(values), 0.2, 0)
    assert set(collections.Counter(e.label for e in dev).values()) <= {3, 4, 5}
    sets = [("u",), ("u", "v"), (), ("v", "w")] * 40 + [("rare",)]
    _, dev = split_off_dev(labelled(sets), 0.25, 0)
    assert {e.label for e in dev} >= {("u",), ("u", "v"), (), ("v", "w")}


def test_every_label_stays_in_training():
    """Sets that occur once are one stratum; a text may have two labels."""
    generator = np.random.default_rng(0)
    names = np.array(list("abcdefg"))
    for seed in range(300):
        holds = generator.random((30, 7)) < np.geomspace(0.5, 0.03, 7)
        sets = [tuple(names[row]) for row in holds]
        classes = [f"c{n}" for n in generator.integers(0, 9, 30)]
        examples = [
            e._replace(text_a=text)
            for e, text in zip(
                labelled(classes),
                map(str, generator.integers(0, 12, 30)),
                strict=True,
            )
        ]
        for rows in (labelled(sets), examples):
            train, dev = split_off_dev(rows, 0.2, seed)
            assert dev
            assert sorted(train + dev, key=lambda e: e.row) == rows
            trained = {n for e in train for n in names_in(e.label)}
            assert trained == {n for e in rows for n in names_in(e.label)}
            assert not {e.text_key for e in train} & {e.text_key for e in dev}


def test_too_few_rows_to_split():
    line = error_of(split_off_dev, labelled("ab"), 0.1, 0)
    assert line.startswith("f: 2 rows of 2 different labels")
    texts = labelled([f"text {n}" for n in range(50)])
    line = error_of(split_off_dev, texts, 0.1, 0)
    assert "50 rows of 50 different labels" in line


# Kinds of labels.


def test_classes(tmp_path):
    task, examples = load(write(tmp_path, "l\tt\nno\tx\nyes\ty\nno\tz\n"))
    assert type(task) is SentenceTask
    labels = task.find_labels(examples)
    assert labels == ("no", "yes")
    targets = task.targets(examples, labels)
    np.testing.assert_array_equal(targets, [0, 1, 0])
    assert targets.dtype == np.int32
    # Predicting "no", two of three are correct: F1 0.8 and 0.
    score = task.baseline(examples, labelled(["yes", "no", "no"]))
    assert score == {"accuracy": pytest.approx(2 / 3), "macro_f1": 0.4}
    # Plain numbers for results.json.
    assert json.loads(json.dumps(score)) == score
    # Labels that are numbers are sorted by value.
    task, examples = load(write(tmp_path, "l\tt\n10\tx\n9\ty\n-1.5\tz\n"))
    assert task.find_labels(examples) == ("-1.5", "9", "10")


def decoded(task, logits, labels, threshold=0.5):
    config = text_config(
        label_kind=task.label_kind, labels=labels, threshold=threshold
    )
    outputs = {"logits": np.array(logits, np.float32)}
    return task.decode(outputs, None, config)


def test_numbers(tmp_path):
    path = write(tmp_path, "l\tt\n0.5\tx\n-2\ty\n3e1\tz\n")
    task, examples = load(path, label_kind="regression")
    assert type(task) is RegressionTask
    assert [e.label for e in examples] == [0.5, -2.0, 30.0]
    assert task.find_labels(examples) == ()
    targets = task.targets(examples, ())
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, [0.5, -2, 30])
    found = decoded(task, [[1.5], [-9]], ())
    assert found["prediction"] == [1.5, -9.0]
    assert not {"scores", "probabilities"} & found.keys()
    assert task.metrics(labelled([1.0, 2.0, 3.0]), [2.0, 4.0, 6.0]) == {
        "pearson": pytest.approx(1),
        "spearman": pytest.approx(1),
    }
    assert task.baseline(labelled([1.0, 2.0]), labelled([1.0, 3.0])) == {
        "pearson": 0,
        "spearman": 0,
    }


def test_several_labels(tmp_path):
    path = write(tmp_path, "l\tt\nb| a\tx\n\ty\nc\tz\n")
    task, examples = load(path, label_kind="multi_label", label_separator="|")
    assert type(task) is MultiLabelTask
    assert [e.label for e in examples] == [("a", "b"), (), ("c",)]
    labels = task.find_labels(examples)
    assert labels == ("a", "b", "c")
    targets = task.targets(examples, labels)
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    found = decoded(task, [[-0.4, 2, -1e4], [-5, -5, -0.1]], labels, 0.4)
    assert found["prediction"] == [("a", "b"), ("c",)]
    # Predictions are sorted like labels.
    other = decoded(task, [[1, 1, -1]], ("b", "a", "c"))
    assert other["prediction"] == [("a", "b")]
    np.testing.assert_allclose(
        found["scores"][0], [1 / (1 + np.exp(0.4)), 0.880797, 0], rtol=1e-5
    )
    gold, found = labelled([("a", "b"), ()]), [("b",), ()]
    score = task.metrics(gold, found, labels)
    assert score["micro_f1"] == pytest.approx(2 / 3)
    assert score["subset_accuracy"] == 0.5
    # Labels that do not occur are not counted.
    assert score == task.metrics(gold, found, ("a", "b"))
    # The most frequent set of labels is ("c",).
    train = labelled([("c",), ("c",), ()])
    score = task.baseline(train, labelled([("c",), ("a", "c")]))
    assert score["micro_f1"] == pytest.approx(4 / 5)
    text = '{"l": ["u", "v"], "t": "x"}\n{"l": [], "t": "y"}\n'
    _, examples = load(
        write(tmp_path, text, "t.jsonl"), label_kind="multi_label"
    )
    assert [e.label for e in examples] == [("u", "v"), ()]


@pytest.mark.parametrize(
    ("kind", "label", "expected"),
    [
        ("classes", "", "''; every row needs one"),
        ("classes", " ", "' '; every row needs one"),
        ("classes", "NaN", "'NaN'; every row needs one"),
        ("classes", ["a"], "a list, ('a',); pass `label_kind`=multi_label"),
        ("classes", "b\nc", "'b\\nc' holds a tab or a line end"),
        ("regression", "", "'' is not a number; correct it, or pass "),
        ("regression", "high", "'high' is not a number"),
        ("regression", "nan", "nan; every row needs a finite number"),
        ("regression", "-inf", "-inf; every row needs a finite number"),
        ("regression", "1e39", "1e39; every row needs a finite number"),
        ("multi_label", "nan", "nan; name the labels that hold"),
        ("multi_label", ["a,b"], "'a,b' holds the separator ','; pass ano"),
        ("multi_label", "['a', 'b'", "\"['a', 'b'\" looks like a list and"),
        ("classes", "['a']", "a list, \"['a']\"; pass `label_kind`=multi_l"),
        ("classes", "[0, 1]", "a list, '[0, 1]'; pass `label_kind`=multi_l"),
    ],
)
def test_labels_that_cannot_be(tmp_path, kind, label, expected):
    lines = [{"l": "1", "t": "x"}, {"l": label, "t": "y"}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path = write(tmp_path, text, "t.jsonl")
    line = error_of(load, path, label_kind=kind).replace("label is", "label")
    assert line.startswith(f"{path}, row 2: the label {expected}")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        # Lists of names, in JSON and as their text.
        ([["u", "v"], [], ["v"]], [("u", "v"), (), ("v",)]),
        (["['v', 'u']", '["v"]', "[]"], [("u", "v"), ("v",), ()]),
        (["['u' 'v']", "w, [x]", "[x],[y]"], ["uv", "[x]w", "[x][y]"]),
        # Lists of 0 and 1, each of one length.
        ([[0, 1, 1], [1, 0, 0], [0, 0, 0]], ["12", "0", ""]),
        ([[True, False], [False, True]], ["0", "1"]),
        ([[1, 0], [0, 1]], ["0", "1"]),
        ([[0.0, 1.0], [1.0, 0.0]], ["1", "0"]),
        (["[0, 1, 1]", "[1, 0, 0]"], ["12", "0"]),
        (["[0 1 1]", "[1 0 0]"], ["12", "0"]),
        # Lists of numbers that are names.
        ([[0, 1], [1], [0, 2]], ["01", "1", "02"]),
        ([["0", "1"], ["0", "2"]], ["01", "02"]),
    ],
)
def test_several_labels_in_lists(tmp_path, cells, expected):
    rows = [{"t": "x", "l": cell} for cell in cells]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path = write(tmp_path, text, "t.jsonl")
    task, examples = load(path, label_kind="multi_label")
    found = [e.label for e in examples]
    if isinstance(expected[0], str):
        expected = [tuple(re.findall(r"\[.\]|.", each)) for each in expected]
    assert found == expected
    assert task.find_labels(examples) == tuple(
        sorted({n for e in found for n in e})
    )


def test_labels_of_0_and_1_have_names(tmp_path):
    text = "t,sad,odd,new\nx,0,1,0\ny,1.0,0.0,0.0\nz,true,false,false\n"
    path = write(tmp_path, text, "t.csv")
    recipe = recipe_of(
        train_file=path,
        dev_file=path,
        label_column="sad, odd,new",
        label_kind="multi_label",
    )
    task = USER_TASK.resolve(recipe)
    examples = task.load("train", recipe)
    assert [e.label for e in examples] == [("odd",), ("sad",), ("sad",)]
    # Also one that no row has, in the order of the columns.
    assert task.find_labels(examples) == ("sad", "odd", "new")
    text = '{"t": "x", "l": [0, 1]}\n{"t": "y", "l": [1, 1]}\n'
    path = write(tmp_path, text, "t.jsonl")
    task, examples = load(path, label_kind="multi_label", label_names="b, a")
    assert [e.label for e in examples] == [("a",), ("a", "b")]
    assert task.find_labels(examples) == ("b", "a")
    line = error_of(load, path, label_kind="multi_label", label_names="a,b,c")
    assert line.startswith("`label_names`=a,b,c: are 3, and rows of ")
    assert "have 2 labels" in line
    # Test rows need none.
    text = "t\nx\n"
    recipe = dataclasses.replace(recipe, test_file=write(tmp_path, text))
    assert [e.label for e in task.load("test", recipe)] == [None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"t": "x", "l": ["a", "b", "a"]}', "names the label 'a' twice"),
        (
            '{"t": "x", "l": [0, 1, 1]}\n{"t": "x", "l": [0, 1]}',
            "names the label '1' twice; name each once, or give lists of 0",
        ),
    ],
)
def test_a_label_twice(tmp_path, text, expected):
    path = write(tmp_path, f"{text}\n", "t.jsonl")
    line = error_of(load, path, label_kind="multi_label")
    assert line.startswith(f"{path}, row 1: {expected}")


def test_columns_of_other_values_than_0_and_1(tmp_path):
    path = write(tmp_path, "t,u,v\nx,0,1\ny,2,1\nz,0,\n", "t.csv")
    recipe = recipe_of(train_file=path, dev_file=path, label_column="u,v")
    task = USER_TASK.resolve(recipe)
    line = error_of(task.load, "train", recipe)
    assert line.startswith(f"{path}: has no column 'u,v'. Its columns are ")
    assert line.endswith("need `label_kind`=multi_label.")
    recipe = dataclasses.replace(recipe, label_kind="multi_label")
    line = error_of(USER_TASK.resolve(recipe).load, "train", recipe)
    assert "2 of 3 rows cannot be used: 3, 4" in line
    assert "the label 'u' is '2'; it takes 0 or 1" in line


def test_many_labels_are_learned_if_they_are_right(tmp_path):
    body = "".join(f"label {n // 2}\ttext\n" for n in range(60))
    path = write(tmp_path, "l\tt\n" + body)
    task, examples = load(path)
    assert len(task.configure(recipe_of(), examples).labels) == 30
    task, examples = load(write(tmp_path, "l\tt\n" + body + "more\tx\n"))
    line = error_of(task.configure, recipe_of(), examples)
    assert "31 different labels in 61 rows" in line
    assert "`allow_many_labels`=true" in line
    config = task.configure(recipe_of(allow_many_labels=True), examples)
    assert len(config.labels) == 31


@pytest.mark.parametrize(
    ("kind", "labels", "expected"),
    [
        ("classes", ["a", "a"], "every row has the label 'a'; at least two"),
        (
            "classes",
            [f"text {n}" for n in range(30)],
            "30 different labels in 30 rows, for example 'text 0'",
        ),
        ("regression", ["1", "1.0"], "every row has the label '1.000000'; at"),
        ("multi_label", ["", ""], "every row has the label ''; at least two"),
        ("multi_label", ["a,b", "b,a"], "every row has the label 'a,b'; at"),
        (
            "multi_label",
            [f"a{n};b" for n in range(30)],
            "30 different labels in 30 rows, for example 'a0;b'; name their",
        ),
    ],
)
def test_labels_that_teach_nothing(tmp_path, kind, labels, expected):
    body = "".join(f"{label}\tx\n" for label in labels)
    path = write(tmp_path, "l\tt\n" + body)
    task, examples = load(path, label_kind=kind)
    line = error_of(task.find_labels, examples)
    assert line.startswith(f"{path}: {expected}")


@pytest.mark.parametrize("kind", ["classes", "multi_label"])
def test_a_label_that_training_does_not_have(tmp_path, kind):
    path = write(tmp_path, "t\tl\nx\ta\ny\tc\n")
    task, examples = load(path, label_kind=kind)
    line = error_of(task.targets, examples, ("a", "b"))
    assert line.startswith(f"{path}, row 3: unknown label 'c'; ")
    assert "'a', 'b'" in line


@pytest.mark.parametrize("kind", ["regression", "multi_label"])
def test_class_weights_are_for_classes(tmp_path, kind):
    path = write(tmp_path, "l\tt\n1\tx\n2\ty\n")
    task, examples = load(path, label_kind=kind)
    config = task.configure(recipe_of(label_kind=kind), examples)
    weighted = recipe_of(label_kind=kind, class_weights="1,2")
    line = error_of(task.loss, weighted, examples, config)
    assert line.startswith("class_weights: sentence has no classes")


# Prediction files.


def test_prediction_files(tmp_path):
    task = MultiLabelTask(name="x", data=UserTexts(("t",)), separator="|")
    examples = labelled([None, None])
    logits = [[1, -1, 1], [-1, -1, -1]]
    predictions = decoded(task, logits, ("a", "b", "c"))
    answered = Answered(examples, predictions, None)
    path = task.write_predictions(tmp_path, "dev", answered)
    assert path == tmp_path / "predictions_dev.tsv"
    assert path.read_text() == "index\tprediction\n0\ta|c\n1\t\n"
    answers = read_predictions(str(path), examples)
    found = [task.parse_label(cell, place) for _, cell, place in answers]
    assert found == [("a", "c"), ()]


def test_numbers_are_clipped_to_the_range_before_they_are_scored(tmp_path):
    """The printed scores are those of the prediction file."""
    stsb = importlib.import_module("tasks.stsb").TASK
    logits = np.array([[5.25], [-0.5], [2.71828], [5.125]], np.float32)
    examples = labelled([5.0, 1.5, 2.0, 4.0])
    predictions = decoded(stsb, logits, ())
    assert predictions["prediction"] == pytest.approx([5, 0, 2.71828, 5])
    answered = Answered(examples, predictions, None)
    path = stsb.write_predictions(tmp_path, "test", answered)
    assert path.name == "STS-B.tsv"
    assert path.read_text() == (
        "index\tprediction\n"
        "0\t5.000000\n1\t0.000000\n2\t2.718280\n3\t5.000000\n"
    )
    answers = read_predictions(str(path), examples)
    written = [float(cell) for _, cell, _ in answers]
    scores = stsb.metrics(examples, predictions["prediction"])
    assert scores == pytest.approx(stsb.metrics(examples, written))
    # Clipping makes two values beyond the range equal.
    unclipped = stsb.metrics(examples, logits[:, 0].tolist())
    assert scores["spearman"] != pytest.approx(unclipped["spearman"])
    assert scores["pearson"] != pytest.approx(unclipped["pearson"])


HEADER = "index\tprediction\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\tentailment\n", ": has no column 'index'"),
        (HEADER + "0\tentailment\n", ": has no index 1, which is row 3 of"),
        (
            HEADER + "0\tentailment\n1\tentailment\n2\tentailment\n",
            ": has an index '2'",
        ),
        (HEADER + "0\tentailment\n0\tentailment\n", ", row 3: the index '0'"),
        (
            HEADER + "0\tneutral\n1\tentailment\n",
            ", row 2: unknown label 'neutral'; the labels are 'entailment', "
            "'not_entailment'.",
        ),
    ],
)
def test_prediction_files_that_cannot_be(tmp_path, text, expected):
    task = importlib.import_module("tasks.rte").TASK
    references = write(
        tmp_path,
        "sentence1\tsentence2\tlabel\na\tb\tentailment\nc\td\tentailment\n",
        "dev.tsv",
    )
    path = write(tmp_path, text)
    line = error_of(task.score_file, task.recipe_type(), references, path)
    assert line.startswith(path + expected)
