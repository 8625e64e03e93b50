"""A progress bar on a terminal or in Jupyter, periodic lines elsewhere."""

import contextlib
import functools
import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TextIO, TypeVar

import tqdm

_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_BEFORE_SHOWN = 5.0


T = TypeVar("T")
_reworded: Callable[[str], str] = str
_is_silent = False


def reword(how: Callable[[str], str]) -> None:
    """Sets the function that replaces names of arguments in every line.

    The commands replace arguments, which are in backticks, by flags.
    """
    global _reworded
    _reworded = how


def log(line: str, stream: TextIO | None = None) -> None:
    """Writes a line for the user.

    Args:
      line: the text, with names of arguments in backticks.
      stream: the output; None for standard error.
    """
    if not _is_silent:
        print(_reworded(line), file=stream or sys.stderr, flush=True)


def silently(items: Iterator[T]) -> Iterator[T]:
    """Yields items of a file that is read again, without the lines of `log`."""
    global _is_silent
    more = True
    while more:
        _is_silent = True
        try:
            # At most one, so that the caller may log between two items.
            found = [*itertools.islice(items, 1)]
        finally:
            _is_silent = False
        yield from found
        more = bool(found)


# For files that a command reads several times.
@functools.cache
def log_once(line: str) -> None:
    """Writes a line for the user, once per process."""
    log(line)


def _bar_type() -> type[tqdm.tqdm] | None:
    """Returns the type of bar for standard error; None in a log."""
    if "ipykernel.zmqshell" in sys.modules:
        with warnings.catch_warnings():
            # Without ipywidgets it is a bar of text.
            warnings.simplefilter("ignore", tqdm.TqdmWarning)
            from tqdm.auto import tqdm as bar
        return bar
    return tqdm.tqdm if sys.stderr.isatty() else None


_following = 0.0


@contextlib.contextmanager
def followed_by(work: float) -> Iterator[None]:
    """Adds the time of other work to that which progress says is left.

    Args:
      work: the time of what follows, as a multiple of the time of what is done
        within the context.
    """
    global _following
    _following = work
    try:
        yield
    finally:
        _following = 0.0


class Progress:
    """Shows the progress of long work on standard error.

    Args:
      title: describes the work.
      total: total units of work.
      done: units of an earlier run.
      unit: name of the unit; "B" is shown as kB, MB and so on.
      shown: whether anything is shown.
      passing: whether it is part of other work: shown only after some seconds,
        and removed at the end.
    """

    def __init__(
        self,
        title: str,
        total: int,
        done: int,
        unit: str,
        shown: bool = True,
        passing: bool = False,
    ) -> None:
        bar = _bar_type()
        self._prints_lines = shown and bar is None
        self._prints_last = not passing
        self._unprinted = False
        self._last_line = self._started = time.monotonic()
        # Without a bar it only counts, and `update` prints it.
        self._bar = (bar if shown and bar else tqdm.tqdm)(
            desc=title,
            total=total,
            initial=done,
            unit=unit,
            unit_scale=unit == "B",
            dynamic_ncols=True,
            delay=_SECONDS_BEFORE_SHOWN if passing else 0.0,
            leave=not passing,
            file=sys.stderr if shown and bar else _NullFile(),
        )

    def update(self, units: int, note: str = "") -> None:
        """Adds completed units of work, and shows a note after the bar."""
        if _following:
            note = f"{self._left_in_all(units)} left in all, {note}"
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(units)
        self._unprinted = True
        if time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._print_line()

    def _left_in_all(self, units: int) -> str:
        """The time left after these units, with the work that follows."""
        done = self._bar.n + units - self._bar.initial
        seconds = (time.monotonic() - self._started) / max(done, 1)
        left = seconds * (self._bar.total - self._bar.n - units)
        all_units = self._bar.total - self._bar.initial
        return tqdm.tqdm.format_interval(
            left + _following * seconds * all_units
        )

    def _print_line(self) -> None:
        if self._prints_lines:
            print(str(self._bar), file=sys.stderr, flush=True)
            self._prints_last = True
        self._last_line = time.monotonic()
        self._unprinted = False

    def log(self, line: str) -> None:
        """Prints a line on standard output, above the bar."""
        self._bar.clear()
        log(line, sys.stdout)
        self._bar.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._unprinted and self._prints_last and kind is None:
            self._print_line()
        self._bar.close()


class _NullFile:
    def write(self, text: str) -> None:
        del text

    def flush(self) -> None:
        """Does nothing."""
