"""Kinds of answers and prediction files."""

import importlib
import json

import numpy as np
import pytest

from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.data.predictions import read_predictions
from bert_tf.finetuning.text_classification.kinds import (
    MultiLabelTask,
    RegressionTask,
    SentenceTask,
)
from bert_tf.finetuning.text_classification.user_file import (
    UserFileTask,
    UserTexts,
)
from tests.finetuning.own_files import error_of, recipe, rows

OWN = UserFileTask(name="sentence")


def read(train, **settings):
    settings = recipe(
        train_file=train, dev_file=train, label_column="l", **settings
    )
    task = OWN.resolve(settings)
    return task, task.load("train", settings)


def many(labels):
    return [
        Example(f"text {n}", None, label, str(n), n + 2, "f")
        for n, label in enumerate(labels)
    ]


# Classes.


def test_classes(tmp_path):
    path = rows(tmp_path, "l\tt\nno\tx\nyes\ty\nno\tz\n")
    task, examples = read(path)
    assert type(task) is SentenceTask
    assert examples[1] == Example("y", None, "yes", "1", 3, path)
    labels = task.find_labels(examples)
    assert labels == ("no", "yes")
    targets = task.targets(examples, labels)
    np.testing.assert_array_equal(targets, [0, 1, 0])
    assert targets.dtype == np.int32
    # Always "no", of which two in three are right: F1 0.8 and 0.
    score = task.baseline(examples, many(["yes", "no", "no"]))
    assert score == {"accuracy": pytest.approx(2 / 3), "macro_f1": 0.4}


def test_labels_that_are_numbers_are_sorted_as_such(tmp_path):
    path = rows(tmp_path, "l\tt\n10\tx\n9\ty\n-1.5\tz\n")
    task, examples = read(path)
    assert task.find_labels(examples) == ("-1.5", "9", "10")


def test_decoding_classes():
    task = SentenceTask(name="x", data=UserTexts(("t",)))
    logits = np.array([[1, 3, 2], [900, -900, 0]], np.float32)
    found = task.predictions_of(logits, ("a", "b", "c"), 0.5)
    assert found.values == ("b", "a")
    expected = np.exp([1, 3, 2]) / np.exp([1, 3, 2]).sum()
    np.testing.assert_allclose(found.probabilities[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(found.probabilities[1], [1, 0, 0])


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("", "row 3: the label is ''; every row needs one"),
        (" ", "row 3: the label is ' '"),
        ("NaN", "row 3: the label is 'NaN'"),
        ("nan", "row 3: the label is 'nan'"),
    ],
)
def test_no_label(tmp_path, label, expected):
    path = rows(tmp_path, f"l\tt\na\tx\n{label}\ty\nb\tz\n")
    assert error_of(read, path).startswith(f"{path}, {expected}")


def test_an_unknown_label_in_dev(tmp_path):
    train = rows(tmp_path, "l\tt\na\tx\nb\ty\n")
    dev = rows(tmp_path, "t\tl\nx\ta\ny\tc\n", "dev.tsv")
    settings = recipe(train_file=train, dev_file=dev, label_column="l")
    task = OWN.resolve(settings)
    labels = task.find_labels(task.load("train", settings))
    examples = task.load("dev", settings)
    assert error_of(task.targets, examples, labels) == (
        f"{dev}, row 3: unknown label 'c'; the labels are 'a', 'b'."
    )


def test_one_class_only(tmp_path):
    path = rows(tmp_path, "l\tt\na\tx\na\ty\n")
    task, examples = read(path)
    line = error_of(task.find_labels, examples)
    assert line.startswith(f"{path}: every row has the label 'a'; at least")


def test_a_label_column_of_free_text(tmp_path):
    body = "".join(f"text {n}\tx\n" for n in range(30))
    path = rows(tmp_path, "l\tt\n" + body)
    task, examples = read(path)
    line = error_of(task.find_labels, examples)
    assert "30 different labels in 30 rows, for example 'text 0'" in line


def test_labels_that_no_file_can_hold(tmp_path):
    path = rows(tmp_path, 'l,t\na,x\n"b\nc",y\n', "t.csv")
    assert "row 3: the label 'b\\nc' holds a tab" in error_of(read, path)
    path = rows(tmp_path, '{"l": ["a"], "t": "x"}\n', "t.jsonl")
    assert "`label_kind`=multi_label" in error_of(read, path)


# Numbers.


def test_regression(tmp_path):
    path = rows(tmp_path, "l\tt\n0.5\tx\n-2\ty\n3e1\tz\n")
    task, examples = read(path, label_kind="regression")
    assert type(task) is RegressionTask
    assert [e.label for e in examples] == [0.5, -2.0, 30.0]
    assert task.find_labels(examples) == ()
    targets = task.targets(examples, ())
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, [0.5, -2, 30])
    found = task.predictions_of(np.array([[1.5], [-9]], np.float32), (), 0.5)
    assert found.values == (1.5, -9.0)
    assert found.probabilities is None
    assert task.label_scores([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], ()) == {
        "pearson": pytest.approx(1),
        "spearman": pytest.approx(1),
    }
    assert task.baseline(many([1.0, 2.0]), many([1.0, 3.0])) == {
        "pearson": 0,
        "spearman": 0,
    }


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("", "row 3: the label '' is not a number; correct it, or pass "),
        ("high", "row 3: the label 'high' is not a number"),
        ("nan", "row 3: the label is nan; every row needs a finite number"),
        ("-inf", "row 3: the label is -inf"),
        ("1e39", "row 3: the label is 1e39; every row needs a finite number"),
    ],
)
def test_no_number(tmp_path, label, expected):
    path = rows(tmp_path, f"l\tt\n1\tx\n{label}\ty\n")
    line = error_of(lambda: read(path, label_kind="regression"))
    assert line.startswith(f"{path}, {expected}")


def test_one_number_only(tmp_path):
    path = rows(tmp_path, "l\tt\n1\tx\n1.0\ty\n")
    task, examples = read(path, label_kind="regression")
    line = error_of(task.find_labels, examples)
    assert "every row has the label 1.0" in line


# Several labels.


def test_several_labels(tmp_path):
    path = rows(tmp_path, "l\tt\nb| a|b\tx\n\ty\nc\tz\n")
    settings = {"label_kind": "multi_label", "label_separator": "|"}
    task, examples = read(path, **settings)
    assert type(task) is MultiLabelTask
    assert [e.label for e in examples] == [("a", "b"), (), ("c",)]
    labels = task.find_labels(examples)
    assert labels == ("a", "b", "c")
    targets = task.targets(examples, labels)
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    logits = np.array([[-0.4, 2, -1e4], [-5, -5, -0.1]], np.float32)
    found = task.predictions_of(logits, labels, 0.4)
    assert found.values == (("a", "b"), ("c",))
    np.testing.assert_allclose(
        found.probabilities[0], [1 / (1 + np.exp(0.4)), 0.880797, 0], rtol=1e-5
    )
    score = task.label_scores([("a", "b"), ()], [("b",), ()], labels)
    assert score["micro_f1"] == pytest.approx(2 / 3)
    assert score["subset_accuracy"] == 0.5
    # A label that is nowhere is no label that was missed.
    assert score == task.label_scores(
        [("a", "b"), ()], [("b",), ()], ("a", "b")
    )
    # The commonest answer is "c" alone.
    train, dev = many([("c",), ("c",), ()]), many([("c",), ("a", "c")])
    score = task.baseline(train, dev)
    assert score["micro_f1"] == pytest.approx(4 / 5)


def test_lists_of_labels(tmp_path):
    text = '{"l": ["u", "v"], "t": "x"}\n{"l": [], "t": "y"}\n'
    path = rows(tmp_path, text, "t.jsonl")
    _, examples = read(path, label_kind="multi_label")
    assert [e.label for e in examples] == [("u", "v"), ()]


def test_several_labels_gone_wrong(tmp_path):
    path = rows(tmp_path, "l\tt\na\tx\nnan\ty\n")
    line = error_of(lambda: read(path, label_kind="multi_label"))
    assert line.startswith(f"{path}, row 3: the label is nan")
    text = '{"l": ["a,b"], "t": "x"}\n'
    path = rows(tmp_path, text, "t.jsonl")
    line = error_of(lambda: read(path, label_kind="multi_label"))
    assert "'a,b' holds the separator ','" in line
    path = rows(tmp_path, "l\tt\n\tx\n\ty\n")
    task, examples = read(path, label_kind="multi_label")
    assert "no row has a label" in error_of(task.find_labels, examples)
    path = rows(tmp_path, "l\tt\na,b\tx\nb,a\ty\n")
    task, examples = read(path, label_kind="multi_label")
    line = error_of(task.find_labels, examples)
    assert "every row has the same labels, 'a,b'" in line
    body = "".join(f"a{n};b\tx\n" for n in range(30))
    path = rows(tmp_path, "l\tt\n" + body)
    task, examples = read(path, label_kind="multi_label")
    assert "is ',' what stands between" in error_of(task.find_labels, examples)
    line = error_of(task.targets, examples, ("a0;b",))
    assert "row 3: unknown label 'a1;b'" in line


@pytest.mark.parametrize("label_kind", ["regression", "multi_label"])
def test_class_weights_are_for_classes(tmp_path, label_kind):
    path = rows(tmp_path, "l\tt\n1\tx\n2\ty\n")
    task, examples = read(path, label_kind=label_kind)
    config = task.configure(recipe(label_kind=label_kind), examples)
    weighted = recipe(label_kind=label_kind, class_weights="1,2")
    line = error_of(task.loss, weighted, examples, config)
    assert line.startswith("class_weights: sentence has no classes")


# Prediction files.


def test_prediction_files(tmp_path):
    task = MultiLabelTask(name="x", data=UserTexts(("t",)), separator="|")
    examples = many([None, None])
    logits = np.array([[1, -1, 1], [-1, -1, -1]], np.float32)
    predictions = task.predictions_of(logits, ("a", "b", "c"), 0.5)
    path = task.write_predictions(tmp_path, "dev", examples, predictions, None)
    assert path == tmp_path / "predictions_dev.tsv"
    assert path.read_text() == "index\tprediction\n0\ta|c\n1\t\n"
    answers = read_predictions(str(path), examples, "f")
    found = [task.parse_label(cell, place) for _, cell, place in answers]
    assert found == [("a", "c"), ()]


def test_numbers_are_cut_to_the_range_before_they_are_scored(tmp_path):
    """The scores printed are those of the file that is written."""
    stsb = importlib.import_module("tasks.stsb").TASK
    logits = np.array([[5.25], [-0.5], [2.71828], [5.125]], np.float32)
    examples = many([5.0, 1.5, 2.0, 4.0])
    predictions = stsb.predictions_of(logits, (), 0.5)
    assert predictions.values == pytest.approx((5.0, 0.0, 2.71828, 5.0))
    path = stsb.write_predictions(tmp_path, "test", examples, predictions, None)
    assert path.name == "STS-B.tsv"
    assert path.read_text() == (
        "index\tprediction\n"
        "0\t5.000000\n1\t0.000000\n2\t2.718280\n3\t5.000000\n"
    )
    answers = read_predictions(str(path), examples, "f")
    written = [float(cell) for _, cell, _ in answers]
    gold = stsb.references(examples)
    scores = stsb.label_scores(gold, predictions.values, ())
    assert scores == pytest.approx(stsb.label_scores(gold, written, ()))
    uncut = stsb.label_scores(gold, logits[:, 0].tolist(), ())
    # Two rows beyond the range are alike once they are cut.
    assert scores["spearman"] != pytest.approx(uncut["spearman"])
    assert scores["pearson"] != pytest.approx(uncut["pearson"])


def test_prediction_files_gone_wrong(tmp_path):
    task = importlib.import_module("tasks.rte").TASK
    recipe = task.recipe_type()
    references = tmp_path / "dev.tsv"
    references.write_text(
        "sentence1\tsentence2\tlabel\na\tb\tentailment\nc\td\tentailment\n"
    )

    def error(text):
        path = rows(tmp_path, text)
        line = error_of(task.score_file, recipe, str(references), path)
        assert line.startswith(path)
        return line.removeprefix(path)

    header = "index\tprediction\n"
    assert error(header + "0\tentailment\n0\tentailment\n") == (
        ", row 3: the index '0' occurs twice."
    )
    assert error(header + "0\tneutral\n1\tentailment\n") == (
        ", row 2: unknown label 'neutral'; the labels are 'entailment', "
        "'not_entailment'."
    )
    assert "has no column 'index'" in error("0\tentailment\n1\tentailment\n")


def test_json_of_scores(tmp_path):
    """Scores are plain numbers, so results.json can hold them."""
    task = SentenceTask(name="x", data=UserTexts(("t",)))
    score = task.label_scores(["a", "b"], ["a", "a"], ("a", "b"))
    assert json.loads(json.dumps(score)) == score
