"""Models side by side: what each is worth, how fast and how large it is."""

import dataclasses
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.families.rows import Rows
from bert_tf.finetuning.batches import prediction_batches

# Batches by which speed is measured, evenly over the rows by length.
_TIMED_BATCHES = 10
_TIMED_ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a model is worth and costs.

    Attributes:
      scores: by name, on the dev split.
      rows_per_second: the model's own speed on dev rows.
      parameters: how many it has.
      bytes: of its weights on disk.
      spread: standard deviations of the scores, which are means then, over
        several seeds; empty of one.
    """

    scores: Mapping[str, float]
    rows_per_second: float
    parameters: int
    bytes: int
    spread: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def shown(self, name: str) -> str:
        """A score times 100, or a perplexity, with its spread."""
        scale = 1 if name.endswith("perplexity") else 100
        text = f"{scale * self.scores[name]:,.2f}"
        if name in self.spread:
            text += f" ± {scale * self.spread[name]:.2f}"
        return text


def table(title: str, models: Mapping[str, Measured]) -> str:
    """Scores, speed and size of models side by side, in lines.

    Args:
      title: stands above the names of the rows.
      models: by the names of their columns.
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
    """Speeds of models on the same batches of rows; see `seconds_of`."""
    batches, numbers = prediction_batches(rows, batch_size)
    stride = max(1, len(numbers) // _TIMED_BATCHES)
    chosen = batches.shard(stride, stride // 2)
    count = sum(map(len, numbers[stride // 2 :: stride]))
    return [count / seconds for seconds in seconds_of(models, chosen)]


def seconds_of(
    models: Sequence[keras.Model], batches: tf.data.Dataset
) -> list[float]:
    """How long models take for the same batches, each batch by all in turn.

    Returns:
      The median of some rounds for each model.
    """

    def answers(model: keras.Model) -> Any:
        return tf.function(
            lambda batch: model(batch, training=False),
            input_signature=[batches.element_spec],
            autograph=False,
        )

    chosen = list(batches)
    seconds = np.zeros((_TIMED_ROUNDS + 1, len(models)))
    compiled = [answers(model) for model in models]
    for of_round in seconds:
        for batch in chosen:
            for number, answer in enumerate(compiled):
                started = time.perf_counter()
                for output in answer(batch).values():
                    output.numpy()
                of_round[number] += time.perf_counter() - started
    # The first round has the graphs' start-up in it.
    return list(np.median(seconds[1:], axis=0))


def bytes_of(folder: str | pathlib.Path) -> int:
    """The size of the weights in a model folder of ours, or of an adapter."""
    files = pathlib.Path(folder).glob("*_model.safetensors")
    return sum(path.stat().st_size for path in files)
