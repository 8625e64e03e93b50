"""The task of a finished model, and its scores on other data."""

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from bert_tf.errors import UserError
from bert_tf.families import task_of_users
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import RunSplit, TaskTemplate
from bert_tf.family_list import USER_TASKS
from bert_tf.files import write_text
from bert_tf.finetuning.run import load_finished
from bert_tf.recipe import read_json_object
from bert_tf.tables.table import existing_files
from bert_tf.training.run_folder import RECIPE_FILE
from bert_tf.training.strategies import make_strategy

# Settings that functions on data in memory derive from their arguments.
DERIVED = ("task", "init_from", "train_file", "dev_file")


def finished_task(
    folder: pathlib.Path,
    task: TaskTemplate | None = None,
    settings: Mapping[str, Any] = {},
) -> tuple[TaskTemplate, FinetuningRecipe]:
    """Returns the task of a fine-tuned model, and the recipe of its training.

    Args:
      folder: the model, with the recipe.json of its training.
      task: its task; None is the one of `USER_TASKS` that the recipe names.
      settings: settings that replace those of the recipe.

    Raises:
      UserError: there is no recipe, it names another task, or the settings are
        not those of the task.
    """
    path = folder / RECIPE_FILE
    values = read_json_object(path, missing_ok=True)
    name = values.get("task")
    if name is None:
        raise UserError(
            f"{folder}: has no {RECIPE_FILE} of a fine-tuning, so its task is "
            "not known; fine-tune it first."
        )
    if task is None:
        if name not in USER_TASKS:
            raise UserError(
                f"`task`=None: {folder} was fine-tuned for {name}; give that "
                "task, such as TASK of its task file."
            )
        task = task_of_users(name)
    values |= {"task": task.name, **settings}
    return task, task.recipe_type.from_dict(values, f"the settings of {path}")


def evaluate(
    folder: pathlib.Path,
    data: Any,
    task: TaskTemplate | None = None,
    settings: Mapping[str, Any] = {},
) -> dict[str, float]:
    """Computes the scores of a model on data; see `FinishedModel.evaluate`."""
    # The devices of the training may not be here.
    settings = {"strategy": "one_device", **settings}
    task, recipe = finished_task(folder, task, settings)
    kinds = recipe.kinds()
    changes: dict[str, Any] = {"data_dir": ""}
    key = "dev_file" if "dev_file" in kinds else "data_dir"
    with tempfile.TemporaryDirectory() as temporary:
        if isinstance(data, str | os.PathLike):
            path = shown = os.fspath(data)
            existing_files(path, "data")
        else:
            file = task.stored(data, "`data`", recipe.to_dict())
            path, shown = f"{temporary}/data.{file.ending}", "`data`"
            write_text(path, file.text)
            changes |= file.settings
            if "format" in kinds:
                # Those of the training are of its files.
                changes |= {"format": "", "header": True}
        changes[key] = path
        recipe = dataclasses.replace(recipe, **changes)
        prepared = task.resolve(recipe)
        try:
            name, *_ = prepared.splits(prepared.dev_splits, recipe)
            examples = prepared.load(name, recipe)
            strategy = make_strategy(recipe.strategy)
            scorer, source = load_finished(prepared, recipe, folder, strategy)
            prepared.check(examples, scorer.config)
            run = RunSplit(name, source, recipe, pathlib.Path(temporary))
            return scorer.score(scorer.encode(examples, run)).scores
        except UserError as error:
            raise UserError(str(error).replace(path, shown)) from None
