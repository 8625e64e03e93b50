"""The pictures of an experiment as SVG: ours, and the paper's beside them.

The paper's numbers have panels and scales of their own: those of a small scale
are far from them, and what is compared is the order of the rows.
"""

import contextlib
import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.experiments.comparison import mean, standard_deviation
from bert_tf.experiments.experiment import Experiment
from bert_tf.experiments.results import Numbers
from bert_tf.report.figures import BLUE, GREY, ORANGE, drawing
from bert_tf.report.texts import showable

# Okabe and Ito 2008, without their yellow, too pale for a line.
_COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#1F2933")
_MARKERS = "osD^vPX"
_HERE, _PAPER = "here", "in the paper"
_PANELS_IN_A_LINE = 5


class _Points:
    """The numbers of an experiment as the panels show them."""

    def __init__(
        self,
        experiment: Experiment,
        numbers: Numbers,
        headings: Mapping[str, str],
    ) -> None:
        self.experiment = experiment
        self.headings = headings
        self.values = {place: each.values for place, each in numbers.items()}
        self.paper = {
            (cell.row, cell.column): cell.paper
            for cell in experiment.cells
            if cell.paper is not None
        }
        for row, of in experiment.paper_rows.items():
            self.paper |= {(row, name): value for name, value in of.items()}
        rows = [*experiment.rows, *experiment.paper_rows]
        self.rows = list(dict.fromkeys(rows))
        self.panels = [_HERE, _PAPER] if self.paper else [_HERE]

    def number(self, row: str, column: str, panel: str) -> float | None:
        """The mean of ours, or the paper's; None where there is none."""
        if panel == _PAPER:
            return self.paper.get((row, column))
        return mean(self.values.get((row, column), ()))

    def spread(self, row: str, column: str, panel: str) -> float:
        """Half the length of the error bar."""
        values = () if panel == _PAPER else self.values.get((row, column), ())
        return standard_deviation(values) or 0.0

    def axis(self, column: str, panel: str) -> str:
        """The words for a column's axis."""
        name = _label(column if panel == _PAPER else self.headings[column])
        if column in self.experiment.lower_is_better:
            return f"{name}\n(lower is better)"
        return name


def pictures(
    experiment: Experiment, numbers: Numbers, headings: Mapping[str, str]
) -> dict[str, bytes]:
    """The pictures of an experiment, by the name of their file.

    Args:
      experiment: it.
      numbers: ours.
      headings: what stands over each column of ours.
    """
    points = _Points(experiment, numbers, headings)
    if experiment.across:
        return {"picture.svg": _curves(points)}
    found = {"picture.svg": _table(points)}
    if experiment.against and len(experiment.columns) > 1:
        found["picture_against.svg"] = _against(points)
    return found


@contextlib.contextmanager
def _drawing(
    svg: io.BytesIO, lines: int, length: int, panel: tuple[float, float]
) -> Iterator[Any]:
    """Axes [lines, length], each of a size in inches."""
    size = (panel[0] * length, panel[1] * lines)
    with warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", r"Glyph .* missing")
        with drawing(svg, [1] * lines, size, length) as axes:
            yield axes.reshape(lines, length)


def _label(text: str) -> str:
    return textwrap.fill(showable(text), 26)


def _table(points: _Points) -> bytes:
    """A panel a column and in it a line a row: mean, error bar and seeds."""
    columns = points.experiment.columns
    # Lines of panels as long as one another.
    lines = math.ceil(len(columns) / _PANELS_IN_A_LINE)
    length = math.ceil(len(columns) / lines)
    labels = [_label(row) for row in points.rows]
    height = 0.9 + sum(0.13 + 0.15 * len(each.split("\n")) for each in labels)
    longest = max(len(line) for each in labels for line in each.split("\n"))
    width = 1.8 + 0.085 * longest / length
    lines *= len(points.panels)
    size = (width, height)
    with _drawing(svg := io.BytesIO(), lines, length, size) as grid:
        for axes in grid.flat:
            axes.set_visible(False)
        for place, column in enumerate(columns):
            line, across = divmod(place, length)
            for below, panel in enumerate(points.panels):
                axes = grid[line * len(points.panels) + below][across]
                axes.set_visible(True)
                _row_lines(axes, points, column, panel)
                axes.set_ylim(len(labels) - 0.4, -0.6)
                axes.set_yticks(
                    range(len(labels)),
                    [""] * len(labels) if across else labels,
                    parse_math=False,
                )
    return svg.getvalue()


def _row_lines(axes: Any, points: _Points, column: str, panel: str) -> None:
    """A line a row, the reference row's number as a dashed line through all."""
    is_paper = panel == _PAPER
    reference = points.experiment.reference or points.rows[0]
    level = points.number(reference, column, panel)
    if level is not None:
        axes.axvline(level, color=GREY, linestyle="--", linewidth=0.9)
    for place, row in enumerate(points.rows):
        value = points.number(row, column, panel)
        if value is None:
            continue
        axes.errorbar(
            value,
            place,
            xerr=points.spread(row, column, panel) or None,
            fmt="D" if is_paper else "o",
            color=ORANGE if is_paper else BLUE,
            markersize=5.5,
            capsize=2.5,
        )
        seeds = points.values.get((row, column), ())
        if not is_paper and len(seeds) > 1:
            axes.plot(
                seeds,
                [place + 0.27] * len(seeds),
                "o",
                markersize=3.2,
                markerfacecolor="none",
                markeredgecolor=GREY,
                markeredgewidth=0.8,
            )
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=3)
    axes.grid(axis="y", visible=False)
    if not axes.has_data():
        axes.set_xticks([])
    if column in points.experiment.lower_is_better:
        axes.invert_xaxis()
    title = f"{points.axis(column, panel)}\n{panel}"
    axes.set_title(title, fontsize=9.5, parse_math=False)


def _curves(points: _Points) -> bytes:
    """A curve a row over the columns, which are numbers."""
    experiment = points.experiment
    places = {column: float(column) for column in experiment.columns}
    score = experiment.cells[0].score.replace("_", " ")
    length = len(points.panels)
    with _drawing(svg := io.BytesIO(), 1, length, (4.6, 3.7)) as grid:
        for axes, panel in zip(grid[0], points.panels, strict=True):
            for row in points.rows:
                _curve(axes, points, row, panel, places)
            axes.set_title(panel, fontsize=10)
            axes.set_xlabel(experiment.across, parse_math=False)
        unit = ", x 100" if experiment.cells[0].factor == 100 else ""
        grid[0][0].set_ylabel(score + unit, parse_math=False)
        _legend(grid, points)
    return svg.getvalue()


def _legend(grid: Any, points: _Points) -> None:
    """Names the rows under the whole picture."""
    handles = [
        line
        for number, row in enumerate(points.rows)
        for line in grid[0][0].plot([], [], label=_label(row), **_style(number))
    ]
    legend = grid[0][0].figure.legend(
        handles=handles, loc="outside lower center", ncols=3
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _style(number: int) -> dict[str, Any]:
    """Colour and mark of a row."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 5,
    }


def _curve(
    axes: Any, points: _Points, row: str, panel: str, places: dict[str, float]
) -> None:
    """A row's curve, with a band as wide as the spread over the seeds."""
    found = [
        (place, value, points.spread(row, column, panel))
        for column, place in places.items()
        if (value := points.number(row, column, panel)) is not None
    ]
    style = _style(points.rows.index(row))
    across = [place for place, _, _ in found]
    axes.plot(
        across,
        [value for _, value, _ in found],
        "--" if panel == _PAPER else "-",
        **style,
    )
    axes.fill_between(
        across,
        [value - spread for _, value, spread in found],
        [value + spread for _, value, spread in found],
        color=style["color"],
        alpha=0.15,
        linewidth=0,
    )


def _against(points: _Points) -> bytes:
    """Each other column over the one: a point a row."""
    against = points.experiment.against
    columns = [x for x in points.experiment.columns if x != against]
    lines = len(points.panels)
    with _drawing(svg := io.BytesIO(), lines, len(columns), (3.3, 2.9)) as grid:
        for line, panel in zip(grid, points.panels, strict=True):
            for axes, column in zip(line, columns, strict=True):
                _scatter(axes, points, column, panel)
        _legend(grid, points)
    return svg.getvalue()


def _scatter(axes: Any, points: _Points, column: str, panel: str) -> None:
    against = points.experiment.against
    for number, row in enumerate(points.rows):
        across = points.number(row, against, panel)
        up = points.number(row, column, panel)
        if across is not None and up is not None:
            axes.errorbar(
                across,
                up,
                xerr=points.spread(row, against, panel) or None,
                yerr=points.spread(row, column, panel) or None,
                linestyle="none",
                capsize=2.5,
                **_style(number),
            )
    axes.margins(x=0.25, y=0.18)
    if against in points.experiment.lower_is_better:
        axes.invert_xaxis()
    axes.set_title(panel, fontsize=10)
    axes.set_xlabel(points.axis(against, panel), parse_math=False)
    axes.set_ylabel(points.axis(column, panel), parse_math=False)
