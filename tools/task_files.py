"""What --task names, a file in tasks/ or the user's own, and its recipe."""

import difflib
import importlib
import importlib.util
import pathlib
import sys
import traceback
import types
from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.task import TaskTemplate
from bert_tf.recipe import check_kind, read_json_object

from . import command_line

# Beside tools: in a checkout, and in the package that is installed.
_PACKAGE = f"{__package__.removesuffix('tools')}tasks"
_FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tasks"


def task_names() -> list[str]:
    """The names that --task takes."""
    files = _FOLDER.glob("*.py")
    return sorted(f.stem for f in files if not f.stem.startswith("_"))


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
    if task.endswith(".py") or "/" in task:
        module = _run_file(pathlib.Path(task))
    elif task in task_names():
        module = importlib.import_module(f"{_PACKAGE}.{task}")
    else:
        names = task_names()
        near = difflib.get_close_matches(task, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UserError(
            f"--task={task}: no such task.{hint} It takes one of "
            f"{', '.join(names)}, or the path of a task file."
        )
    found = getattr(module, "TASK", None)
    if found is None:
        raise UserError(
            f"--task={task}: the file defines no TASK; write TASK = "
            "SentenceTask(...), as tasks/mrpc.py does."
        )
    if not isinstance(found, TaskTemplate):
        raise UserError(
            f"--task={task}: TASK is of type {type(found).__name__}; it must "
            "be a SentenceTask or another kind of task."
        )
    if getattr(found, "data", found) is None:
        raise UserError(
            f"--task={task}: TASK has data=None; say where its rows come "
            "from, as tasks/mrpc.py does."
        )
    return found


def task_named(assignments: Sequence[str], recipe_file: str = "") -> str:
    """The name of the task that the flags or a recipe say.

    Args:
      assignments: key=value, the last of which goes before the others.
      recipe_file: recipe.json, which goes behind them all.

    Raises:
      UserError: neither names one.
    """
    name = ""
    if recipe_file:
        name = read_json_object(recipe_file).get("task", "")
        check_kind("task", str, name, recipe_file)
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        if key.strip() == "task":
            name = value.strip()
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
    if recipe_file:
        recipe = task.recipe_type.from_json(recipe_file)
    else:
        source = f"the defaults of {name}"
        recipe = task.recipe_type.from_dict(task.defaults, source)
    return recipe.override(assignments, f"--task={name}, --set")


def _run_file(path: pathlib.Path) -> types.ModuleType:
    """Runs a task file of the user's own, as a module.

    It may import files beside it, as a program may.
    """
    if not path.is_file():
        raise UserError(
            f"--task={path}: no such file; give a task file, or one of "
            f"{', '.join(task_names())}."
        )
    name = f"own_task_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UserError(f"--task={path}: is no Python file; end it in .py.")
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look their module up.
    sys.modules[name] = module
    # Last, so that nothing of theirs is taken for a library.
    sys.path.append(str(path.resolve().parent))
    try:
        specification.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(
            f"--task={path}, line {error.lineno}: {error.msg}."
        ) from None
    # Whatever the user's code does wrong.
    except Exception as error:
        own = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(path)
        ]
        line = f", line {own[-1]}" if own else ""
        hint = ""
        if isinstance(error, ImportError) and "bert_tf.finetuning" in str(
            error
        ):
            hint = (
                "; what a task file needs is imported from bert_tf.finetuning, "
                "as in tasks/mrpc.py"
            )
        raise UserError(
            f"--task={path}{line}: {type(error).__name__}: {error}{hint}"
        ) from None
    return module
