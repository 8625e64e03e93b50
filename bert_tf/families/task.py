"""`Task`, the base of every fine-tuning task.

A task is an object in tasks/. Its family is a subclass of `Task`, which reads
examples, encodes them as rows of token ids, builds the head, chooses the loss,
decodes the outputs and scores the predictions. The run calls the task; a task
never calls the run.
"""

import abc
import dataclasses
import math
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

import numpy as np

from bert_tf.checkpoints import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.families import part_of
from bert_tf.families.checks import Examination, examine_rows
from bert_tf.families.config import TaskConfig
from bert_tf.families.recipe import CalibrationRecipe, FinetuningRecipe
from bert_tf.families.rows import Outputs, Rows
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.encoders import BertEncoder
    from bert_tf.families.in_memory import DataFile
    from bert_tf.families.task_model import TaskModel

Examples = TypeVar("Examples", bound=Any)
Config = TypeVar("Config", bound="TaskConfig")
# The key of predictions in the form of gold answers; see `Task.decode`.
PREDICTION = "prediction"
Scores = dict[str, float]


def score_scale(values: Iterable[float | None], is_cost: bool) -> int:
    """What scores are shown times: 100, or 1 for costs and others than shares.

    Args:
      values: all values of one score that are shown together; those that are
        missing or not finite do not count.
      is_cost: whether lower values are better.
    """
    finite = [v for v in values if v is not None and math.isfinite(v)]
    return 1 if is_cost or any(abs(v) > 1 for v in finite) else 100


@dataclasses.dataclass(frozen=True)
class Split:
    """A split: the return values of `Task.load` and `Task.encode`."""

    examples: Any
    rows: Any


class Answered(NamedTuple, Generic[Examples, Config]):
    """Predictions, which `Task.decode` returned, for examples."""

    examples: Examples
    predictions: Any
    config: Config


@dataclasses.dataclass(frozen=True)
class RunSplit:
    """The run that encodes a split, for tasks that store features of it.

    Attributes:
      name: the name of the split.
      source: the model that the run starts from or uses.
      recipe: the recipe of the run.
      output_dir: the folder of the run, which may take large files.
    """

    name: str
    source: Checkpoint
    recipe: Any
    output_dir: pathlib.Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskTemplate(abc.ABC):
    """A task, or a template that a recipe completes to a task.

    Attributes:
      name: the name of the task.
      defaults: settings whose defaults this task changes.
    """

    name: str = dataclasses.field(kw_only=False)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    # The class of its settings.
    recipe_type: ClassVar[type[FinetuningRecipe]]
    # The folder of its official files beside those of other tasks.
    data_folder: ClassVar[str] = ""

    @abc.abstractmethod
    def resolve(self, recipe: Any) -> "Task":
        """Returns the task that the recipe of a run describes.

        Raises:
          UserError: it does not describe one.
        """

    def stored(
        self, data: Any, name: str, settings: Mapping[str, Any]
    ) -> "DataFile":
        """Converts data in memory to a file that the task reads.

        Args:
          data: a table, see `rows_in_memory`; families may take other forms.
          name: the name of the argument, for errors.
          settings: the settings that are given.

        Raises:
          UserError: data of another form; or an invalid cell, whose row is
            counted from 0.
        """
        # Most data are files.
        from bert_tf.families.in_memory import other_form, stored_table

        del settings
        if "format" not in self.recipe_type.kinds():
            raise other_form(data, name)
        return stored_table(data, name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(TaskTemplate, Generic[Examples, Config]):
    """A fine-tuning task.

    Its methods take the recipe of the run, examples, which `load` returned, and
    the tokenizer and config of the model.

    Attributes:
      main_metric: the score that selects the best model.
      paper: the paper's numbers, by score and model.
      lower_is_better: the scores that are better if they are lower.
      train_split: the split to train on.
      dev_splits: the splits to evaluate on. The first selects the best model.
      test_splits: the splits without labels.
      hub_data_set: organisation/name of the data on huggingface.co, followed by
        /configuration if there are several.
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
        # Each family declares it as a field.
        @property
        def data(self) -> Any:
            """The source of its examples; see `UserFiles`."""

    # The class of its models' task.json.
    config_type: ClassVar[type[TaskConfig]]
    # What `metrics` are times the scores of a run.
    scale: ClassVar[float] = 1.0
    # The kind of its models in `model_card.SENTENCE_KINDS`; empty for others.
    sentence_kind: ClassVar[str] = ""
    # The classes of sentence-transformers that compute its losses, by name.
    loss_classes: ClassVar[Mapping[str, str]] = {}
    # Whether it scores models that were trained for another task, or for none.
    scores_any_model: ClassVar[bool] = False
    # Whether training batches have rows of similar length.
    bucket_by_length: ClassVar[bool] = False

    @property
    def fixed_config(self) -> dict[str, Any]:
        """Fields of task.json that are the same for all its models."""
        return {}

    @property
    def takes_null_odds(self) -> bool:
        """Whether a threshold is tuned on the log odds of no answer."""
        return False

    def tuner(
        self, recipe: Any, examples: Examples
    ) -> Callable[[Answered[Examples, Config]], Config] | None:
        """Returns a function from dev predictions to a config of tuned values.

        Args:
          recipe: the recipe of the run.
          examples: the dev examples that the values are tuned on.

        Returns:
          The function; None if nothing is tuned. By default, it fits the
          temperature of `gold_logits` if the recipe asks for it.

        Raises:
          UserError: the examples are too few.
        """
        if not (isinstance(recipe, CalibrationRecipe) and recipe.calibrate):
            return None
        # Few runs are calibrated.
        from bert_tf.families import calibration

        return calibration.tuner(self, examples)

    def gold_logits(
        self, answered: Answered[Examples, Config]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logits and their targets; see `fit_temperature`."""
        raise NotImplementedError

    def with_config(
        self, answered: Answered[Examples, Config], config: Config
    ) -> Answered[Examples, Config]:
        """Returns predictions under a config with other tuned values."""
        return answered._replace(config=config)

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of its scores; empty if they depend on the data."""
        return ()

    def resolve(self, recipe: Any) -> Self:
        """Returns the task itself, which needs no recipe."""
        del recipe
        return self

    def splits(self, names: Sequence[str], recipe: Any) -> tuple[str, ...]:
        """Returns the splits that exist, and logs those that do not.

        Raises:
          UserError: none of them exists.
        """
        return self.data.present(names, recipe)

    def load(self, split: str, recipe: Any) -> Examples:
        """Reads the examples of a split; `len` of them is their number.

        Raises:
          UserError: the data or a label are missing or malformed; the line
            names file and row.
        """
        return self.data.read(split, recipe, self.read_file)

    def load_once(self, split: str, recipe: Any) -> Examples:
        """Returns examples to examine, which may be read while this is done.

        Their texts may be iterated once. See `load`.
        """
        return self.load(split, recipe)

    @abc.abstractmethod
    def read_file(
        self, path: str, recipe: Any, labelled: bool = True
    ) -> Examples:
        """Reads a file in the format of the dev file.

        Args:
          path: the file.
          recipe: describes its format.
          labelled: whether every row must have a label.
        """

    def examine(
        self, recipe: Any, tokenizer: Tokenizer, splits: Mapping[str, Examples]
    ) -> Examination:
        """Examines the splits, the one to train on first: the data doctor.

        A family without checks.py has examples with `texts`.
        """
        checks: Any = part_of(self.config_type, "checks")
        if checks is None:
            return examine_rows(self, recipe, tokenizer, splits)
        return checks.examine(self, recipe, tokenizer, splits)

    def estimated_tokens(self, examples: Examples, recipe: Any) -> float:
        """Estimates the tokens of the rows of examples, without a tokenizer."""
        return float(len(examples) * recipe.max_seq_length)

    def encoder_config(self, recipe: Any, config: BertConfig) -> BertConfig:
        """Returns the config of the encoder to train.

        Args:
          recipe: the recipe of the run.
          config: that of the model to start from.

        Raises:
          UserError: the recipe does not fit it.
        """
        del recipe
        return config

    def configure(self, recipe: Any, examples: Examples) -> Config:
        """Returns the config of a model that is trained on these examples.

        By default, the model has no labels.

        Raises:
          UserError: nothing can be learned from them.
        """
        values = {"task": self.name, "labels": (), **self.fixed_config}
        config: Any = self.config_type.of_recipe(recipe, **values)
        return config

    def check(self, examples: Examples, config: Config) -> None:
        """Raises `UserError` if examples do not fit a model's config."""

    @abc.abstractmethod
    def encode(
        self,
        examples: Examples,
        tokenizer: Tokenizer,
        config: Config,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> Rows:
        """Encodes examples as rows of the model's inputs.

        With `labelled`, batches hold labels; without, rows are `ExampleRows`.
        Tasks that store features of the rows use `run`.

        Raises:
          UserError: `labelled`, and an example has no label.
        """

    def build(
        self, encoder: "BertEncoder", config: Config, unpadded: bool = True
    ) -> "TaskModel":
        """Builds the model to train; see `TaskConfig.build`."""
        # TensorFlow takes seconds to import, and scoring a file needs none.
        from bert_tf.families.task_model import TaskModel

        return TaskModel(config.build(encoder, unpadded))

    def complete(
        self,
        recipe: Any,
        examples: Examples,
        initial: Checkpoint,
        new_head: bool,
    ) -> Any:
        """Returns the recipe with the values that the run chooses.

        Args:
          recipe: the recipe of the run.
          examples: the examples to train on.
          initial: the model to start from.
          new_head: whether the head is not read from `initial`.
        """
        del examples, initial, new_head
        return recipe

    @abc.abstractmethod
    def loss(self, recipe: Any, examples: Examples, config: Config) -> Any:
        """Returns the objective of a training on examples.

        See `bert_tf.training.step.Objective`.
        """

    def distinct_values(self, rows: Any, recipe: Any) -> np.ndarray | None:
        """Returns what no training batch may hold twice.

        Args:
          rows: N rows that `encode` returned with labels.
          recipe: the recipe of the run.

        Returns:
          Numbers of values, int64 [N, K]; None without the rule.
        """
        del rows, recipe
        return None

    @abc.abstractmethod
    def decode(self, outputs: Outputs, split: Split, config: Config) -> Any:
        """Decodes outputs to predictions, by default a dict with `PREDICTION`.

        The outputs are those of `ExampleRows.gather`, or their means over the
        models of an ensemble.
        """

    @abc.abstractmethod
    def metrics(
        self, examples: Examples, predictions: Any, labels: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Computes the official scores of predictions by name.

        Args:
          examples: the examples.
          predictions: the value of `PREDICTION` that `decode` returned, or the
            return value of `guess` or `read_predictions`.
          labels: the labels of the model that made them, if it was a model.
        """

    def score(self, answered: Answered[Examples, Config]) -> Scores:
        """Computes the official scores of a model, from 0 to 1."""
        examples, found, config = answered
        labels = config.labels
        return self._shares(self.metrics(examples, found[PREDICTION], labels))

    def mean_loss(self, answered: Answered[Examples, Config]) -> float | None:
        """Computes the mean loss of an example; None if it is not defined."""
        return None

    def baseline(self, train: Examples, examples: Examples) -> Scores:
        """Scores the `guess`; NaN where there is none."""
        return self._shares(self.metrics(examples, self.guess(train, examples)))

    def _shares(self, found: Mapping[str, Any]) -> Scores:
        """Returns the scores among `metrics`, which are floats."""
        scores = {k: v for k, v in found.items() if isinstance(v, float)}
        return {name: value / self.scale for name, value in scores.items()}

    def guess(self, train: Examples, examples: Examples) -> Any:
        """Predicts without a model: the most frequent label of training."""
        from bert_tf.families.data.examples import typical

        return [typical(self.references(train))] * len(examples)

    @abc.abstractmethod
    def prediction_lines(
        self, answered: Answered[Examples, Config]
    ) -> Iterable[Mapping[str, Any]]:
        """Yields the lines of dev_predictions.jsonl as JSON types."""

    def references(self, examples: Examples) -> list[Any]:
        """Returns the gold answers as JSON types; by default the labels."""
        from bert_tf.families.data.examples import known_label

        return [known_label(example) for example in examples]

    @abc.abstractmethod
    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        answered: Answered[Examples, Config],
    ) -> pathlib.Path:
        """Writes the predictions of a split to a file for other programs.

        Returns:
          The file to show to the user.
        """

    @abc.abstractmethod
    def read_predictions(
        self, path: str, examples: Examples, recipe: Any, null_odds: str
    ) -> Any:
        """Reads the predictions that `write_predictions` wrote of examples.

        The recipe describes the file of the examples; see also `score_file`.
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
          recipe: describes the format of the references.
          references: path of a file in the format of the dev file.
          predictions: path of a file that `write_predictions` wrote.
          null_odds: path of a file with the log odds of no answer to each
            question, for tasks that tune a threshold on them.

        Returns:
          The official scores by name; see `metrics`.

        Raises:
          UserError: a file is malformed, or the rows of the two differ.
        """
        if null_odds and not self.takes_null_odds:
            raise UserError(
                f"`null_odds`={null_odds}: is for questions that may have no "
                f"answer, not for {self.name}; leave it out."
            )
        examples = self.read_file(references, recipe)
        found = self.read_predictions(predictions, examples, recipe, null_odds)
        return self.metrics(examples, found)
