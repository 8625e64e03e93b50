"""Scores, speed and size of models, as a table."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.families.rows import Rows
from bert_tf.families.task import score_scale
from bert_tf.files import written_beside
from bert_tf.finetuning.batches import prediction_batches
from bert_tf.report import figures
from bert_tf.report.formats import html, words
from bert_tf.report.render import write_page
from bert_tf.report.sections import Figure, Lines, Page, ReportTable, Section

# Batches to measure the speed with, spread evenly over the lengths.
_TIMED_BATCHES = 10
_TIMED_ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Measured:
    """Scores, speed and size of a model.

    Attributes:
      scores: by name, on the dev split; means over several seeds.
      rows_per_second: speed of the model's forward pass on dev rows.
      parameters: number of parameters.
      bytes: size of the weights on disk.
      spread: standard deviations of the scores over several seeds; empty for
        one seed.
      costs: the scores that are better if they are lower.
    """

    scores: Mapping[str, float]
    rows_per_second: float
    parameters: int
    bytes: int
    spread: Mapping[str, float] = dataclasses.field(default_factory=dict)
    costs: Sequence[str] = ()

    def shown(self, name: str) -> str:
        """Formats a score by its `scale`, with its spread."""
        scale = self.scale(name)
        text = f"{scale * self.scores[name]:,.2f}"
        if name in self.spread:
            text += f" ± {scale * self.spread[name]:.2f}"
        return text

    def scaled(self, numbers: Mapping[str, float], name: str) -> float | None:
        """A score or its spread times its `scale`; None if it is missing."""
        return self.scale(name) * numbers[name] if name in numbers else None

    def scale(self, name: str) -> int:
        """What a score is shown times; see `score_scale`."""
        is_cost = name in self.costs or name.endswith("perplexity")
        return score_scale([self.scores.get(name)], is_cost)


def write_measured_page(
    path: pathlib.Path,
    title: str,
    caption: str,
    models: Mapping[str, Measured],
    metric: str,
    links: Sequence[str] = (),
) -> None:
    """Writes a page with models side by side, and its picture next to it.

    Args:
      path: the page; the picture has the same name and ends in .svg.
      title: the title of the page.
      caption: describes the models.
      models: by name.
      metric: the score that is drawn.
      links: relative addresses of further reports.
    """
    names = [*next(iter(models.values())).scores]
    spread = [n for n in names if any(n in m.spread for m in models.values())]
    rows: list[dict[str, Any]] = [
        {
            "model": label,
            **{name: model.scaled(model.scores, name) for name in names},
            **{f"SD of {n}": model.scaled(model.spread, n) for n in spread},
            "rows_per_second": model.rows_per_second,
            "parameters": model.parameters,
            "MB": model.bytes / 1e6,
        }
        for label, model in models.items()
    ]
    drawn = {
        metric: "named",
        **dict.fromkeys(("rows_per_second", "parameters"), "from_zero"),
    }
    chart = figures.Curves(
        [
            figures.Panel(
                figures.named_curves(
                    [row[key] for row in rows],
                    [row.get(f"SD of {key}") for row in rows],
                    style=style,
                ),
                words(key),
                names=[*models],
            )
            for key, style in drawn.items()
            if key in rows[0]
        ]
    )
    with written_beside(path.with_suffix(".svg")) as beside:
        beside.write_bytes(chart.drawn())
    note = (
        "Scores are x 100, perplexities as they are. SD: standard deviation "
        "over the seeds. The speed is that of the model alone, without "
        "tokenization, measured on the same batches in turn. In the figure, "
        "the axis of the score does not begin at zero."
    )
    table = ReportTable(caption, rows, note=note, is_wide=True)
    reports = [html('<a href="{0}">{0}</a>', each) for each in links]
    sections = [
        Section(
            "models",
            "Models side by side",
            [table, Figure(chart, "Score, speed and size.")],
        ),
        Section("trainings", "Reports of the trainings", [Lines(reports)]),
    ]
    write_page(path, Page(title, {}, sections))


def table(title: str, models: Mapping[str, Measured]) -> str:
    """Formats a table of scores, speed and size, one column per model.

    Args:
      title: header of the first column.
      models: column header to model.
    """
    each = list(models.values())
    rows = [
        (title, *models),
        *(
            (name, *(model.shown(name) for model in each))
            for name in each[0].scores
        ),
        ("rows/s", *(f"{model.rows_per_second:,.1f}" for model in each)),
        ("parameters", *(f"{model.parameters:,}" for model in each)),
        ("MB on disk", *(f"{model.bytes / 1e6:,.1f}" for model in each)),
    ]
    first, *others = [
        max(map(len, column)) for column in zip(*rows, strict=True)
    ]
    return "\n".join(
        "  ".join([name.ljust(first), *map(str.rjust, values, others)]).rstrip()
        for name, *values in rows
    )


def rows_per_second(
    models: Sequence[keras.Model], rows: Rows, batch_size: int
) -> list[float]:
    """Returns the speeds of models on the same batches; see `seconds_of`."""
    batches, numbers = prediction_batches(rows, batch_size)
    stride = max(1, len(numbers) // _TIMED_BATCHES)
    chosen = batches.shard(stride, stride // 2)
    count = sum(map(len, numbers[stride // 2 :: stride]))
    return [count / seconds for seconds in seconds_of(models, chosen)]


def seconds_of(
    models: Sequence[keras.Model], batches: tf.data.Dataset
) -> list[float]:
    """Returns the median time of each model for the same batches.

    All models compute a batch before the next batch begins.
    """
    compiled = [
        tf.function(
            functools.partial(model, training=False),
            input_signature=[batches.element_spec],
            autograph=False,
        )
        for model in models
    ]
    chosen = list(batches)
    seconds = np.zeros((_TIMED_ROUNDS + 1, len(models)))
    for round_seconds in seconds:
        for batch in chosen:
            for number, function in enumerate(compiled):
                started = time.perf_counter()
                for output in function(batch).values():
                    output.numpy()
                round_seconds[number] += time.perf_counter() - started
    # The first round includes the start-up of the graphs.
    return list(np.median(seconds[1:], axis=0))


def bytes_of(folder: str | pathlib.Path) -> int:
    """Returns the size of the weights in a folder of a model or adapter."""
    files = pathlib.Path(folder).glob("*model.safetensors")
    return sum(path.stat().st_size for path in files)
