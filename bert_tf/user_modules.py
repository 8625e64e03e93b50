"""Imports Python files that the user names; errors are one line."""

import hashlib
import importlib.util
import pathlib
import shlex
import sys
import traceback
import types

from bert_tf.errors import UserError, excerpt


def is_user_module(name: str) -> bool:
    """Returns whether a name is the path of a Python file."""
    return name.endswith(".py") or "/" in name


def refuse_user_module(argument: str, name: str, source: str) -> None:
    """Refuses Python files that a recipe or model folder names.

    Model folders and recipes may come from untrusted sources, so only the user
    may name a file to run.

    Args:
      argument: the setting that names the file.
      name: its value.
      source: the file that states it.

    Raises:
      UserError: `name` is a path.
    """
    if is_user_module(name):
        raise UserError(
            f"{source}: {argument} is {excerpt(name)}, a Python file, which "
            "is not run because a file names it; if you trust it, name it in "
            f"the command: `{argument}`={shlex.quote(name)}"
        )


def run_user_module(
    path: str | pathlib.Path, argument: str, takes: str, hint: str
) -> types.ModuleType:
    """Imports a Python file that the user names.

    The file can import modules from its folder. Each call creates a new module.

    Args:
      path: a file that ends in .py.
      argument: the name of the argument, for errors.
      takes: the values that the argument takes, for the error of a missing
        file.
      hint: the import path of the public names, for the error of an import
        from bert_tf that fails.

    Raises:
      UserError: the file is missing, is not Python, or raises an error.
    """
    path = pathlib.Path(path)
    given = f"`{argument}`={path}"
    if not path.is_file():
        raise UserError(f"{given}: no such file; give {takes}.")
    # Files of the same name in different folders are different modules.
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    name = f"user_{path.stem}_{digest[:16]}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UserError(f"{given}: is no Python file; end it in .py.")
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look up their module.
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # Last, so that the user's files do not hide installed libraries.
        sys.path.append(folder)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        location = _location(error, specification.origin, hint)
        raise UserError(f"{given}{location}") from None
    return module


def _location(error: Exception, file: str | None, hint: str) -> str:
    """Returns the line and message of an error, to follow the file's name."""
    if isinstance(error, SyntaxError) and error.filename == file:
        line = f", line {error.lineno}" if error.lineno else ""
        return f"{line}: {error.msg}."
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    line = f", line {lines[-1]}" if lines else ""
    message = f"{line}: {type(error).__name__}: {' '.join(str(error).split())}"
    missing = error.name if isinstance(error, ImportError) else None
    if missing is not None and missing.partition(".")[0] == "bert_tf":
        message += f"; {hint}"
    return message
