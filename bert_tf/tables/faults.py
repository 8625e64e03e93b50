"""`Faults`, which reports all malformed rows of a file at once."""

import collections
import contextlib
from collections.abc import Iterator

from bert_tf.errors import Fault, UserError, first_few, refuse_faults
from bert_tf.progress import log


class Faults:
    """Collects the faults of the rows of a file.

    Args:
      path: the file.
      bad_rows: "error" or "skip"; empty, without such a setting, means error.
      unit: the name of rows, in the plural.
    """

    def __init__(self, path: str, bad_rows: str = "", unit: str = "rows"):
        self._path = path
        self._bad_rows = bad_rows
        self._unit = unit
        self._rows: dict[str, list[str]] = collections.defaultdict(list)
        self._first: dict[str, Fault] = {}

    def add(self, row: int | str, fault: Fault, path: str = "") -> None:
        """Adds the fault of a row, named by its line or otherwise.

        `path` is its file, if there are several.
        """
        name = f"{path}:{row}" if path not in ("", self._path) else str(row)
        self._rows[fault.kind].append(name)
        self._first.setdefault(fault.kind, fault)

    @contextlib.contextmanager
    def caught(self, row: int | str) -> Iterator[None]:
        """Context manager that adds a `Fault` raised in its block."""
        try:
            yield
        except Fault as fault:
            self.add(row, fault)

    def settle(self, num_good: int) -> None:
        """Reports the faults; several kinds are logged as a table.

        Args:
          num_good: the number of rows without a fault.

        Raises:
          UserError: rows with faults are not skipped, or no other is left.
        """
        if not self._rows:
            return
        path, unit, skip = self._path, self._unit, self._bad_rows == "skip"
        counts = {kind: len(rows) for kind, rows in self._rows.items()}
        bad = sum(counts.values())
        first = next(iter(self._first.values()))
        if skip and not num_good:
            raise UserError(
                f"{path}: none of its {bad} {unit} can be used. The first: "
                f"{first}"
            )
        or_skip = " Or pass `bad_rows`=skip." if self._bad_rows else ""
        shown = f"{bad} of {bad + num_good} {unit} cannot be used"
        if len(counts) == 1 and not skip:
            (names,) = self._rows.values()
            alike = f" So {shown}: {first_few(names)}." if bad > 1 else ""
            raise UserError(f"{first}{alike}{or_skip}")
        log(f"{path}: {shown}{' and are skipped (bad_rows=skip)' * skip}:")
        width = max(map(len, counts))
        for kind in sorted(counts, key=lambda kind: -counts[kind]):
            text = str(self._first[kind]).removeprefix(path).lstrip(",: ")
            log(
                f"{counts[kind]:>8}  {kind:<{width}}  "
                f"{first_few(self._rows[kind])}; {text}"
            )
        if not skip:
            what = f"{path}: {shown}, as listed above"
            refuse_faults(what, self._rows, or_skip)
