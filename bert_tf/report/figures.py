"""Draws the figures of every page, as SVG that follows light and dark mode."""

import contextlib
import io
import math
import pathlib
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bert_tf.files import written_beside
from bert_tf.libraries import import_matplotlib, require_extra
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
)
_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "line": {"linewidth": 1.2},
    "held_out": {"marker": "o", "markersize": 3},
    "marked": {},
    "dashed": {"linestyle": "--"},
    "points": {"linestyle": ""},
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
      style: a key of `_LOOKS`.
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
      levels: labelled horizontal lines.
      best_step: the x of a vertical line at the model that is kept, or None.
      has_whole_steps: whether the x ticks are whole numbers.
      is_reversed: whether larger x values are drawn to the left.
    """

    curves: Sequence[Curve]
    x_label: str = "training step"
    y_label: str = ""
    title: str = ""
    levels: Mapping[str, float] = {}
    best_step: float | None = None
    has_whole_steps: bool = True
    is_reversed: bool = False


class Bars(NamedTuple):
    """Values of several models or trainings, one per line.

    Attributes:
      labels: names of the lines.
      values: one per line; None where there is none.
      x_label, title: labels.
      spreads: half the width of the error bar of each line, or empty.
      seeds: values of single trainings of each line, or empty.
      levels: labelled vertical lines.
      flagged: whether each line is marked as degenerate, or empty.
      from_zero: draws bars from zero instead of dots.
      is_reversed: whether larger values are drawn to the left.
      color: index into the color cycle; None for a color per line.
    """

    labels: Sequence[str]
    values: Sequence[float | None]
    x_label: str = ""
    title: str = ""
    spreads: Sequence[float | None] = ()
    seeds: Sequence[Sequence[float]] = ()
    levels: Mapping[str, float] = {}
    flagged: Sequence[bool] = ()
    from_zero: bool = False
    is_reversed: bool = False
    color: int | None = 0


@contextlib.contextmanager
def drawing(
    output: io.BytesIO,
    size: tuple[float, float] = (4.8, 3.6),
    rows: Sequence[float] = (1,),
    columns: int = 1,
    file_format: str = "svg",
) -> Iterator[Any]:
    """Yields axes [rows, columns]; the drawn figure is written to `output`.

    Args:
      output: what the file is written to.
      size: width and height in inches.
      rows: relative heights of the rows.
      columns: axes per row.
      file_format: "svg", or "png" on white.
    """
    require_extra("report", "a figure")
    # Slow to import, and needed only when something is drawn.
    import_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", r"Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(
            len(rows), columns, squeeze=False, height_ratios=list(rows)
        )
        yield axes
        if file_format == "png":
            figure.savefig(output, format="png", dpi=110)
            return
        file = io.StringIO()
        # A date would make the bytes differ from one run to the next.
        figure.savefig(
            file, format="svg", transparent=True, metadata={"Date": None}
        )
    head, tag, rest = file.getvalue().partition("<defs>")
    output.write(f"{head}{_DARK_STYLE}{tag}{rest}".encode())


def curves(
    panels: Sequence[Panel],
    size: tuple[float, float] = (4.8, 3.3),
    columns: int = 1,
) -> bytes:
    """Draws panels of curves as SVG.

    Args:
      panels: the panels; they share a legend where there are several.
      size: width and height of a panel in inches.
      columns: panels per row.
    """
    rows = math.ceil(len(panels) / columns)
    whole = (size[0] * columns, size[1] * rows)
    with drawing(svg := io.BytesIO(), whole, (1,) * rows, columns) as grid:
        for axes, panel in zip(grid.flat, panels, strict=True):
            _draw_panel(axes, panel, has_legend=len(panels) == 1)
        if len(panels) > 1:
            _legend_below(grid)
    return svg.getvalue()


def learning_panel(
    name: str,
    training: Sequence[Mapping[str, Any]],
    held_out: Sequence[Mapping[str, Any]],
    levels: Mapping[str, float],
    best_seed: str = "",
    best_step: float | None = None,
    scale: float = 1,
    held_out_label: str = "held-out",
) -> Panel:
    """The panel of a training and a held-out number, one curve per seed.

    Args:
      name: label of the y axis.
      training: series with "seed", "steps" and "values".
      held_out: series of the same form.
      levels: labelled horizontal lines.
      best_seed: curves of other seeds are drawn paler.
      best_step: the step whose model is kept, or None.
      scale: factor of values and levels.
      held_out_label: label of the held-out curve.
    """
    return Panel(
        [
            Curve(
                label if number == 0 else "",
                each["steps"],
                [value * scale for value in each["values"]],
                color=color,
                style=style,
                is_pale=each["seed"] != best_seed,
            )
            for color, (label, style, series) in enumerate(
                (
                    ("training", "line", training),
                    (held_out_label, "held_out", held_out),
                )
            )
            for number, each in enumerate(series)
        ],
        y_label=name,
        levels={label: value * scale for label, value in levels.items()},
        best_step=best_step,
    )


def write_learning_curve(
    path: str | pathlib.Path,
    rows: Sequence[Mapping[str, float]],
    names: Sequence[str],
    levels: Mapping[str, Mapping[str, float]],
    heading: str,
) -> None:
    """Writes training and held-out numbers over the steps as a PNG file.

    Args:
      path: the file.
      rows: of a history; "NAME" is a training number, "eval_NAME" a held-out
        one.
      names: the numbers, one panel each.
      levels: labelled horizontal lines of a panel, such as a chance level.
      heading: the title of the whole figure.
    """
    require_extra("report", "a learning curve")
    size = (4.2 * len(names), 3.8)
    png = io.BytesIO()
    with drawing(png, size, columns=len(names), file_format="png") as (line,):
        for axes, name in zip(line, names, strict=True):
            training, held_out = (
                curve_points({"": rows}, key) for key in (name, f"eval_{name}")
            )
            panel = learning_panel("", training, held_out, levels.get(name, {}))
            _draw_panel(axes, panel._replace(title=in_words(name)))
        line[0].figure.suptitle(heading, fontsize=11)
    with written_beside(path) as beside:
        beside.write_bytes(png.getvalue())


def _draw_panel(axes: "Axes", panel: Panel, has_legend: bool = True) -> None:
    from matplotlib.ticker import StrMethodFormatter

    for curve in panel.curves:
        color = _CYCLE[curve.color % len(_CYCLE)]
        marker = _MARKERS[curve.color % len(_MARKERS)]
        look = dict(_LOOKS[curve.style])
        if curve.style in ("marked", "dashed", "points"):
            look |= {"marker": marker, "markersize": 5}
        if curve.style == "line" and len(curve.across) < 3:
            # One or two points are too few to be seen as a line.
            look["marker"] = "."
        axes.plot(
            curve.across,
            curve.values,
            color=color,
            alpha=0.35 if curve.is_pale else None,
            label=curve.label or None,
            **look,
        )
        if any(curve.spreads):
            pairs = list(zip(curve.values, curve.spreads, strict=True))
            if curve.style == "points":
                axes.errorbar(
                    curve.across,
                    curve.values,
                    yerr=curve.spreads,
                    fmt="none",
                    ecolor=color,
                    capsize=2.5,
                )
            else:
                axes.fill_between(
                    curve.across,
                    [value - spread for value, spread in pairs],
                    [value + spread for value, spread in pairs],
                    color=color,
                    alpha=0.15,
                    linewidth=0,
                )
    if panel.best_step is not None:
        axes.axvline(
            panel.best_step, color=GREEN, linestyle=":", label="model kept"
        )
    _draw_levels(axes, panel.levels)
    if panel.has_whole_steps:
        _whole_ticks(axes, "x")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if panel.is_reversed:
        axes.invert_xaxis()
    axes.set_title(_label(panel.title))
    axes.set_xlabel(_label(panel.x_label, 44))
    axes.set_ylabel(_label(panel.y_label, 36))
    if has_legend and axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best")


def _whole_ticks(axes: "Axes", axis: Literal["x", "y"]) -> None:
    # matplotlib divides a whole number to have two ticks of a single point.
    axes.locator_params(axis=axis, integer=True, min_n_ticks=1)


def _draw_levels(axes: "Axes", levels: Mapping[str, float]) -> None:
    """Draws labelled horizontal lines; to be called after everything else."""
    ordered = sorted(levels.items(), key=lambda item: item[1])
    for _, value in ordered:
        axes.axhline(value, linestyle="--", color=_GREY, linewidth=1)
    low, high = axes.get_ylim()
    for index, (label, value) in enumerate(ordered):
        above = ordered[index + 1][1] if index + 1 < len(ordered) else None
        # Of two lines that are close, the lower one is labelled from below.
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
            color=_GREY,
        )


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


def bars(
    panels: Sequence[Bars | None], columns: int = 1, width: float = 4.8
) -> bytes:
    """Draws values of models or trainings side by side as SVG.

    Args:
      panels: the panels, which have the same labels; None for an empty one.
      columns: panels per row.
      width: of a panel in inches.
    """
    rows = math.ceil(len(panels) / columns)
    assert panels[0] is not None
    labels = [_label(text) for text in panels[0].labels]
    longest = max(len(line) for text in labels for line in text.split("\n"))
    height = 0.9 + sum(0.15 + 0.15 * len(text.split("\n")) for text in labels)
    size = (width * columns + 0.085 * longest, height * rows)
    with drawing(svg := io.BytesIO(), size, (1,) * rows, columns) as grid:
        for index, axes in enumerate(grid.flat):
            panel = panels[index]
            if panel is None:
                axes.set_visible(False)
                continue
            _draw_bars(axes, panel)
            axes.set_ylim(len(labels) - 0.4, -0.6)
            axes.set_yticks(
                range(len(labels)),
                [""] * len(labels) if index % columns else labels,
            )
        _legend_below(grid)
    return svg.getvalue()


def _draw_bars(axes: "Axes", panel: Bars) -> None:
    for index, value in enumerate(panel.values):
        if value is None:
            continue
        is_flagged = bool(panel.flagged) and panel.flagged[index]
        number = index if panel.color is None else panel.color
        color = ORANGE if is_flagged else _CYCLE[number % len(_CYCLE)]
        if panel.from_zero:
            axes.barh(index, value, 0.6, color=color)
        else:
            axes.errorbar(
                value,
                index,
                xerr=(panel.spreads[index] or None) if panel.spreads else None,
                fmt="X" if is_flagged else "o",
                color=color,
                markersize=6,
                capsize=2.5,
            )
        seeds = panel.seeds[index] if panel.seeds else ()
        if len(seeds) > 1:
            axes.plot(
                seeds,
                [index + 0.27] * len(seeds),
                "o",
                markersize=3.2,
                markerfacecolor="none",
                markeredgecolor=_GREY,
                markeredgewidth=0.8,
            )
        else:
            axes.annotate(
                f"{value:,.1f}",
                (value, index),
                xytext=(5, 0 if panel.from_zero else 6),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    for number, (label, value) in enumerate(panel.levels.items()):
        axes.axvline(
            value,
            color=_GREY,
            linestyle=("--", ":", "-.", "-")[number % 4],
            linewidth=1.1,
            label=label,
        )
    axes.margins(x=0.15)
    axes.locator_params(axis="x", nbins=5 if panel.x_label else 3)
    axes.grid(axis="y", visible=False)
    if not axes.has_data():
        axes.set_xticks([])
    if panel.is_reversed:
        axes.invert_xaxis()
    axes.set_title(_label(panel.title))
    axes.set_xlabel(panel.x_label)


def reliability(bins: Sequence[Mapping[str, Any]], event: str) -> bytes:
    """The reliability diagram over the histogram of the probabilities.

    Args:
      bins: from `statistics.reliability_bins`.
      event: what the probability is of, for the axis.
    """
    with drawing(svg := io.BytesIO(), (4.8, 4.4), (3, 1.1)) as grid:
        upper, lower = grid.flat
        width = 1 / len(bins)
        filled = [each for each in bins if each["count"]]
        shares = [each["share_true"] for each in filled]
        upper.bar(
            [each["low"] + width / 2 for each in filled],
            shares,
            width * 0.92,
            color=BLUE,
            alpha=0.8,
            label="observed share",
        )
        upper.plot(
            [each["mean_probability"] for each in filled],
            shares,
            "o",
            color=_PAPER,
            markeredgecolor=_INK,
            markersize=4,
        )
        upper.plot(
            [0, 1], [0, 1], "--", color=ORANGE, linewidth=1.3, label="perfect"
        )
        upper.set_ylim(0, 1.02)
        upper.set_ylabel("observed share")
        upper.legend(loc="upper left")
        lower.bar(
            [each["low"] + width / 2 for each in bins],
            [each["count"] for each in bins],
            width * 0.92,
            color=_GREY,
        )
        lower.set_ylabel("count")
        _whole_ticks(lower, "y")
        lower.set_xlabel(event)
        for axes in (upper, lower):
            axes.set_xlim(0, 1)
            axes.grid(axis="x", visible=False)
    return svg.getvalue()


def true_and_predicted(
    true: Sequence[float], predicted: Sequence[float]
) -> bytes:
    """A scatter plot of predicted over true values."""
    with drawing(svg := io.BytesIO(), (4.8, 4.2)) as ((axes,),):
        low, high = min(*true, *predicted), max(*true, *predicted)
        axes.plot([low, high], [low, high], "--", color=ORANGE, label="perfect")
        # Thousands of marks as one image keep the file small; its color is the
        # same in light and dark mode.
        axes.scatter(
            true,
            predicted,
            s=12,
            alpha=0.45,
            color="#2f8ccb",
            linewidths=0,
            rasterized=len(true) > 500,
        )
        axes.set_xlabel("true value")
        axes.set_ylabel("predicted value")
        axes.legend(loc="upper left")
    return svg.getvalue()


def histogram(
    edges: Sequence[float],
    counts: Mapping[str, Sequence[int]],
    x_label: str,
    y_label: str,
    lines: Mapping[str, float | None],
) -> bytes:
    """Draws one or two histograms over the same bins.

    Args:
      edges: of the N bins, N + 1 numbers.
      counts: label to N counts.
      x_label: label of the x axis.
      y_label: label of the y axis.
      lines: labelled vertical lines; those at None are left out.
    """
    looks: list[dict[str, Any]] = [
        {"fill": True, "color": BLUE, "alpha": 0.7},
        # Hatched, because not everybody can tell the colors apart.
        {"color": ORANGE, "linewidth": 1.5, "hatch": "///"},
    ]
    with drawing(svg := io.BytesIO(), (4.8, 3.8)) as ((axes,),):
        for look, (label, values) in zip(looks, counts.items(), strict=False):
            axes.stairs(values, edges, label=label, **look)
        for (label, at), style in zip(lines.items(), ("--", "-"), strict=False):
            if at is not None:
                color = ORANGE if len(counts) == 1 else _INK
                axes.axvline(
                    at, color=color, linestyle=style, linewidth=1.3, label=label
                )
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        _whole_ticks(axes, "y")
        axes.legend(loc="best")
    return svg.getvalue()


def seeds(
    names: Sequence[int],
    values: Sequence[float | None],
    degenerate: Sequence[bool],
    levels: Mapping[str, float],
    metric: str,
    scale: int = 100,
) -> bytes:
    """The score of each training times `scale`, and levels to compare with."""
    panel = Bars(
        [f"seed {name}" for name in names],
        [None if value is None else scale * value for value in values],
        f"{metric}, x 100" if scale == 100 else metric,
        levels={label: scale * value for label, value in levels.items()},
        flagged=degenerate,
    )
    return bars([panel])


def measured(
    models: Mapping[str, Mapping[str, Any]], metric: str, scale: int = 100
) -> bytes:
    """Score, speed and size of models side by side.

    Args:
      models: name to the fields of a `Measured`.
      metric: the score that is drawn.
      scale: what it is multiplied by.
    """
    labels = list(models)
    each = list(models.values())
    scored = [model["scores"].get(metric) for model in each]
    shown, name = [], in_words(metric)
    if any(score is not None for score in scored):
        shown.append(
            Bars(
                labels,
                [None if x is None else scale * x for x in scored],
                f"{name}, x 100" if scale == 100 else name,
                spreads=[scale * m["spread"].get(metric, 0.0) for m in each],
                color=None,
            )
        )
    speeds = [model["rows_per_second"] for model in each]
    sizes = [model["parameters"] / 1e6 for model in each]
    shown += [
        Bars(labels, speeds, "rows per second", from_zero=True, color=None),
        Bars(labels, sizes, "million parameters", from_zero=True, color=None),
    ]
    return bars(shown)
