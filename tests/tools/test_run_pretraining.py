"""The commands as a user types them, from text to a filled mask."""

import pydoc_data.topics
import subprocess

import pytest

from tests import commands


def command(tool: str, *arguments: object) -> subprocess.CompletedProcess:
    return commands.run(f"tools.{tool}", *arguments)


@pytest.mark.slow
def test_from_text_to_a_filled_mask(tmp_path):
    def done(tool: str, *arguments: str) -> subprocess.CompletedProcess:
        finished = command(tool, *arguments)
        assert finished.returncode == 0, finished.stderr
        return finished

    topics = pydoc_data.topics.topics
    text = "\n\n".join(
        "\n".join(" ".join(topics[name].split()).split(". "))
        for name in sorted(topics)[:30]
    )
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text(text + "\n", encoding="utf-8")
    done(
        "train_vocab",
        f"--input={tmp_path}/corpus/*.txt",
        "--vocab_size=500",
        f"--output={tmp_path}/vocab.txt",
    )
    done(
        "create_pretraining_data",
        f"--input={tmp_path}/corpus/*.txt",
        f"--vocab_file={tmp_path}/vocab.txt",
        f"--output_dir={tmp_path}/records",
        "--max_seq_length=32",
        "--max_predictions_per_seq=5",
        "--held_out=0.1",
    )
    arguments = [
        f"--data_dir={tmp_path}/records",
        f"--output_dir={tmp_path}/model",
        "--size=tiny",
        "--set=num_train_steps=4",
        "--set=train_batch_size=8",
    ]
    finished = done("run_pretraining", *arguments)
    assert "perplexity" in finished.stdout
    assert "by frequency alone" in finished.stdout
    assert (tmp_path / "model/learning_curve.png").stat().st_size > 10_000
    again = done("run_pretraining", *arguments)
    assert "already finished: 4 of 4 steps done" in again.stdout
    text = "A [MASK] is an object."
    filled = done("fill_mask", f"--model={tmp_path}/model", "--top_k=3", text)
    lines = filled.stdout.splitlines()
    assert lines[0] == text
    assert lines[1].startswith("  [MASK] 1: ")
    assert len(lines[1].split()) == 2 + 2 * 3
    assert filled.stderr == ""


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
