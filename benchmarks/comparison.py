"""What the benchmarks share: turns, results that are kept, the machine."""

import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from bert_tf.errors import UserError
from bert_tf.files import write_text

HUGE_PAGES = "glibc.malloc.hugetlb=1"


def kept(folder: str, name: str, make: Callable[[], dict]) -> dict:
    """The result of that name, made and kept if it is not there yet."""
    path = pathlib.Path(folder, f"{name}.json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(make(), indent=2) + "\n")
    return json.loads(path.read_text(encoding="utf-8"))


def run(command: Sequence[str]) -> None:
    """Runs a process with huge pages; its output is shown where it fails."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"GLIBC_TUNABLES": HUGE_PAGES, **os.environ},
    )
    if done.returncode:
        print(done.stdout[-4000:], file=sys.stderr)
        raise UserError(f"exit code {done.returncode}: {' '.join(command)}")


def threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def processor() -> str:
    """The name of the processor, where the system tells it."""
    path = pathlib.Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def seconds_in_turns(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each work in each round.

    They take turns, so that a slow minute of the machine falls on all.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            started = clock()
            work()
            seconds[name].append(clock() - started)
    return seconds


def show_machine(module: str, *packages: str) -> None:
    """Prints the command, the machine and the versions of packages."""
    versions = [
        f"{name} {importlib.metadata.version(name)}" for name in packages
    ]
    print(f"python -m {module}", *sys.argv[1:])
    print(
        f"{processor()}, {threads()} cores, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {', '.join(versions)}",
        flush=True,
    )


def show_heading(module: str, peer_python: str) -> None:
    """Prints the machine and the versions of both sides."""
    peer = (
        "import torch, transformers as t;"
        "print(f'torch {torch.__version__}, transformers {t.__version__}')"
    )
    versions = subprocess.run(
        [peer_python, "-c", peer],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    show_machine(module, "tensorflow", "keras")
    tunables = os.environ.get("GLIBC_TUNABLES", HUGE_PAGES)
    print(f"peer: {versions}; GLIBC_TUNABLES={tunables}")


class Peer:
    """A program of another environment that times what it is asked for.

    It prints a line of JSON when it is ready, and one for each line it gets.

    Args:
      command: the program and its arguments.

    Attributes:
      said: the first line, its versions for example.
    """

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said = self._answer()

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended: {self._process.wait()}")
        return json.loads(line)

    def ask(self, line: str) -> dict:
        """What it answers to a line."""
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait()
