"""Commands run as at a shell, without waiting for TensorFlow each time.

One process imports TensorFlow, and a fork of it becomes each command: its own
process, arguments, environment, output and exit code, in a twentieth of the
time. Where a command's start itself is tested, it gets a process of its own
(tests/tools/test_command_line.py).
"""

import atexit
import functools
import gc
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A command would start anew to get its memory in huge pages.
_NO_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
# Where it is set, TensorFlow's start-up messages are shown.
_VERBOSITY = "TF_CPP_MIN_LOG_LEVEL"


class Command:
    """A command that runs, as `subprocess.Popen` has it.

    Args:
      module: tools.something.
      *arguments: its words.
      log: file that takes what it prints, after what is there.
      environment: variables that it has besides the shell's.
    """

    def __init__(
        self,
        module: str,
        *arguments: object,
        log: pathlib.Path,
        environment: dict[str, str] | None = None,
    ):
        self.log = log
        words = [module, *map(str, arguments)]
        streams = [os.devnull, str(log), str(log)]
        self.pid = _start(words, environment, streams)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.returncode is None:
            self.returncode = _ask("poll", self.pid)
        return self.returncode

    def wait(self, seconds: float = 300.0) -> int:
        """The exit code, once it has ended."""
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.02)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it as nothing can refuse."""
        self.send_signal(signal.SIGKILL)

    def printed(self) -> str:
        """What stands in its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def run(
    module: str,
    *arguments: object,
    standard_input: str = "",
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module arguments` at the root of the repository.

    Args:
      module: tools.something.
      *arguments: its words.
      standard_input: what it reads.
      environment: variables that it has besides the shell's.
    """
    words = [module, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        streams = [pathlib.Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(standard_input, encoding="utf-8")
        pid = _start(words, environment, list(map(str, streams)))
        code = _ask("wait", pid)
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


def _start(
    words: list[str],
    environment: dict[str, str] | None,
    streams: list[str],
) -> int:
    """The process id of a new command."""
    given = {k: v for k, v in os.environ.items() if k != _VERBOSITY}
    given |= _NO_HUGE_PAGES | (environment or {})
    return _ask("start", words, given, streams)


def _ask(*question: object) -> int | None:
    parent = _parent()
    parent.stdin.write(f"{json.dumps(question)}\n")
    parent.stdin.flush()
    answer = parent.stdout.readline()
    assert answer, "the process that commands are forked from has ended"
    return json.loads(answer)


def _serve() -> None:
    """Forks commands and tells how they ended; returns in a fork."""
    import keras  # noqa: F401
    import tensorflow as tf

    # Looks for CUDA and says so, once for all.
    tf.config.list_physical_devices()
    # A fork that ends looks through all objects, of which each page would be
    # copied: three quarters of a short command's time.
    gc.freeze()
    # Commands write to descriptor 1, answers go where it led.
    answers = os.dup(1)
    for line in sys.stdin:
        kind, *values = json.loads(line)
        if kind == "start":
            answer = os.fork()
            if not answer:
                os.close(answers)
                _become(*values)
                return
        else:
            answer = _exit_code(*values, wait=kind == "wait")
        os.write(answers, f"{json.dumps(answer)}\n".encode())


def _exit_code(pid: int, wait: bool) -> int | None:
    """How a fork ended, None while it runs."""
    ended, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(
    words: list[str], environment: dict[str, str], streams: list[str]
) -> None:
    """Runs a command in this process."""
    for descriptor, path in enumerate(streams):
        flags = os.O_WRONLY | os.O_APPEND if descriptor else os.O_RDONLY
        os.dup2(os.open(path, flags | os.O_CREAT, 0o600), descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    # A shell has it ignored in what runs in its background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
