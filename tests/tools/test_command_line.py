"""Exit codes and one-line errors, seen from outside."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = """
from absl import flags
from tools import command_line
from bert_tf.errors import UserError
import errno

KIND = flags.DEFINE_string("kind", None, "What happens.")

def main():
    if KIND.value == "user":
        raise UserError("--x=1: wrong,\\n  give 2.")
    if KIND.value == "full":
        raise OSError(errno.ENOSPC, "No space left on device", "/f")
    if KIND.value == "interrupt":
        raise KeyboardInterrupt
    if KIND.value == "bug":
        raise ZeroDivisionError
    print("done")

command_line.run(main)
"""


def run_script(
    body: str = 'print("done")', *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command whose last line is another."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.replace('print("done")', body),
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        # Where it is set, TensorFlow is not imported first.
        env={"TF_CPP_MIN_LOG_LEVEL": "2", "PATH": "", **environment},
    )


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--kind=good"], 0, ""),
        (["--kind=user"], 1, "error: --x=1: wrong, give 2.\n"),
        (
            ["--kind=full"],
            1,
            "error: No space left on device (/f); free some space and run "
            "the same command again.\n",
        ),
        (["--kind=interrupt"], 130, "interrupted\n"),
        (
            ["word"],
            1,
            "error: unexpected argument 'word'; flags are written "
            "--name=value.\n",
        ),
    ],
)
def test_exit_code_and_line(arguments, code, error):
    done = run_script('print("done")', *arguments)
    assert (done.returncode, done.stderr) == (code, error)


def test_names_in_other_scripts_on_an_ascii_terminal():
    done = run_script('print("done \\u0414")', PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "done \\u0414\n"


@pytest.mark.parametrize("given", [{}, {"TF_ENABLE_ONEDNN_OPTS": "0"}])
def test_onednn_is_on_unless_the_user_says_otherwise(given):
    body = "import os; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    done = run_script(body, **given)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("0\n" if given else "1\n")


def test_a_defect_shows_its_stack_trace():
    done = run_script('print("done")', "--kind=bug")
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


def test_tensorflow_starts_in_silence():
    body = "import tensorflow as tf; tf.constant(1); print('done')"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace('print("done")', body)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": ""},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_flags_for_the_names_of_arguments():
    done = run_script(
        """from bert_tf.progress import log

    command_line.name_fields(["rate", "kind"])
    log("`kind`=a and `rate` and `rate`=1, with `code` and `a b` as it is")
    raise UserError("`inputs`=x: pass `kind`=good.")"""
    )
    assert done.stderr.splitlines() == [
        "--kind=a and --set rate and --set rate=1, with `code` and `a b` as "
        "it is",
        "error: --input=x: pass --kind=good.",
    ]
