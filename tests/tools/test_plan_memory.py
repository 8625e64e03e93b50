"""The command that plans memory."""

import pathlib
import shlex
import subprocess

from tests import commands

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*flags: str) -> subprocess.CompletedProcess:
    return commands.run("tools.plan_memory", *flags)


def test_the_command_of_the_page() -> None:
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    command = page.split("```sh\n")[1].split("```")[0]
    program, name, *flags = shlex.split(command.replace("\\\n", " "))
    assert (program, name) == ("bert-tf", "plan-memory")
    finished = run(*flags, "--memory=16GB", "--rematerialize")
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    lines = finished.stdout.splitlines()
    assert "adamw, rematerialize; " in lines[0]
    assert lines[0].endswith("memory 16.00 GB (given)")
    assert any("gradient_accumulation_steps=" in line for line in lines)
    assert lines[-1].startswith("| 512 | ")


def test_measuring() -> None:
    finished = run(
        "--size=tiny",
        "--vocab_size=500",
        "--max_seq_length=16",
        "--objective=classifier",
        "--memory=1.1GB",
        "--measure",
        "--train_batch_size=2",
    )
    assert finished.returncode == 0, finished.stderr
    assert "\nmeasured: 2 rows take " in finished.stdout
    assert "(estimated " in finished.stdout
