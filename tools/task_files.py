"""Finds what --task names: a file in tasks/, or the user's own file."""

import difflib
import importlib
import importlib.util
import pathlib
import sys
import traceback
import types

from bert_tf.errors import UserError
from bert_tf.finetuning.kinds.own_file import OwnFileTask
from bert_tf.finetuning.kinds.sentence_task import SentenceTask

_FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tasks"


def task_names() -> list[str]:
    """The names that --task takes."""
    files = _FOLDER.glob("*.py")
    return sorted(f.stem for f in files if not f.stem.startswith("_"))


def load_task(task: str) -> SentenceTask | OwnFileTask:
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
        module = importlib.import_module(f"tasks.{task}")
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
    if not isinstance(found, SentenceTask | OwnFileTask):
        raise UserError(
            f"--task={task}: TASK is of type {type(found).__name__}; a "
            "SentenceTask or a subclass of it is wanted."
        )
    return found


def _run_file(path: pathlib.Path) -> types.ModuleType:
    """Runs a task file of the user's own, as a module."""
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
        raise UserError(
            f"--task={path}{line}: {type(error).__name__}: {error}"
        ) from None
    return module
