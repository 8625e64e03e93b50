"""The command that scores, and task files."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests import commands
from tests.user_errors import error_of
from tools.shared_flags import load_task, task_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCES = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "1\t1\t2\tA .\tB .\n0\t3\t4\tC .\tD .\n1\t5\t6\tE .\tF .\n"
)
# In another order than the references, the second one wrong.
PREDICTIONS = "index\tprediction\n2\t1\n0\t1\n1\t1\n"
OWN_TASK = """
import dataclasses
from labels_of_mine import LABELS
from tasks.mrpc import TASK as MRPC

TASK = dataclasses.replace(MRPC, name="mine", labels=LABELS)
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "dev.tsv").write_text(REFERENCES, encoding="utf-8")
    (tmp_path / "predictions.tsv").write_text(PREDICTIONS)
    return tmp_path


def run(folder, task, *more):
    files = [f"--references={folder / 'dev.tsv'}"]
    files += [f"--predictions={folder / 'predictions.tsv'}"]
    return commands.run("tools.score", f"--task={task}", *files, *more)


def score(folder, task="mrpc", **settings):
    task = load_task(task)
    recipe = task.recipe_type.from_dict({**task.defaults, **settings}, "test")
    return task.resolve(recipe).score_file(
        recipe, str(folder / "dev.tsv"), str(folder / "predictions.tsv")
    )


def test_the_command(files):
    done = run(files, "mrpc")
    assert done.returncode == 0, done.stderr
    # Two of three positives are correct, none is missed.
    expected = {"f1": 0.8, "accuracy": 2 / 3}
    assert json.loads(done.stdout) == pytest.approx(expected)
    done = run(files, "mprc")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --task=mprc: ")
    assert "mean mrpc? " in line
    assert ", ".join(task_names()) in line


def test_tensorflow_is_not_imported(files):
    """By any kind of scores."""
    question = {
        **{"id": "a", "question": "Who?", "is_impossible": False},
        "answers": [{"text": "A", "answer_start": 0}],
    }
    paragraph = {"context": "A b.", "qas": [question]}
    squad = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    (files / "squad.json").write_text(json.dumps(squad))
    (files / "answers.json").write_text('{"a": "A"}')
    (files / "dev.conll").write_text("A X X B-PER\n\n")
    (files / "tags.conll").write_text("A B-PER\n\n")
    header = "video-id,fold-ind,startphrase,sent1,sent2,gold-source"
    row = "v,1,s,s,t,gold"
    (files / "val.csv").write_text(
        f",{header},ending0,ending1,ending2,ending3,label\n0,{row},a,b,c,d,2\n"
    )
    (files / "swag.tsv").write_text("index\tprediction\n0\t2\n")
    code = "import sys\nfrom tests import commands\n"
    for task, references, predictions in (
        ("mrpc", "dev.tsv", "predictions.tsv"),
        ("squad_v2", "squad.json", "answers.json"),
        ("conll2003", "dev.conll", "tags.conll"),
        ("swag", "val.csv", "swag.tsv"),
    ):
        words = ["tools.score", f"--task={task}"]
        words += [f"--references={files / references}"]
        words += [f"--predictions={files / predictions}"]
        code += f"assert not commands.run(*{words}).returncode\n"
    code += "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_an_own_task_file(files, monkeypatch):
    """It may import another beside it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (files / "labels_of_mine.py").write_text('LABELS = ("1", "0")\n')
    path = files / "mine.py"
    path.write_text(OWN_TASK)
    # Class 1 is "0" there: none is found.
    assert score(files, str(path)) == {"f1": 0, "accuracy": 2 / 3}


def test_own_data(files):
    (files / "dev.csv").write_text("t,y\nx,u;v\ny,\nz,v\n")
    predictions = "index\tprediction\n0\tv\n1\t\n2\tv\n"
    (files / "predictions.tsv").write_text(predictions)
    done = run(
        files,
        "sentence",
        f"--references={files / 'dev.csv'}",
        "--text_columns=t",
        "--label_column=y",
        "--label_kind=multi_label",
        "--set=label_separator=;",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == pytest.approx(
        {"micro_f1": 0.8, "macro_f1": 0.5, "subset_accuracy": 2 / 3}
    )


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        ("index\tprediction\n0\t1\n1\t1\n", "has no index 2, which is row 4"),
        (PREDICTIONS + "3\t1\n", "has an index '3', which"),
        (PREDICTIONS + "1\t1\n", "row 5: the index '1' occurs twice"),
        (PREDICTIONS.replace("1\n", "2\n", 1), "row 2: unknown label '2'"),
        ("index\tprediction\n", "has no rows"),
        ("id\tprediction\n0\t1\n", "has no column 'index'"),
    ],
)
def test_files_that_do_not_fit(files, predictions, expected):
    (files / "predictions.tsv").write_text(predictions)
    line = error_of(score, files)
    assert line.startswith(str(files / "predictions.tsv"))
    assert expected in line


def test_the_name_of_a_task_is_that_of_its_file():
    assert {"mrpc", "sentence", "squad_v2", "swag"} < set(task_names())
    for name in task_names():
        assert load_task(name).name == name


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1\n", "the file defines no TASK"),
        (
            "from bert_tf.finetuning import SentenceTask\n"
            "TASK = SentenceTask(name='x', data=None)\n",
            "TASK has data=None",
        ),
        ("TASK = 'mrpc'\n", "TASK is of type str; it must be a SentenceTask"),
        (
            "from bert_tf.families.data.glue_datasets import DataSet\n",
            "task files import from bert_tf.finetuning",
        ),
        (
            "from bert_tf.finetuning import SentenceTask\n"
            "TASK = SentenceTask(name='x')\n",
            ", line 2: TypeError: ",
        ),
    ],
)
def test_broken_task_files(tmp_path, code, expected):
    path = tmp_path / "mine.py"
    path.write_text(code)
    line = error_of(load_task, str(path))
    assert line.startswith(f"`task`={path}")
    assert expected in line
    line = error_of(load_task, str(tmp_path / "none.py"))
    assert "give the path of your own task file" in line


def test_real_predictions(shared_data, tmp_path):
    """Right answers to real rows score 1."""
    references = shared_data / "glue" / "QNLI" / "dev.tsv"
    lines = references.read_text(encoding="utf-8").splitlines()[1:]
    (tmp_path / "dev.tsv").symlink_to(references)
    answers = [line.split("\t")[-1] for line in lines]
    body = "".join(f"{n}\t{answer}\n" for n, answer in enumerate(answers))
    (tmp_path / "predictions.tsv").write_text(f"index\tprediction\n{body}")
    assert score(tmp_path, "qnli") == {"accuracy": 1}
