"""All commands under one name, and the help of each."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

import bert_tf
from tests import commands
from tools import COMMANDS

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def docstring(module: str) -> str:
    tree = ast.parse((TOOLS / f"{module}.py").read_text(encoding="utf-8"))
    return ast.get_docstring(tree)


def help_of(module: str) -> subprocess.CompletedProcess[str]:
    return commands.run(f"tools.{module}", "--help")


def test_every_command_is_listed_with_its_first_line():
    files = {
        path.stem
        for path in TOOLS.glob("[!_]*.py")
        if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")
    }
    assert files == set(COMMANDS.values())
    done = commands.run("tools.__main__", "--version")
    assert done.stdout == f"bert-tf {bert_tf.__version__}\n"
    done = commands.run("tools.__main__", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert commands.run("tools.__main__").stdout == done.stdout
    lines = done.stdout.splitlines()
    for name, module in COMMANDS.items():
        (at,) = (n for n, x in enumerate(lines) if x.startswith(f"  {name} "))
        text = docstring(module)
        assert lines[at].split(maxsplit=1)[1] == text.partition("\n")[0]
        assert lines[at + 1].strip().startswith(f"bert-tf {name} ")
        assert lines[at + 1].strip() in text


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("bert-tf fi", "finetune fill-mask"),
        ("bert-tf score --pre", "--predictions="),
        ("bert-tf score --task=sentence --drop", "--drop_duplicates"),
        ("bert-tf score --task=cola --drop", ""),
        ("bert-tf score --task=sq", "squad_v1 squad_v2"),
        ("bert-tf finetune --task=mrpc --precision=mixed_b", "mixed_bfloat16"),
        ("bert-tf finetune --mode=train,e", "train,eval"),
        ("bert-tf export --format=l", "litert"),
        # Files, by the shell.
        ("bert-tf finetune --train_file=te", ""),
    ],
)
def test_completion_in_bash(typed, completed):
    script = commands.run_line("bert-tf completion bash").stdout
    script += f"""
        bert-tf() {{ {sys.executable} -m tools "$@"; }}
        COMP_LINE='{typed}' COMP_POINT={len(typed)} COMP_WORDS=({typed})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        compopt() {{ :; }}
        _bert_tf
        echo "${{COMPREPLY[@]}}"
    """
    command = ["bash", "-c", script]
    printed = subprocess.check_output(command, cwd=TOOLS.parent, text=True)
    assert printed == f"{completed}\n"
    for shell in ("zsh", "fish"):
        script = commands.run_line(f"bert-tf completion {shell}").stdout
        assert "finetune" in script
        assert "--help" in script


def test_the_program_runs_the_code_of_this_folder_from_any_other(tmp_path):
    """Make installs the folder in editable form."""
    (tmp_path / "tools.py").write_text("raise SystemExit('a trap')")
    binaries = pathlib.Path(sys.executable).parent
    (tmp_path / "link").symlink_to(binaries / "bert-tf")
    code = "import bert_tf.tools; print(bert_tf.tools.__file__)"
    version = f"bert-tf {bert_tf.__version__}"
    for command, expected in (
        ([binaries / "bert-tf", "--version"], version),
        ([tmp_path / "link", "--version"], version),
        ([binaries / "python", "-c", code], TOOLS / "__init__.py"),
    ):
        printed = subprocess.check_output(command, cwd=tmp_path, text=True)
        assert printed == f"{expected}\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["serv"], "error: serv: no such command. Did you mean serve? "),
        (["finetuning"], "error: finetuning: no such command. Did you mean"),
        (["encode"], "error: encode: no such command. Did you mean embed?"),
        (["features"], "error: features: no such command. Did you mean extra"),
        (["convert"], "error: --model is needed"),
        (["completion", "csh"], "error: name one shell: bash, zsh, fish."),
    ],
)
def test_what_does_not_run(words, error):
    done = commands.run("tools.__main__", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(error)


@pytest.mark.parametrize("module", COMMANDS.values())
def test_help(module):
    done = help_of(module)
    assert (done.returncode, done.stderr) == (0, "")
    # The examples line by line, as they can be copied.
    text = docstring(module)
    flags = done.stdout.removeprefix(text)
    if module == "completion":
        assert flags == "\n"
    else:
        assert flags.startswith(("\n\nFlags:\n", "\n\nMost used flags:\n"))
    assert max(map(len, done.stdout.splitlines())) <= 80
    names = re.findall(r"^  --(?:model, --)?(\S+)", flags, re.M)
    assert len(names) == len(set(names)), "a flag stands there twice"
    assert str(TOOLS) not in done.stdout


def test_other_flags_of_help():
    for words in (["--helpshort"], ["-h"], ["--no_such_flag=1", "--help"]):
        done = commands.run("tools.score", *words)
        assert (done.returncode, done.stdout) == (0, help_of("score").stdout)
    done = commands.run("tools.score", "--helpfull")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--predictions" in done.stdout


def test_defaults_are_shown():
    text = help_of("plan_memory").stdout
    assert "--vocab_size (an integer; default: 30522)" in text
    assert "--optimizer (default: adamw)" in text
    text = help_of("run_pretraining").stdout
    assert "--precision (default: float32)" in text
    assert "--masked_lm_prob (a number; default: 0.0)\n" in text
    assert "that of the records. Takes 0 or more, below" in text
    text = commands.run_line("bert-tf finetune --task=cola --help").stdout
    assert "\n  --class_weights" in text
    assert "\n  --train_file" not in text
    assert "\n  --train_file" in help_of("run_finetuning").stdout
    text = help_of("create_pretraining_data").stdout
    assert "--runner (local or beam; default: local)" in text
