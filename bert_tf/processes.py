"""Worker processes that answer questions, without TensorFlow.

A worker is started as `python -m MODULE` and talks in pickles over its
standard input and output. Unlike those of multiprocessing, workers need no
`if __name__ == "__main__"` in the user's program and end by themselves when
the program that started them is killed.
"""

import concurrent.futures
import contextlib
import ctypes
import errno
import functools
import os
import pathlib
import pickle
import queue
import re
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from bert_tf.errors import UserError

_PACKAGE_ROOT = pathlib.Path(__file__).resolve().parents[1]


def own_memory(peak: bool = False) -> int:
    """Bytes that this process holds, or with `peak` the most that it held."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would count what the process that started this one held.
        name = "VmHWM" if peak else "VmRSS"
        found = re.search(rf"^{name}:\s*(\d+) kB", status.read_text(), re.M)
        if found:
            return int(found[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class _Worker:
    """A process that answers one question at a time."""

    def __init__(self, module: str, settings: object) -> None:
        search_path = os.environ.get("PYTHONPATH")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(_PACKAGE_ROOT), search_path])
            ),
            "OPENBLAS_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            # -P: what lies in the current folder is not for it to import.
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pipesize=1 << 20,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._questions, self._answers = process.stdin, process.stdout
        self._send(settings)

    def _send(self, message: object) -> None:
        pickle.dump(message, self._questions, pickle.HIGHEST_PROTOCOL)
        self._questions.flush()

    def ask(self, question: object) -> Any:
        with contextlib.suppress(BrokenPipeError):
            self._send(question)
        try:
            kind, value = pickle.load(self._answers)
        except (EOFError, pickle.UnpicklingError):
            # An OSError, so that what is finished is kept.
            raise ChildProcessError(
                errno.ECHILD,
                "a worker process ended (exit code "
                f"{self.process.wait()}; -9 is what the system does when "
                "memory runs out); what was complete is kept, run the same "
                "command again",
            ) from None
        if kind == "answer":
            return value
        if kind == "user_error":
            raise UserError(value)
        if kind == "os_error":
            raise OSError(*value)
        raise RuntimeError(value)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._questions.close()
        self._answers.close()


class WorkerPool:
    """Some worker processes, each with the same settings.

    Args:
      module: what the processes run; it calls `serve`.
      settings: a value that can be pickled, passed to each of them.
      count: number of processes.
    """

    def __init__(self, module: str, settings: object, count: int) -> None:
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(module, settings) for _ in range(count)]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = concurrent.futures.ThreadPoolExecutor(max(count, 1))

    def _ask(self, question: object) -> Any:
        worker = self._idle.get()
        try:
            return worker.ask(question)
        finally:
            self._idle.put(worker)

    def submit(self, question: object) -> concurrent.futures.Future:
        """Asks the next worker that is free.

        The result is what it answers, or the error that it met: a UserError,
        an OSError, a RuntimeError with its traceback, or ChildProcessError
        if it ended.
        """
        return self._threads.submit(self._ask, question)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """The C library's, where it has one (glibc)."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_memory_back() -> None:
    """Gives memory that is free to the system, where the C library can do that.

    Small arrays that outlive large ones leave holes between them, which grow
    with every block of work.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def serve(prepare: Callable[[Any], Callable[[Any], object]]) -> None:
    """Answers questions until standard input ends.

    Args:
      prepare: is given the settings, and returns the function that answers.
    """
    # An interrupt reaches the whole group; the parent ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints shall not stand between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer = prepare(pickle.load(sys.stdin.buffer))
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            message = ("answer", answer(question))
        except UserError as error:
            message = ("user_error", str(error))
        except OSError as error:
            values = [error.errno, error.strerror]
            if error.filename:
                values.append(str(error.filename))
            message = ("os_error", values)
        except Exception:
            message = ("traceback", traceback.format_exc())
        # Or it would take memory while the next one is read.
        del question
        give_memory_back()
        try:
            pickle.dump(message, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:
            # The program that asked is gone; nobody waits for an answer.
            os._exit(0)
