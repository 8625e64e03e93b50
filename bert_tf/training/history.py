"""The numbers of a run: one JSON line an entry, and a picture of them."""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from bert_tf.errors import UserError
from bert_tf.extras import require_extra
from bert_tf.files import write_text, written_beside
from bert_tf.progress import notice

LEARNING_CURVE = "learning_curve.png"


@contextlib.contextmanager
def errors_become_warnings(
    what: str, output_dir: str | pathlib.Path
) -> Iterator[None]:
    """Prints a warning where a report fails, since the training is done.

    Args:
      what: the part of the report that the block makes.
      output_dir: the folder of the run, which holds everything else.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001
        why = " ".join(str(error).split())
        if not isinstance(error, UserError):
            why = f"{type(error).__name__}: {why}"
        notice(
            f"warning: {what} could not be made ({why.rstrip('.')}). The model "
            f"and its scores are in {output_dir}; the same command tries again."
        )


class History:
    """Appends rows of numbers to a file and keeps them in memory.

    Args:
      path: the file, one JSON object a line, each with a "step".
      until: rows of an earlier run after this step are dropped.
    """

    def __init__(self, path: str | pathlib.Path, until: int):
        self.path = pathlib.Path(path)
        self.rows: list[dict[str, float]] = []
        if self.path.exists():
            lines = self.path.read_text(encoding="utf-8").split("\n")
            # A kill can tear the last line; everything before is whole.
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
        """The steps and values of one number, over the rows that have it."""
        rows = [row for row in self.rows if name in row]
        return [row["step"] for row in rows], [row[name] for row in rows]


def draw_curves(
    path: str | pathlib.Path,
    history: History,
    panels: Sequence[str],
    levels: Mapping[str, Mapping[str, float]],
    heading: str,
) -> None:
    """Draws numbers over the steps, training beside held-out.

    Args:
      path: the PNG file to write.
      history: the rows; "NAME" is training, "eval_NAME" is held-out.
      panels: the names, one panel each.
      levels: for a panel, labelled horizontal lines such as a chance level.
      heading: over the whole picture.
    """
    require_extra("report", "a learning curve")
    # Slow to import, and of no use before the first curve is drawn.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(panels), 3.8), layout="constrained")
    figure.suptitle(heading, fontsize=11)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, name in zip(all_axes, panels, strict=True):
        steps, values = history.series(name)
        # A single point makes no line.
        marker = "." if len(steps) < 3 else None
        axes.plot(steps, values, marker=marker, label="training", linewidth=1.2)
        steps, values = history.series(f"eval_{name}")
        if steps:
            axes.plot(steps, values, "o-", label="held-out", markersize=3)
        for label, level in levels.get(name, {}).items():
            axes.axhline(level, linestyle="--", color="grey", linewidth=1)
            axes.annotate(
                label,
                (1, level),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=8,
                color="grey",
            )
        title = name.replace("_lm_", " LM ").replace("_", " ")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    with written_beside(path) as beside:
        figure.savefig(beside, format="png", dpi=110)
