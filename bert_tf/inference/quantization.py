"""Score and speed of an int8 file on the task's dev split."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.families.model_folder import read_config
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.rows import ExampleRows, Outputs
from bert_tf.families.task import Answered, Split, TaskTemplate
from bert_tf.features import ENCODER_INPUTS
from bert_tf.text.tokenizer_protocol import Tokenizer

Run = Callable[[Mapping[str, np.ndarray]], Outputs]
# Number of rows that are timed one by one, and repetitions.
_TIMED_ROWS, _TURNS = 16, 5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A float32 and an int8 file of a model on a dev split.

    Attributes:
      metric: name of the task's main metric.
      split: name of the split.
      scores: scores in float32 and in int8.
      drop: how much worse int8 scores; negative where it scores better.
      milliseconds: median time of a single row, in float32 and in int8.
    """

    metric: str
    split: str
    scores: tuple[float, float]
    drop: float
    milliseconds: tuple[float, float]


class DevSplit:
    """The first dev split of a task, encoded for a fine-tuned model.

    Args:
      folder: the model.
      task: the task of the model.
      recipe: the recipe that names the data.
      tokenizer: the model's tokenizer.

    Raises:
      UserError: the folder is no model of the task, or the data are missing.
    """

    def __init__(
        self,
        folder: str,
        task: TaskTemplate,
        recipe: FinetuningRecipe,
        tokenizer: Tokenizer,
    ):
        self._task = task.resolve(recipe)
        self.name = self._task.splits(self._task.dev_splits, recipe)[0]
        self._config = read_config(folder, self._task)
        examples = self._task.load(self.name, recipe)
        self._task.check(examples, self._config)
        rows: Any = self._task.encode(examples, tokenizer, self._config)
        self._split = Split(examples, rows)
        self._batch_size = recipe.eval_batch_size

    def score(self, run: Run) -> float:
        """Returns the main metric of a file's predictions."""
        rows: ExampleRows = self._split.rows
        outputs = rows.gather(_batches(run, rows, self._batch_size))
        predictions = self._task.decode(outputs, self._split, self._config)
        scores = self._task.score(
            Answered(self._split.examples, predictions, self._config)
        )
        return scores[self._task.main_metric]

    def compare(self, float32: Run, int8: Run) -> Comparison:
        """Scores and times two files, the timings interleaved."""
        before, after = self.score(float32), self.score(int8)
        metric = self._task.main_metric
        worse = after - before
        drop = worse if metric in self._task.lower_is_better else -worse
        rows = self._split.rows
        chosen = np.arange(len(rows))[:: -(-len(rows) // _TIMED_ROWS)]
        inputs = [_inputs(rows, np.array([row])) for row in chosen]
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(_TURNS):
            for run, found in zip((float32, int8), times, strict=True):
                started = time.perf_counter()
                for one in inputs:
                    run(one)
                seconds = time.perf_counter() - started
                found.append(1e3 * seconds / len(inputs))
        medians = statistics.median(times[0]), statistics.median(times[1])
        return Comparison(metric, self.name, (before, after), drop, medians)


def check_drop(comparison: Comparison, max_score_drop: float) -> None:
    """Raises `UserError` if the score falls by more than allowed, or is NaN."""
    if not comparison.drop <= max_score_drop:
        before, after = comparison.scores
        raise UserError(
            f"`max_score_drop`={max_score_drop:g}: {comparison.metric} on "
            f"{comparison.split} falls by {comparison.drop:.4f}, from "
            f"{before:.4f} in float32 to {after:.4f} in int8; nothing is "
            "written. Allow more, or leave it in float32."
        )


def _inputs(rows: ExampleRows, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the inputs [B, S] of rows; each choice is a row."""
    batch = rows.batch(chosen)
    found = {f.name: batch[f.name].numpy() for f in ENCODER_INPUTS}
    return {
        name: values.reshape(-1, values.shape[-1])
        for name, values in found.items()
    }


def _batches(
    run: Run, rows: ExampleRows, batch_size: int
) -> Iterator[tuple[np.ndarray, Outputs]]:
    """Yields row indices and a file's outputs, the shortest rows first."""
    order = np.argsort(rows.lengths, kind="stable")
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        inputs = _inputs(rows, chosen)
        outputs = run(inputs)
        if len(inputs["input_ids"]) != len(chosen):
            # [B * C, 1] to [B, C].
            logits = outputs["logits"].reshape(len(chosen), -1)
            outputs = {"logits": logits}
        yield chosen, outputs
