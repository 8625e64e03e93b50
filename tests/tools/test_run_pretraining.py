"""The commands as a user types them, from text to a filled mask."""

import pathlib
import pydoc_data.topics
import subprocess

import pytest

from tests import commands


def command(tool: str, *arguments: object) -> subprocess.CompletedProcess:
    return commands.run(f"tools.{tool}", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A corpus, and what the first two commands make of it."""
    folder = tmp_path_factory.mktemp("commands")
    topics = pydoc_data.topics.topics
    text = "\n\n".join(
        "\n".join(" ".join(topics[name].split()).split(". "))
        for name in sorted(topics)[:30]
    )
    (folder / "text.txt").write_text(text + "\n", encoding="utf-8")
    done = command(
        "train_vocab",
        f"--input={folder}/*.txt",
        "--vocab_size=500",
        f"--output={folder}/vocab.txt",
    )
    assert done.returncode == 0, done.stderr
    (folder / "corpus").mkdir()
    (folder / "text.txt").rename(folder / "corpus" / "text.txt")
    done = command(
        "create_pretraining_data",
        f"--input={folder}/corpus/*.txt",
        f"--vocab_file={folder}/vocab.txt",
        f"--output_dir={folder}/records",
        "--max_seq_length=32",
        "--max_predictions_per_seq=5",
        "--held_out=0.1",
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_from_records_to_a_filled_mask(folder):
    arguments = [
        f"--data_dir={folder}/records",
        f"--output_dir={folder}/model",
        "--size=tiny",
        "--set=num_train_steps=4",
        "--set=train_batch_size=8",
    ]
    done = command("run_pretraining", *arguments)
    assert done.returncode == 0, done.stderr
    assert "perplexity" in done.stdout
    assert "by frequency alone" in done.stdout
    assert (folder / "model" / "learning_curve.png").stat().st_size > 10_000
    again = command("run_pretraining", *arguments)
    assert again.returncode == 0
    assert "already finished: 4 of 4 steps done" in again.stdout
    text = "A [MASK] is an object."
    done = command("fill_mask", f"--model={folder}/model", "--top_k=3", text)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == text
    assert lines[1].startswith("  [MASK] 1: ")
    assert len(lines[1].split()) == 2 + 2 * 3
    assert done.stderr == ""


@pytest.mark.slow
def test_packed_records_are_made_and_trained_on(folder):
    done = command(
        "create_pretraining_data",
        f"--input={folder}/corpus/*.txt",
        f"--vocab_file={folder}/vocab.txt",
        f"--output_dir={folder}/packed",
        "--max_seq_length=128",
        "--max_predictions_per_seq=20",
        "--held_out=0.1",
        "--packing",
    )
    assert done.returncode == 0, done.stderr
    assert "packed records are filled 9" in done.stdout
    done = command(
        "run_pretraining",
        f"--data_dir={folder}/packed",
        f"--output_dir={folder}/packed_model",
        "--size=tiny",
        "--set=num_train_steps=4",
        "--set=train_batch_size=8",
        "--set=eval_batch_size=8",
    )
    assert done.returncode == 0, done.stderr
    assert "4 steps of 8 rows (" in done.stdout
    assert "held-out next sentence: accuracy" in done.stdout


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        (
            "run_pretraining",
            ["--data_dir=/nowhere", "--output_dir=/tmp/x", "--size=tiny"],
            "error: /nowhere",
        ),
        (
            "run_pretraining",
            ["--output_dir=/tmp/x", "--set=learning_rat=1"],
            "error: --set: unknown key 'learning_rat'. Did you mean "
            "learning_rate?",
        ),
        ("fill_mask", ["--model=/nowhere", "[MASK]"], "error: /nowhere"),
        ("fill_mask", ["--model=/nowhere"], "error: give a text"),
        ("fill_mask", ["a [MASK]"], "error: --model is needed; --help"),
        (
            "run_pretraining",
            ["--output_dir=/tmp/x", "--batch=3"],
            "error: Unknown command line flag 'batch'",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(tool, arguments, line):
    done = command(tool, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
