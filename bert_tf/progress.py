"""A progress bar on a terminal or in Jupyter, a line now and then elsewhere."""

import functools
import sys
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

import tqdm

_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_BEFORE_PASSING = 5.0


_reworded: Callable[[str], str] = str


def reword(how: Callable[[str], str]) -> None:
    """Sets what puts other words for names of arguments into every line.

    Args:
      how: from a line with the names of arguments in backticks to the line
        that is shown. The commands set one, since their users know flags.
    """
    global _reworded
    _reworded = how


def log(line: str, stream: TextIO | None = None) -> None:
    """Writes a line for the user.

    Args:
      line: what; names of arguments are in backticks.
      stream: where; standard error, where results do not go, if None.
    """
    print(_reworded(line), file=stream or sys.stderr, flush=True)


# A command reads some files several times.
@functools.cache
def log_once(line: str) -> None:
    """Writes a line for the user, once in a process."""
    log(line)


def _bar_type() -> type[tqdm.tqdm] | None:
    """The bar for what shows standard error; None where that is no place."""
    if "ipykernel.zmqshell" in sys.modules:
        with warnings.catch_warnings():
            # Without ipywidgets a bar of text does as well.
            warnings.simplefilter("ignore", tqdm.TqdmWarning)
            from tqdm.auto import tqdm as bar
        return bar
    return tqdm.tqdm if sys.stderr.isatty() else None


class Progress:
    """Shows how far a long piece of work is, on standard error.

    Args:
      title: what is being done.
      total: units of work in all.
      done: units that an earlier run did.
      unit: name of the unit; "B" is shown as kB, MB and so on.
      shown: whether to show anything at all.
      passing: a part of other work, shown only when it takes long, and as a
        bar only until it ends.
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
        self._last_line = time.monotonic()
        # Elsewhere the bar only keeps count: `update` prints it.
        self._bar = (bar if shown and bar else tqdm.tqdm)(
            desc=title,
            total=total,
            initial=done,
            unit=unit,
            unit_scale=unit == "B",
            dynamic_ncols=True,
            delay=_SECONDS_BEFORE_PASSING if passing else 0.0,
            leave=not passing,
            file=sys.stderr if shown and bar else _Nowhere(),
        )

    def update(self, units: int, note: str = "") -> None:
        """Adds units of work that were done.

        Args:
          units: how many.
          note: shown beside the bar.
        """
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(units)
        self._unprinted = True
        if time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._print_line()

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


class _Nowhere:
    """A file that forgets what is written to it."""

    def write(self, text: str) -> None:
        del text

    def flush(self) -> None:
        """Does nothing."""
