"""What an answer to a sentence or a pair is: classes, a number, labels."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.finetuning.data.examples import Example, Label
from bert_tf.finetuning.data.tables import Cell
from bert_tf.finetuning.kinds.labels import commonest
from bert_tf.finetuning.kinds.text_data import Predictions


class TextAnswers(abc.ABC):
    """How answers are read, trained for, given and scored.

    A kind of answer is a subclass of `TextTask`, which says all of this.
    """

    @abc.abstractmethod
    def parse_label(self, cell: Cell, place: str) -> Label:
        """Turns a cell into a label.

        Args:
          cell: the cell as the file has it.
          place: file and row, for the error.

        Raises:
          UserError: it is no label of this task.
        """

    @abc.abstractmethod
    def labels_of(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """The labels in the order of the model's outputs.

        Args:
          examples: the training examples.

        Raises:
          UserError: nothing can be learned from them.
        """

    @abc.abstractmethod
    def all_labels(self, values: Sequence[Label]) -> tuple[str, ...]:
        """The task's own labels, or those that occur in `values`, sorted."""

    @abc.abstractmethod
    def num_outputs(self, labels: Sequence[str]) -> int:
        """How many logits a model of this task gives."""

    @abc.abstractmethod
    def targets(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """What the model is to learn.

        Args:
          examples: N examples with labels.
          labels: the labels in the order of the model's outputs.

        Returns:
          [N, ...], an entry for each example.

        Raises:
          UserError: an example has no label or an unknown one.
        """

    @abc.abstractmethod
    def weighted_objective(self, class_weights: Sequence[float] | None) -> Any:
        """What the model is trained for; see `bert_tf.training.step`.

        Args:
          class_weights: the weight of each class in the loss, or None.
        """

    @abc.abstractmethod
    def decode(
        self, logits: np.ndarray, labels: Sequence[str], threshold: float
    ) -> Predictions:
        """Turns logits into answers.

        Args:
          logits: float32 [N, C].
          labels: the labels in the order of the outputs.
          threshold: above which one of several labels holds.
        """

    @abc.abstractmethod
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
          labels: the labels, among which both are.

        Returns:
          Score by name, from -1 or 0 to 1.
        """

    def majority_score(
        self, train_labels: Sequence[Label], references: Sequence[Label]
    ) -> dict[str, float]:
        """What always giving the training rows' commonest answer scores."""
        common = commonest(train_labels)
        labels = self.all_labels([*train_labels, *references])
        return self.score(references, [common] * len(references), labels)

    @abc.abstractmethod
    def format_value(self, value: Label) -> str:
        """An answer as it stands in a prediction file."""
