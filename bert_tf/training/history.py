"""The numbers of a run: one JSON line an entry, and a picture of them."""

import contextlib
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text, written_beside
from bert_tf.foreign_files import demand_regular
from bert_tf.libraries import import_matplotlib, require_extra
from bert_tf.progress import log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HISTORY_FILE = "history.jsonl"
LEARNING_CURVE = "learning_curve.png"


@contextlib.contextmanager
def errors_become_warnings(
    what: str, output_dir: str | pathlib.Path
) -> Iterator[None]:
    """Prints a warning where `what`, a part of a report, cannot be made."""
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
    """A value for JSON, with None for every number in it that is not finite."""
    if isinstance(value, Mapping):
        return {name: finite_values(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_values(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value


def write_numbers(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Writes values as JSON; what is no finite number becomes null."""
    write_text(path, json.dumps(finite_values(values), indent=2) + "\n")


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
            demand_regular(self.path)
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


def in_words(name: str) -> str:
    """The name of a number as it is read: masked LM loss."""
    return name.replace("_lm_", " LM ").replace("_", " ")


class Curve(NamedTuple):
    """A number over the steps, drawn paler than others or not."""

    steps: Sequence[float]
    values: Sequence[float]
    is_pale: bool = False


def draw_curve(
    axes: "Axes", training: Sequence[Curve], held_out: Sequence[Curve]
) -> None:
    """Draws training beside held-out, each in one colour."""
    for curves, color, style, width, size, label in (
        (training, "C0", "-", 1.2, None, "training"),
        (held_out, "C1", "o-", None, 3, "held-out"),
    ):
        for number, curve in enumerate(curves):
            # One or two points make no line.
            is_short = style == "-" and len(curve.steps) < 3
            axes.plot(
                curve.steps,
                curve.values,
                ".-" if is_short else style,
                color=color,
                alpha=0.35 if curve.is_pale else None,
                linewidth=width,
                markersize=size,
                label=label if number == 0 else None,
            )


def draw_levels(axes: "Axes", levels: Mapping[str, float]) -> None:
    """Draws labelled horizontal lines; call it after everything else."""
    ordered = sorted(levels.items(), key=lambda item: item[1])
    for _, value in ordered:
        axes.axhline(value, linestyle="--", color="grey", linewidth=1)
    low, high = axes.get_ylim()
    for place, (label, value) in enumerate(ordered):
        above = ordered[place + 1][1] if place + 1 < len(ordered) else None
        # Where two lines are close the lower one is labelled from below.
        is_close = above is not None and above - value < (high - low) / 14
        axes.annotate(
            label,
            (1, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, -2 if is_close else 0),
            textcoords="offset points",
            ha="right",
            va="top" if is_close else "bottom",
            fontsize=8,
            color="grey",
            parse_math=False,
        )


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
    # Slow to import, and needed only once a curve is drawn.
    import_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(panels), 3.8), layout="constrained")
    figure.suptitle(heading, fontsize=11)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, name in zip(all_axes, panels, strict=True):
        held_out = Curve(*history.series(f"eval_{name}"))
        draw_curve(
            axes,
            [Curve(*history.series(name))],
            [held_out] if held_out.steps else [],
        )
        draw_levels(axes, levels.get(name, {}))
        axes.set_title(in_words(name), fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    with written_beside(path) as beside:
        figure.savefig(beside, format="png", dpi=110)
