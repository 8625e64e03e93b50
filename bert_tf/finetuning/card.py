"""The model card of a finished fine-tuning."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from bert_tf.families.task import Task
from bert_tf.report.statistics import FinishedRun, run_statistics
from bert_tf.sharing.model_card import CardScore, ModelCard
from bert_tf.training.history import finite_values


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
    task: Task, config: Any, run: FinishedRun, folder: pathlib.Path
) -> pathlib.Path:
    """Writes README.md, unless a user has written one there.

    Args:
      task: the task of the run.
      config: how the model is used.
      run: the finished run.
      folder: where to.

    Returns:
      The path of README.md.

    Raises:
      UserError: a library is not installed.
    """
    run = dataclasses.replace(run, results=finite_values(run.results))
    numbers = run_statistics(run, [task.recipe_type])

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
        data_set=data_set_of(task, run.recipe),
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
