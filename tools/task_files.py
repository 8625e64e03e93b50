"""What --task names, a file in tasks/ or the user's own, and its recipe."""

from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import TaskTemplate
from bert_tf.recipe import check_kind, read_json_object
from bert_tf.user_modules import refuse_user_module

from . import command_line
from .named_files import NamedFiles, package_beside

_TASKS = NamedFiles(
    "task",
    package_beside("tasks", "tasks"),
    TaskTemplate,
    "a SentenceTask or another kind of task",
    "SentenceTask(...), as tasks/mrpc.py does",
    "what a task file needs is imported from bert_tf.finetuning, as in "
    "tasks/mrpc.py",
)


def task_names() -> list[str]:
    """The names that --task takes."""
    return _TASKS.names()


def load_task(task: str) -> TaskTemplate:
    """Loads a task.

    Args:
      task: a name in tasks/, or the path of a task file of the user's own,
        which ends in .py.

    Returns:
      The file's TASK.

    Raises:
      UserError: there is no such task, or its file is broken.
    """
    found: TaskTemplate = _TASKS.load(task)
    if getattr(found, "data", found) is None:
        raise UserError(
            f"`task`={task}: TASK has data=None; say where its rows come "
            "from, as tasks/mrpc.py does."
        )
    return found


def task_named(assignments: Sequence[str], recipe_file: str = "") -> str:
    """The name of the task that the flags or a recipe say.

    Args:
      assignments: key=value, the last of which goes before the others.
      recipe_file: recipe.json, which goes behind them all.

    Raises:
      UserError: neither names one, or the recipe names a Python file, which
        is run only where a flag names it.
    """
    name = ""
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        if key.strip() == "task":
            name = value.strip()
    if not name and recipe_file:
        name = read_json_object(recipe_file).get("task", "")
        check_kind("task", str, name, recipe_file)
        command_line.name_fields(["task"])
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
    """A task's recipe: its defaults or a file's, under what is assigned.

    Errors and notices name its fields as --set takes them from here on.

    Args:
      task: says which settings it takes.
      name: what the user calls it, for errors.
      assignments: key=value.
      recipe_file: recipe.json, in place of the task's defaults.

    Raises:
      UserError: a setting that the task does not take, or a value that the
        setting does not take.
    """
    command_line.name_fields(task.recipe_type.kinds())
    source = f"--task={name}, --set"
    if recipe_file:
        return task.recipe_type.from_json(recipe_file, assignments, source)
    recipe = task.recipe_type.from_dict(
        task.defaults, f"the defaults of {name}"
    )
    return recipe.override(assignments, source)
