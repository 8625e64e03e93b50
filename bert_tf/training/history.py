"""The numbers of a run, one JSON line per entry."""

import contextlib
import json
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.foreign_files import demand_regular
from bert_tf.progress import log

HISTORY_FILE = "history.jsonl"
LEARNING_CURVE = "learning_curve.png"


@contextlib.contextmanager
def errors_become_warnings(
    what: str, output_dir: str | pathlib.Path
) -> Iterator[None]:
    """Logs a warning if `what`, a part of a report, cannot be made."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        why = " ".join(str(error).split())
        if not isinstance(error, UserError):
            why = f"{type(error).__name__}: {why}"
        log(
            f"warning: {what} could not be made ({why.rstrip('.')}). The model "
            f"and its scores are in {output_dir}; the same command tries again."
        )


def finite_values(value: Any) -> Any:
    """A value for JSON, in which numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {name: finite_values(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_values(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value


def write_numbers(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Writes values as JSON; numbers that are not finite become null."""
    write_text(path, json.dumps(finite_values(values), indent=2) + "\n")


class History:
    """Appends rows of numbers to a file and keeps them in memory.

    Args:
      path: the file, one JSON object per line, each with a "step".
      until: rows of an earlier run after this step are dropped.
    """

    def __init__(self, path: str | pathlib.Path, until: int):
        self.path = pathlib.Path(path)
        self.rows: list[dict[str, float]] = []
        if self.path.exists():
            demand_regular(self.path)
            lines = self.path.read_text(encoding="utf-8").split("\n")
            # The last line may be incomplete if the process was killed.
            rows = [json.loads(line) for line in lines[:-1] if line]
            self.rows = [row for row in rows if row["step"] <= until]
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        write_text(self.path, text)

    def add(self, row: Mapping[str, float]) -> None:
        """Appends one row."""
        self.rows.append(dict(row))
        with open(self.path, "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(row) + "\n")

    def series(self, name: str) -> tuple[list[float], list[float]]:
        """Steps and values of one number, over the rows that have it."""
        rows = [row for row in self.rows if name in row]
        return [row["step"] for row in rows], [row[name] for row in rows]
