"""What a model scores on rows with labels, and what it answered there."""

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.files import write_text
from bert_tf.finetuning.batches import EXAMPLE_WEIGHTS
from bert_tf.finetuning.data.examples import Example, Predictions
from bert_tf.finetuning.kinds.sentence_task import SentenceTask
from bert_tf.finetuning.prediction import Predictor
from bert_tf.finetuning.setup import Split

DEV_PREDICTIONS = "dev_predictions.jsonl"


@dataclasses.dataclass(frozen=True)
class Scored:
    """A model's answers to a split and what they are worth.

    Attributes:
      predictions: the answers.
      scores: the task's official scores by name.
      loss: the mean loss of an example.
      examples_per_second: speed of the prediction.
    """

    predictions: Predictions
    scores: dict[str, float]
    loss: float
    examples_per_second: float


class Scorer:
    """Scores a model on splits of a task.

    Args:
      task: the task, prepared.
      labels: in the order of the outputs.
      objective: what the model was trained for.
      predictor: runs the model.
      threshold: above which one of several labels holds.
    """

    def __init__(
        self,
        task: SentenceTask,
        labels: Sequence[str],
        objective: Any,
        predictor: Predictor,
        threshold: float,
    ):
        self.task = task
        self.labels = tuple(labels)
        self.objective = objective
        self.predictor = predictor
        self.threshold = threshold

    def predict(self, split: Split) -> Predictions:
        """The model's answers to a split."""
        logits = self.predictor.logits(split.rows)
        return self.task.decode(logits, self.labels, self.threshold)

    def score(self, split: Split) -> Scored:
        """The answers to a split with labels, and their scores."""
        started = time.monotonic()
        predictions = self.predict(split)
        seconds = time.monotonic() - started
        references = [example.label for example in split.examples]
        targets = self.task.targets(split.examples, self.labels)
        return Scored(
            predictions,
            self.task.score(references, predictions.values, self.labels),
            self._loss(predictions.logits, targets),
            len(references) / seconds,
        )

    def _loss(self, logits: np.ndarray, targets: np.ndarray) -> float:
        batch = {
            self.objective.label_name: tf.constant(targets),
            EXAMPLE_WEIGHTS: tf.ones(len(targets)),
        }
        losses, _ = self.objective({"logits": tf.constant(logits)}, batch)
        means = self.objective.normalise(
            losses, self.objective.loss_weights(batch)
        )
        return float(sum(means.values()))


def write_answers(
    path: str | pathlib.Path,
    examples: Sequence[Example],
    predictions: Predictions,
) -> None:
    """Writes every row with its label and the answer, a JSON line each."""
    probabilities = predictions.probabilities
    lines = []
    for index, example in enumerate(examples):
        line = {
            "identifier": example.identifier,
            "row": example.row,
            "text_a": example.text_a,
            "text_b": example.text_b,
            "label": example.label,
            "prediction": predictions.values[index],
        }
        if probabilities is not None:
            line["probabilities"] = [float(p) for p in probabilities[index]]
        lines.append(json.dumps(line))
    write_text(path, "\n".join(lines) + "\n")


def write_scores(
    folder: pathlib.Path, split: str, scored: Scored, num_examples: int
) -> None:
    """Writes eval_SPLIT.json; what is no finite number is null there."""
    values = {
        "split": split,
        "examples": num_examples,
        "loss": finite(scored.loss),
        "scores": {name: finite(v) for name, v in scored.scores.items()},
    }
    text = json.dumps(values, indent=2)
    write_text(folder / f"eval_{split}.json", text + "\n")


def finite(value: float) -> float | None:
    """The value, or None where JSON has no number for it."""
    return float(value) if math.isfinite(value) else None


def shown(scores: dict[str, float]) -> str:
    """Scores in a line, times 100."""
    return ", ".join(f"{k} {100 * v:.2f}" for k, v in scores.items())
