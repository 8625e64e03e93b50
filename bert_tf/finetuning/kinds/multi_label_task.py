"""Tasks on a sentence or a pair: several labels at once."""

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
from bert_tf.finetuning.kinds.text_data import Predictions, SentenceFacts
from bert_tf.finetuning.kinds.text_task import Score, TextTask
from bert_tf.finetuning.recipe import MultiLabelRecipe, SentenceRecipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiLabelTask(TextTask):
    """A task whose answer is any number of labels, none among them.

    Attributes:
      scores: of which labels hold, bool [N, C].
    """

    scores: Mapping[str, Score] = dataclasses.field(
        default_factory=lambda: {
            "micro_f1": metrics.label_micro_f1,
            "macro_f1": metrics.label_macro_f1,
            "subset_accuracy": metrics.subset_accuracy,
        }
    )
    main_metric: str = "micro_f1"

    label_kind: ClassVar[str] = "multi_label"
    recipe_type: ClassVar[type[SentenceRecipe]] = MultiLabelRecipe

    def parse_label(self, cell: Cell, place: str) -> Label:
        """Splits a cell into its labels; see `TextAnswers.parse_label`."""
        parts = (
            cell.split(self.separator) if isinstance(cell, str) else cell or ()
        )
        names = dict.fromkeys(part.strip() for part in parts if part.strip())
        for name in names:
            check_label_text(name, place)
            if name.lower() == "nan":
                raise UserError(
                    f"{place}: the label is {name}; name the labels that hold, "
                    "or leave the cell empty where none does."
                )
            if self.labels and name not in self.labels:
                raise unknown_label(name, self.labels, place)
            if self.separator in name:
                raise UserError(
                    f"{place}: the label {excerpt(name)} holds the separator "
                    f"{self.separator!r}; pass another `label_separator`."
                )
        return tuple(sorted(names))

    def facts_of(
        self, recipe: SentenceRecipe, examples: Sequence[Example]
    ) -> SentenceFacts:
        """See `Task.facts_of`."""
        assert isinstance(recipe, MultiLabelRecipe)
        facts = super().facts_of(recipe, examples)
        return dataclasses.replace(facts, threshold=recipe.threshold)

    def num_outputs(self, labels: Sequence[str]) -> int:
        """One logit a label."""
        return len(labels)

    def labels_of(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """All labels that occur; see `TextAnswers.labels_of`."""
        labels = self.all_labels([known_label(e) for e in examples])
        if not labels:
            raise UserError(
                f"{examples[0].path}: no row has a label; name their column "
                "with `label_column`=..."
            )
        if len({known_label(e) for e in examples}) < 2:
            raise UserError(
                f"{examples[0].path}: every row has the same labels, "
                f"{self.format_value(labels)!r}; there is nothing to learn "
                "from them."
            )
        if len(labels) > max(FEW_CLASSES, len(examples) // 2):
            raise UserError(
                f"{examples[0].path}: {len(labels)} different labels in "
                f"{len(examples)} rows, for example {excerpt(labels[0])}; is "
                f"{self.separator!r} what stands between them? Pass "
                "`label_separator`=... or another `label_column`."
            )
        return labels

    def all_labels(self, values: Sequence[Label]) -> tuple[str, ...]:
        """The task's own labels, or those that occur in `values`, sorted."""
        return self.labels or sorted_labels(
            label for names in values for label in names
        )

    def targets(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """Zeros and ones, float32 [N, C]; see `TextAnswers.targets`."""
        numbers = {label: number for number, label in enumerate(labels)}
        found = np.zeros((len(examples), len(labels)), np.float32)
        for index, example in enumerate(examples):
            for label in known_label(example):
                if label not in numbers:
                    raise unknown_label(label, labels, place_of(example))
                found[index, numbers[label]] = 1
        return found

    def weighted_objective(self, class_weights: Sequence[float] | None) -> Any:
        """Binary cross-entropy; raises `UserError` if classes are weighted."""
        from bert_tf.finetuning.kinds.objectives import MultiLabelObjective

        if class_weights is not None:
            raise UserError(
                f"class_weights: {self.name} has several labels a row; leave "
                "it empty."
            )
        return MultiLabelObjective()

    def decode(
        self, logits: np.ndarray, labels: Sequence[str], threshold: float
    ) -> Predictions:
        """Every label whose probability is above the threshold.

        Args:
          logits: float32 [N, C].
          labels: the C labels.
          threshold: from 0 to 1.
        """
        # The sigmoid, in the form that no logit overflows.
        probabilities = 0.5 * (1 + np.tanh(0.5 * logits))
        # Sorted as `parse_label` sorts, so that answers can be compared.
        values = tuple(
            tuple(sorted(labels[at] for at in np.flatnonzero(row).tolist()))
            for row in probabilities > threshold
        )
        return Predictions(logits, values, probabilities)

    def score(
        self,
        references: Sequence[Label],
        values: Sequence[Label],
        labels: Sequence[str],
    ) -> dict[str, float]:
        """The scores, over the labels that occur; see `TextAnswers.score`."""
        there = {label for names in (*references, *values) for label in names}
        labels = [label for label in labels if label in there]

        def table(rows: Sequence[Label]) -> np.ndarray:
            return np.array([[name in row for name in labels] for row in rows])

        wanted, found = table(references), table(values)
        return {
            name: float(score(wanted, found))
            for name, score in self.scores.items()
        }

    def format_value(self, value: Label) -> str:
        """The labels, with the separator between them."""
        return self.separator.join(value)
