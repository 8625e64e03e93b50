"""The formats of GLUE, in small files and in the official ones."""

import collections
import importlib
import pathlib
import urllib.error
import urllib.request

import numpy as np
import pytest

from bert_tf.families.data import glue as data_glue
from bert_tf.families.task import Answered
from tests.inference.serving_models import text_config
from tests.user_errors import error_of

NAMES = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")


def task_of(name):
    return importlib.import_module(f"tasks.{name}").TASK


def recipe_of(task, folder="", **settings):
    values = {**task.defaults, "data_dir": str(folder), **settings}
    return task.recipe_type.from_dict(values, "test")


# The official headers, with a few rows for each file.
PAIR = "sentence1\tsentence2"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\t"
    "sentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\t"
    "sentence2"
)
MNLI_ROW = '0\t1\t2\tfiction\t(\t)\t(\t)\tA "b\tB c'
STSB = f"index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t{PAIR}"
FILES = {
    "cola": {
        "CoLA/train.tsv": "gj04\t1\t\tHe sat.\nad03\t0\t*\tHim sat.",
        "CoLA/dev.tsv": "w_80\t1\t\tShe sat.",
        "CoLA/test.tsv": "index\tsentence\n0\tWe sat.\n",
    },
    "sst2": {
        "SST-2/train.tsv": "sentence\tlabel\na fine film \t1\nbad \t0\n",
        "SST-2/dev.tsv": "sentence\tlabel\n` good ' \t1\n",
        "SST-2/test.tsv": "index\tsentence\n0\tdull .\n",
    },
    "mrpc": {
        "MRPC/train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        '1\t70\t71\tHe said , " yes .\tYes , he said .\n0\t7\t8\tA .\tB .\n',
        "MRPC/dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        "1\t1\t2\tC .\tD .\n",
        "MRPC/test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        "0\t1\t2\tE .\tF .\n",
    },
    "stsb": {
        "STS-B/train.tsv": f"{STSB}\tscore\n"
        "0\tnews\tf\t2012\t1\tnone\tnone\tA dog.\tA cat.\t1.250\n"
        "1\tnews\tf\t2012\t1\tnone\tnone\tA dog.\tThe dog.\t5.000\n",
        "STS-B/dev.tsv": f"{STSB}\tscore\n0\tn\tf\t2\t1\tn\tn\tX\tY\t0.000\n",
        "STS-B/test.tsv": f"{STSB}\n0\tn\tf\t2\t1\tn\tn\tX\tY\n",
    },
    "qqp": {
        "QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "5\t1\t2\tWho?\tWhich?\t0\n6\t1\t2\tcut off\n7\t3\t4\tWhy?\t\t1\n",
        "QQP/dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "5\t1\t2\tHow?\tWhat?\t1\n",
        "QQP/test.tsv": "id\tquestion1\tquestion2\n0\tHow?\tWhere?\n",
    },
    "mnli": {
        "MNLI/train.tsv": f"{MNLI}\tlabel1\tgold_label\n"
        f"{MNLI_ROW}\tneutral\tneutral\n{MNLI_ROW}\tneutral\tentailment\n",
        "MNLI/dev_matched.tsv": f"{MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\t"
        f"label5\tgold_label\n{MNLI_ROW}\ta\tb\tc\td\te\tcontradiction\n",
        "MNLI/dev_mismatched.tsv": f"{MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\t"
        f"label5\tgold_label\n{MNLI_ROW}\ta\tb\tc\td\te\tentailment\n",
        "MNLI/test_matched.tsv": f"{MNLI}\n{MNLI_ROW}\n",
        "MNLI/test_mismatched.tsv": f"{MNLI}\n{MNLI_ROW}\n",
        "diagnostic/diagnostic.tsv": f"index\t{PAIR}\n0\tThe cat.\tA cat.\n",
    },
    "qnli": {
        "QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n"
        '0\tWho?\tMe "\tentailment\n1\tWhy?\tSo.\tnot_entailment\n',
        "QNLI/dev.tsv": "index\tquestion\tsentence\tlabel\n"
        "0\tHow?\tThus.\tentailment\n",
        "QNLI/test.tsv": "index\tquestion\tsentence\n0\tHow?\tThus.\n",
    },
    "rte": {
        "RTE/train.tsv": f"index\t{PAIR}\tlabel\n0\tA.\tB.\tentailment\n"
        "1\tC.\tD.\tnot_entailment\n",
        "RTE/dev.tsv": f"index\t{PAIR}\tlabel\n0\tE.\tF.\tentailment\n",
        "RTE/test.tsv": f"index\t{PAIR}\n0\tG.\tH.\n",
    },
    "wnli": {
        "WNLI/train.tsv": f"index\t{PAIR}\tlabel\n0\tA.\tB.\t1\n1\tC.\tD.\t0\n",
        "WNLI/dev.tsv": f"index\t{PAIR}\tlabel\n0\tE.\tF.\t1\n",
        "WNLI/test.tsv": f"index\t{PAIR}\n0\tG.\tH.\n",
    },
}
# The examples of the training files above.
TRAIN = {
    "cola": [("He sat.", None, "1"), ("Him sat.", None, "0")],
    "sst2": [("a fine film ", None, "1"), ("bad ", None, "0")],
    "mrpc": [
        ('He said , " yes .', "Yes , he said .", "1"),
        ("A .", "B .", "0"),
    ],
    "stsb": [("A dog.", "A cat.", 1.25), ("A dog.", "The dog.", 5.0)],
    "qqp": [("Who?", "Which?", "0"), ("Why?", "", "1")],
    "mnli": [('A "b', "B c", "neutral"), ('A "b', "B c", "entailment")],
    "qnli": [("Who?", 'Me "', "entailment"), ("Why?", "So.", "not_entailment")],
    "rte": [("A.", "B.", "entailment"), ("C.", "D.", "not_entailment")],
    "wnli": [("A.", "B.", "1"), ("C.", "D.", "0")],
}
# The submission file, and the label of the first output.
SUBMISSIONS = {
    "cola": {"test": ("CoLA.tsv", "0")},
    "sst2": {"test": ("SST-2.tsv", "0")},
    "mrpc": {"test": ("MRPC.tsv", "0")},
    "stsb": {"test": ("STS-B.tsv", "0.900000")},
    "qqp": {"test": ("QQP.tsv", "0")},
    "mnli": {
        "test_matched": ("MNLI-m.tsv", "contradiction"),
        "test_mismatched": ("MNLI-mm.tsv", "contradiction"),
        "diagnostic": ("AX.tsv", "contradiction"),
    },
    "qnli": {"test": ("QNLI.tsv", "entailment")},
    "rte": {"test": ("RTE.tsv", "entailment")},
    "wnli": {"test": ("WNLI.tsv", "0")},
}


@pytest.fixture
def glue(tmp_path):
    for files in FILES.values():
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("own_folder", [False, True])
def test_layout(glue, name, own_folder):
    task = task_of(name)
    folder = glue
    if own_folder:
        folder = glue / next(iter(FILES[name])).partition("/")[0]
    recipe = recipe_of(task, folder)
    train = task.load(task.train_split, recipe)
    assert [(e.text_a, e.text_b, e.label) for e in train] == TRAIN[name]
    labels = task.find_labels(train)
    assert len(labels) == {"stsb": 0, "mnli": 3}.get(name, 2)
    task.targets(train, labels)
    for split in task.splits(task.dev_splits, recipe):
        dev = task.load(split, recipe)
        assert len(dev) == 1
        task.targets(dev, labels)
        assert task.main_metric in task.baseline(train, dev)
    assert set(task.paper) <= {*task.scores, "accuracy_mismatched"}
    assert (recipe.train_batch_size, recipe.num_train_epochs) == (32, 3)
    assert recipe.learning_rate == 2e-5


@pytest.mark.parametrize("name", NAMES)
def test_submission_files(glue, tmp_path, name):
    task = task_of(name)
    recipe = recipe_of(task, glue)
    splits = task.splits(task.test_splits, recipe)
    assert set(splits) == set(SUBMISSIONS[name])
    for split in splits:
        examples = task.load(split, recipe)
        assert [(e.label, e.identifier) for e in examples] == [(None, "0")]
        logits = np.zeros((1, max(len(task.labels), 1)), np.float32)
        logits[0, 0] = 0.9
        config = text_config(label_kind=task.label_kind, labels=task.labels)
        predictions = task.decode({"logits": logits}, None, config)
        file, answer = SUBMISSIONS[name][split]
        answered = Answered(examples, predictions, None)
        path = task.write_predictions(tmp_path, split, answered)
        assert path == tmp_path / file
        for each in (path, tmp_path / f"predictions_{split}.tsv"):
            assert each.read_text() == f"index\tprediction\n0\t{answer}\n"


def test_skipped_rows_of_qqp_are_logged(glue, capsys):
    task = task_of("qqp")
    rows = task.load("train", recipe_of(task, glue))
    assert [e.identifier for e in rows] == ["0", "2"]
    assert (
        "QQP/train.tsv: 1 of 3 rows cannot be used" in capsys.readouterr().err
    )
    strict = recipe_of(task, glue, bad_rows="error", empty_text="error")
    line = error_of(task.load, "train", strict)
    assert "number of cells: 3; an empty text: 4" in line


def test_a_missing_dev_file_is_logged(glue, capsys):
    task = task_of("mnli")
    (glue / "MNLI" / "dev_mismatched.tsv").unlink()
    recipe = recipe_of(task, glue)
    assert task.splits(task.dev_splits, recipe) == ("dev_matched",)
    shown = capsys.readouterr().err
    assert f"{glue}: has no MNLI/dev_mismatched.tsv" in shown
    (glue / "MNLI" / "dev_matched.tsv").unlink()
    line = error_of(task.splits, task.dev_splits, recipe)
    assert "neither MNLI/dev_matched.tsv nor" in line


def test_missing_data(tmp_path):
    task = task_of("mrpc")
    line = error_of(task.load, "train", recipe_of(task, tmp_path))
    assert line.startswith(f"`data_dir`={tmp_path}: has neither ")
    assert "MRPC/train.tsv nor train.tsv; give" in line
    line = error_of(task.load, "train", recipe_of(task, tmp_path / "none"))
    assert "no such folder" in line


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wnli", "row 2: unknown label 'entailment'"),
        ("mrpc", "has no column '#1 String'"),
    ],
)
def test_data_of_another_task(glue, name, expected):
    task = task_of(name)
    line = error_of(task.load, "train", recipe_of(task, glue / "RTE"))
    assert expected in line


# TensorFlow Datasets.


@pytest.fixture
def data_sets(monkeypatch):
    """TensorFlow Datasets with made-up rows that have the real features."""
    tfds = pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(data_glue, "_demand_connection", lambda name: None)
    return tfds


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["sst2", "stsb", "mnli"])
def test_data_sets_have_these_features(data_sets, name):
    task = task_of(name)
    recipe = recipe_of(task)
    with data_sets.testing.mock_data(num_examples=7):
        for split in (*task.dev_splits, *task.test_splits):
            rows = task.load(split, recipe)
            assert len(rows) == 7
            assert [e.row for e in rows] == sorted(e.row for e in rows)
            assert all(e.text_a for e in rows)
            assert all((e.text_b is None) == (name == "sst2") for e in rows)
            labels = {type(e.label) for e in rows}
            if split in task.test_splits:
                assert labels == {type(None)}
            else:
                assert labels == {float if name == "stsb" else str}


def test_labels_of_data_sets_are_those_of_the_files(data_sets, monkeypatch):
    order = ["entailment", "neutral", "contradiction"]
    batch = {
        "premise": np.array([b"second", "f\u00fcrst".encode(), b"third"]),
        "hypothesis": np.array([b"x", b"y", b"z"]),
        "label": np.array([2, 0, 1]),
        "idx": np.array([8, 3, 11], np.int32),
    }
    monkeypatch.setattr(data_glue, "_batches", lambda name, split: [batch])
    task = task_of("mnli")
    rows = task.load("dev_matched", recipe_of(task))
    assert [tuple(e)[:5] for e in rows] == [
        ("f\u00fcrst", "y", order[0], "3", 4),
        ("second", "x", order[2], "8", 9),
        ("third", "z", order[1], "11", 12),
    ]
    assert rows[0].path == "glue/mnli, split validation_matched"
    # For a check too, although its name is not that of a file.
    assert task.load_once("dev_matched", recipe_of(task)) == rows


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (
            urllib.error.URLError("Name or service\nnot known"),
            "Name or service not known",
        ),
        # The server answers, and the download fails.
        (
            urllib.error.HTTPError("x", 403, "Forbidden", {}, None),
            "No module named 'importlib_resources'",
        ),
    ],
)
def test_no_data_set(monkeypatch, refusal, reason):
    tfds = pytest.importorskip("tensorflow_datasets")

    class Builder:
        def is_prepared(self):
            return False

        def download_and_prepare(self):
            raise ModuleNotFoundError("No module named 'importlib_resources'")

    def refuse(request, timeout):
        assert timeout <= 30
        raise refusal

    monkeypatch.setattr(tfds, "builder", lambda name: Builder())
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    task = task_of("rte")
    line = error_of(task.load, "dev", recipe_of(task))
    assert line.startswith("TensorFlow Datasets cannot give glue/rte (")
    assert reason in line
    assert "pass `data_dir`=FOLDER" in line


# The real files.

REAL = {
    "cola": {"train": 8551, "dev": 1043, "test": 1063},
    "sst2": {"train": 67349, "dev": 872, "test": 1821},
    "mrpc": {"train": 3668, "dev": 408, "test": 1725},
    "stsb": {"train": 5749, "dev": 1500, "test": 1379},
    "qqp": {"train": 12000, "dev": 5000},
    "mnli": {"train": 9888, "dev_matched": 4238, "diagnostic": 1104},
    "qnli": {"dev": 5463, "test": 5463},
    "rte": {"train": 2490, "dev": 277, "test": 3000},
    "wnli": {"train": 635, "dev": 71, "test": 146},
}
# The columns of both texts and the label, as in google-research/bert,
# run_classifier.py.
PLACES = {
    "cola": (3, None, 1),
    "sst2": (0, None, 1),
    "mrpc": (3, 4, 0),
    "stsb": (7, 8, -1),
    "qqp": (3, 4, 5),
    "mnli": (8, 9, -1),
    "qnli": (1, 2, -1),
    "rte": (1, 2, -1),
    "wnli": (1, 2, -1),
}


@pytest.mark.parametrize("name", NAMES)
def test_real_files(shared_data, name):
    task = task_of(name)
    recipe = recipe_of(task, shared_data / "glue")
    for split, count in REAL[name].items():
        assert task.splits((split,), recipe) == (split,)
        examples = task.load(split, recipe)
        assert len(examples) == count, split
        assert [e.identifier for e in examples] == [*map(str, range(count))]
        if split in task.test_splits:
            continue
        first, second, label = PLACES[name]
        data = pathlib.Path(examples[0].path).read_bytes()
        lines = data.rstrip(b"\n").split(b"\n")
        lines = lines[0 if name == "cola" else 1 :]
        for example, line in zip(examples, lines, strict=True):
            parts = line.decode("utf-8-sig").split("\t")
            assert example.text_a == parts[first]
            assert example.text_b == (second and parts[second])
            kind = float if name == "stsb" else str
            assert example.label == kind(parts[label])


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("dev_matched.first51.tsv", 51),
        ("dev_matched.from_advglue.tsv", 73),
        ("dev_mismatched.from_advglue.tsv", 73),
    ],
)
def test_other_real_files(shared_data, file, count):
    task = task_of("mnli")
    path = shared_data / "glue" / "MNLI" / file
    examples = task.read_file(str(path), recipe_of(task))
    assert len(examples) == count
    assert len(collections.Counter(e.label for e in examples)) == 3
