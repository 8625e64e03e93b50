"""Python files of the user's own, run as modules, with one-line errors."""

import hashlib
import importlib.util
import pathlib
import shlex
import sys
import traceback
import types

from bert_tf.errors import UserError, excerpt


def is_user_module(name: str) -> bool:
    """Whether a name is the path of a file of the user's own."""
    return name.endswith(".py") or "/" in name


def refuse_user_module(argument: str, name: str, source: str) -> None:
    """Refuses to run a Python file that is named by a file, not by the user.

    Model folders and recipes come from others, and so does what they name.

    Args:
      argument: what would name the file.
      name: the value found.
      source: the file that holds it.

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
    """Runs a Python file of the user's own, as a module.

    It may import files beside it, as a program may. A file that is run again
    is a new module.

    Args:
      path: the file, which ends in .py.
      argument: what names it, for errors.
      takes: what the argument takes, for the error of a file that is not there.
      hint: where such a file finds what it needs of bert_tf, for the error of
        an import that fails.

    Raises:
      UserError: there is no such file, it is no Python, or it fails.
    """
    path = pathlib.Path(path)
    given = f"`{argument}`={path}"
    if not path.is_file():
        raise UserError(f"{given}: no such file; give {takes}.")
    # Two files of one name are two modules.
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    name = f"user_{path.stem}_{digest[:16]}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UserError(f"{given}: is no Python file; end it in .py.")
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look their module up.
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # Last, so that nothing of theirs is taken for a library.
        sys.path.append(folder)
    try:
        specification.loader.exec_module(module)
    # Whatever the user's code does wrong.
    except Exception as error:
        sys.modules.pop(name, None)
        fault = _what_failed(error, specification.origin, hint)
        raise UserError(f"{given}{fault}") from None
    return module


def _what_failed(error: Exception, file: str | None, hint: str) -> str:
    """What goes behind the name of a file that fails: where and why."""
    if isinstance(error, SyntaxError) and error.filename == file:
        line = f", line {error.lineno}" if error.lineno else ""
        return f"{line}: {error.msg}."
    own = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    line = f", line {own[-1]}" if own else ""
    message = f"{line}: {type(error).__name__}: {' '.join(str(error).split())}"
    missing = error.name if isinstance(error, ImportError) else None
    if missing is not None and missing.partition(".")[0] == "bert_tf":
        message += f"; {hint}"
    return message
