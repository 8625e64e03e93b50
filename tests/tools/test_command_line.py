"""Exit codes, one-line errors and start-up, in processes of their own."""

import os
import pathlib
import subprocess
import sys

import pytest

from tools import command_line

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = """
from absl import flags
from tools import command_line
from bert_tf.errors import UserError
from bert_tf.progress import log
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
    if KIND.value == "memory":
        raise MemoryError
    if KIND.value == "bad_alloc":
        raise RuntimeError("openvino: std::bad_alloc")
    if KIND.value == "oom":
        import tensorflow as tf
        text = "OOM when allocating tensor\\nwith shape[9]"
        raise tf.errors.ResourceExhaustedError(None, None, text)
    if KIND.value == "stdout":
        import sys
        sys.stdout.buffer.write(b"a")
    if KIND.value == "names":
        command_line.name_arguments({"rate": "--rates"})
        log("`kind`=a and `rate` and `rate`=1, with `code` and `a b`")
        raise UserError("`inputs`=x: pass `kind`=good.")
    import os, tensorflow as tf
    tf.constant(1)
    print("done \\u0414", os.environ["TF_ENABLE_ONEDNN_OPTS"])

command_line.run(main)
"""
SMALLER = (
    "give smaller batches or shorter rows (bert-tf plan-memory), or end other "
    "programs.\n"
)
# Where it is set, TensorFlow is not imported first.
SHOWN = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "output", "error"),
    [
        # TensorFlow's messages are hidden, and oneDNN is on.
        ([], {}, 0, "done \u0414 1\n", ""),
        # Names in other scripts on an ASCII terminal; the user's own setting.
        (
            ["--kind=good"],
            {"PYTHONIOENCODING": "ascii", "TF_ENABLE_ONEDNN_OPTS": "0"},
            0,
            "done \\u0414 0\n",
            "",
        ),
        (["--kind=user"], SHOWN, 1, "", "error: --x=1: wrong, give 2.\n"),
        (
            ["--kind=full"],
            SHOWN,
            1,
            "",
            "error: No space left on device (/f); ",
        ),
        (
            ["--kind=memory"],
            SHOWN,
            1,
            "",
            f"error: out of memory (MemoryError); {SMALLER}",
        ),
        (
            ["--kind=bad_alloc"],
            SHOWN,
            1,
            "",
            f"error: out of memory (openvino: std::bad_alloc); {SMALLER}",
        ),
        (
            ["--kind=oom"],
            {},
            1,
            "",
            "error: out of memory (OOM when allocating tensor with shape[9]); "
            f"{SMALLER}",
        ),
        (["--kind=interrupt"], SHOWN, 130, "", "interrupted\n"),
        (["word"], SHOWN, 1, "", "error: unexpected argument 'word'; "),
        (
            ["--kind=names"],
            SHOWN,
            1,
            "",
            "--kind=a and --rates and --rates=1, with `code` and `a b`\n"
            "error: --input=x: pass --kind=good.\n",
        ),
        (["--kind=bug"], SHOWN, 1, "", "Traceback (most recent call last)"),
    ],
)
def test_a_command(arguments, environment, code, output, error):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PATH": "", "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8", **environment},
    )
    assert (done.returncode, done.stdout) == (code, output), done.stderr
    assert done.stderr.startswith(error)
    if error.endswith("\n") or not error:
        assert done.stderr == error


def test_a_closed_standard_output():
    command = [sys.executable, "-c", SCRIPT, "--kind=stdout"]
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "bash", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **SHOWN},
    )
    line = "error: standard output is closed; redirect it to a file.\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_memory_in_huge_pages(monkeypatch):
    started = []
    monkeypatch.setattr(command_line.os, "execv", lambda *a: started.append(a))
    monkeypatch.setattr(command_line.sys, "platform", "linux")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    command_line.use_huge_pages()
    assert started == []
    monkeypatch.delenv("GLIBC_TUNABLES")
    command_line.use_huge_pages()
    assert started == [(sys.executable, sys.orig_argv)]
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    monkeypatch.setattr(command_line.sys, "platform", "darwin")
    monkeypatch.delenv("GLIBC_TUNABLES")
    command_line.use_huge_pages()
    assert len(started) == 1
