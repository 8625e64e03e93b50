"""From the start of Python to the first answer, beside peers.

A section of benchmarks/cpu_table.py. Each round is a new process: the base
model as a classifier beside transformers' pipeline, and MiniLM's vectors beside
sentence-transformers. The number of a table is processor seconds up to the
first answer; the parts and the wall time stand beside it.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks.comparison import Section, Settings
from benchmarks.runtimes import write_folders
from bert_tf.errors import UserError

_PROGRAM = str(pathlib.Path(__file__).with_name("start_parts.py"))
_BEFORE_ANSWER = ("imports", "loading", "first answer")
_PARTS = (*_BEFORE_ANSWER, "second answer")


def start(settings: Settings) -> list[dict]:
    """The tables of a classifier and of vectors."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_folders(folder, settings.size)
        return [
            _table(
                f"Start to first answer, a classifier of {settings.size} size",
                settings,
                "classify",
                {
                    "bert_tf": folder / "ours",
                    "transformers": folder / "theirs",
                },
            ),
            _table(
                "Start to first vector, MiniLM",
                settings,
                "embed",
                dict.fromkeys(
                    ("bert_tf", "sentence-transformers"), settings.embedder
                ),
            ),
        ]


def _table(
    title: str, settings: Settings, task: str, folders: dict[str, pathlib.Path]
) -> dict:
    ours, theirs = folders
    section = Section(title, "processor s", theirs)
    found: dict[str, list[dict]] = {name: [] for name in folders}
    # Both sides keep their compiled modules.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }

    def add(name: str, python: str) -> None:
        command = [python, _PROGRAM, task, name, str(folders[name])]

        def run() -> float:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment
            )
            if done.returncode:
                raise UserError(f"{name}: {done.stderr[-1000:]}")
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
            parts = found[name][-1]["parts"]
            return float(sum(parts[part][0] for part in _BEFORE_ANSWER))

        # The first run reads the files into the memory of the system.
        section.add(name, lambda: run)

    add(ours, sys.executable)
    if settings.peers:
        add(theirs, settings.peers)
    table = section.measured(settings.rounds, lambda seconds: seconds)
    for name, runs in found.items():
        if name not in table["rows"]:
            continue
        cells = table["rows"][name]["cells"]
        timed = runs[1:]
        for part in _PARTS:
            processor, wall = (
                statistics.median(run["parts"][part][clock] for run in timed)
                for clock in range(2)
            )
            cells[part] = f"{processor:.2f} ({wall:.2f})"
        cells["peak"] = f"{statistics.median(r['peak'] for r in timed):.0f} MB"
        if found.get(theirs):
            answers = (np.array(found[n][0]["answer"]) for n in (name, theirs))
            cells["largest difference"] = f"{np.ptp([*answers], 0).max():.1e}"
    table["notes"].append("Parts are processor seconds (wall seconds).")
    return table
