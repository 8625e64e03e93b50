"""Worker processes that write shards.

The processes are started as `python -m bert_tf.records.workers` and talk in
lines of JSON. They import no TensorFlow, and unlike those of multiprocessing
they need no `if __name__ == "__main__"` in the user's program and end by
themselves when the program that started them is killed.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.records.shards import ShardBuilder, ShardJob, ShardResult

_PACKAGE_ROOT = pathlib.Path(__file__).resolve().parents[2]


class _Worker:
    """A process that builds one shard at a time."""

    def __init__(self, builder: ShardBuilder) -> None:
        search_path = os.environ.get("PYTHONPATH")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(_PACKAGE_ROOT), search_path])
            ),
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bert_tf.records.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._send(builder.to_json())

    def _send(self, values: dict[str, Any]) -> None:
        self.process.stdin.write(json.dumps(values) + "\n")
        self.process.stdin.flush()

    def build(self, job: ShardJob) -> ShardResult:
        """Builds a shard in the process.

        Raises:
          OSError: what stopped the writing, such as a full disk, or killed
            the process.
          RuntimeError: the process failed.
        """
        with contextlib.suppress(BrokenPipeError):
            self._send(dataclasses.asdict(job))
        answer = self.process.stdout.readline()
        if not answer:
            code = self.process.wait()
            # An OSError, so that what is finished is kept.
            raise ChildProcessError(
                errno.ECHILD,
                f"a worker process ended while it wrote {job.name} (exit code "
                f"{code}; -9 is what the system does when memory runs out); "
                "what was complete is kept, run the same command again",
            )
        values = json.loads(answer)
        if "os_error" in values:
            raise OSError(*values["os_error"])
        if "traceback" in values:
            raise RuntimeError(f"{job.name}:\n{values['traceback']}")
        return ShardResult(**values)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def build_shards(
    builder: ShardBuilder, jobs: Sequence[ShardJob], workers: int
) -> Iterator[ShardResult]:
    """Builds shards in worker processes; yields each as it is finished.

    Raises:
      OSError: what stopped the writing, such as a full disk.
      RuntimeError: a process failed.
    """
    count = min(workers, len(jobs))
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    started = [_Worker(builder) for _ in range(count)]
    for worker in started:
        idle.put(worker)

    def build(job: ShardJob) -> ShardResult:
        worker = idle.get()
        try:
            return worker.build(job)
        finally:
            idle.put(worker)

    pool = concurrent.futures.ThreadPoolExecutor(max(count, 1))
    try:
        futures = [pool.submit(build, job) for job in jobs]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in started:
            worker.stop()


def _serve() -> None:
    """Builds the shards that standard input asks for."""
    # An interrupt reaches the whole group; the parent ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    builder = ShardBuilder.from_json(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        values = json.loads(line)
        job = ShardJob(
            values["name"],
            tuple(values["pools"]),
            tuple(values["lending_pools"]),
        )
        try:
            answer = dataclasses.asdict(builder.build(job))
        except OSError as error:
            answer = {"os_error": [error.errno, error.strerror]}
            if error.filename:
                answer["os_error"].append(str(error.filename))
        except Exception:
            answer = {"traceback": traceback.format_exc()}
        try:
            print(json.dumps(answer), flush=True)
        except BrokenPipeError:
            # The program that asked is gone; there is nobody to tell.
            os._exit(0)


if __name__ == "__main__":
    _serve()
