"""Tasks on a sentence or a pair: one of several classes.

A task says where its rows come from (`data`), what an answer is, how the
model is trained for it and how it is scored. Another kind of answer is a
subclass, in regression_task.py and multi_label_task.py.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.data.examples import Example, Label, Predictions
from bert_tf.finetuning.data.table_formats import TSV, excerpt
from bert_tf.finetuning.data.tables import Dialect, read_table
from bert_tf.finetuning.kinds import metrics
from bert_tf.finetuning.kinds.sentence_recipe import SentenceRecipe

# Turns the label's cell of an example into its label.
Labelled = Callable[[Example], Example]
Score = Callable[[np.ndarray, np.ndarray], float]
PREDICTION_COLUMNS = ("index", "prediction")
# Above this many classes, a class must have at least two rows on average.
FEW_CLASSES = 20


class TaskData(Protocol):
    """Where a task's rows come from."""

    def present(
        self, splits: Sequence[str], recipe: SentenceRecipe
    ) -> tuple[str, ...]:
        """The splits that are there; says in a line which are not."""

    def read(
        self, split: str, recipe: SentenceRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a split, each with its cell made a label."""

    def read_file(
        self, path: str, recipe: SentenceRecipe, labelled: Labelled
    ) -> list[Example]:
        """The rows of a file that is laid out as the dev file is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask:
    """A task whose answer is one of several classes.

    Attributes:
      name: what the task is called.
      data: where its rows come from.
      labels: its classes in the order of the model's outputs; empty where
        they are found in the training rows.
      scores: its official scores by name, of class numbers int [N].
      main_metric: the score by which the best model is chosen.
      paper: score to the numbers of the paper, by model.
      defaults: settings of the recipe that this task changes.
      train_split: the split to train on.
      dev_splits: the splits to evaluate on, the first being the one by which
        the best model is chosen.
      test_splits: the splits without labels.
      submission_files: the name of each test split's prediction file.
    """

    name: str
    data: TaskData
    labels: tuple[str, ...] = ()
    scores: Mapping[str, Score] = dataclasses.field(
        default_factory=lambda: {
            "accuracy": metrics.accuracy,
            "macro_f1": metrics.macro_f1,
        }
    )
    main_metric: str = "accuracy"
    paper: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_split: str = "train"
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    submission_files: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )

    # What `--set label_kind` calls this kind of task.
    label_kind: ClassVar[str] = "classes"
    # The settings that it takes.
    recipe_type: ClassVar[type[SentenceRecipe]] = SentenceRecipe

    def prepared(self, recipe: SentenceRecipe) -> "SentenceTask":
        """The task fitted to a recipe; this one is complete as it is."""
        del recipe
        return self

    def present_splits(
        self, splits: Sequence[str], recipe: SentenceRecipe
    ) -> tuple[str, ...]:
        """Says which splits are there, in a line for each that is not.

        Args:
          splits: `dev_splits` or `test_splits`.
          recipe: says where the data are.

        Raises:
          UserError: none of them is there.
        """
        return self.data.present(splits, recipe)

    def read(self, split: str, recipe: SentenceRecipe) -> list[Example]:
        """Reads the examples of a split.

        Args:
          split: `train_split` or one of `dev_splits` and `test_splits`.
          recipe: says where the data are and how to read them.

        Raises:
          UserError: the data are missing or broken, or a label is; the line
            names file and row.
        """
        if split in self.test_splits:
            return self.data.read(split, recipe, self._labelled_if_any)
        return self.data.read(split, recipe, self._labelled)

    def read_references(
        self, path: str, recipe: SentenceRecipe
    ) -> list[Example]:
        """Reads a file with labels that is laid out as the dev file is."""
        return self.data.read_file(path, recipe, self._labelled)

    def _labelled(self, example: Example) -> Example:
        label = self.parse_label(example.label, place_of(example))
        return example._replace(label=label)

    def _labelled_if_any(self, example: Example) -> Example:
        """As `_labelled`; an empty cell is no label where none is needed."""
        if example.label in (None, "", ()):
            return example._replace(label=None)
        return self._labelled(example)

    def parse_label(self, cell: str | tuple[str, ...], place: str) -> Label:
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
                f"{place}: the label is a list, {excerpt(cell)}; pass --set "
                "label_kind=multi_label, or give one label a row."
            )
        if not cell.strip() or cell.strip().lower() == "nan":
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
                "column of the classes with --set label_column=..., or pass "
                "--set label_kind=regression for numbers."
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

    def make_objective(self, class_weights: Sequence[float] | None) -> Any:
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

    def majority_score(
        self, train_labels: Sequence[Label], references: Sequence[Label]
    ) -> dict[str, float]:
        """What always giving the training rows' commonest label scores."""
        counts = collections.Counter(train_labels)
        most = max(counts.values())
        common = min(label for label in counts if counts[label] == most)
        labels = self.all_labels([*train_labels, *references])
        return self.score(references, [common] * len(references), labels)

    def all_labels(self, values: Sequence[Label]) -> tuple[str, ...]:
        """The task's own classes, or those that occur in `values`, sorted."""
        return self.labels or sorted_labels(values)

    def submission_file(self, split: str) -> str:
        """What the prediction file of a split is called; empty if nothing."""
        return self.submission_files.get(split, "")

    def format_value(self, value: Label) -> str:
        """An answer as it stands in a prediction file."""
        return str(value)

    def write_predictions(
        self,
        path: str | pathlib.Path,
        examples: Sequence[Example],
        predictions: Predictions,
    ) -> None:
        """Writes index and prediction, in the form gluebenchmark.com takes."""
        lines = ["\t".join(PREDICTION_COLUMNS)]
        for example, value in zip(examples, predictions.values, strict=True):
            lines.append(f"{example.identifier}\t{self.format_value(value)}")
        write_text(path, "\n".join(lines) + "\n")

    def read_predictions(self, path: str) -> dict[str, Label]:
        """Reads such a file: the answer to each index.

        Raises:
          UserError: it is broken, an index occurs twice or an answer is none
            of this task's.
        """
        dialect = Dialect(format=TSV)
        answers: dict[str, Label] = {}
        for row in read_table(path, PREDICTION_COLUMNS, (), dialect).rows:
            index, value = row.cells
            place = f"{path}, row {row.number}"
            if index in answers:
                raise UserError(f"{place}: the index {index!r} occurs twice.")
            answers[index] = self.parse_label(value, place)
        return answers


def sorted_labels(labels: Any) -> tuple[str, ...]:
    """Different labels, sorted; by value where all are numbers."""
    labels = set(labels)
    try:
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    except ValueError:
        return tuple(sorted(labels))


def check_label_text(label: str, place: str) -> None:
    """Raises `UserError` if no prediction file could hold the label."""
    if any(character in label for character in "\t\r\n"):
        raise UserError(
            f"{place}: the label {excerpt(label)} holds a tab or a line end; "
            "remove it."
        )


def place_of(example: Example) -> str:
    """File and row of an example, for errors."""
    return f"{example.path}, row {example.row}"


def known_label(example: Example) -> Any:
    """An example's label; raises `UserError` if it has none."""
    if example.label is None:
        raise UserError(
            f"{place_of(example)}: has no label; a file with labels is needed "
            "to train and to evaluate."
        )
    return example.label


def unknown_label(label: Label, labels: Sequence[str], place: str) -> UserError:
    """The error of a label that is none of `labels`."""
    known = ", ".join(map(repr, labels[:20]))
    more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
    return UserError(
        f"{place}: unknown label {excerpt(label)}; the labels are "
        f"{known}{more}."
    )
