"""The command: flags, tasks' own defaults, kill -9 and resume, predict."""

import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from tests import commands
from tests.contracts.task_cases import without_drawings
from tests.finetuning.sentence_runs import model_folder, texts
from tests.run_folders import assert_same_run
from tools.shared_flags import _GROUPS

# Eagerly run, the functions of tf.data stay graphs, of which TensorFlow warns.
pytestmark = pytest.mark.filterwarnings("ignore:Even though")
# Killed before the step in the environment.
TASK_FILE = """
import os
import signal

import tensorflow as tf

from bert_tf.families.text_classification.kinds import UserFileTask
from bert_tf.training.loop import TrainingLoop

if step := os.environ.get("KILL_AT"):
    tf.config.run_functions_eagerly(True)
    train = TrainingLoop._train

    def killed(self, phase, batch, number, *rest):
        if number == int(step):
            os.kill(os.getpid(), signal.SIGKILL)
        train(self, phase, batch, number, *rest)

    TrainingLoop._train = killed

DEFAULTS = {"learning_rate": 0.01, "log_steps": 3}
TASK = UserFileTask(name="mood", defaults=DEFAULTS)
"""


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Computes eagerly and draws no figures."""
    tf.config.run_functions_eagerly(True)
    with without_drawings():
        yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def flags(tmp_path_factory) -> list[str]:
    """The flags of a small run on own files, by an own task file."""
    folder = tmp_path_factory.mktemp("files")
    for name, count, seed in (("train", 24, 1), ("dev", 12, 2)):
        lines = ["text\tmood"]
        lines += [f"{e.text_a}\t{e.label}" for e in texts(count, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "mood.py").write_text(TASK_FILE)
    model_folder(folder / "model", num_hidden_layers=1)
    return [
        f"--task={folder / 'mood.py'}",
        f"--init_from={folder / 'model'}",
        f"--train_file={folder / 'train.tsv'}",
        f"--dev_file={folder / 'dev.tsv'}",
        f"--test_file={folder / 'dev.tsv'}",
        "--text_columns=text",
        "--label_column=mood",
        "--max_seq_length=24",
        "--train_batch_size=4",
        "--save_checkpoints_steps=2",
        "--num_train_epochs=1",
    ]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return commands.run("tools.run_finetuning", *arguments)


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    modes = "--mode=train,eval,predict"
    done = run(*flags, f"--output_dir={folder}", modes)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_whole_route(whole):
    folder, done = whole
    recipe = json.loads((folder / "recipe.json").read_text())
    # The task's own default, the flag's and the recipe's.
    assert recipe["learning_rate"] == 0.01
    assert recipe["train_batch_size"] == 4
    assert recipe["warmup_proportion"] == 0.1
    for part in ("data of mood", "seed 12345", "12 answers in", "report.html"):
        assert part in done.stdout
    assert (folder / "predictions_test.tsv").exists()
    assert "Traceback" not in done.stderr


@pytest.mark.witness("bert-tf finetune resumes exactly after SIGKILL")
def test_kill_9_and_resume_is_exact(flags, whole, tmp_path):
    killed = tmp_path / "killed"
    arguments = [*flags, f"--output_dir={killed}", "--mode=train"]
    done = commands.run_as_process(
        "tools.run_finetuning", *arguments, environment={"KILL_AT": "5"}
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (killed / "task.json").exists()
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "resuming from step 4" in done.stdout
    assert_same_run(killed, whole[0])


def test_recipe_repeats_a_run_below_the_flags(whole, flags, tmp_path):
    again = [
        f"--recipe={whole[0] / 'recipe.json'}",
        f"--output_dir={tmp_path}",
        "--num_train_epochs=0.2",
    ]
    (task,) = (flag for flag in flags if flag.startswith("--task="))
    done = run(*again)
    assert done.returncode == 1
    # A file is not run because another file names it.
    assert done.stderr.rstrip().endswith(f"name it in the command: {task}")
    done = run(*again, task)
    assert done.returncode == 0, done.stderr
    mine = json.loads((tmp_path / "recipe.json").read_text())
    theirs = json.loads((whole[0] / "recipe.json").read_text())
    different = {name for name in mine if mine[name] != theirs[name]}
    assert different == {"num_train_epochs"}


WITHOUT_TENSORFLOW = """
import runpy, sys
sys.modules["tensorflow"] = None
runpy.run_module("tools.run_finetuning", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("task", "setting"), [("sentence", "text"), ("choice", "context")]
)
def test_columns_are_missed_before_tensorflow_is_imported(task, setting):
    words = [sys.executable, "-c", WITHOUT_TENSORFLOW, f"--task={task}"]
    words += ["--train_file=t.csv", "--model=m", "--output_dir=o"]
    done = subprocess.run(
        words,
        cwd=commands.ROOT,
        # Otherwise the command restarts itself.
        env={**os.environ, "GLIBC_TUNABLES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    line = f"error: --{setting}_column"
    assert done.stderr.startswith(line), done.stderr
    assert done.stderr.endswith("=...: name the column(s).\n")


def test_overwrite_replaces_a_finished_run(whole, flags, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "again")
    arguments = [*flags, f"--output_dir={folder}", "--mode=train"]
    arguments += ["--num_train_epochs=0.4"]
    done = run(*arguments)
    assert done.returncode == 1
    line = "(num_train_epochs was 1.0 and is now 0.4); choose another folder, "
    assert f"{line}or pass --overwrite=True to replace it." in done.stderr
    done = run(*arguments, "--overwrite")
    assert done.returncode == 0, done.stderr
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["num_train_epochs"] == 0.4
    assert not (folder / "predictions_test.tsv").exists()


def test_help_groups_the_flags_of_all_tasks():
    """Every flag stands once, with the tasks that differ."""
    printed = run("--helpshort").stdout
    places = [printed.index(f"\n\n{heading}:\n") for heading in _GROUPS]
    assert places == sorted(places)
    found = [
        printed.index(f"\n  --{name}")
        for name in ("task\n", "empty_text", "doc_stride", "seed ", "lora_on")
    ]
    assert places[0] < found[0] < places[1] < found[1] < places[2] < found[2]
    assert found[2] < places[3] < found[3] < places[5] < found[4] < places[6]
    printed = " ".join(printed.split())
    for text in (
        "--learning_rate (a number; default: 5e-05) Peak learning rate. ",
        "3 more: 2e-05; conll2003_features: 0.001; sentence: chosen by the ru",
        "The first row names the columns; otherwise they are called 0, 1, ",
        "in the loss: balanced, or a number for each label in their order, "
        "comma-separated. For cola, mnli, mrpc, qnli, qqp, rte, sentence, sst2 "
        "and 2 more.",
        "A question may have no answer, as in SQuAD 2.0. For questions.",
    ):
        assert text in printed
    own = " ".join(run("--task=sentence", "--help").stdout.split())
    assert "--learning_rate (a number; default: 0.0) Peak learning r" in own
    assert "--with_null" not in own


def test_no_pattern_of_a_heading_is_left_over():
    modules = ("run_finetuning", "run_pretraining", "distill")
    help_texts = [commands.run(f"tools.{m}", "--help").stdout for m in modules]
    static = commands.run("tools.distill", "--to=static", "--help").stdout
    help_texts.append(static)
    flag = re.compile(r"^  --(?:\[no\]|model, --)?(\w+)", re.M)
    names = set(flag.findall("\n".join(help_texts)))
    for patterns in _GROUPS.values():
        for pattern in patterns.split():
            assert fnmatch.filter(names, pattern), pattern
