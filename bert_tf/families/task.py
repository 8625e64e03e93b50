"""What every fine-tuning task says of itself, whatever it predicts.

A task is an object in tasks/. Its family is a subclass of `Task`, which says
how examples become rows of token ids, what stands on the encoder, which loss
trains it, how outputs become predictions and how these are scored. The run
calls the task; a task never calls the run.
"""

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
)

from bert_tf.checkpoints import Checkpoint
from bert_tf.errors import UserError
from bert_tf.families.checks import Examination
from bert_tf.families.config import TaskConfig
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.rows import Outputs, Rows
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.encoders import BertEncoder
    from bert_tf.families.task_model import TaskModel

Examples = TypeVar("Examples")
Config = TypeVar("Config", bound="TaskConfig")
Prediction = TypeVar("Prediction")


@dataclasses.dataclass(frozen=True)
class Score:
    """What predictions are worth.

    Attributes:
      values: the official scores by name.
      loss: the mean loss of an example; None where it has no meaning.
    """

    values: dict[str, float]
    loss: float | None = None


@dataclasses.dataclass(frozen=True)
class Split:
    """The rows of a split, in both forms.

    Attributes:
      examples: what the task loaded.
      rows: what the model is shown, as the task encodes it (see `Rows`).
    """

    examples: Any
    rows: Any


class Answered(NamedTuple, Generic[Examples, Prediction, Config]):
    """What a model answers to examples.

    Attributes:
      examples: what the task loaded.
      predictions: what its `decode` returned.
      config: of the model.
    """

    examples: Examples
    predictions: Prediction
    config: Config


@dataclasses.dataclass(frozen=True)
class RunSplit:
    """Where a run keeps what it computes of a split.

    Attributes:
      name: of the split.
      source: the model that the run starts from or uses.
      recipe: how to compute.
      output_dir: the folder of the run, which may take large files.
    """

    name: str
    source: Checkpoint
    recipe: Any
    output_dir: pathlib.Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskTemplate(abc.ABC):
    """What a name stands for: a task, or what a recipe makes one of.

    Attributes:
      name: what the task is called.
      defaults: settings of the recipe that this task changes.
    """

    name: str = dataclasses.field(kw_only=False)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    # The settings that it takes.
    recipe_type: ClassVar[type[FinetuningRecipe]]

    @abc.abstractmethod
    def resolve(self, recipe: Any) -> "Task":
        """The task of one run, as a recipe of `recipe_type` describes it.

        Raises:
          UserError: the recipe does not describe one.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(TaskTemplate, Generic[Examples, Config, Prediction]):
    """A fine-tuning task.

    Attributes:
      main_metric: the score by which the best model is chosen.
      paper: score to the numbers of the paper, by model.
      lower_is_better: scores of which the lower number is the better one.
      train_split: the split to train on.
      dev_splits: the splits to evaluate on, the first being the one by which
        the best model is chosen.
      test_splits: the splits without labels.
      hub_data_set: organisation/name of the data on huggingface.co, and
        /configuration behind it where there are several.
    """

    main_metric: str
    paper: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    lower_is_better: tuple[str, ...] = ()
    train_split: str = "train"
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    hub_data_set: str = ""

    if TYPE_CHECKING:
        # A field of each family, in the place that its signature has it.
        @property
        def data(self) -> Any:
            """Where its examples come from; see `UserFiles`."""

    # What task.json holds of its models.
    config_type: ClassVar[type[TaskConfig]]
    # Files of a model folder besides those that every model has.
    extra_files: ClassVar[tuple[str, ...]] = ()
    # Whether training batches are of rows of similar length.
    bucket_by_length: ClassVar[bool] = False

    @property
    def head(self) -> str:
        """The head of a checkpoint that its models have; empty for none."""
        return self.config_type.head

    @property
    def fixed_config(self) -> dict[str, Any]:
        """Fields of task.json that all models of the task have in common."""
        return {}

    @property
    def tune(
        self,
    ) -> Callable[[Answered[Examples, Prediction, Config]], Config] | None:
        """Returns a config with what is chosen by dev predictions of a model.

        What is chosen changes what predictions are worth and how they are
        written, not what `decode` returns. None where nothing is chosen.
        """
        return None

    def resolve(self, recipe: Any) -> Self:
        """This task, complete as it is."""
        del recipe
        return self

    def splits(self, names: Sequence[str], recipe: Any) -> tuple[str, ...]:
        """The splits that are there; a line names each that is not.

        Args:
          names: `dev_splits` or `test_splits`.
          recipe: states where the data are.

        Raises:
          UserError: none of them is there.
        """
        return self.data.present(names, recipe)

    def load(self, split: str, recipe: Any) -> Examples:
        """Reads the examples of a split.

        Args:
          split: `train_split` or one of `dev_splits` and `test_splits`.
          recipe: states where the data are and how to read them.

        Returns:
          N examples, of which `len` is the number.

        Raises:
          UserError: the data are missing or broken, or a label is; the line
            names file and row.
        """

        def read_rows(path: str, labelled: bool) -> Examples:
            return self.read_file(path, recipe, labelled)

        return self.data.read(split, recipe, read_rows)

    @abc.abstractmethod
    def read_file(
        self, path: str, recipe: Any, labelled: bool = True
    ) -> Examples:
        """The examples of a file that is laid out as the dev file is.

        Args:
          path: the file.
          recipe: how to read it.
          labelled: whether every row must have a label.
        """

    @abc.abstractmethod
    def examine(
        self,
        recipe: Any,
        tokenizer: Tokenizer,
        splits: Mapping[str, Examples],
    ) -> Examination:
        """Examines the training and dev rows: the data doctor.

        Args:
          recipe: says max_seq_length.
          tokenizer: of the model that will be trained.
          splits: split to its examples; the first one is the one to train on.
        """

    @abc.abstractmethod
    def configure(self, recipe: Any, examples: Examples) -> Config:
        """What task.json will hold of a model trained on these examples.

        Raises:
          UserError: nothing can be learned from them.
        """

    def check(self, examples: Examples, config: Config) -> None:
        """Raises `UserError` where examples do not fit a model."""

    @abc.abstractmethod
    def encode(
        self,
        examples: Examples,
        tokenizer: Tokenizer,
        config: Config,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> Rows:
        """The examples as rows of a model's inputs; unlabelled `ExampleRows`.

        Args:
          examples: N examples.
          tokenizer: of the model.
          config: of the model.
          labelled: whether batches hold what the model is to learn too.
          run: the run that computes and keeps features of the rows.

        Raises:
          UserError: `labelled`, and an example has no label.
        """

    def build(
        self, encoder: "BertEncoder", config: Config, unpadded: bool = True
    ) -> "TaskModel":
        """The model to train; see `TaskConfig.build`."""
        # TensorFlow takes seconds to import, and scoring a file needs none.
        from bert_tf.families.task_model import TaskModel

        return TaskModel(config.build(encoder, unpadded))

    @abc.abstractmethod
    def loss(self, recipe: Any, examples: Examples, config: Config) -> Any:
        """The training objective; see `bert_tf.training.step.Objective`.

        Args:
          recipe: says, for example, how classes are weighted.
          examples: the training examples.
          config: of the model.
        """

    @abc.abstractmethod
    def decode(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: Tokenizer,
        config: Config,
    ) -> Prediction:
        """Turns outputs into predictions.

        Args:
          outputs: what `ExampleRows.gather` returned; means of several models.
          split: what was predicted.
          tokenizer: what made its rows.
          config: of the model.
        """

    @abc.abstractmethod
    def score(self, answered: Answered[Examples, Prediction, Config]) -> Score:
        """The official scores of predictions, and their mean loss."""

    @abc.abstractmethod
    def prediction_lines(
        self, answered: Answered[Examples, Prediction, Config]
    ) -> Iterable[Mapping[str, Any]]:
        """The lines of dev_predictions.jsonl, of types that JSON knows."""

    @abc.abstractmethod
    def references(self, examples: Examples) -> Any:
        """What predictions are scored by, of types that JSON knows."""

    @abc.abstractmethod
    def baseline(self, train: Examples, examples: Examples) -> dict[str, float]:
        """What predictions without a model score; NaN where there are none.

        Args:
          train: the training examples.
          examples: those to score.
        """

    @abc.abstractmethod
    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        answered: Answered[Examples, Prediction, Config],
    ) -> pathlib.Path:
        """Writes the predictions of a split for others to read.

        Returns:
          The file to show the user.
        """

    def score_file(
        self,
        recipe: Any,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, Any]:
        """Scores a prediction file.

        Args:
          recipe: states how to read the references.
          references: path of a file that is laid out as the dev file is.
          predictions: path of a file as `write_predictions` writes it.
          null_odds: path of how likely each question has no answer, for tasks
            that tune a threshold for it.

        Returns:
          The official scores by name.

        Raises:
          UserError: a file is broken, or the two do not have the same rows.
        """
        if null_odds and self.tune is None:
            raise UserError(
                f"`null_odds`={null_odds}: is for questions that may have no "
                f"answer, not for {self.name}; leave it out."
            )
        return self.file_scores(recipe, references, predictions, null_odds)

    @abc.abstractmethod
    def file_scores(
        self, recipe: Any, references: str, predictions: str, null_odds: str
    ) -> dict[str, Any]:
        """What `score_file` returns."""
