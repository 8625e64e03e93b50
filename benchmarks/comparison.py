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
from typing import NamedTuple

from bert_tf.errors import UserError
from bert_tf.files import write_text

HUGE_PAGES = "glibc.malloc.hugetlb=1"
# The row of the peer that others are compared with.
REFERENCE = "transformers (sdpa)"
# Seconds of all rounds of a row.
_LONGEST = 60.0


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
    longest: float = float("inf"),
) -> dict[str, list[float]]:
    """Seconds of each work in each round.

    They take turns, so that a slow minute of the machine falls on all. A work
    that returns a float has measured itself; one that took more than `longest`
    seconds in all rounds so far is not repeated.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            if sum(seconds[name]) > longest:
                continue
            started = clock()
            found = work()
            took = found if isinstance(found, float) else clock() - started
            seconds[name].append(took)
    return seconds


class Settings(NamedTuple):
    """What the sections of benchmarks/cpu_table.py share.

    Attributes:
      peers: Python of the peers' environment; empty for none.
      rounds: the most rounds of each row.
      size: the size of the model with random weights.
      embedder: a folder of sentence-transformers.
      classifier: the same model, fine-tuned on SST-2.
      converted: the classifier in Hugging Face's layout.
      int8: exports of the classifier in int8, by format.
      sentences: SST-2's texts, each once.
      corpus: text files, of which lines are embedded.
      texts: how many texts a file to answer has, and how many are embedded.
      seconds: the time of a round of a server.
    """

    peers: str
    rounds: int
    size: str
    embedder: pathlib.Path
    classifier: pathlib.Path
    converted: pathlib.Path
    int8: dict[str, pathlib.Path]
    sentences: list[str]
    corpus: str
    texts: int
    seconds: float


class Section:
    """A table: works in turns, and what is compared of each.

    Args:
      title: what is measured.
      unit: of the numbers.
      reference: the row that the others are compared with.

    Attributes:
      works: a function to time for each row.
      cells: further cells of each row by column, its equality above all.
      missing: why a row is missing.
      notes: lines below the table.
    """

    def __init__(self, title: str, unit: str, reference: str):
        self.title, self.unit, self.reference = title, unit, reference
        self.works: dict[str, Callable[[], object]] = {}
        self.cells: dict[str, dict[str, str]] = {}
        self.missing: dict[str, str] = {}
        self.notes: list[str] = []
        print(f"{time.strftime('%H:%M:%S')} {title}", flush=True)

    def add(
        self, name: str, make: Callable[[], Callable], warm: bool = True
    ) -> None:
        """Adds a row and warms it up; what fails is a line of the table."""
        try:
            work = make()
            if warm:
                work()
        except (UserError, OSError, ImportError, ValueError) as error:
            self.missing[name] = str(error).strip().splitlines()[-1][:300]
            print(f"missing: {name}: {self.missing[name]}", flush=True)
            return
        self.works[name] = work

    def measured(
        self,
        rounds: int,
        value_of: Callable[[float], float],
        is_speed: bool = False,
    ) -> dict:
        """The table, for JSON.

        Args:
          rounds: how often each work is timed, unless that takes it longer
            than `_LONGEST`.
          value_of: the number of a table for seconds.
          is_speed: whether larger numbers are better.
        """
        times = seconds_in_turns(self.works, rounds, longest=_LONGEST)
        return {
            "title": self.title,
            "unit": self.unit,
            "reference": self.reference,
            "is_speed": is_speed,
            "rows": {
                name: {
                    "values": [value_of(each) for each in seconds],
                    "cells": self.cells.get(name, {}),
                }
                for name, seconds in times.items()
            },
            "missing": self.missing,
            "notes": self.notes,
        }


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

    Raises:
      UserError: the program ended, or answers with an error.
    """

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said = self._answer()

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise UserError(f"the peer ended: {self._process.wait()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise UserError(answer["error"])
        return answer

    def ask(self, line: str) -> dict:
        """What it answers to a line."""
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait()


def start_peer(settings: Settings, *command: object) -> Peer | None:
    """A peer's program; None, with a line, if it does not start."""
    if not settings.peers:
        return None
    try:
        return Peer(settings.peers, *map(str, command))
    except (OSError, UserError) as error:
        print(f"missing: {command[0]}: {error}", flush=True)
        return None
