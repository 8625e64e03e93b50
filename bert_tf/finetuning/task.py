"""What every fine-tuning task says of itself, whatever its answers are.

A task is an object in tasks/. Its kind is a subclass of `Task`, which says how
examples become rows of token ids, what stands on the encoder, what it is
trained for, how outputs become answers and what these are worth. What trains,
scores and reports knows nothing else of a task.
"""

import abc
import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import Checkpoint
from bert_tf.errors import UserError
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.rows import Rows

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.task_model import TaskModel
    from bert_tf.text.tokenizer import BertTokenizer

# A model's outputs by name.
Outputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TaskFacts:
    """What it takes to use a fine-tuned model as it was trained: task.json.

    Attributes:
      task: the task's name.
      labels: the labels in the order of the outputs, where there are such.
      max_seq_length: S at most.
    """

    task: str
    labels: tuple[str, ...]
    max_seq_length: int


@dataclasses.dataclass(frozen=True)
class Split:
    """The rows of a split, in both forms.

    Attributes:
      examples: what the task read.
      rows: what the model is shown, as the task encodes it (see `Rows`).
    """

    examples: Any
    rows: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskTemplate(abc.ABC):
    """What a name stands for: a task, or what a recipe makes one of.

    Attributes:
      name: what the task is called.
      defaults: settings of the recipe that this task changes.
    """

    name: str
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    # The settings that it takes.
    recipe_type: ClassVar[type[FinetuningRecipe]]

    @abc.abstractmethod
    def prepared(self, recipe: Any) -> "Task":
        """The task that a recipe of `recipe_type` describes.

        Raises:
          UserError: the recipe does not describe one.
        """


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
    ) -> dict[str, Any]:
        """Looks the training and dev rows over: the data doctor.

        Args:
          recipe: says max_seq_length.
          tokenizer: of the model that will be trained.
          splits: split to its examples; the first one is the one to train on.

        Returns:
          Numbers of types that JSON knows.
        """

    def findings(self, numbers: Mapping[str, Any]) -> str:
        """What `examine` found, in lines for a user: its "lines"."""
        return "\n".join(numbers["lines"])

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

    def same_form(self, facts: Any, other: Any) -> bool:
        """Whether the outputs of two models can be averaged."""
        return facts == other

    def keeps_head(
        self, initial: Checkpoint, trained_for: str | None, facts: Any
    ) -> bool:
        """Whether the head of a model to start from serves this task too.

        Args:
          initial: the model, which has the head.
          trained_for: the task that its task.json names, if it has one.
          facts: of the model to be trained.
        """
        # Without labels or a task, a head may be of anything.
        known = trained_for == self.name or (
            trained_for is None and bool(facts.labels)
        )
        return known and (initial.labels or ()) == facts.labels

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

    def shown_facts(self, facts: Any) -> dict[str, Any]:
        """What of the facts is shown among the results."""
        del facts
        return {}

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
