"""Errors that a user can correct, and what their messages consist of."""

import difflib
import errno
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

_MAX_NAMES = 8
_MAX_MESSAGE = 150
# Of a misspelt name and the right one, at least this ratio is the same.
_SAME_LETTERS = 0.85


class UserError(ValueError):
    """A mistake of the user's, described in one line.

    The message names the argument, in backticks, the file and row, the value
    received and the remedy. The commands in `tools/` print it without a stack
    trace, replace arguments by flags, and exit with code 1.
    """


class Fault(UserError):
    """An error in one row of a file; readers of whole files collect them.

    Args:
      kind: the heading of these errors in a table.
      message: the line, which begins with file and row.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class OtherRun(UserError):
    """The folder of a run holds one with other settings or data."""


def one_line(error: Exception) -> str:
    """Returns a library's error message as one line of at most 150 characters.

    Without a message it returns the type of the error.
    """
    line = " ".join(str(error).split()) or type(error).__name__
    return line.rstrip(".")[:_MAX_MESSAGE]


def writing_failed(error: Exception, path: str | os.PathLike) -> OSError:
    """Returns the system's error behind that of a library that writes files.

    Args:
      error: raised by TensorFlow or safetensors.
      path: the file or folder to write, for the message.
    """
    if re.search(r"No space left|[Qq]uota exceeded", str(error)):
        reason = os.strerror(errno.ENOSPC)
        return OSError(errno.ENOSPC, reason, os.fspath(path))
    return OSError(errno.EIO, one_line(error), os.fspath(path))


def check_choice(
    shown: str, value: object, choices: Iterable[str], advice: str = ""
) -> str:
    """Returns a value that must be one of several.

    Args:
      shown: the argument in backticks, or file and key.
      value: the value received, of any type.
      choices: the valid values.
      advice: follows their list in the error.

    Raises:
      UserError: the value is none of them.
    """
    known = [*choices]
    if value in known:
        return known[known.index(value)]
    raise UserError(
        f"{shown}={excerpt(value)}: takes one of {', '.join(known)}{advice}."
    )


def whole_number(
    name: str, value: object, least: int, most: int | None = None, why: str = ""
) -> int:
    """Returns an argument that must be an integer, Python's or NumPy's.

    Args:
      name: the argument, for the error.
      value: the value received.
      least: the smallest valid value.
      most: the largest valid value; None for no limit.
      why: the reason for the limits, for the error.

    Raises:
      UserError: it is no integer, or outside the limits.
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
    """Returns the repr of a value, truncated to 60 characters."""
    # Those of tables and arrays have line ends.
    shown = repr(value).replace("\n", " ")
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def first_few(names: Sequence[str]) -> str:
    """Returns the first names of a list, and how many more there are."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" * (more > 0))


def did_you_mean(
    value: str, names: Iterable[str], shown: Callable[[str], str] = str
) -> str:
    """Returns a sentence with the valid name nearest to a wrong one, or "".

    It is a name with almost the same letters; else the first one with words
    that begin as the wrong name (`batch_size`: train_batch_size) or have its
    letters as initials (`lr`: learning_rate); else one with similar letters.
    `shown` formats the name: `repr` where names may have blanks.
    """
    known = list(names)
    near = difflib.get_close_matches(value, known, n=1, cutoff=_SAME_LETTERS)
    words = _words(value)
    if len(words) > 1:
        in_words = {name: _words(name) for name in known}
        near += [n for n, each in in_words.items() if f"_{words}" in f"_{each}"]
        near += [
            name
            for name, each in in_words.items()
            if words in re.sub(r"([^_])[^_]*_?", r"\1", each)
        ]
    near += difflib.get_close_matches(value, known, n=1)
    return f" Did you mean {shown(near[0])}?" if near else ""


def _words(name: str) -> str:
    """Returns the words of a name in lower case, joined by underscores."""
    return "_".join(re.findall(r"[^\W_]+", name.lower()))


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
    """Another worker of the run was lost; the run can be resumed.

    The commands that train restart, wait for the lost worker and resume from
    the last training state.
    """


class RunStopped(RuntimeError):
    """SIGTERM stopped the run, which saved its state and can be resumed.

    The commands that train exit with code 75. After Ctrl-C, a
    KeyboardInterrupt, they exit with code 130.
    """
