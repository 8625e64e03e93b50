"""report.html and report.json, from what a finished fine-tuning has at hand."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.families import config_type, part_of
from bert_tf.families.checks import Examination
from bert_tf.families.config import TaskConfig
from bert_tf.family_list import FAMILIES
from bert_tf.files import write_text
from bert_tf.foreign_files import demand_regular
from bert_tf.recipe import read_json_object
from bert_tf.report.render import render
from bert_tf.report.statistics import (
    FinishedRun,
    run_statistics,
)
from bert_tf.training.history import finite_values

REPORT_FILE = "report.html"


def write_report(run: FinishedRun, folder: pathlib.Path) -> pathlib.Path:
    """Writes report.html and report.json.

    The same run gives the same bytes. The page is one file that needs no
    network and runs no script.

    Args:
      run: a finished run.
      folder: where to.

    Returns:
      The path of report.html.

    Raises:
      UserError: a library is not installed, or the run has no predictions or
        some of an unknown form.
    """
    config = _family(run.predictions)
    package = config.__module__.rpartition(".")[0]
    family: Any = part_of(config, "report")
    run = dataclasses.replace(
        run,
        results=finite_values(run.results),
        histories=finite_values(run.histories),
    )
    numbers = run_statistics(run, family.RECIPES)
    numbers["predictions"] = family.statistics(run.predictions, run.results)
    html = render(
        numbers,
        f"{package.rpartition('.')[2]}.html.jinja",
        package,
        _doctor_lines(numbers["doctor"], config),
    )
    # Lone surrogates of a text stay escapes, as in the file they came from.
    text = json.dumps(numbers, indent=1, allow_nan=False)
    write_text(folder / "report.json", text + "\n")
    write_text(folder / REPORT_FILE, html)
    return folder / REPORT_FILE


def _family(predictions: Sequence[Mapping[str, Any]]) -> type[TaskConfig]:
    """The config of the family that such rows are of."""
    if not predictions:
        raise UserError("there are no predictions to report on.")
    configs = map(config_type, FAMILIES)
    keys = {config.row_key: config for config in configs}
    found = [key for key in keys if key in predictions[0]]
    if len(found) != 1:
        raise UserError(
            f"predictions hold {len(found) or 'none'} of the keys "
            f"{', '.join(map(repr, keys))}; they hold one of them, by which "
            "their kind is known."
        )
    return keys[found[0]]


def _doctor_lines(
    doctor: Mapping[str, Any], config: type[TaskConfig]
) -> Sequence[str]:
    """The findings that results.json has, or those made of its numbers."""
    if not doctor or "lines" in doctor:
        return doctor.get("lines", ())
    checks: Any = part_of(config, "checks")
    return Examination.of(doctor, checks.findings(doctor)).lines


def make_report(output_dir: str | pathlib.Path) -> pathlib.Path:
    """Writes the report of a finished run again, from the files in its folder.

    Args:
      output_dir: the folder of the run, with results.json, recipe.json,
        history.jsonl and dev_predictions.jsonl.

    Returns:
      The path of report.html.

    Raises:
      UserError: a file is missing or is not JSON, and see `write_report`.
    """
    folder = pathlib.Path(output_dir)
    if not folder.is_dir():
        raise UserError(
            f"`output_dir`={folder}: no such folder; give the folder of a "
            "finished fine-tuning run."
        )
    results = read_json_object(folder / "results.json")
    seeds = results.get("seeds", [])
    parts = {"": "."}
    if len(seeds) > 1:
        parts = {str(each["seed"]): each["folder"] for each in seeds}
    run = FinishedRun(
        results,
        read_json_object(folder / "recipe.json"),
        {
            seed: _read_lines(folder / part / "history.jsonl")
            for seed, part in parts.items()
        },
        _read_lines(folder / "dev_predictions.jsonl"),
    )
    return write_report(run, folder)


def _read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    demand_regular(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}).") from None
