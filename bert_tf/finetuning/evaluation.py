"""What models predict of the rows of a split, and what that is worth."""

import dataclasses
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.families.rows import ExampleRows, Outputs, Rows
from bert_tf.families.task import Answered, Split, Task
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
    """Runs models over encoded examples.

    Args:
      models: each takes a batch and returns a dict of outputs; built under
        `strategy`. The outputs of several are averaged.
      strategy: the distribution strategy.
      batch_size: the size of a batch, over all devices; see
        `batches_by_length`.
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

    def outputs(self, rows: ExampleRows) -> Outputs:
        """The outputs to all rows, as these gather them."""
        return rows.gather(self._batches(rows))

    def _batches(self, rows: Rows) -> Iterator[tuple[np.ndarray, Outputs]]:
        """Rows by number and the outputs to them, batch by batch."""
        cluster = cluster_of(self.strategy)
        static_shapes = needs_static_shapes(self.strategy)
        batches, chosen = prediction_batches(
            rows,
            self.batch_size,
            self.strategy.num_replicas_in_sync,
            cluster.shard,
            static_shapes,
        )
        batches = distribute(self.strategy, batches)
        if self._compiled is None:
            # One graph for all lengths, since others round differently.
            signature = None if static_shapes else [batches.element_spec]
            self._compiled = tf.function(
                self._run, input_signature=signature, autograph=False
            )
        with Progress(
            *("answering", len(rows), 0, " rows"),
            shown=cluster.is_chief,
            passing=True,
        ) as progress:
            alone = self.strategy.num_replicas_in_sync == 1
            compute = side_by_side if alone else map
            computed = compute(self._collected, batches)
            for answered, found in zip(chosen, computed, strict=True):
                yield answered, found
                progress.update(len(answered))

    def _collected(self, batch: Any) -> Outputs:
        """The outputs to a batch, of all workers."""
        return {
            name: collect(self.strategy, values)
            for name, values in self._compiled(batch).items()
        }

    def _run(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def mean(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            found = [model(batch, training=False) for model in self.models]
            means = {}
            for name in found[0]:
                outputs = [tf.cast(one[name], tf.float32) for one in found]
                total = tf.add_n(outputs) / len(found)
                means[name] = share_rows(self.strategy, total)
            return means

        return self.strategy.run(mean, (batch,))


@dataclasses.dataclass(frozen=True)
class Scored:
    """A model's predictions for a split and what they are worth.

    Attributes:
      answered: the predictions and what they answer.
      scores: the task's official scores by name.
      loss: the mean loss of an example; None where it has no meaning.
      examples_per_second: speed of the prediction.
    """

    answered: Answered
    scores: dict[str, float]
    loss: float | None
    examples_per_second: float

    @property
    def numbers(self) -> dict[str, float]:
        """The scores, and the loss before them where there is one."""
        loss = {} if self.loss is None else {"loss": self.loss}
        return loss | self.scores


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Scores a model on splits of a task.

    Attributes:
      task: the task of one run.
      config: of the model.
      tokenizer: of the model.
      predictor: runs the model.
    """

    task: Task
    config: Any
    tokenizer: Tokenizer
    predictor: Predictor

    def predict(self, split: Split) -> Answered:
        """The model's predictions for a split."""
        outputs = self.predictor.outputs(split.rows)
        found = self.task.decode(outputs, split, self.tokenizer, self.config)
        return Answered(split.examples, found, self.config)

    def score(self, split: Split) -> Scored:
        """The predictions for a split with labels, and their scores."""
        started = time.monotonic()
        answered = self.predict(split)
        seconds = time.monotonic() - started
        found = self.task.score(answered)
        speed = len(split.examples) / seconds
        return Scored(answered, found.values, found.loss, speed)

    def tuned(self, answered: Answered) -> "Scorer":
        """The same with a config that is chosen by predictions for dev."""
        assert self.task.tune is not None
        return dataclasses.replace(self, config=self.task.tune(answered))

    def rescored(self, scored: Scored) -> Scored:
        """What the same predictions are worth by another config."""
        answered = scored.answered._replace(config=self.config)
        values = self.task.score(answered).values
        return dataclasses.replace(scored, answered=answered, scores=values)


def write_scores(
    folder: pathlib.Path, split: str, scored: Scored, num_examples: int
) -> None:
    """Writes eval_SPLIT.json; what is no finite number is null there."""
    values = {
        "split": split,
        "examples": num_examples,
        "loss": scored.loss,
        "scores": scored.scores,
    }
    write_numbers(folder / f"eval_{split}.json", values)


def summarize(scores: dict[str, float]) -> str:
    """Scores in a line, times 100."""
    return ", ".join(f"{k} {100 * v:.2f}" for k, v in scores.items())
