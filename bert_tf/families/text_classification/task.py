"""`TextClassificationTask`, the base of tasks on one text or a pair.

Its subclasses (kinds.py) parse labels, and convert them to arrays for metrics.
"""

import abc
import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.examples import (
    Example,
    ExampleStream,
    Label,
    known_label,
    names_in,
    sorted_labels,
)
from bert_tf.families.data.user_files import UserFiles
from bert_tf.families.row_task import RowAnswers, RowTask
from bert_tf.families.rows import TextRows
from bert_tf.families.task import PREDICTION
from bert_tf.families.text_classification.config import (
    CLASSES,
    REGRESSION,
    TextClassificationConfig,
)
from bert_tf.families.text_classification.few_rows import complete
from bert_tf.families.text_classification.recipe import SentenceRecipe
from bert_tf.files import write_text
from bert_tf.tables.delimited import Cell, listed
from bert_tf.tables.table import files_of
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.families.task_model import LogitsObjective
    from bert_tf.text.layout import EncodedRows

# Above this many classes, a class must have at least two rows on average.
_FEW_CLASSES = 20

# A score of N predictions, given labels and predictions.
Metric = Callable[[np.ndarray, np.ndarray], float]


def encode(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    config: TextClassificationConfig,
) -> "EncodedRows":
    """Tokenizes and packs examples; see `answers.text_rows`."""
    # Scoring a file needs no TensorFlow.
    from bert_tf.families.text_classification.answers import text_rows
    from bert_tf.text.layout import pack_rows, tokenize

    columns = [*zip(*(each.texts for each in examples), strict=True)] or [()]
    texts = [tokenize(tokenizer, list(column)) for column in columns]
    example, first, second = text_rows(texts, tokenizer.packing, config)
    return pack_rows(first, second, tokenizer.packing, example, len(examples))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextClassificationTask(RowTask[Example, TextClassificationConfig]):
    """A task on one text or a pair.

    Attributes:
      data: the source of its rows, `UserTexts` or `GlueData`.
      labels: its labels in the order of the model's outputs; empty to find them
        in the training rows, or for a regression.
      scores: its official scores by name.
      submission_files: split to the name of its prediction file.
      text_columns: the setting `text_columns` of the recipe.
      separator: the separator of several labels in a cell.
    """

    data: Any
    labels: tuple[str, ...] = ()
    scores: Mapping[str, Metric]
    submission_files: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )
    text_columns: str = ""
    separator: str = ","

    # The value of the setting `label_kind`.
    label_kind: ClassVar[str]
    recipe_type: ClassVar[type[SentenceRecipe]] = SentenceRecipe
    config_type: ClassVar[type[TextClassificationConfig]] = (
        TextClassificationConfig
    )
    data_folder: ClassVar[str] = "glue"

    def __post_init__(self) -> None:
        """Raises `UserError` if it names a score that it lacks."""
        for name in (self.main_metric, *self.lower_is_better):
            if name not in self.scores:
                raise UserError(
                    f"task {self.name}: {name!r} is none of its scores, "
                    f"{', '.join(self.scores)}; name one of them as "
                    "`main_metric` and in `lower_is_better`."
                )

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of its scores."""
        return tuple(self.scores)

    @property
    def fixed_config(self) -> dict[str, Any]:
        """The kind of label."""
        return {"label_kind": self.label_kind}

    def configure(
        self, recipe: SentenceRecipe, examples: Sequence[Example]
    ) -> TextClassificationConfig:
        """Returns the config; see `Task`."""
        labels = self.find_labels(examples, recipe.allow_many_labels)
        return self.config_type.of_recipe(
            recipe,
            task=self.name,
            labels=labels,
            num_outputs=max(len(labels), 1),
            num_texts=len(examples[0].texts),
            text_columns=self.text_columns,
            label_separator=self.separator,
            **self.fixed_config,
        )

    def check(
        self, examples: Sequence[Example], config: TextClassificationConfig
    ) -> None:
        """Raises `UserError` on another number of texts or unknown labels."""
        count = len(examples[0].texts)
        if count != config.num_texts:
            raise UserError(
                f"{examples[0].path}: rows of {count} text(s), but the model "
                f"was fine-tuned on {config.num_texts} "
                f"(text_columns={config.text_columns}); name that number of "
                "columns in text_columns."
            )
        _refuse_unknown(
            (e for e in examples if e.label is not None), config.labels
        )

    def rows(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        config: TextClassificationConfig,
    ) -> TextRows:
        """Tokenizes and packs; see the function `encode`."""
        return TextRows(encode(examples, tokenizer, config))

    def encoder_config(
        self, recipe: SentenceRecipe, config: BertConfig
    ) -> BertConfig:
        """Returns the config with the pooling that the recipe names, if any."""
        pooling = recipe.classifier_pooling
        if not pooling:
            return config
        if recipe.lora_rank and pooling != config.classifier_pooling:
            raise UserError(
                f"`classifier_pooling`={pooling}: an adapter reads what its "
                f"base reads, {config.classifier_pooling}; leave it or "
                "`lora_rank` out."
            )
        return dataclasses.replace(config, classifier_pooling=pooling)

    def complete(
        self,
        recipe: SentenceRecipe,
        examples: Sequence[Example],
        initial: Checkpoint,
        new_head: bool,
    ) -> SentenceRecipe:
        """See the function `complete` of few_rows.py."""
        return complete(recipe, examples, initial, new_head)

    def loss(
        self,
        recipe: SentenceRecipe,
        examples: Sequence[Example],
        config: TextClassificationConfig,
    ) -> Any:
        """Returns the objective, with class weights if there are any.

        Raises:
          UserError: `class_weights` of a task without classes.
        """
        setting = recipe.class_weights
        if not setting:
            return self.objective()
        if self.label_kind != CLASSES:
            raise UserError(
                f"class_weights: {self.name} has no classes "
                f"(label_kind={self.label_kind}); leave it empty."
            )
        targets = self.targets(examples, config.labels)
        return self.objective(class_weights_of(setting, targets, config.labels))

    def tuner(self, recipe: SentenceRecipe, examples: Sequence[Example]) -> Any:
        """See `Task`; raises `UserError` for numbers."""
        if recipe.calibrate and self.label_kind == REGRESSION:
            raise UserError(
                f"`calibrate`=true: {self.name} predicts numbers, which have "
                "no probabilities; leave it out."
            )
        return super().tuner(recipe, examples)

    def answers(
        self, logits: np.ndarray, config: TextClassificationConfig
    ) -> Mapping[str, Any]:
        """See `text_answers` and `label_values`."""
        from bert_tf.families.text_classification.answers import (
            label_values,
            text_answers,
        )

        found = text_answers(logits, config)
        arrays = {name: np.asarray(value) for name, value in found.items()}
        values = self.comparable(label_values(arrays, config.labels))
        return arrays | {PREDICTION: [*values]}

    def write_predictions(
        self, folder: pathlib.Path, split: str, answered: RowAnswers
    ) -> pathlib.Path:
        """Writes index and prediction, and the split's submission file."""
        path = super().write_predictions(folder, split, answered)
        if split not in self.submission_files:
            return path
        name = self.submission_files[split]
        write_text(folder / name, path.read_text(encoding="utf-8"))
        return folder / name

    def metrics(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Label],
        labels: Sequence[str] = (),
    ) -> dict[str, float]:
        """Computes the scores of the task; see `Task`.

        Labels are numbered in the order of the model's outputs, of the task or
        of the labels that occur.
        """
        references = self.references(examples)
        labels = labels or self.all_labels([*references, *predictions])
        gold = self.label_array(references, labels)
        predicted = self.label_array(predictions, labels)
        if gold.ndim == 2:
            # Without multi-label classes that do not occur.
            occurs = (gold | predicted).any(axis=0)
            gold, predicted = gold[:, occurs], predicted[:, occurs]
        return {
            name: float(score(gold, predicted))
            for name, score in self.scores.items()
        }

    def parse(self, cell: str, example: Example, place: str) -> Label:
        """Parses the label in a cell."""
        del example
        return self.parse_label(cell, place)

    def read_file(
        self, path: str, recipe: SentenceRecipe, labelled: bool = True
    ) -> Sequence[Example]:
        """Reads the rows of a file; rows to predict may have no label."""
        return list(self._read_examples(path, recipe, labelled))

    def _read_examples(
        self, path: str, recipe: SentenceRecipe, labelled: bool
    ) -> Iterator[Example]:

        def parse_label_if_any(cell: Cell, place: str) -> Label:
            return self.parse_label(cell, place) if cell else None

        parse = self.parse_label if labelled else parse_label_if_any
        return self.data.read_file(path, recipe, parse, labelled)

    def load_once(self, split: str, recipe: Any) -> Sequence[Example]:
        """Returns a stream of the examples in a user's files; see `Task`."""
        if not isinstance(self.data, UserFiles):
            return self.load(split, recipe)

        def read_rows(
            path: str, recipe: Any, labelled: bool
        ) -> Sequence[Example]:
            # A pipe cannot be read again.
            if not all(map(os.path.isfile, files_of(path, "input"))):
                return self.read_file(path, recipe, labelled)
            return ExampleStream(
                lambda: self._read_examples(path, recipe, labelled)
            )

        return self.data.read(split, recipe, read_rows)

    @abc.abstractmethod
    def parse_label(self, cell: Cell, place: str) -> Label:
        """Parses a cell as a label; `place` is file and row, for errors."""

    @abc.abstractmethod
    def label_array(
        self, values: Sequence[Label], labels: Sequence[str]
    ) -> np.ndarray:
        """Converts labels to an array for metrics, [N] or [N, C]."""

    def comparable(self, values: Sequence[Label]) -> Sequence[Label]:
        """Converts a model's answers to the form that `parse_label` returns."""
        return [tuple(sorted(v)) if isinstance(v, tuple) else v for v in values]

    def objective(
        self, class_weights: Sequence[float] | None = None
    ) -> "LogitsObjective":
        """Returns the objective, with weights of the classes if given."""
        # Scoring a file needs no Keras.
        from bert_tf.families import task_model

        if self.label_kind == CLASSES:
            return task_model.ClassesObjective(class_weights)
        if self.label_kind == REGRESSION:
            return task_model.RegressionObjective()
        return task_model.MultiLabelObjective()

    def cell_of(self, prediction: Label, example: Any = None) -> str:
        """Formats a label for a file, a number with six decimals."""
        del example
        if isinstance(prediction, tuple):
            return self.separator.join(prediction)
        is_name = isinstance(prediction, str)
        return prediction if is_name else f"{prediction:.6f}"

    def find_labels(
        self, examples: Sequence[Example], allow_many: bool = False
    ) -> tuple[str, ...]:
        """Returns the task's labels, or those of the training examples.

        Raises:
          UserError: nothing can be learned from these.
        """
        answers = [known_label(example) for example in examples]
        labels = self.all_labels(answers)
        if self.labels and self.label_kind == CLASSES:
            return labels
        place = examples[0].path
        if all(answer == answers[0] for answer in answers):
            raise UserError(
                f"{place}: every row has the label "
                f"{excerpt(self.cell_of(answers[0]))}; at least two different "
                "ones are needed to learn from. Is `label_column` right?"
            )
        many = len(labels) > max(_FEW_CLASSES, len(examples) // 2)
        if many and not allow_many:
            raise UserError(
                f"{place}: {len(labels)} different labels in {len(examples)} "
                f"rows, for example {excerpt(labels[0])}; name their column "
                "with `label_column`=..., or pass `label_kind`=regression for "
                "numbers, or the separator of several labels of a row as "
                "`label_separator`; or `allow_many_labels`=true if they are "
                "right."
            )
        return labels

    def all_labels(self, values: Sequence[Label]) -> tuple[str, ...]:
        """Returns the task's labels, or those in `values`, sorted."""
        return self.labels or sorted_labels(
            name for value in values for name in names_in(value)
        )

    def targets(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the labels as an array: int32 [N], or float32 [N, ...].

        Raises:
          UserError: an example has no label or one that is not in `labels`.
        """
        _refuse_unknown(examples, labels)
        values = [example.label for example in examples]
        array = self.label_array(values, labels)
        dtype = "int32" if self.label_kind == CLASSES else "float32"
        return array.astype(dtype)


def _refuse_unknown(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Raises `UserError` for a label that is missing or not in `labels`."""
    known = set(labels)
    for example in examples:
        for name in names_in(known_label(example)):
            if name not in known:
                place = f"{example.path}, row {example.row}"
                raise unknown_label(name, labels, place)


def unknown_label(label: str, labels: Sequence[str], place: str) -> Fault:
    """Returns the fault of a label that is not in `labels`."""
    return Fault(
        "an unknown label",
        f"{place}: unknown label {excerpt(label)}; the labels are "
        f"{listed(labels)}.",
    )


def class_weights_of(
    setting: str, targets: np.ndarray, labels: Sequence[str]
) -> list[float]:
    """Returns the weights of the classes.

    Args:
      setting: the setting `class_weights`. With "balanced", the weights of the
        training examples of each class have the same sum, and their mean is 1.
      targets: int32 [N], the classes of the training examples.
      labels: the C classes.
    """
    if setting == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        present = np.maximum(counts, 1)
        return list(len(targets) / (np.sum(counts > 0) * present))
    try:
        weights = [float(part) for part in setting.split(",")]
    except ValueError:
        weights = []
    # With a weight of 0, the loss of a batch of one class would be 0 / 0.
    good = all(0 < weight < math.inf for weight in weights)
    if not good or len(weights) != len(labels):
        raise UserError(
            f"class_weights={setting}: give balanced, or {len(labels)} numbers "
            f"above 0 for the labels {', '.join(labels)}."
        )
    return weights
