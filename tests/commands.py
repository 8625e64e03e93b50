"""Commands run as at a shell, without waiting for TensorFlow each time.

One process imports TensorFlow, and a fork of it becomes each command: its own
process, arguments, environment, output and exit code, in a twentieth of the
time. Where a command's start itself is tested, it gets a process of its own
(tests/tools/test_command_line.py).
"""

import atexit
import functools
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A command would start anew to get its memory in huge pages.
_NO_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
# Where it is set, TensorFlow's start-up messages are shown.
_VERBOSITY = "TF_CPP_MIN_LOG_LEVEL"


def run(
    module: str,
    *arguments: object,
    standard_input: str = "",
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module arguments` at the root of the repository.

    Args:
      module: tools.something.
      arguments: its words.
      standard_input: what it reads.
      environment: variables that it has besides the shell's.
    """
    words = [module, *map(str, arguments)]
    given = {k: v for k, v in os.environ.items() if k != _VERBOSITY}
    given |= _NO_HUGE_PAGES | (environment or {})
    with tempfile.TemporaryDirectory() as folder:
        streams = [pathlib.Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(standard_input, encoding="utf-8")
        job = [words, given, list(map(str, streams))]
        code = _ask(json.dumps(job))
        out, err = (p.read_text(encoding="utf-8") for p in streams[1:])
    return subprocess.CompletedProcess(words, code, out, err)


@functools.cache
def _parent() -> subprocess.Popen:
    """The process that has imported TensorFlow."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.commands"],
        cwd=ROOT,
        env=os.environ | {_VERBOSITY: "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    atexit.register(process.communicate)
    return process


def _ask(line: str) -> int:
    parent = _parent()
    parent.stdin.write(f"{line}\n")
    parent.stdin.flush()
    answer = parent.stdout.readline()
    assert answer, "the process that commands are forked from has ended"
    return int(answer)


def _serve() -> None:
    """Forks a command for each line; returns in a fork."""
    import keras  # noqa: F401
    import tensorflow as tf

    # Looks for CUDA and says so, once for all.
    tf.config.list_physical_devices()
    # Commands write to descriptor 1, answers go where it led.
    answers = os.dup(1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.close(answers)
            _become(*json.loads(line))
            return
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(answers, f"{code}\n".encode())


def _become(
    words: list[str], environment: dict[str, str], streams: list[str]
) -> None:
    """Runs a command in this process."""
    for descriptor, path in enumerate(streams):
        flags = os.O_WRONLY if descriptor else os.O_RDONLY
        os.dup2(os.open(path, flags | os.O_CREAT, 0o600), descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
