"""Errors that a user can correct."""

import difflib
import errno
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

_MAX_NAMES = 8


class UserError(ValueError):
    """A mistake of the user's, described in one line.

    The message names the argument, in backticks, the file and row where there
    is one, the value received and what would do. The commands in `tools/`
    print it without a stack trace, with flags for the names of arguments, and
    exit with code 1.
    """


class Fault(UserError):
    """What is wrong with one row of a file, and what would do.

    Whoever reads a whole file collects the faults of all of its rows.

    Args:
      kind: what such faults are called in a table, in a few words.
      message: the line, which begins with file and row.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def writing_failed(error: Exception, path: str | os.PathLike) -> OSError:
    """The system's error behind that of a library that writes files.

    Args:
      error: what TensorFlow or safetensors raised.
      path: what was to be written, for the message.
    """
    if re.search(r"No space left|[Qq]uota exceeded", str(error)):
        reason = os.strerror(errno.ENOSPC)
        return OSError(errno.ENOSPC, reason, os.fspath(path))
    return OSError(errno.EIO, " ".join(str(error).split()), os.fspath(path))


def check_choice(
    shown: str, value: object, choices: Iterable[str], advice: str = ""
) -> str:
    """One of several values, as which it is given.

    Args:
      shown: the argument in backticks, or file and key.
      value: what was given, of any type.
      choices: the valid values.
      advice: what follows their list in the error.

    Raises:
      UserError: it is none of them.
    """
    known = [*choices]
    if value in known:
        return known[known.index(value)]
    raise UserError(
        f"{shown}={excerpt(value)}: takes one of {', '.join(known)}{advice}."
    )


def whole_number(
    name: str,
    value: object,
    least: int,
    most: int | None = None,
    why: str = "",
) -> int:
    """A whole number that a program gives, also one of NumPy's.

    Args:
      name: of the argument, for the error.
      value: what was given.
      least: the smallest that is taken.
      most: the largest; None for no limit.
      why: the reason for the limits, for the error.

    Raises:
      UserError: it is something else, or out of these limits.
    """
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        number = int(value)
        if least <= number and (most is None or number <= most):
            return number
    takes = f"of at least {least}"
    if most is not None:
        takes = f"from {least} to {most}"
    why = f" ({why})" if why else ""
    raise UserError(
        f"`{name}`={excerpt(value)}: give a whole number {takes}{why}."
    )


def excerpt(value: object) -> str:
    """A value as an error shows it: quoted, and at most 60 characters."""
    # Tables and arrays have line ends in theirs.
    shown = repr(value).replace("\n", " ")
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def first_few(names: Sequence[str]) -> str:
    """The first names of a list for an error, and how many more there are."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" * (more > 0))


def did_you_mean(
    value: str, names: Iterable[str], shown: Callable[[str], str] = str
) -> str:
    """A sentence with the name that is nearest to a wrong one, or nothing.

    `shown` is how names are written: `repr` for those that may have blanks.
    """
    near = difflib.get_close_matches(value, list(names), n=1)
    return f" Did you mean {shown(near[0])}?" if near else ""


def refuse_faults(
    what: str, faults: Mapping[str, Sequence[str]], advice: str = ""
) -> None:
    """Raises `UserError` if there are faults, with the first of each kind."""
    listed = [
        f"{kind}: {first_few(names)}" for kind, names in faults.items() if names
    ]
    if listed:
        raise UserError(f"{what}; {'; '.join(listed)}.{advice}")


class WorkerLost(RuntimeError):
    """Another worker of the run is gone; the run can be resumed.

    The commands that train start again when they catch it, wait for the lost
    worker and resume from the last training state.
    """


class RunStopped(RuntimeError):
    """SIGTERM ended the run, which kept its state and can be resumed.

    The commands that train end with the exit code 75 when they catch it. Ctrl-C
    ends a run the same way, by a KeyboardInterrupt and with the exit code 130.
    """
