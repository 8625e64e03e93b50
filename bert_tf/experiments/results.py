"""The numbers of an experiment: what each cell's run scored."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What stands behind a cell.

    Attributes:
      values: the score of each seed, times the cell's factor; empty while the
        run is not finished.
      degenerate: how many of the seeds did no better than the commonest label.
      task: the task that was run; empty for a pre-training.
      folder: the run's folder.
      command: the command that made it, as one would type it.
      seconds: that it took; None while it is not finished.
    """

    values: tuple[float, ...]
    degenerate: int
    task: str
    folder: str
    command: str
    seconds: float | None


# By row and column.
Numbers = Mapping[tuple[str, str], Found]
