"""Loads the file that --task names, and its recipe."""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from bert_tf.errors import UserError
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import TaskTemplate
from bert_tf.recipe import check_kind, read_json_object
from bert_tf.user_modules import refuse_user_module

from .named_files import NamedFiles, package_beside

_TASKS = NamedFiles(
    "task",
    package_beside("tasks", "tasks"),
    TaskTemplate,
    "a SentenceTask or another kind of task",
    "SentenceTask(...), as tasks/mrpc.py does",
    "task files import from bert_tf.finetuning, as tasks/mrpc.py does",
)


def task_names() -> list[str]:
    """Returns the names that --task takes."""
    return _TASKS.names()


def load_task(task: str) -> TaskTemplate:
    """Returns the TASK of a name in tasks/, or of the user's .py file.

    Raises:
      UserError: there is no such task, or its file is broken.
    """
    found: TaskTemplate = _TASKS.load(task)
    if getattr(found, "data", found) is None:
        raise UserError(
            f"`task`={task}: TASK has data=None; define its data as "
            "tasks/mrpc.py does."
        )
    return found


def task_named(assignments: Sequence[str], recipe_file: str = "") -> str:
    """Returns the name of the task in assignments, or else in a recipe's file.

    Raises:
      UserError: neither names a task, or the recipe names a Python file, which
        is executed only if a flag names it.
    """
    name = ""
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        if key.strip() == "task":
            name = value.strip()
    if not name and recipe_file:
        name = read_json_object(recipe_file).get("task", "")
        check_kind("task", str, name, recipe_file)
        refuse_user_module("task", name, recipe_file)
    if not name:
        raise UserError(
            f"--task: give one of {', '.join(task_names())}, or the path of a "
            "task file."
        )
    return name


def recipe_of(
    task: TaskTemplate,
    name: str,
    assignments: Sequence[str],
    recipe_file: str = "",
) -> FinetuningRecipe:
    """Returns a task's recipe: its defaults or a file's, with assignments.

    `name` is the task's name in the command, for errors.

    Raises:
      UserError: an unknown setting, or an invalid value.
    """
    source = f"--task={name}, --set"
    if recipe_file:
        return task.recipe_type.from_json(recipe_file, assignments, source)
    recipe = task.recipe_type.from_dict(
        task.defaults, f"the defaults of {name}"
    )
    return recipe.override(assignments, source)


def task_and_recipe(
    assignments: Sequence[str], recipe_file: str
) -> tuple[TaskTemplate, FinetuningRecipe]:
    """Returns the task in flags or a recipe, and its recipe; see above."""
    name = task_named(assignments, recipe_file)
    task = load_task(name)
    return task, recipe_of(task, name, assignments, recipe_file)


def task_fields(
    known: flags.FlagValues, recipe_file: str = ""
) -> tuple[type[FinetuningRecipe], Mapping[str, Any]]:
    """Returns the type of a task's recipe, and the task's defaults.

    Args:
      known: the values of --task, --recipe and --set.
      recipe_file: instead of --recipe.
    """
    given = [*([f"task={known.task}"] if known.task else []), *known.set]
    task = load_task(task_named(given, recipe_file or known.recipe))
    return task.recipe_type, task.defaults


def recipe_kinds() -> dict[str, type[FinetuningRecipe]]:
    """Returns the types that recipes are composed of, and what each is of."""
    tasks: dict[type[FinetuningRecipe], list[str]] = {FinetuningRecipe: []}
    for name in task_names():
        for kind in reversed(load_task(name).recipe_type.__mro__):
            if kind is not FinetuningRecipe and issubclass(
                kind, FinetuningRecipe
            ):
                tasks.setdefault(kind, []).append(name)
    return {
        (kind.__doc__ or "").partition("\n")[0].rstrip(".")
        + (f" (--task={', '.join(names)})" if names else ""): kind
        for kind, names in tasks.items()
    }
