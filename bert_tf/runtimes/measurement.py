"""What an int8 file is worth on the task's own dev split, and its speed."""

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
# Rows whose time is taken, one at a time, and how often.
_TIMED_ROWS, _TURNS = 16, 5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two files of a model on a dev split.

    Attributes:
      metric: the task's main one.
      split: the name of the split.
      scores: of the float32 file and of the int8 one.
      drop: by how much the second is worse; negative where it is better.
      milliseconds: median of a row alone, of each.
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
      task: what it was fine-tuned for.
      recipe: says where the data are.
      tokenizer: of the model.

    Raises:
      UserError: the folder is no such model, or the data are missing.
    """

    def __init__(
        self,
        folder: str,
        task: TaskTemplate,
        recipe: FinetuningRecipe,
        tokenizer: Tokenizer,
    ):
        self._task = task.resolve(recipe)
        self._tokenizer = tokenizer
        self.name = self._task.splits(self._task.dev_splits, recipe)[0]
        self._config = read_config(folder, self._task)
        examples = self._task.load(self.name, recipe)
        self._task.check(examples, self._config)
        rows: Any = self._task.encode(examples, tokenizer, self._config)
        self._split = Split(examples, rows)
        self._batch_size = recipe.eval_batch_size

    def score(self, run: Run) -> float:
        """The main metric of what a file predicts."""
        rows: ExampleRows = self._split.rows
        outputs = rows.gather(_batches(run, rows, self._batch_size))
        predictions = self._task.decode(
            outputs, self._split, self._tokenizer, self._config
        )
        scores = self._task.score(
            Answered(self._split.examples, predictions, self._config)
        )
        return scores.values[self._task.main_metric]

    def compare(self, float32: Run, int8: Run) -> Comparison:
        """Scores and times two files, these in turns."""
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
    """Raises `UserError` where the score falls by more than is allowed."""
    # NaN is no score that is good enough.
    if not comparison.drop <= max_score_drop:
        before, after = comparison.scores
        raise UserError(
            f"`max_score_drop`={max_score_drop:g}: {comparison.metric} on "
            f"{comparison.split} falls by {comparison.drop:.4f}, from "
            f"{before:.4f} in float32 to {after:.4f} in int8; nothing is "
            "written. Allow more, or leave it in float32."
        )


def _inputs(rows: ExampleRows, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Rows as a file takes them, [B, S]; each choice is one of its own."""
    batch = rows.batch(chosen)
    found = {f.name: batch[f.name].numpy() for f in ENCODER_INPUTS}
    return {
        name: values.reshape(-1, values.shape[-1])
        for name, values in found.items()
    }


def _batches(
    run: Run, rows: ExampleRows, batch_size: int
) -> Iterator[tuple[np.ndarray, Outputs]]:
    """Rows by number and a file's outputs to them, the shortest first."""
    order = np.argsort(rows.lengths, kind="stable")
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        inputs = _inputs(rows, chosen)
        outputs = run(inputs)
        if len(inputs["input_ids"]) != len(chosen):
            # Choices side by side again.
            logits = outputs["logits"].reshape(len(chosen), -1)
            outputs = {"logits": logits}
        yield chosen, outputs
