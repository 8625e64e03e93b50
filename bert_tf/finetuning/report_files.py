"""The report and the model card of a finished fine-tuning, from its files.

The same run gives the same bytes.
"""

import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.families import part_of
from bert_tf.families.config import TaskConfig
from bert_tf.families.model_folder import RESULTS_FILE
from bert_tf.families.task import Task
from bert_tf.files import write_text
from bert_tf.finetuning.evaluation import DEV_PREDICTIONS
from bert_tf.foreign_files import demand_regular
from bert_tf.recipe import Settings, read_json_object
from bert_tf.report.render import render
from bert_tf.sharing.model_card import CardScore, ModelCard
from bert_tf.training.history import HISTORY_FILE, finite_values
from bert_tf.training.run_folder import RECIPE_FILE

REPORT_FILE = "report.html"
# Numbers of results.json that are shown where they are there.
_FACTS = (
    "num_parameters",
    "num_train_steps",
    "best_step",
    "stopped_early",
    "threshold",
    "train_seconds",
    "examples_per_second",
    "eval_examples_per_second",
)
_CURVE_POINTS = 400


def write_report(
    folder: pathlib.Path,
    config_type: type[TaskConfig],
    recipe_type: type[Settings],
) -> pathlib.Path:
    """Writes report.html and report.json of a finished run into its folder.

    The page is one file that needs no network and runs no script.

    Args:
      folder: of the run.
      config_type: of its family.
      recipe_type: the settings of the task.

    Returns:
      The path of report.html.

    Raises:
      UserError: a library is not installed, or a file of the run is missing
        or is not JSON.
    """
    package = config_type.__module__.rpartition(".")[0]
    family: Any = part_of(config_type, "report")
    results = read_json_object(folder / RESULTS_FILE)
    numbers = run_statistics(folder, results, recipe_type)
    predictions = _read_lines(folder / DEV_PREDICTIONS)
    numbers["predictions"] = family.statistics(predictions, results)
    html = render(
        numbers,
        f"{package.rpartition('.')[2]}.html.jinja",
        package,
        numbers["doctor"].get("lines", ()),
    )
    # Lone surrogates of a text stay escapes, as in the file they came from.
    text = json.dumps(numbers, indent=1, allow_nan=False)
    write_text(folder / "report.json", text + "\n")
    write_text(folder / REPORT_FILE, html)
    return folder / REPORT_FILE


def run_statistics(
    folder: pathlib.Path,
    results: Mapping[str, Any],
    recipe_type: type[Settings],
) -> dict[str, Any]:
    """What a report shows of any run, whatever its task.

    Args:
      folder: of the run.
      results: what results.json holds.
      recipe_type: the settings of the task.
    """
    finished = datetime.datetime.fromisoformat(results["finished"])
    metric, seeds = results["main_metric"], results.get("seeds", [])
    parts = {str(each["seed"]): each["folder"] for each in seeds} or {"": "."}
    histories = {
        seed: finite_values(_read_lines(folder / part / HISTORY_FILE))
        for seed, part in parts.items()
    }
    return {
        "task": results["task"],
        "model": results["model"],
        "finished": f"{finished:%Y-%m-%d %H:%M} {finished.tzname()}",
        "main_metric": metric,
        "main_split": next(iter(results["dev"])),
        "labels": results["labels"],
        "examples": results["examples"],
        "settings": settings(
            read_json_object(folder / RECIPE_FILE), recipe_type
        ),
        "doctor": results["doctor"],
        "scores": [
            {
                "split": split,
                "metric": name,
                "value": value,
                "majority": results["majority"][split].get(name),
                "paper": _paper(results["paper"], split, name),
            }
            for split, metrics in results["dev"].items()
            for name, value in metrics.items()
        ],
        "paper_note": results.get("paper_note"),
        "curves": curves(histories, metric),
        "seeds": seeds,
        "summary": results.get("summary", {}),
        "facts": {x: results[x] for x in _FACTS if results.get(x) is not None},
        # Only of tasks that have such scores.
        **{x: results[x] for x in ("lower_is_better",) if x in results},
    }


def settings(
    recipe: Mapping[str, Any], recipe_type: type[Settings]
) -> list[dict[str, Any]]:
    """Every setting beside its default, those that differ first.

    Args:
      recipe: recipe.json, whose keys may be of another version.
      recipe_type: the settings of the task.
    """
    defaults, fields = recipe_type().to_dict(), recipe_type.__dataclass_fields__
    rows = [
        {
            "name": name,
            "value": value,
            "default": defaults.get(name),
            "help": fields[name].metadata["help"] if name in fields else "",
            "changed": name not in defaults or value != defaults[name],
        }
        for name, value in recipe.items()
    ]
    return sorted(rows, key=lambda row: not row["changed"])


def _paper(
    paper: Mapping[str, Mapping[str, float]], split: str, metric: str
) -> Mapping[str, float]:
    """The paper's numbers by model; "accuracy_mismatched" is one split's."""
    own = f"{metric}_{split.partition('_')[2]}"
    return paper.get(own, paper.get(metric, {}))


def curves(
    histories: Mapping[str, Sequence[Mapping[str, float | None]]],
    main_metric: str,
) -> dict[str, list[dict[str, Any]]]:
    """The series over the steps, one a seed; long ones as means of blocks."""
    names = {
        "training_loss": "loss",
        "held_out_loss": "eval_loss",
        "training_metric": main_metric,
        "held_out_metric": f"eval_{main_metric}",
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name, key in names.items():
        for seed, rows in histories.items():
            points = [
                (step, value)
                for row in rows
                if (step := row["step"]) is not None
                and (value := row.get(key)) is not None
            ]
            size = -(-len(points) // _CURVE_POINTS)
            blocks = [
                points[begin : begin + size]
                for begin in range(0, len(points), size or 1)
            ]
            if blocks:
                series = {
                    "seed": seed,
                    # The middle of a block may be no step of the run.
                    "steps": [block[-1][0] for block in blocks],
                    "values": [
                        sum(value for _, value in block) / len(block)
                        for block in blocks
                    ],
                }
                found[name].append(series)
    return found


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


def data_set_of(task: Task, recipe: Mapping[str, Any]) -> str:
    """What huggingface.co calls a run's data; empty where they are one's own.

    Args:
      task: the task of the run.
      recipe: its settings by name.
    """
    # The layout of a task's files takes other data too.
    own_file = task.defaults.get("train_file", "")
    is_the_tasks_own = recipe.get("train_file", "") in ("", own_file)
    return task.hub_data_set if is_the_tasks_own else ""


def write_card(
    task: Task, config: TaskConfig, folder: pathlib.Path
) -> pathlib.Path:
    """Writes README.md of a finished run, unless a user has written one there.

    Args:
      task: the task of the run.
      config: how the model is used.
      folder: of the run.

    Returns:
      The path of README.md.

    Raises:
      UserError: a library is not installed.
    """
    results = read_json_object(folder / RESULTS_FILE)
    numbers = run_statistics(folder, results, task.recipe_type)

    def over_seeds(split: str, metric: str, statistic: str) -> float | None:
        # Seeds are compared by the split that chooses the best model.
        is_main = split == numbers["main_split"]
        spread = numbers["summary"].get(metric, {}) if is_main else {}
        return spread.get(statistic)

    card = ModelCard(
        summary=f"BERT, fine-tuned for {task.name}",
        pipeline_tag=config.pipeline_tag,
        question=config.sample() if task.head else {},
        init_from=numbers["model"],
        data_set=data_set_of(task, results["recipe"]),
        num_rows=numbers["examples"],
        labels=numbers["labels"],
        scores=[
            CardScore(
                each["split"],
                each["metric"],
                each["value"],
                each["majority"],
                over_seeds(each["split"], each["metric"], "mean"),
                over_seeds(each["split"], each["metric"], "standard_deviation"),
                each["paper"],
            )
            for each in numbers["scores"]
        ],
        seeds=len(numbers["seeds"]) or 1,
        settings={
            each["name"]: each["value"]
            for each in numbers["settings"]
            if each["changed"]
        },
    )
    return card.write(folder)
