"""A pool of worker processes that do not load TensorFlow.

A worker runs `python -m MODULE` and exchanges pickles over its standard input
and output. Unlike multiprocessing's workers, it needs no
`if __name__ == "__main__"` in the user's program, and it exits when its parent
is killed.
"""

import concurrent.futures
import contextlib
import ctypes
import errno
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
from typing import Any, Self

from bert_tf.errors import UserError

_PACKAGE_ROOT = pathlib.Path(__file__).resolve().parents[1]


def own_memory(peak: bool = False) -> int:
    """Returns this process' resident memory in bytes, or its peak."""
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        # ru_maxrss includes the memory of the parent process.
        name = "VmHWM" if peak else "VmRSS"
        found = re.search(rf"^{name}:\s*(\d+) kB", status.read_text(), re.M)
        if found:
            return int(found[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class WorkerExit(ChildProcessError):
    """The error of a worker process that ended.

    Attributes:
      code: its exit code; negative for the number of a signal.
    """

    def __init__(self, code: int) -> None:
        # An OSError, on which callers keep the finished part.
        super().__init__(
            errno.ECHILD,
            f"a worker process ended (exit code {code}; -9 if the system ran "
            "out of memory); finished parts are kept, run the same command "
            "again",
        )
        self.code = code


class _Worker:
    """A process that handles one request at a time."""

    def __init__(self, module: str, settings: object) -> None:
        search_path = os.environ.get("PYTHONPATH")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(_PACKAGE_ROOT), search_path])
            ),
            "OPENBLAS_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            # -P keeps the current folder out of the import path.
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pipesize=1 << 20,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._requests, self._results = process.stdin, process.stdout
        self._send(settings)

    def _send(self, message: object) -> None:
        pickle.dump(message, self._requests, pickle.HIGHEST_PROTOCOL)
        self._requests.flush()

    def call(self, request: object) -> Any:
        with contextlib.suppress(BrokenPipeError):
            self._send(request)
        try:
            kind, value = pickle.load(self._results)
        except (EOFError, pickle.UnpicklingError):
            raise WorkerExit(self.process.wait()) from None
        if kind == "result":
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
            self._requests.close()
        self._results.close()


class WorkerPool:
    """A pool of worker processes with the same settings.

    Args:
      module: the module that the workers run; it calls `serve`.
      settings: a picklable value, sent to each worker.
      count: number of workers.
    """

    def __init__(self, module: str, settings: object, count: int) -> None:
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(module, settings) for _ in range(count)]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = concurrent.futures.ThreadPoolExecutor(max(count, 1))

    def _call(self, request: object) -> Any:
        worker = self._idle.get()
        try:
            return worker.call(request)
        finally:
            self._idle.put(worker)

    def submit(self, request: object) -> concurrent.futures.Future:
        """Sends a request to the next idle worker.

        Returns:
          A future of the worker's result. It raises the worker's UserError or
          OSError, a RuntimeError with the traceback of any other error, or
          WorkerExit if the worker exited.
        """
        return self._threads.submit(self._call, request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()


def give_memory_back() -> None:
    """Returns freed memory to the operating system, with glibc.

    Small arrays that outlive large ones fragment the heap, which otherwise
    grows with every block of work.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def serve(prepare: Callable[[Any], Callable[[Any], object]]) -> None:
    """Handles requests until standard input ends.

    Args:
      prepare: takes the settings, and returns the function that handles a
        request.
    """
    # Ctrl-C reaches the whole process group; the parent stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries may print to standard output, which carries the results.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    handle = prepare(pickle.load(sys.stdin.buffer))
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            message = ("result", handle(request))
        except UserError as error:
            message = ("user_error", str(error))
        except OSError as error:
            values = [error.errno, error.strerror]
            if error.filename:
                values.append(str(error.filename))
            message = ("os_error", values)
        except Exception:
            message = ("traceback", traceback.format_exc())
        # Frees its memory before the next request is read.
        del request
        give_memory_back()
        try:
            pickle.dump(message, results, pickle.HIGHEST_PROTOCOL)
            results.flush()
        except BrokenPipeError:
            # The parent has exited.
            os._exit(0)
