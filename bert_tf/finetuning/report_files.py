"""The report and the model card of a finished fine-tuning, from its files.

The same run gives the same bytes.
"""

import datetime
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.tokenizers import read_tokenizer
from bert_tf.errors import UserError
from bert_tf.families import part_of
from bert_tf.families.config import TaskConfig
from bert_tf.families.model_folder import RESULTS_FILE
from bert_tf.families.task import Task, score_scale
from bert_tf.files import write_text
from bert_tf.finetuning.evaluation import DEV_PREDICTIONS
from bert_tf.foreign_files import demand_regular
from bert_tf.recipe import Settings, read_json_object
from bert_tf.report.render import (
    REPORT_FILE,
    model_words,
    write_page,
)
from bert_tf.report.statistics import curve_points, setting_rows
from bert_tf.sharing.model_card import CardScore, ModelCard
from bert_tf.training.history import (
    HISTORY_FILE,
    errors_become_warnings,
    finite_values,
)
from bert_tf.training.run_folder import RECIPE_FILE

# Numbers of results.json that the page shows if they are there.
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


def write_reports(
    folder: pathlib.Path,
    task: Task,
    config: TaskConfig,
    recipe_type: type[Settings],
) -> None:
    """Writes the report and the model card of a finished run.

    One that cannot be made is a warning.

    Args:
      folder: of the run.
      task: the task.
      config: how the model is used.
      recipe_type: the type of the run's recipe.
    """
    with errors_become_warnings("the report", folder):
        page = write_report(
            folder, task.config_type, recipe_type, task.defaults
        )
        print(f"the report is {page}", flush=True)
    with errors_become_warnings("the model card", folder):
        write_card(folder, task, config, recipe_type)


def write_report(
    folder: pathlib.Path,
    config_type: type[TaskConfig],
    recipe_type: type[Settings],
    changed_defaults: Mapping[str, Any],
) -> pathlib.Path:
    """Writes report.html and report.json of a finished run into its folder.

    Args:
      folder: of the run.
      config_type: of its family.
      recipe_type: the type of the run's recipe.
      changed_defaults: settings whose defaults the task changes.

    Returns:
      The path of report.html.

    Raises:
      UserError: a library is not installed, or a file of the run is missing
        or is not JSON.
    """
    family: Any = part_of(config_type, "report")
    results = read_json_object(folder / RESULTS_FILE)
    numbers = run_statistics(folder, results, recipe_type, changed_defaults)
    predictions = _read_lines(folder / DEV_PREDICTIONS)
    numbers["predictions"] = family.statistics(predictions, results)
    scores, metric = numbers["scores"], numbers["main_metric"]
    main = next(row for row in scores if row["metric"] == metric)
    levels = {"baseline": main["majority"]}
    levels |= {model_words(name): v for name, v in main["paper"].items()}
    # A correlation with a constant is not defined; a guess scores 0.
    value, guess = main["value"] or 0.0, main["majority"] or 0.0
    is_lower = metric in numbers.get("lower_is_better", ())
    package = config_type.__module__.rpartition(".")[0]
    write_page(
        folder / REPORT_FILE,
        f"{package}:{package.rpartition('.')[2]}.html.jinja",
        **numbers,
        doctor_lines=numbers["doctor"].get("lines", ()),
        trained_on={
            split: shared["share"]
            for split, shared in numbers["doctor"].get("in_train", {}).items()
            if shared["share"] and split in results["dev"]
        },
        main=main,
        is_better=value < guess if is_lower else value > guess,
        paper_models=list(
            dict.fromkeys(name for row in scores for name in row["paper"])
        ),
        levels={name: v for name, v in levels.items() if v is not None},
    )
    # Lone surrogates of a text stay escaped, as in the file they come from.
    text = json.dumps(numbers, indent=1, allow_nan=False)
    write_text(folder / "report.json", text + "\n")
    return folder / REPORT_FILE


def run_statistics(
    folder: pathlib.Path,
    results: Mapping[str, Any],
    recipe_type: type[Settings],
    changed_defaults: Mapping[str, Any],
) -> dict[str, Any]:
    """The numbers of a run that its report and its model card show.

    Args:
      folder: of the run.
      results: the content of results.json.
      recipe_type: the type of the run's recipe.
      changed_defaults: settings whose defaults the task changes.
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
        "settings": setting_rows(
            read_json_object(folder / RECIPE_FILE),
            recipe_type,
            changed_defaults,
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
        "scales": {
            name: score_scale(
                (
                    *(values[name] for values in results["dev"].values()),
                    *(v.get(name) for v in results["majority"].values()),
                    *(seed["dev"].get(name) for seed in seeds),
                ),
                name in results.get("lower_is_better", ()),
            )
            for name in next(iter(results["dev"].values()))
        },
        "curves": {
            name: curve_points(histories, key)
            for name, key in {
                "training_loss": "loss",
                "held_out_loss": "eval_loss",
                "training_metric": metric,
                "held_out_metric": f"eval_{metric}",
            }.items()
        },
        "seeds": seeds,
        "summary": results.get("summary", {}),
        "facts": {x: results[x] for x in _FACTS if results.get(x) is not None},
        # Only tasks with such scores, and degenerate runs, have these keys.
        **{
            name: results[name]
            for name in ("lower_is_better", "reasons")
            if name in results
        },
    }


def _paper(
    paper: Mapping[str, Mapping[str, float]], split: str, metric: str
) -> Mapping[str, float]:
    """The paper's numbers by model; "accuracy_mismatched" is of one split."""
    own = f"{metric}_{split.partition('_')[2]}"
    return paper.get(own, paper.get(metric, {}))


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
    """The name of a run's data on huggingface.co; empty for a user's data.

    Args:
      task: the task of the run.
      recipe: its settings by name.
    """
    # Other data may have the format of a task's files.
    own_file = task.defaults.get("train_file", "")
    is_the_tasks_own = recipe.get("train_file", "") in ("", own_file)
    return task.hub_data_set if is_the_tasks_own else ""


def write_card(
    folder: pathlib.Path,
    task: Task,
    config: TaskConfig,
    recipe_type: type[Settings],
) -> pathlib.Path:
    """Writes README.md of a finished run, unless a user has written one there.

    Args:
      folder: of the run.
      task: the task of the run.
      config: how the model is used.
      recipe_type: the type of the run's recipe.

    Returns:
      The path of README.md.

    Raises:
      UserError: a library is not installed.
    """
    results = read_json_object(folder / RESULTS_FILE)
    numbers = run_statistics(folder, results, recipe_type, task.defaults)
    checkpoint = load_checkpoint(folder)

    def over_seeds(split: str, metric: str, statistic: str) -> float | None:
        # Seeds are compared on the split that selects the best model.
        is_main = split == numbers["main_split"]
        spread = numbers["summary"].get(metric, {}) if is_main else {}
        return spread.get(statistic)

    card = ModelCard(
        summary=f"{checkpoint.config.title}, fine-tuned for {task.name}",
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
        architecture=checkpoint.config.model_type,
        tokenizer=read_tokenizer(folder).vocabulary.description,
        settings={
            each["name"]: each["value"]
            for each in numbers["settings"]
            if each["changed"]
        },
    )
    return card.write(folder)
