"""Tasks on a sentence or a pair: a number."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.finetuning.data.examples import Example, Label
from bert_tf.finetuning.data.tables import Cell
from bert_tf.finetuning.kinds import metrics
from bert_tf.finetuning.kinds.labels import known_label
from bert_tf.finetuning.kinds.text_data import Predictions
from bert_tf.finetuning.kinds.text_task import Score, TextTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionTask(TextTask):
    """A task whose answer is a number.

    Attributes:
      scores: of numbers, float [N].
      value_range: the least and the largest number that may be answered, to
        which what is outside is cut before it is scored and written; or None.
    """

    scores: Mapping[str, Score] = dataclasses.field(
        default_factory=lambda: {
            "pearson": metrics.pearson,
            "spearman": metrics.spearman,
        }
    )
    main_metric: str = "spearman"
    value_range: tuple[float, float] | None = None

    label_kind: ClassVar[str] = "regression"

    def parse_label(self, cell: Cell, place: str) -> Label:
        """Turns a cell into a number; raises `UserError` if it is none."""
        try:
            number = float(cell if isinstance(cell, str) else "")
        except ValueError:
            raise UserError(
                f"{place}: the label {excerpt(cell)} is not a number; mend "
                "it, or pass `label_kind`=classes."
            ) from None
        # Training is in float32.
        if not abs(number) <= float(np.finfo(np.float32).max):
            raise UserError(
                f"{place}: the label is {cell}; every row needs a finite "
                "number, so fill it in, scale it or remove the row."
            )
        return number

    def labels_of(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """No classes; raises `UserError` if all numbers are the same."""
        numbers = {known_label(example) for example in examples}
        if len(numbers) < 2:
            raise UserError(
                f"{examples[0].path}: every row has the label "
                f"{next(iter(numbers))}; there is nothing to learn from it."
            )
        return ()

    def num_outputs(self, labels: Sequence[str]) -> int:
        """One logit, which is the number."""
        return 1

    def targets(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """The numbers, float32 [N]; see `TextAnswers.targets`."""
        return np.array([known_label(e) for e in examples], np.float32)

    def weighted_objective(self, class_weights: Sequence[float] | None) -> Any:
        """Squared error; raises `UserError` if classes are weighted."""
        from bert_tf.finetuning.kinds.objectives import RegressionObjective

        if class_weights is not None:
            raise UserError(
                f"class_weights: {self.name} predicts a number and has no "
                "classes; leave it empty."
            )
        return RegressionObjective()

    def decode(
        self, logits: np.ndarray, labels: Sequence[str], threshold: float
    ) -> Predictions:
        """The logits [N, 1], cut to `value_range`; see `TextAnswers.decode`."""
        values = logits[:, 0]
        if self.value_range:
            values = values.clip(*self.value_range)
        return Predictions(
            logits=logits, values=tuple(values.tolist()), probabilities=None
        )

    def score(
        self,
        references: Sequence[Label],
        values: Sequence[Label],
        labels: Sequence[str],
    ) -> dict[str, float]:
        """The official scores; see `TextAnswers.score`."""
        wanted = np.array(references, np.float64)
        found = np.array(values, np.float64)
        return {
            name: float(score(wanted, found))
            for name, score in self.scores.items()
        }

    def majority_score(
        self, train_labels: Sequence[Label], references: Sequence[Label]
    ) -> dict[str, float]:
        """What always giving the training rows' mean scores."""
        mean = math.fsum(train_labels) / len(train_labels)
        return self.score(references, [mean] * len(references), ())

    def all_labels(self, values: Sequence[Label]) -> tuple[str, ...]:
        """No classes."""
        return ()

    def format_value(self, value: Label) -> str:
        """The number with six decimals."""
        return f"{value:.6f}"
