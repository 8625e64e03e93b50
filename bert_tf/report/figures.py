"""The pictures of a report as SVG, without any text of the user's."""

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.libraries import import_matplotlib, require_extra
from bert_tf.training.history import Curve, draw_curve, draw_levels

# Okabe and Ito 2008, "Color universal design": for the colour-blind too.
BLUE, ORANGE, GREY, GREEN = "#0072B2", "#D55E00", "#5F6B76", "#007A5A"
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9AA5B1",
    "axes.labelcolor": "#323F4B",
    "xtick.color": "#323F4B",
    "ytick.color": "#323F4B",
    "axes.grid": True,
    "axes.prop_cycle": f"cycler(color={[BLUE, ORANGE]})",
    "grid.color": "#E4E7EB",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    # Element names drawn from this instead of a random number.
    "svg.hashsalt": "report",
}


@contextlib.contextmanager
def drawing(
    svg: io.BytesIO,
    rows: Sequence[float] = (1,),
    size: tuple[float, float] = (4.8, 4.2),
    columns: int = 1,
) -> Iterator[Any]:
    """Axes to draw on, row after row; the picture is written to `svg`.

    Args:
      svg: what is written to.
      rows: how high each is beside the others.
      size: width and height in inches.
      columns: how many axes a row has.
    """
    require_extra("report", "a figure")
    # Slow to import, and needed only once something is drawn.
    import_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure.subplots(
            len(rows), columns, squeeze=False, height_ratios=list(rows)
        ).ravel()
        # A date would make the bytes differ from one time to the next.
        figure.savefig(svg, format="svg", metadata={"Date": None})


def learning_curve(
    training: Sequence[Mapping[str, Any]],
    held_out: Sequence[Mapping[str, Any]],
    name: str,
    levels: Mapping[str, float],
    best_seed: str,
    best_step: float | None,
    scale: float = 1,
) -> bytes:
    """Training and held-out numbers over the steps, one line a seed.

    Args:
      training: series with "seed", "steps" and "values".
      held_out: series of the same form.
      name: of the number, for the axis.
      levels: labelled horizontal lines.
      best_seed: the other seeds' lines are drawn paler than this one's.
      best_step: where the model was kept, for a vertical line, or None.
      scale: the values are drawn times this.
    """

    def curves(series: Sequence[Mapping[str, Any]]) -> list[Curve]:
        return [
            Curve(
                each["steps"],
                [value * scale for value in each["values"]],
                each["seed"] != best_seed,
            )
            for each in series
        ]

    with drawing(svg := io.BytesIO(), size=(4.8, 3.3)) as (axes,):
        draw_curve(axes, curves(training), curves(held_out))
        if best_step is not None:
            axes.axvline(
                best_step, color=GREEN, linestyle=":", label="model kept"
            )
        draw_levels(axes, {k: v * scale for k, v in levels.items()})
        axes.set_xlabel("training step")
        axes.set_ylabel(name, parse_math=False)
        axes.legend(loc="best")
    return svg.getvalue()


def seed_dots(
    values: Sequence[float],
    degenerate: Sequence[bool],
    mean: float,
    levels: Mapping[str, float],
    name: str,
) -> bytes:
    """One dot a training, in percent, beside their mean and other levels."""
    with drawing(svg := io.BytesIO(), size=(4.8, 2.9)) as (axes,):
        places = range(1, len(values) + 1)
        for place, value, bad in zip(places, values, degenerate, strict=True):
            axes.plot(
                place,
                100 * value,
                "X" if bad else "o",
                color=ORANGE if bad else BLUE,
                markersize=8,
            )
        axes.axhline(100 * mean, color=BLUE, linewidth=1.1)
        axes.annotate(
            f"mean {100 * mean:.1f}",
            (0.01, 100 * mean),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            va="bottom",
            fontsize=8,
            color=BLUE,
        )
        axes.set_xticks(list(places))
        axes.set_xlim(0.4, len(values) + 0.6)
        axes.margins(y=0.12)
        draw_levels(axes, {k: 100 * v for k, v in levels.items()})
        axes.set_xlabel("training, in the order of the table")
        axes.set_ylabel(f"{name}, x 100", parse_math=False)
        axes.grid(axis="x", visible=False)
    return svg.getvalue()


def reliability(bins: Sequence[Mapping[str, Any]], event: str) -> bytes:
    """The reliability diagram over the histogram of the probabilities.

    Args:
      bins: from `statistics.reliability_bins`.
      event: what the probability is of, for the axis.
    """
    with drawing(svg := io.BytesIO(), (3, 1.1), (4.8, 4.4)) as (upper, lower):
        width = 1 / len(bins)
        filled = [each for each in bins if each["count"]]
        middles = [each["low"] + width / 2 for each in filled]
        upper.bar(
            middles,
            [each["share_true"] for each in filled],
            width * 0.92,
            color=BLUE,
            alpha=0.8,
            label="share that came true",
        )
        upper.plot(
            [each["mean_probability"] for each in filled],
            [each["share_true"] for each in filled],
            "o",
            color="white",
            markeredgecolor="#1F2933",
            markersize=4,
        )
        upper.plot(
            [0, 1], [0, 1], "--", color=ORANGE, linewidth=1.3, label="perfect"
        )
        upper.set_ylim(0, 1.02)
        upper.set_ylabel("share that came true")
        upper.legend(loc="upper left")
        lower.bar(
            [each["low"] + width / 2 for each in bins],
            [each["count"] for each in bins],
            width * 0.92,
            color=GREY,
        )
        lower.set_ylabel("count")
        lower.set_xlabel(event)
        for axes in (upper, lower):
            axes.set_xlim(0, 1)
            axes.grid(axis="x", visible=False)
    return svg.getvalue()


def true_and_predicted(
    true: Sequence[float], predicted: Sequence[float]
) -> bytes:
    """A point a row, true value across and predicted value up."""
    with drawing(svg := io.BytesIO()) as (axes,):
        low, high = min(*true, *predicted), max(*true, *predicted)
        axes.plot([low, high], [low, high], "--", color=ORANGE, label="perfect")
        # Thousands of marks as one picture keep the file small.
        axes.scatter(
            true,
            predicted,
            s=12,
            alpha=0.4,
            color=BLUE,
            linewidths=0,
            rasterized=len(true) > 500,
        )
        axes.set_xlabel("true value")
        axes.set_ylabel("predicted value")
        axes.legend(loc="upper left")
    return svg.getvalue()


def error_histogram(
    edges: Sequence[float], counts: Sequence[int], mean: float
) -> bytes:
    """How often the predictions are off by how much."""
    with drawing(svg := io.BytesIO()) as (axes,):
        axes.stairs(counts, edges, fill=True, color=BLUE, alpha=0.85)
        axes.axvline(0, color="#1F2933", linewidth=1)
        axes.axvline(
            mean,
            color=ORANGE,
            linestyle="--",
            linewidth=1.5,
            label=f"mean {mean:+.3g}",
        )
        axes.set_xlabel("predicted - true")
        axes.set_ylabel("rows")
        axes.legend(loc="upper left")
    return svg.getvalue()


def null_odds(
    edges: Sequence[float],
    has_answer: Sequence[int],
    no_answer: Sequence[int],
    threshold: float | None,
) -> bytes:
    """How often questions with and without an answer have which null odds."""
    with drawing(svg := io.BytesIO(), size=(4.8, 3.6)) as (axes,):
        axes.stairs(
            has_answer,
            edges,
            fill=True,
            color=BLUE,
            alpha=0.55,
            label="has an answer",
        )
        # Lines as well as a colour, which not everybody can see.
        axes.stairs(
            no_answer,
            edges,
            color=ORANGE,
            linewidth=1.5,
            hatch="///",
            label="has none",
        )
        if threshold is not None:
            axes.axvline(
                threshold,
                color="#1F2933",
                linestyle="--",
                linewidth=1.3,
                label="threshold",
            )
        axes.set_xlabel("null odds")
        axes.set_ylabel("questions")
        axes.legend(loc="best")
    return svg.getvalue()
