"""What a model scores on rows with labels, and what it answered there."""

import dataclasses
import json
import math
import pathlib
import time
from typing import Any

from bert_tf.files import write_text
from bert_tf.finetuning.prediction import Predictor
from bert_tf.finetuning.task import Split, Task
from bert_tf.text.tokenizer import BertTokenizer

DEV_PREDICTIONS = "dev_predictions.jsonl"


@dataclasses.dataclass(frozen=True)
class Scored:
    """A model's answers to a split and what they are worth.

    Attributes:
      answers: as the task has them.
      scores: the task's official scores by name.
      loss: the mean loss of an example; None where it has no meaning.
      examples_per_second: speed of the prediction.
    """

    answers: Any
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
      task: the task, prepared.
      config: of the model.
      tokenizer: of the model.
      predictor: runs the model.
    """

    task: Task
    config: Any
    tokenizer: BertTokenizer
    predictor: Predictor

    def answer(self, split: Split) -> Any:
        """The model's answers to a split."""
        outputs = self.predictor.outputs(split.rows)
        return self.task.decode(outputs, split, self.tokenizer, self.config)

    def score(self, split: Split) -> Scored:
        """The answers to a split with labels, and their scores."""
        started = time.monotonic()
        answers = self.answer(split)
        seconds = time.monotonic() - started
        found = self.task.score(split.examples, answers, self.config)
        speed = len(split.examples) / seconds
        return Scored(answers, found.values, found.loss, speed)

    def tuned(self, split: Split, answers: Any) -> "Scorer":
        """The same with a config that is chosen by answers to a split."""
        config = self.task.tune(split.examples, answers, self.config)
        return dataclasses.replace(self, config=config)

    def scored_again(self, split: Split, scored: Scored) -> Scored:
        """What answers to a split are worth by another config."""
        found = self.task.score(split.examples, scored.answers, self.config)
        return dataclasses.replace(scored, scores=found.values)


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


def finite(value: float | None) -> float | None:
    """The value, or None where JSON has no number for it."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)


def shown(scores: dict[str, float]) -> str:
    """Scores in a line, times 100."""
    return ", ".join(f"{k} {100 * v:.2f}" for k, v in scores.items())
