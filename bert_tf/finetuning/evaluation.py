"""Predictions of models on a split, and their scores."""

import dataclasses
import pathlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.families.rows import ExampleRows, Outputs, Rows
from bert_tf.families.task import Answered, RunSplit, Split, Task, score_scale
from bert_tf.finetuning.batches import prediction_batches
from bert_tf.progress import Progress
from bert_tf.side_by_side import side_by_side
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.training.history import write_numbers
from bert_tf.training.strategies import (
    cluster_of,
    collect,
    distribute,
    needs_static_shapes,
    share_rows,
)

DEV_PREDICTIONS = "dev_predictions.jsonl"


class Predictor:
    """Computes the mean outputs of one or more models on encoded rows.

    Args:
      models: map a batch to a dict of outputs; built under `strategy`.
      strategy: the distribution strategy.
      batch_size: over all devices; see `batches_by_length`.
    """

    def __init__(
        self,
        models: Sequence[keras.Model],
        strategy: tf.distribute.Strategy,
        batch_size: int,
    ):
        self.models = tuple(models)
        self.strategy = strategy
        self.batch_size = batch_size
        self._compiled: Any = None
        self._prepared: tuple[Rows, Any, list[np.ndarray]] | None = None

    def outputs(self, rows: ExampleRows) -> Outputs:
        """Returns the outputs of all rows."""
        return rows.gather(self._batches(rows))

    def _batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, Outputs]]:
        """Yields the row indices and outputs of each batch."""
        cluster = cluster_of(self.strategy)
        static_shapes = needs_static_shapes(self.strategy)
        # Training scores the same rows again and again.
        if self._prepared is None or self._prepared[0] is not rows:
            batches, chosen = prediction_batches(
                rows,
                self.batch_size,
                self.strategy.num_replicas_in_sync,
                cluster.shard,
                static_shapes,
            )
            batches = distribute(self.strategy, batches)
            self._prepared = rows, batches, chosen
        _, batches, chosen = self._prepared
        if self._compiled is None:
            # One graph for all lengths, so that all round alike.
            signature = None if static_shapes else [batches.element_spec]
            self._compiled = tf.function(
                self._run, input_signature=signature, autograph=False
            )

        def outputs_of(batch: Any) -> Outputs:
            return {
                name: collect(self.strategy, values)
                for name, values in self._compiled(batch).items()
            }

        with Progress(
            *("answering", len(rows), 0, " rows"),
            shown=cluster.is_chief,
            passing=True,
        ) as progress:
            is_single = self.strategy.num_replicas_in_sync == 1
            compute = side_by_side if is_single else map
            results = compute(outputs_of, batches)
            for indices, outputs in zip(chosen, results, strict=True):
                yield indices, outputs
                progress.update(len(indices))

    def _run(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def mean(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            outputs = [model(batch, training=False) for model in self.models]
            means = {}
            for name in outputs[0]:
                values = [tf.cast(one[name], tf.float32) for one in outputs]
                total = tf.add_n(values) / len(values)
                means[name] = share_rows(self.strategy, total)
            return means

        return self.strategy.run(mean, (batch,))


@dataclasses.dataclass(frozen=True)
class Scored:
    """A model's predictions on a split and their scores.

    Attributes:
      answered: the predictions and their examples.
      scores: the task's official scores by name.
      loss: mean loss of an example; None where it is not defined.
      examples_per_second: speed of the prediction.
    """

    answered: Answered
    scores: dict[str, float]
    loss: float | None
    examples_per_second: float


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished training, as its report shows it.

    Attributes:
      results: the contents of results.json.
      histories: the rows of history.jsonl by seed; by "" of one training.
      predictions: the lines of dev_predictions.jsonl.
    """

    results: dict[str, Any]
    histories: Mapping[str, Sequence[Mapping[str, Any]]]
    predictions: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Scores a model on splits of a task.

    Attributes:
      task: the resolved task.
      config: the model's task configuration.
      tokenizer: the model's tokenizer.
      predictor: runs the model.
    """

    task: Task
    config: Any
    tokenizer: Tokenizer
    predictor: Predictor

    def encode(self, examples: Any, run: RunSplit) -> Split:
        """Encodes the examples of a split without their labels."""
        rows: Any = self.task.encode(
            examples, self.tokenizer, self.config, labelled=False, run=run
        )
        return Split(examples, rows)

    def predict(self, split: Split) -> Answered:
        """Returns the model's predictions on a split."""
        outputs = self.predictor.outputs(split.rows)
        decoded = self.task.decode(outputs, split, self.config)
        return Answered(split.examples, decoded, self.config)

    def score(self, split: Split) -> Scored:
        """Predicts a labelled split, and scores the predictions."""
        started = time.monotonic()
        answered = self.predict(split)
        seconds = time.monotonic() - started
        scores, loss = self.task.score(answered), self.task.mean_loss(answered)
        speed = len(split.examples) / seconds
        return Scored(answered, scores, loss, speed)

    def with_config(self, config: Any) -> "Scorer":
        """Returns a scorer of the same model by another config."""
        return dataclasses.replace(self, config=config)

    def rescored(self, scored: Scored) -> Scored:
        """Scores existing predictions under this scorer's config."""
        answered = self.task.with_config(scored.answered, self.config)
        scores = self.task.score(answered)
        return dataclasses.replace(scored, answered=answered, scores=scores)


def write_scores(folder: pathlib.Path, split: str, scored: Scored) -> None:
    """Writes eval_SPLIT.json, with null for numbers that are not finite."""
    values = {
        "split": split,
        "examples": len(scored.answered.examples),
        "loss": scored.loss,
        "scores": scored.scores,
    }
    write_numbers(folder / f"eval_{split}.json", values)


def summarize(scores: Mapping[str, float], costs: Collection[str]) -> str:
    """Returns a line of the scores, times 100 by their `score_scale`."""
    scaled = {k: v * score_scale([v], k in costs) for k, v in scores.items()}
    return ", ".join(f"{k} {v:.2f}" for k, v in scaled.items())
