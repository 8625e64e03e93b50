"""The command: flags, tasks' own defaults, kill -9 and resume, predict."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests import commands
from tests.finetuning.sentence_runs import model_folder, texts
from tests.run_folders import assert_same_run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TASK_FILE = """
from bert_tf.families.text_classification.kinds import UserFileTask

DEFAULTS = {"learning_rate": 0.01, "log_steps": 3}
TASK = UserFileTask(name="mood", defaults=DEFAULTS)
"""


@pytest.fixture(scope="module")
def flags(tmp_path_factory) -> list[str]:
    """The flags of a small run on own files, by an own task file."""
    folder = tmp_path_factory.mktemp("files")
    for name, count, seed in (("train", 60, 1), ("dev", 12, 2)):
        lines = ["text\tmood"]
        lines += [f"{e.text_a}\t{e.label}" for e in texts(count, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "mood.py").write_text(TASK_FILE)
    model_folder(folder / "model")
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
        "--save_checkpoints_steps=7",
    ]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tools.run_finetuning", *arguments]


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


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(flags, tmp_path):
    folder = tmp_path / "stopped"
    process = commands.Command(
        "tools.run_finetuning",
        *flags,
        f"--output_dir={folder}",
        "--mode=train",
        "--num_train_epochs=1000",
        log=tmp_path / "log",
    )
    deadline = time.monotonic() + 120
    while not (folder / "checkpoints" / "step-00000007").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.printed()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130, process.printed()
    (step,) = re.findall(
        "stopped at step (.*) of 15,000, whose state is saved",
        process.printed(),
    )
    number = int(step.replace(",", ""))
    assert (folder / "checkpoints" / f"step-{number:08}").is_dir()
    assert "Traceback" not in process.printed()
    assert not (folder / "task.json").exists()


@pytest.mark.slow
def test_kill_9_and_resume_is_exact(flags, whole, tmp_path):
    killed = tmp_path / "killed"
    arguments = [*flags, f"--output_dir={killed}", "--mode=train"]
    process = subprocess.Popen(
        command(*arguments),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (killed / "checkpoints" / "step-00000014").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "task.json").exists()
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stdout
    assert_same_run(killed, whole[0])


@pytest.mark.slow
def test_recipe_repeats_a_run_below_the_flags(whole, flags, tmp_path):
    again = [
        f"--recipe={whole[0] / 'recipe.json'}",
        f"--output_dir={tmp_path}",
        "--num_train_epochs=0.1",
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


def test_help_groups_the_settings_by_kind():
    """Each setting stands under the kind that adds it."""
    done = run("--helpshort")
    kinds = ("tasks whose ex", "tasks on texts or", "a task on a user's")
    names = ("empty_text", "doc_stride (an int", "text_columns\n")
    places = [done.stdout.index(f"\nSettings of {x}") for x in kinds]
    found = [done.stdout.index(f"\n  --{x}") for x in names]
    assert places[0] < found[0] < places[1] < found[1] < places[2] < found[2]
    # What a kind has in common with others is told once.
    assert done.stdout.count("--log_steps") == 1
