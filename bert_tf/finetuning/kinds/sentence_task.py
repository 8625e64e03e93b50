"""Tasks on a sentence or a pair: one of several classes."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.finetuning.data.examples import Example, Label
from bert_tf.finetuning.data.tables import Cell
from bert_tf.finetuning.kinds import metrics
from bert_tf.finetuning.kinds.labels import (
    FEW_CLASSES,
    check_label_text,
    known_label,
    place_of,
    sorted_labels,
    unknown_label,
)
from bert_tf.finetuning.kinds.text_data import Predictions
from bert_tf.finetuning.kinds.text_task import Score, TextTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask(TextTask):
    """A task whose answer is one of several classes.

    Attributes:
      labels: its classes; see `TextTask`.
      scores: of class numbers, int [N].
    """

    scores: Mapping[str, Score] = dataclasses.field(
        default_factory=lambda: {
            "accuracy": metrics.accuracy,
            "macro_f1": metrics.macro_f1,
        }
    )
    main_metric: str = "accuracy"

    label_kind: ClassVar[str] = "classes"

    def parse_label(self, cell: Cell, place: str) -> Label:
        """Turns a cell into a label.

        Args:
          cell: the cell as the file has it.
          place: file and row, for the error.

        Raises:
          UserError: it is empty, NaN, a list or, where the classes are fixed,
            none of them.
        """
        if isinstance(cell, tuple):
            raise UserError(
                f"{place}: the label is a list, {excerpt(cell)}; pass "
                "`label_kind`=multi_label, or give one label a row."
            )
        if not cell or cell.strip().lower() in ("", "nan"):
            raise UserError(
                f"{place}: the label is {excerpt(cell)}; every row needs one, "
                "so fill it in or remove the row."
            )
        check_label_text(cell, place)
        if self.labels and cell not in self.labels:
            raise unknown_label(cell, self.labels, place)
        return cell

    def labels_of(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """The classes in the order of the model's outputs.

        Args:
          examples: the training examples.

        Returns:
          The task's own classes, or those that occur, sorted; by value where
          all are numbers.

        Raises:
          UserError: there is one class alone, or almost as many as rows.
        """
        if self.labels:
            return self.labels
        counts = collections.Counter(known_label(e) for e in examples)
        path = examples[0].path
        if len(counts) < 2:
            raise UserError(
                f"{path}: every row has the label {excerpt(next(iter(counts)))}"
                "; at least two different ones are needed to learn from."
            )
        if len(counts) > max(FEW_CLASSES, len(examples) // 2):
            raise UserError(
                f"{path}: {len(counts)} different labels in {len(examples)} "
                f"rows, for example {excerpt(next(iter(counts)))}; name the "
                "column of the classes with `label_column`=..., or pass "
                "`label_kind`=regression for numbers."
            )
        return sorted_labels(counts)

    def num_outputs(self, labels: Sequence[str]) -> int:
        """How many logits a model of this task gives."""
        return len(labels)

    def targets(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """What the model is to learn.

        Args:
          examples: N examples with labels.
          labels: the classes in the order of the model's outputs.

        Returns:
          int32 [N], the place of each label in `labels`.

        Raises:
          UserError: an example has no label or an unknown one.
        """
        numbers = {label: number for number, label in enumerate(labels)}
        found = np.empty(len(examples), np.int32)
        for index, example in enumerate(examples):
            label = known_label(example)
            if label not in numbers:
                raise unknown_label(label, labels, place_of(example))
            found[index] = numbers[label]
        return found

    def weighted_objective(self, class_weights: Sequence[float] | None) -> Any:
        """What the model is trained for; see `bert_tf.training.step`.

        Args:
          class_weights: the weight of each class in the loss, or None.
        """
        # Imported here, because scoring a file needs no Keras.
        from bert_tf.finetuning.kinds.objectives import ClassesObjective

        return ClassesObjective(class_weights)

    def decode(
        self, logits: np.ndarray, labels: Sequence[str], threshold: float
    ) -> Predictions:
        """Turns logits into answers.

        Args:
          logits: float32 [N, C].
          labels: the C classes.
          threshold: for several labels a row, unused here.
        """
        del threshold
        shifted = logits - logits.max(axis=-1, keepdims=True)
        odds = np.exp(shifted)
        return Predictions(
            logits=logits,
            values=tuple(labels[i] for i in logits.argmax(axis=-1)),
            probabilities=odds / odds.sum(axis=-1, keepdims=True),
        )

    def score(
        self,
        references: Sequence[Label],
        values: Sequence[Label],
        labels: Sequence[str],
    ) -> dict[str, float]:
        """The official scores.

        Args:
          references: the right answers.
          values: what was predicted, alike.
          labels: the classes, among which both are.

        Returns:
          Score by name, from -1 or 0 to 1.
        """
        numbers = {label: number for number, label in enumerate(labels)}
        wanted = np.array([numbers[label] for label in references])
        found = np.array([numbers[label] for label in values])
        return {
            name: float(score(wanted, found))
            for name, score in self.scores.items()
        }

    def all_labels(self, values: Sequence[Label]) -> tuple[str, ...]:
        """The task's own classes, or those that occur in `values`, sorted."""
        return self.labels or sorted_labels(values)

    def format_value(self, value: Label) -> str:
        """An answer as it stands in a prediction file."""
        return str(value)
