# ruff: noqa: D102
"""Families of tasks of the old form, behind an adapter to the new one.

Temporary: a family that is a subclass of `bert_tf.finetuning.task.Task` has no
need of it.
"""

import abc
import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import (
    MULTIPLE_CHOICE,
    SPAN,
    TOKEN_CLASSIFIER,
    Checkpoint,
)
from bert_tf.errors import UserError
from bert_tf.finetuning import task
from bert_tf.finetuning.rows import Outputs, Rows, RowsAround
from bert_tf.finetuning.task import Examination, Score, Split, TaskConfig

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.task_model import TaskModel
    from bert_tf.text.tokenizer import BertTokenizer

# What families have called a config so far.
TaskFacts = TaskConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskTemplate(task.TaskTemplate):
    """What a name stands for, of the old form."""

    @abc.abstractmethod
    def prepared(self, recipe: Any) -> "Task":
        """The task that a recipe of `recipe_type` describes.

        Raises:
          UserError: the recipe does not describe one.
        """

    def resolve(self, recipe: Any) -> "LegacyTask":
        """That task, in the new form."""
        return LegacyTask.of(self.prepared(recipe))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(TaskTemplate):
    """A fine-tuning task.

    Attributes:
      main_metric: the score by which the best model is chosen.
      paper: score to the numbers of the paper, by model.
      train_split: the split to train on.
      dev_splits: the splits to evaluate on, the first being the one by which
        the best model is chosen.
      test_splits: the splits without labels.
    """

    main_metric: str
    paper: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    train_split: str = "train"
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)

    # What task.json holds of its models.
    facts_type: ClassVar[type[TaskFacts]]
    # The head of a checkpoint that its models have.
    head: ClassVar[str]
    # Files of a model folder besides those that every model has.
    own_files: ClassVar[tuple[str, ...]] = ()
    # Whether training batches are of rows of like lengths.
    like_lengths: ClassVar[bool] = False

    @property
    def is_tuned(self) -> bool:
        """Whether `tuned` chooses anything."""
        return False

    def prepared(self, recipe: Any) -> "Task":
        """This task, complete as it is."""
        del recipe
        return self

    @abc.abstractmethod
    def present_splits(
        self, splits: Sequence[str], recipe: Any
    ) -> tuple[str, ...]:
        """Says which splits are there, in a line for each that is not.

        Args:
          splits: `dev_splits` or `test_splits`.
          recipe: says where the data are.

        Raises:
          UserError: none of them is there.
        """

    @abc.abstractmethod
    def read(self, split: str, recipe: Any) -> Any:
        """Reads the examples of a split.

        Args:
          split: `train_split` or one of `dev_splits` and `test_splits`.
          recipe: says where the data are and how to read them.

        Returns:
          N examples, of which `len` tells the number.

        Raises:
          UserError: the data are missing or broken, or a label is; the line
            names file and row.
        """

    @abc.abstractmethod
    def examine(
        self,
        recipe: Any,
        tokenizer: "BertTokenizer",
        splits: Mapping[str, Any],
    ) -> Examination:
        """Looks the training and dev rows over: the data doctor.

        Args:
          recipe: says max_seq_length.
          tokenizer: of the model that will be trained.
          splits: split to its examples; the first one is the one to train on.

        """

    @abc.abstractmethod
    def facts_of(self, recipe: Any, examples: Any) -> Any:
        """What task.json will hold of a model trained on these examples.

        Raises:
          UserError: nothing can be learned from them.
        """

    def check(self, examples: Any, facts: Any) -> None:
        """Raises `UserError` where examples do not fit a model."""

    def check_model(self, initial: Checkpoint, recipe: Any, facts: Any) -> None:
        """Raises `UserError` where a model cannot be trained for this."""

    def check_facts(self, facts: Any, folder: str | pathlib.Path) -> None:
        """Raises `UserError` where a fine-tuned model is of another kind."""

    @abc.abstractmethod
    def encode(
        self, examples: Any, tokenizer: "BertTokenizer", facts: Any
    ) -> Rows:
        """The examples as rows of token ids."""

    def shown(
        self,
        name: str,
        split: Split,
        source: Checkpoint,
        facts: Any,
        recipe: Any,
        output_dir: pathlib.Path,
    ) -> Split:
        """The rows as the model takes them, where these are not token ids.

        Args:
          name: the split's.
          split: its examples and what `encode` made of them.
          source: the model, of which the encoder may be wanted.
          facts: of the model.
          recipe: how to compute.
          output_dir: the folder of the run, which may take large files.
        """
        del name, source, facts, recipe, output_dir
        return split

    @abc.abstractmethod
    def labelled(
        self, split: Split, tokenizer: "BertTokenizer", facts: Any
    ) -> Rows:
        """The rows of a split with what the model is to learn."""

    @abc.abstractmethod
    def make_network(self, encoder: Any, facts: Any) -> Any:
        """The Keras model, on a `BertEncoder`; see `bert_tf.models`."""

    def make_model(self, encoder: Any, facts: Any) -> "TaskModel":
        """What the loop trains, on a `BertEncoder`."""
        from bert_tf.finetuning.task_model import TaskModel

        return TaskModel(self.make_network(encoder, facts))

    @abc.abstractmethod
    def make_objective(self, recipe: Any, examples: Any, facts: Any) -> Any:
        """What the model is trained for; see `bert_tf.training.step`.

        Args:
          recipe: says, for example, how classes are weighted.
          examples: the training examples.
          facts: of the model.
        """

    @abc.abstractmethod
    def collect(
        self, rows: Any, batches: Iterable[tuple[np.ndarray, Outputs]]
    ) -> Outputs:
        """A model's outputs to all rows, in the order of the examples.

        Args:
          rows: what `encode` returned.
          batches: rows by number, int64 [B], and the model's outputs to them,
            [B or more, ...]; together every row once, in any order.
        """

    @abc.abstractmethod
    def answer(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: "BertTokenizer",
        facts: Any,
    ) -> Any:
        """Turns outputs into answers.

        Args:
          outputs: what `collect` returned; of several models, the means.
          split: what was predicted.
          tokenizer: what made its rows.
          facts: of the model.
        """

    @abc.abstractmethod
    def evaluate(
        self, examples: Any, answers: Any, facts: Any
    ) -> dict[str, float]:
        """The official scores of answers, by name."""

    def loss(self, examples: Any, answers: Any, facts: Any) -> float | None:
        """The mean loss of an example; None where it has no meaning."""
        del examples, answers, facts
        return None

    def tuned(self, examples: Any, answers: Any, facts: Any) -> Any:
        """The facts with what is chosen by the dev answers of a model.

        What is chosen changes what answers are worth and how they are
        written, not what `answer` returns.
        """
        del examples, answers
        return facts

    @abc.abstractmethod
    def baseline(self, train: Any, examples: Any) -> dict[str, float]:
        """What answers without a model score; NaN where there are none.

        Args:
          train: the training examples.
          examples: those to score.
        """

    @abc.abstractmethod
    def references(self, examples: Any) -> Any:
        """What answers are scored by, of types that JSON knows."""

    @abc.abstractmethod
    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        examples: Any,
        answers: Any,
        facts: Any,
    ) -> pathlib.Path:
        """Writes the answers to a split for others to read.

        Returns:
          The file to show the user.
        """

    @abc.abstractmethod
    def write_answers(
        self, path: pathlib.Path, examples: Any, answers: Any, facts: Any
    ) -> None:
        """Writes dev_predictions.jsonl, of which the report is made."""

    @abc.abstractmethod
    def score_file(
        self,
        recipe: Any,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, Any]:
        """Scores a prediction file.

        Args:
          recipe: says how to read the references.
          references: path of a file that is laid out as the dev file is.
          predictions: path of a file as `write_predictions` writes it.
          null_odds: path of how likely each question has no answer, for tasks
            that know such a thing.

        Returns:
          The official scores by name.

        Raises:
          UserError: a file is broken, or the two do not have the same rows.
        """

    def refuse_one_segment(self, initial: Checkpoint, recipe: Any) -> None:
        """Raises `UserError` if a model cannot tell two texts apart."""
        if initial.config.type_vocab_size < 2:
            raise UserError(
                f"`init_from`={recipe.init_from}: type_vocab_size is "
                f"{initial.config.type_vocab_size}, so it cannot tell the two "
                "texts of a pair apart; choose another model."
            )

    def refuse_null_odds(self, null_odds: str) -> None:
        """Raises `UserError` if a file of null odds is given."""
        if null_odds:
            raise UserError(
                f"`null_odds`={null_odds}: is of use for questions that may "
                f"have no answer, not for {self.name}; leave it out."
            )


@dataclasses.dataclass(frozen=True)
class _LegacyRows(RowsAround):
    """Rows whose outputs the task of the old form collects."""

    task: Task
    examples: Any
    # What the task made, and with what it is to be learned, where it is.
    given: Any
    rows: Any

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        return self.task.collect(self.given, batches)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LegacyTask(task.Task):
    """A task of the old form in the new one.

    Attributes:
      old: the task.
    """

    old: Any

    @classmethod
    def of(cls, old: Task) -> "LegacyTask":
        """Wraps a task that is prepared."""
        fields = dataclasses.fields(task.Task)
        return cls(old=old, **{f.name: getattr(old, f.name) for f in fields})

    @property
    def config_type(self) -> Any:  # type: ignore[override]
        return self.old.facts_type

    @property
    def head(self) -> str:  # type: ignore[override]
        return self.old.head

    @property
    def head_from(self) -> Any:  # type: ignore[override]
        return {
            MULTIPLE_CHOICE: "family",
            SPAN: "family",
            TOKEN_CLASSIFIER: "labels",
        }.get(self.old.head, "task")

    @property
    def extra_files(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.old.own_files

    @property
    def bucket_by_length(self) -> bool:  # type: ignore[override]
        return self.old.like_lengths

    @property
    def is_tuned(self) -> bool:
        return self.old.is_tuned

    def splits(self, names: Sequence[str], recipe: Any) -> tuple[str, ...]:
        return self.old.present_splits(names, recipe)

    def load(self, split: str, recipe: Any) -> Any:
        return self.old.read(split, recipe)

    def examine(
        self, recipe: Any, tokenizer: Any, splits: Mapping[str, Any]
    ) -> Examination:
        return self.old.examine(recipe, tokenizer, splits)

    def configure(self, recipe: Any, examples: Any) -> Any:
        return self.old.facts_of(recipe, examples)

    def check(self, examples: Any, config: Any) -> None:
        self.old.check(examples, config)

    def check_config(self, config: Any, folder: pathlib.Path) -> None:
        self.old.check_facts(config, folder)

    def encode(
        self,
        examples: Any,
        tokenizer: Any,
        config: Any,
        labelled: bool = False,
    ) -> _LegacyRows:
        rows = self.old.encode(examples, tokenizer, config)
        shown = rows
        if labelled:
            shown = self.old.labelled(Split(examples, rows), tokenizer, config)
        return _LegacyRows(self.old, examples, rows, shown)

    def featurize(
        self,
        rows: Any,
        split: str,
        source: Checkpoint,
        config: Any,
        recipe: Any,
        output_dir: pathlib.Path,
    ) -> Rows:
        training = rows.given is not rows.rows
        if training:
            self.old.check_model(source, recipe, config)
        plain = Split(rows.examples, rows.given)
        found = self.old.shown(split, plain, source, config, recipe, output_dir)
        if found is plain:
            return rows
        shown = found.rows
        if training:
            # Taggers need no tokenizer for that.
            shown = self.old.labelled(found, None, config)
        return _LegacyRows(self.old, rows.examples, found.rows, shown)

    def build(self, encoder: Any, config: Any) -> "TaskModel":
        return self.old.make_model(encoder, config)

    def loss(self, recipe: Any, examples: Any, config: Any) -> Any:
        return self.old.make_objective(recipe, examples, config)

    def decode(
        self, outputs: Outputs, split: Split, tokenizer: Any, config: Any
    ) -> Any:
        given = Split(split.examples, split.rows.given)
        return self.old.answer(outputs, given, tokenizer, config)

    def score(self, examples: Any, predictions: Any, config: Any) -> Score:
        return Score(
            self.old.evaluate(examples, predictions, config),
            self.old.loss(examples, predictions, config),
        )

    def tune(self, examples: Any, predictions: Any, config: Any) -> Any:
        return self.old.tuned(examples, predictions, config)

    def baseline(self, train: Any, examples: Any) -> dict[str, float]:
        return self.old.baseline(train, examples)

    def references(self, examples: Any) -> Any:
        return self.old.references(examples)

    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        examples: Any,
        predictions: Any,
        config: Any,
    ) -> pathlib.Path:
        return self.old.write_predictions(
            folder, split, examples, predictions, config
        )

    def prediction_lines(
        self, examples: Any, predictions: Any, config: Any
    ) -> Iterable[Mapping[str, Any]]:
        with tempfile.TemporaryDirectory(
            dir=os.environ.get("TMPDIR")
        ) as folder:
            path = pathlib.Path(folder, "lines")
            self.old.write_answers(path, examples, predictions, config)
            return [*map(json.loads, path.read_text("utf-8").splitlines())]

    def score_file(
        self,
        recipe: Any,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, Any]:
        return self.old.score_file(recipe, references, predictions, null_odds)
