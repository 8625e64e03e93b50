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
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        # Set, so that TensorFlow is not imported for nothing.
        env={"TF_CPP_MIN_LOG_LEVEL": "2", "PATH": ""},
    )
    assert (done.returncode, done.stderr) == (code, error)


def test_names_in_other_scripts_on_an_ascii_terminal():
    script = SCRIPT.replace('print("done")', 'print("done \\u0414")')
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PATH": "",
            "PYTHONIOENCODING": "ascii",
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "done \\u0414\n"


@pytest.mark.parametrize("given", [{}, {"TF_ENABLE_ONEDNN_OPTS": "0"}])
def test_onednn_is_on_unless_the_user_says_otherwise(given):
    wanted = "import os; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace('print("done")', wanted)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"TF_CPP_MIN_LOG_LEVEL": "2", "PATH": "", **given},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("0\n" if given else "1\n")


def test_a_defect_shows_its_stack_trace():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "--kind=bug"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"TF_CPP_MIN_LOG_LEVEL": "2", "PATH": ""},
    )
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


def test_tensorflow_starts_in_silence():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.replace(
                'print("done")',
                "import tensorflow as tf; tf.constant(1); print('done')",
            ),
            "--kind=good",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": ""},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_flags_for_the_names_of_arguments():
    body = """
    from bert_tf.progress import log

    command_line.name_fields(["rate", "kind"])
    log("`kind`=a and `rate` and `rate`=1, with `code` and `a b` as it is")
    raise UserError("`inputs`=x: pass `kind`=good.")
"""
    script = SCRIPT.replace('    print("done")\n', body)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"TF_CPP_MIN_LOG_LEVEL": "2", "PATH": ""},
    )
    assert done.stderr.splitlines() == [
        "--kind=a and --set rate and --set rate=1, with `code` and `a b` as "
        "it is",
        "error: --input=x: pass --kind=good.",
    ]
