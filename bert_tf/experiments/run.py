"""Runs an experiment: from its file and a scale to the table."""

import dataclasses
import json
import pathlib
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.experiments.estimates import measured_rates
from bert_tf.experiments.experiment import Cell, Experiment, Pretraining
from bert_tf.experiments.plan import Sources, make_plan
from bert_tf.experiments.running import (
    OVERHEAD_SECONDS,
    Commands,
    Plan,
    Run,
    RunFolders,
    Runner,
)
from bert_tf.experiments.scales import scale_named
from bert_tf.experiments.table import (
    TABLE_FILE,
    CellResult,
    Numbers,
    write_report,
)
from bert_tf.families.model_folder import RESULTS_FILE
from bert_tf.families.task import TaskTemplate
from bert_tf.files import free_bytes, write_text
from bert_tf.memory.measurement import device_name, free_memory
from bert_tf.memory.prediction import Workload
from bert_tf.progress import log
from bert_tf.recipe import read_json_object
from bert_tf.report.render import REPORT_FILE
from bert_tf.training.history import errors_become_warnings

_EXPERIMENT_FILE = "experiment.json"


def run_experiment(
    experiment: Experiment,
    name: str,
    scale_name: str,
    sources: Sources,
    output_dir: pathlib.Path,
    runs_dir: pathlib.Path,
    load_task: Callable[[str], TaskTemplate],
    commands: Commands,
    rows: Sequence[str] = (),
    workers: int = 1,
    dry_run: bool = False,
) -> None:
    """Computes an experiment; resumes one that was interrupted.

    Args:
      experiment: the experiment that its file defines.
      name: its name on the command line.
      scale_name: a name in `SCALES`.
      sources: text, data and model.
      output_dir: the folder of the table, the report and its figures.
      runs_dir: the folder of the runs; experiments may share it.
      load_task: loads a task by its name.
      commands: how runs are started.
      rows: the rows to compute; all rows if empty.
      workers: number of concurrent runs.
      dry_run: only measure trial steps and print the plan.

    Raises:
      UserError: arguments do not fit each other, the disk is too small, or a
        run failed.
      RunStopped: SIGTERM; the same command resumes.
      KeyboardInterrupt: Ctrl-C, likewise.
    """
    scale = scale_named(scale_name)
    plan = make_plan(experiment, scale, sources, load_task, tuple(rows))
    identity = {
        "experiment": name,
        "scale": scale_name,
        **dataclasses.asdict(sources),
    }
    _refuse_others(output_dir, identity)
    folders = RunFolders(runs_dir)
    if dry_run:
        _show_plan(plan, folders, workers)
        return
    _check_disk(plan, folders)
    output_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(identity, indent=2) + "\n"
    write_text(output_dir / _EXPERIMENT_FILE, text)
    facts: dict[str, Any] = {
        "experiment": name,
        "scale": scale_name,
        "scale_description": scale.description,
        "scale_settings": dataclasses.asdict(scale),
        "command": commands.this,
        "stand_ins": dict(sources.stand_ins),
        "sizes": {
            each.size: scale.size(each.size) for each in experiment.pretrainings
        },
        "machine": f"{device_name()}, {platform.platform()}",
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
    }

    def write() -> None:
        with errors_become_warnings("the report", output_dir):
            numbers = find_numbers(experiment, plan, folders)
            done = [folders.finished(run) for run in plan.runs.values()]
            seconds = sum(each.seconds for each in done if each is not None)
            facts["seconds"] = round(seconds)
            write_report(experiment, numbers, facts, output_dir)

    Runner(plan, folders, commands, workers, write).run()
    write()
    table = output_dir / TABLE_FILE
    # Missing where the libraries of the report are, which is a warning.
    if table.is_file():
        print(table.read_text(encoding="utf-8"))
        print(f"the report is {output_dir / REPORT_FILE}", flush=True)


def _refuse_others(
    output_dir: pathlib.Path, identity: Mapping[str, Any]
) -> None:
    """Raises `UserError` if the folder has another experiment or run."""
    path = output_dir / _EXPERIMENT_FILE
    if output_dir.exists() and not output_dir.is_dir():
        raise UserError(f"`output_dir`={output_dir}: is a file.")
    if not path.is_file():
        if output_dir.is_dir() and (output_dir / RESULTS_FILE).exists():
            raise UserError(
                f"`output_dir`={output_dir}: holds the {RESULTS_FILE} of "
                "something else; choose another folder."
            )
        return
    before = read_json_object(path)
    different = [
        f"{key} was {before.get(key)!r} and is now {value!r}"
        for key, value in identity.items()
        if before.get(key) != value
    ]
    if different:
        raise UserError(
            f"`output_dir`={output_dir}: holds another experiment "
            f"({'; '.join(different)}); choose another folder."
        )


def _remaining_bytes(plan: Plan, folders: RunFolders) -> float:
    return sum(
        run.size for run in plan.runs.values() if folders.finished(run) is None
    )


def _check_disk(plan: Plan, folders: RunFolders) -> None:
    """Raises `UserError` if the remaining runs do not fit on the disk."""
    needed, free = _remaining_bytes(plan, folders), free_bytes(folders.path)
    if needed > free:
        raise UserError(
            f"{folders.path}: the runs take about {needed / 1e9:,.1f} GB and "
            f"{free / 1e9:,.1f} GB are free; free some, or choose another "
            "`runs_dir` or fewer rows with `only`."
        )


def _show_plan(plan: Plan, folders: RunFolders, workers: int) -> None:
    """Prints the runs with their estimated hours and disk space."""
    trials: dict[BertConfig, Workload] = {}
    for run in plan.runs.values():
        if run.trial is not None and folders.finished(run) is None:
            trials.setdefault(run.trial.config, run.trial)
    log("measuring trial steps of each architecture")
    rates = measured_rates(trials.values(), free_memory())
    if not rates:
        raise UserError("not even a small batch fits into the memory.")
    slowest = max(rates.values())
    total = 0.0
    print(f"{'run':64} {'hours':>9} {'GB':>8}")
    for run in plan.runs.values():
        took = folders.finished(run)
        if took is not None:
            print(f"{run.name:64} {'finished':>9} {0:8.3f}")
            continue
        rate = rates.get(run.trial.config, slowest) if run.trial else slowest
        seconds = OVERHEAD_SECONDS + run.work * rate
        total += seconds
        print(f"{run.name:64} {seconds / 3600:9.2f} {run.size / 1e9:8.3f}")
    needed, free = _remaining_bytes(plan, folders), free_bytes(folders.path)
    print(
        f"{len(plan.runs)} runs: {total / 3600:,.2f} hours one after the other"
        f"{f', {total / 3600 / workers:,.2f} by {workers}' * (workers > 1)}; "
        f"{needed / 1e9:,.2f} GB of {free / 1e9:,.1f} GB free in {folders.path}"
    )


def find_numbers(
    experiment: Experiment, plan: Plan, folders: RunFolders
) -> Numbers:
    """The scores of the finished runs, by row and column."""
    return {
        (cell.row, cell.column): _result(cell, plan.runs[name], folders)
        for cell in experiment.cells
        if (name := plan.run_of.get((cell.row, cell.column))) is not None
    }


def _result(cell: Cell, run: Run, folders: RunFolders) -> CellResult:
    took, folder = folders.finished(run), folders.folder(run)
    values: list[float] = []
    degenerate = 0
    if took is not None:
        results = read_json_object(folder / RESULTS_FILE)
        if isinstance(cell.run, Pretraining):
            values = [_score(results, cell, folder)]
        else:
            rows = results.get("seeds") or [{"folder": "."}]
            degenerate = sum(bool(row.get("degenerate")) for row in rows)
            for row in rows:
                each = folder / row["folder"]
                dev = read_json_object(each / RESULTS_FILE)["dev"]
                split = cell.split or next(iter(dev))
                values.append(_score(dev.get(split, {}), cell, each))
    return CellResult(
        values=tuple(value * cell.factor for value in values),
        degenerate=degenerate,
        folder=str(folder),
        command=took.command if took is not None else "",
        seconds=took.seconds if took is not None else None,
    )


def _score(
    scores: Mapping[str, Any], cell: Cell, folder: pathlib.Path
) -> float:
    value = scores.get(cell.score)
    if not isinstance(value, int | float):
        raise UserError(
            f"{folder / RESULTS_FILE}: has no score {cell.score!r}, which "
            f"row {cell.row!r}, column {cell.column!r} needs; it has "
            f"{', '.join(scores) or 'none of this split'}."
        )
    return float(value)
