"""Reading a finished run folder strictly, for its report."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.finetuning.report.checks import PREDICTIONS, RESULTS, finite
from bert_tf.finetuning.report.kind import Kind
from bert_tf.finetuning.report.kinds import kind_of
from bert_tf.recipe import check_kind, read_json_object

_RECIPE, _HISTORY = "recipe.json", "history.jsonl"
_REQUIRED = {
    "task": str,
    "model": str,
    "main_metric": str,
    "labels": list,
    "dev": dict,
    "majority": dict,
    "paper": dict,
    "doctor": dict,
}
# Numbers of the run that are shown where they are there.
FACTS = (
    "num_parameters",
    "num_train_steps",
    "best_step",
    "stopped_early",
    "threshold",
    "train_seconds",
    "examples_per_second",
    "eval_examples_per_second",
)
_SEED_KEYS = {"seed": int, "folder": str, "dev": dict, "degenerate": bool}


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """What the files of a finished run hold.

    Attributes:
      results: results.json.
      recipe: recipe.json.
      histories: by seed ("" where there is one training only), the rows of
        history.jsonl.
      kind: what kind the task is of.
      predictions: dev_predictions.jsonl, each line as the kind reads it.
    """

    results: Mapping[str, Any]
    recipe: Mapping[str, Any]
    histories: Mapping[str, list[dict[str, float | None]]]
    kind: Kind
    predictions: Sequence[Any]


def read_run(folder: pathlib.Path) -> RunFiles:
    """Reads and checks the files that a report needs.

    Raises:
      UserError: a file or a key is missing, or is not what it should be.
    """
    if not folder.is_dir():
        raise UserError(
            f"`output_dir`={folder}: no such folder; give the folder of a "
            "finished fine-tuning run."
        )
    results = _read_results(folder / RESULTS)
    seeds = results.get("seeds", [])
    if len(seeds) > 1:
        histories = {
            str(each["seed"]): _read_history(folder / each["folder"] / _HISTORY)
            for each in seeds
        }
    else:
        histories = {"": _read_history(folder / _HISTORY)}
    recipe = read_json_object(folder / _RECIPE)
    kind, rows = _read_predictions(folder / PREDICTIONS, results)
    return RunFiles(results, recipe, histories, kind, rows)


def _read_results(path: pathlib.Path) -> dict[str, Any]:
    results = _without_nan(read_json_object(path))
    for name, kind in _REQUIRED.items():
        if name not in results:
            raise UserError(
                f"{path}: holds no {name!r}; it is not the result of a "
                "finished fine-tuning run."
            )
        check_kind(name, kind, results[name], str(path))
    if not all(isinstance(label, str) for label in results["labels"]):
        raise UserError(f"{path}: 'labels' must all be strings.")
    for split, scores in results["dev"].items():
        _check_numbers(f"dev {split}", scores, path)
        majority = results["majority"].get(split)
        _check_numbers(f"majority {split}", majority, path)
        if results["main_metric"] not in scores:
            raise UserError(
                f"{path}: the scores of {split!r} lack the main metric "
                f"{results['main_metric']!r}; they have {', '.join(scores)}."
            )
    for metric, numbers in results["paper"].items():
        _check_numbers(f"paper {metric}", numbers, path)
    if not results["dev"]:
        raise UserError(f"{path}: 'dev' holds no scores.")
    facts = {name: results.get(name) for name in FACTS}
    _check_numbers("the run's facts", facts, path)
    _check_numbers("examples", results.get("examples", {}), path)
    _check_seeds(results, path)
    return results


def _check_seeds(results: dict[str, Any], path: pathlib.Path) -> None:
    seeds = check_kind("seeds", list, results.get("seeds", []), str(path))
    for number, each in enumerate(seeds):
        check_kind(f"seeds[{number}]", dict, each, str(path))
        for name, kind in _SEED_KEYS.items():
            if name not in each:
                raise UserError(f"{path}: seeds[{number}] holds no {name!r}.")
            check_kind(f"seeds[{number}] {name}", kind, each[name], str(path))
        _check_numbers(f"seeds[{number}] dev", each["dev"], path)
    if len(seeds) < 2:
        return
    summary = check_kind("summary", dict, results.get("summary"), str(path))
    for metric, statistics in summary.items():
        _check_numbers(f"summary {metric}", statistics, path)
    if results["main_metric"] not in summary:
        raise UserError(
            f"{path}: 'summary' lacks the main metric "
            f"{results['main_metric']!r}."
        )


def _without_nan(value: Any) -> Any:
    """A JSON value with None for every number that is not finite."""
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return finite(value) if isinstance(value, float) else value


def _check_numbers(name: str, values: Any, path: pathlib.Path) -> None:
    """Raises `UserError` unless it is an object of numbers and nulls."""
    for key, value in check_kind(name, dict, values, str(path)).items():
        if value is not None and not isinstance(value, int | float):
            raise UserError(
                f"{path}: {name} {key} is {value!r}; it takes a number."
            )


def _read_lines(path: pathlib.Path) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place for errors."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            value = json.loads(line.decode("utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{place}: not valid JSON ({error}).") from None
        found.append((place, check_kind("the line", dict, value, place)))
    return found


def _read_history(path: pathlib.Path) -> list[dict[str, float | None]]:
    """The rows; what is no finite number is None there."""
    rows = []
    for place, row in _read_lines(path):
        if "step" not in row:
            raise UserError(f"{place}: holds no 'step'.")
        rows.append({name: finite(value) for name, value in row.items()})
    return rows


def _read_predictions(
    path: pathlib.Path, results: Mapping[str, Any]
) -> tuple[Kind, list[Any]]:
    """The kind that the lines are of, and what each of them holds."""
    lines = _read_lines(path)
    if not lines:
        raise UserError(f"{path}: holds no predictions.")
    place, first = lines[0]
    kind = kind_of(first, place)
    return kind, [kind.read(line, results, place) for place, line in lines]
