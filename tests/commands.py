"""Runs the commands of tools/ without importing TensorFlow each time.

`run` runs a command inside the test's process. `Command` is a process of its
own, for tests that send signals or need it in the background: a fork of a
process that has imported TensorFlow. Start-up is tested in
tests/tools/test_command_line.py, in new processes.
"""

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import pathlib
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from absl import app, flags

from bert_tf import progress
from tools import module_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Otherwise a command restarts itself with huge pages.
_NO_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
# Where it is set, TensorFlow's start-up messages are shown.
_VERBOSITY = "TF_CPP_MIN_LOG_LEVEL"


class Command:
    """A command in a process of its own, with the methods of `Popen`.

    Args:
      module: tools.something.
      *arguments: its arguments.
      log: file to which its output is appended.
      environment: variables that it has in addition.
    """

    def __init__(
        self,
        module: str,
        *arguments: object,
        log: pathlib.Path,
        environment: Mapping[str, str] = types.MappingProxyType({}),
    ):
        self.log = log
        words = [module, *map(str, arguments)]
        streams = [os.devnull, str(log), str(log)]
        self.pid = _start(words, dict(environment), streams)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = _ask("poll", self.pid)
        return self.returncode

    def wait(self, seconds: float = 300.0) -> int:
        """Waits until it has ended and returns the exit code."""
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.02)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def printed(self) -> str:
        """Returns what its log holds."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def run(
    module: str,
    *arguments: object,
    standard_input: str = "",
    folder: pathlib.Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m module arguments` inside this process.

    Flags, streams, `sys.argv`, the environment and the wording of messages are
    restored afterwards. An error that the command does not handle is raised.

    Args:
      module: tools.something.
      *arguments: its arguments.
      standard_input: text that it reads.
      folder: the working directory.

    Returns:
      Exit code and output, as `subprocess.run` does.
    """
    from tools import command_line

    progress.log_once.cache_clear()
    if tensorflow := sys.modules.get("tensorflow"):
        # Starts it, so that no command changes the threads of this process.
        tensorflow.config.list_logical_devices()
    words = [module, *map(str, arguments)]
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(3)]
    streams[0].write(standard_input)
    streams[0].seek(0)
    code: object = 0
    with contextlib.ExitStack() as stack:
        for name, stream in zip(
            ("stdin", "stdout", "stderr"), streams, strict=True
        ):
            stack.enter_context(mock.patch.object(sys, name, stream))
        # absl's own registers the flags of one program a process.
        for owner, name, value in (
            (app, "run", _run_main),
            (sys, "argv", words),
            # Files of the user's own extend it.
            (sys, "path", [*sys.path]),
            (command_line, "_given_as", {**command_line._given_as}),
            (command_line, "_later", []),
            (command_line, "_models", []),
            (command_line, "_groups", {}),
            (command_line, "_choices", {}),
            (progress, "_reworded", str),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        for values, changes in (
            (os.environ, _NO_HUGE_PAGES),
            (flags.FLAGS.__dict__, _flags_of_absl()),
        ):
            stack.enter_context(mock.patch.dict(values, changes))
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(warnings.catch_warnings())
        # Tests import functions of some commands.
        if imported := sys.modules.pop(module, None):
            stack.callback(sys.modules.__setitem__, module, imported)
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
    if isinstance(code, str):
        streams[2].write(f"{code}\n")
    returncode = code if isinstance(code, int) else int(code is not None)
    return subprocess.CompletedProcess(
        words, returncode, *map(_written, streams[1:])
    )


def run_line(
    line: str, folder: pathlib.Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs a line of a page, `bert-tf NAME --flag=value ...`, as `run`."""
    program, name, *arguments = shlex.split(line)
    assert program == "bert-tf", line
    return run(f"tools.{module_of(name)}", *arguments, folder=folder)


def run_script(script: str, folder: pathlib.Path) -> None:
    """Runs the `bert-tf` commands of a script one after another, as `run`.

    Bash expands variables and loops before the first of them is run.
    """
    listed = 'bert-tf() { printf "%s\\0" "$@" ""; }\n' + script
    printed = subprocess.run(
        ["bash", "-ec", listed],
        cwd=folder,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    for line in printed.split("\0\0")[:-1]:
        name, *arguments = line.split("\0")
        done = run(f"tools.{module_of(name)}", *arguments, folder=folder)
        assert done.returncode == 0, (name, arguments, done.stderr)


def run_as_process(
    module: str, *arguments: object, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own, as `run`.

    For commands whose libraries read the environment when they are imported.

    Args:
      module: tools.something.
      *arguments: its arguments.
      environment: variables that it has in addition.
    """
    words = [module, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder, name) for name in ("out", "err")]
        pid = _start(words, environment, [os.devnull, *map(str, outputs)])
        while (code := _ask("poll", pid)) is None:
            time.sleep(0.02)
        out, err = (path.read_text(encoding="utf-8") for path in outputs)
    return subprocess.CompletedProcess(words, code, out, err)


def _run_main(
    main: Callable[[list[str]], int],
    flags_parser: Callable[[list[str]], list[str]],
) -> None:
    sys.exit(main(flags_parser(sys.argv)))


def _flags_of_absl() -> dict[str, Any]:
    """Returns the state of absl's flags, without those of any command."""
    fresh = flags.FlagValues()
    defined = flags.FLAGS.flags_by_module_dict().get("absl.logging", [])
    for flag in (app.HelpfullFlag(), *defined):
        fresh[flag.name] = flag
    return fresh.__dict__


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8")


@functools.cache
def _parent() -> subprocess.Popen:
    """Starts the process that commands are forked from."""
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
    words: list[str], environment: dict[str, str], streams: list[str]
) -> int:
    """Starts a command and returns its process id."""
    given = {k: v for k, v in os.environ.items() if k != _VERBOSITY}
    given |= _NO_HUGE_PAGES | environment
    return _ask("start", words, given, streams)


def _ask(*question: object) -> int | None:
    parent = _parent()
    parent.stdin.write(f"{json.dumps(question)}\n")
    parent.stdin.flush()
    answer = parent.stdout.readline()
    assert answer, "the process that commands are forked from has ended"
    return json.loads(answer)


def _serve() -> None:
    """Forks commands and answers with their exit codes; returns in a fork."""
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
            ended, status = os.waitpid(*values, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        os.write(answers, f"{json.dumps(answer)}\n".encode())


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
    # With which a command restarts itself.
    sys.orig_argv = [sys.executable, "-m", *words]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
