"""Draws the figures of every page, as SVG that follows light and dark mode."""

import io
import itertools
import math
import pathlib
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bert_tf.files import written_beside
from bert_tf.libraries import import_matplotlib, require_extra
from bert_tf.report.formats import number
from bert_tf.report.statistics import curve_points
from bert_tf.report.texts import in_words, showable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito 2008, "Color universal design", for color-blind readers too.
# Their yellow is left out: it is too pale for a line.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#007a5a"
_GREY, _INK, _EDGE, _GRID = "#5f6b76", "#323f4b", "#9aa5b1", "#e4e7eb"
_PAPER = "#fefefe"
_CYCLE = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", _INK)
_MARKERS = "osD^vPX"
# What replaces each color on a dark page.
_ON_DARK = {
    BLUE: "#5fb4ea",
    ORANGE: "#ff9d57",
    GREEN: "#3fc39a",
    _GREY: "#a3adb8",
    _INK: "#dbe2ea",
    _EDGE: "#66717d",
    _GRID: "#2d353e",
    _PAPER: "#14181d",
    "#009e73": "#2fc795",
    "#cc79a7": "#e9a8cb",
    "#e69f00": "#f5bd52",
    "#56b4e9": "#9bd4f7",
}
_DARK_RULES = "".join(
    f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
    for light, dark in _ON_DARK.items()
    for part in ("fill", "stroke")
)
_DARK_STYLE = (
    f"<style>@media (prefers-color-scheme:dark){{{_DARK_RULES}}}</style>"
).encode()
# How curves are drawn, by their style; a size without a marker is that of the
# marker of the curve's color.
_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "line": {"linewidth": 1.2},
    "held_out": {"marker": "o", "markersize": 3},
    "marked": {"markersize": 5},
    "dashed": {"linestyle": "--", "markersize": 5},
    "points": {"linestyle": "", "markersize": 5},
    "named": {"linestyle": "", "markersize": 6},
    "flagged": {
        **{"linestyle": "", "markersize": 6, "marker": "X", "color": ORANGE}
    },
    # Single trainings.
    "circles": {
        **{"linestyle": "", "marker": "o", "markersize": 3.2},
        **{"markerfacecolor": "none", "color": _GREY},
    },
    "ideal": {"linestyle": "--", "linewidth": 1.3},
    # Thousands of points as one image keep the file small; their color is the
    # same in light and dark mode.
    "dots": {
        **{"linestyle": "", "marker": "o", "markersize": 4, "alpha": 0.45},
        **{"color": "#2f8ccb", "markeredgewidth": 0, "rasterized": True},
    },
}
_RC: dict[Any, Any] = {
    "font.size": 9.5,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _EDGE,
    "axes.labelcolor": _INK,
    "axes.titlesize": 9.5,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "axes.prop_cycle": f"cycler(color={list(_CYCLE)})",
    "grid.color": _GRID,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    # Derives the ids of elements from the content instead of a random number.
    "svg.hashsalt": "report",
}


class Curve(NamedTuple):
    """A number over the steps, or over other values.

    Attributes:
      label: names the curve in the legend; empty for no entry.
      across: the x values.
      values: the y values, as many.
      spreads: half the height of the error band at each x; empty for none.
      color: index into the color cycle.
      style: a key of `_LOOKS`, "bars" of a histogram, or "from_zero".
      is_pale: whether the curve is drawn paler than the others.
    """

    label: str
    across: Sequence[float]
    values: Sequence[float]
    spreads: Sequence[float] = ()
    color: int = 0
    style: str = "line"
    is_pale: bool = False


class Panel(NamedTuple):
    """Curves in one coordinate system.

    Attributes:
      curves: the curves.
      x_label, y_label, title: labels.
      levels, lines: labelled horizontal and vertical lines, but those at None.
      names: of rows from above, to which 0, 1, ... on the y axis belong.
      is_reversed: whether larger x values are drawn to the left.
    """

    curves: Sequence[Curve]
    x_label: str = "training step"
    y_label: str = ""
    title: str = ""
    levels: Mapping[str, float | None] = {}
    lines: Mapping[str, float | None] = {}
    names: Sequence[str] = ()
    is_reversed: bool = False


class Curves(NamedTuple):
    """Panels of curves.

    Attributes:
      panels: the panels, None for an empty one. Several share a legend, and
        those with names have the same ones.
      size: width and height of a panel in inches; names need their own height.
      columns: panels per row.
    """

    panels: Sequence[Panel | None]
    size: tuple[float, float] = (4.8, 3.3)
    columns: int = 1

    def numbers(self) -> str:
        """The bars of histograms, and the ends of curves."""
        found = []
        for panel in filter(None, self.panels):
            for curve in () if panel.names else panel.curves:
                pairs = list(zip(curve.across, curve.values, strict=True))
                if curve.style != "bars":
                    pairs = pairs[:: max(len(pairs) - 1, 1)]
                shown = [f"{number(x)}: {number(y)}" for x, y in pairs if y]
                name = f"{panel.title or panel.y_label} {curve.label}".strip()
                found.append(f"{name}: {', '.join(shown)}.")
        return " ".join(found)

    def drawn(self, file_format: str = "svg", heading: str = "") -> bytes:
        """Returns a file of it: SVG, or "png" on white.

        Raises:
          UserError: matplotlib is not installed.
        """
        require_extra("report", "a figure")
        # Slow to import, and needed only when something is drawn.
        import_matplotlib()
        import matplotlib
        from matplotlib.figure import Figure

        rows = math.ceil(len(self.panels) / self.columns)
        width, height = self.size[0] * self.columns, self.size[1]
        names = self.panels[0].names if self.panels[0] else ()
        if lines := [_label(name).split("\n") for name in names]:
            width += 0.085 * max(len(line) for each in lines for line in each)
            height = 1.2 + sum(0.15 + 0.15 * len(each) for each in lines)
        is_svg = file_format == "svg"
        # A date would make the bytes differ from one run to the next.
        undated = {"transparent": True, "metadata": {"Date": None}}
        options: dict[str, Any] = undated if is_svg else {"dpi": 110}
        file = io.BytesIO()
        with matplotlib.rc_context(_RC), warnings.catch_warnings():
            # A character that the font lacks is drawn as a box.
            warnings.filterwarnings("ignore", r"Glyph .* missing")
            figure = Figure(
                figsize=(width, height * rows), layout="constrained"
            )
            grid = figure.subplots(rows, self.columns, squeeze=False)
            self._draw(grid)
            if heading:
                figure.suptitle(heading, fontsize=11)
            figure.savefig(file, format=file_format, **options)
        style = _DARK_STYLE + b"<defs>"
        return file.getvalue().replace(b"<defs>", style, is_svg)

    def _draw(self, grid: Any) -> None:
        is_single = len(self.panels) == 1
        for index, axes in enumerate(grid.flat):
            panel = self.panels[index]
            if panel is None:
                axes.set_visible(False)
                continue
            _draw_panel(axes, panel, has_legend=is_single)
            if index % self.columns and panel.names:
                axes.set_yticklabels([])
        if not is_single:
            _legend_below(grid)


def named_curves(
    values: Sequence[float | None],
    spreads: Sequence[float | None] = (),
    seeds: Sequence[Sequence[float]] = (),
    flagged: Sequence[bool] = (),
    color: int = 0,
    style: str = "named",
) -> list[Curve]:
    """A number of each of a panel's names.

    Args:
      values: one for each name; None where there is none.
      spreads: half the width of their error bars, or empty.
      seeds: values of single trainings of each name, or empty.
      flagged: whether each is marked as degenerate, or empty.
      color: index into the color cycle.
      style: "named" for points, or "from_zero" for bars.
    """
    known = [(x, row) for row, x in enumerate(values) if x is not None]
    marked = [(x, row) for x, row in known if flagged and flagged[row]]
    errors = [spreads[row] or 0.0 for _, row in known] if spreads else ()
    singles = [(x, row + 0.27) for row, own in enumerate(seeds) for x in own]

    return [
        Curve(
            *("", [x for x, _ in points], [row for _, row in points]),
            *(errors if points is known else (), color, each),
        )
        for points, each in (
            (known, style),
            (marked, "flagged"),
            (singles, "circles"),
        )
    ]


def learning_panel(
    name: str,
    training: Sequence[Mapping[str, Any]],
    held_out: Sequence[Mapping[str, Any]],
    best_seed: str = "",
    best_step: float | None = None,
    scale: float = 1,
    levels: Mapping[str, float | None] = {},
) -> Panel:
    """The panel of a training and a held-out number, one curve per seed.

    Args:
      name: label of the y axis.
      training: series with "seed", "steps" and "values".
      held_out: series of the same form.
      best_seed: curves of other seeds are drawn paler.
      best_step: the step whose model is kept, or None.
      scale: factor of the values.
      levels: labelled horizontal lines.
    """
    curves = [
        Curve(
            "" if number else label,
            each["steps"],
            [value * scale for value in each["values"]],
            color=color,
            style=style,
            is_pale=each["seed"] != best_seed,
        )
        for color, (label, style, series) in enumerate(
            (
                ("training", "line", training),
                ("held-out", "held_out", held_out),
            )
        )
        for number, each in enumerate(series)
    ]
    lines = {"model kept": best_step}
    return Panel(curves, y_label=name, levels=levels, lines=lines)


def history_panels(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    levels: Mapping[str, Mapping[str, float]],
) -> list[Panel]:
    """The panels of numbers of a history.

    Args:
      rows: of the history; "NAME" is a training number, "eval_NAME" a held-out
        one.
      names: the numbers.
      levels: labelled horizontal lines of a panel, such as a chance level.
    """
    histories = {"": rows}
    return [
        learning_panel(
            in_words(name),
            curve_points(histories, name),
            curve_points(histories, f"eval_{name}"),
            levels=levels.get(name, {}),
        )
        for name in names
    ]


def write_learning_curve(
    path: str | pathlib.Path, panels: Sequence[Panel], heading: str
) -> None:
    """Writes `history_panels` side by side as a PNG file, with a title."""
    require_extra("report", "a learning curve")
    curves = Curves(panels, (4.2, 3.8), len(panels))
    with written_beside(path) as beside:
        beside.write_bytes(curves.drawn("png", heading))


def _draw_panel(axes: "Axes", panel: Panel, has_legend: bool = True) -> None:
    from matplotlib.ticker import StrMethodFormatter

    for curve in panel.curves:
        _draw_curve(axes, curve)
    for draw_line, color, named in (
        (axes.axvline, GREEN, panel.lines),
        (axes.axhline, _GREY, panel.levels),
    ):
        styles = itertools.cycle((":", "--", "-.", "-"))
        for (label, at), style in zip(named.items(), styles, strict=False):
            if at is not None:
                draw_line(at, color=color, linestyle=style, label=label)
    if panel.names:
        axes.margins(x=0.15)
        axes.set_ylim(len(panel.names) - 0.4, -0.6)
        axes.set_yticks(range(len(panel.names)), map(_label, panel.names))
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="y", visible=False)
    elif all(isinstance(y, int) for each in panel.curves for y in each.values):
        _whole_ticks(axes, "y")
    steps = [x for each in panel.curves for x in each.across]
    if all(float(x).is_integer() for x in steps):
        _whole_ticks(axes, "x")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if panel.is_reversed:
        axes.invert_xaxis()
    axes.set_title(_label(panel.title))
    axes.set_xlabel(_label(panel.x_label, 44))
    axes.set_ylabel(_label(panel.y_label, 36))
    if has_legend and axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best")


def _draw_curve(axes: "Axes", curve: Curve) -> None:
    color = _CYCLE[curve.color % len(_CYCLE)]
    label = curve.label or None
    if curve.style == "bars":
        # Hatched, because not everybody can tell the colors apart.
        hatch = "///" if curve.color else ""
        axes.bar(
            curve.across,
            curve.values,
            0.92 * (curve.across[1] - curve.across[0]),
            fill=not hatch,
            hatch=hatch,
            edgecolor=color,
            color=color,
            alpha=0.7,
            label=label,
        )
        return
    if curve.style == "from_zero":
        axes.barh(curve.values, curve.across, 0.6, color=color)
    else:
        look: dict[str, Any] = {"color": color, **_LOOKS[curve.style]}
        if "markersize" in look:
            look.setdefault("marker", _MARKERS[curve.color % len(_MARKERS)])
        elif len(curve.across) < 3:
            # One or two points are too few to be seen as a line.
            look["marker"] = "."
        if curve.is_pale:
            look["alpha"] = 0.35
        axes.plot(curve.across, curve.values, label=label, **look)
    is_named = curve.style in ("named", "from_zero")
    if is_named:
        for x, y in zip(curve.across, curve.values, strict=True):
            axes.annotate(
                number(x),
                (x, y),
                xytext=(5, 6),
                textcoords="offset points",
                fontsize=8,
            )
    if any(curve.spreads) and (is_named or curve.style == "points"):
        axes.errorbar(
            curve.across,
            curve.values,
            xerr=curve.spreads if is_named else None,
            yerr=None if is_named else curve.spreads,
            fmt="none",
            ecolor=color,
            capsize=2.5,
        )
    elif any(curve.spreads):
        low, high = (
            [
                v + sign * s
                for v, s in zip(curve.values, curve.spreads, strict=True)
            ]
            for sign in (-1, 1)
        )
        axes.fill_between(
            curve.across, low, high, color=color, alpha=0.15, linewidth=0
        )


def _whole_ticks(axes: "Axes", axis: Literal["x", "y"]) -> None:
    # matplotlib divides a whole number to have two ticks of a single point.
    axes.locator_params(axis=axis, integer=True, min_n_ticks=1)


def _legend_below(grid: Any) -> None:
    """Draws one legend of all axes below the figure, each label once."""
    entries: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(
            *axes.get_legend_handles_labels(), strict=True
        ):
            entries.setdefault(label, handle)
    if entries:
        grid.flat[0].figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=3,
        )


def _label(text: str, width: int = 26) -> str:
    return "\n".join(
        textwrap.fill(line, width) for line in showable(text).split("\n")
    )


def histogram(
    edges: Sequence[float],
    counts: Mapping[str, Sequence[int]],
    labels: tuple[str, str],
    lines: Mapping[str, float | None],
) -> Curves:
    """One or two histograms over the same bins.

    Args:
      edges: of the N bins, N + 1 numbers.
      counts: label to N counts.
      labels: of the x and the y axis.
      lines: see `Panel`.
    """
    middles = [sum(pair) / 2 for pair in itertools.pairwise(edges)]
    bars = [
        Curve(label, middles, values, color=color, style="bars")
        for color, (label, values) in enumerate(counts.items())
    ]
    return Curves([Panel(bars, *labels, lines=lines)])
