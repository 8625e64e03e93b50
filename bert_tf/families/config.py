"""`TaskConfig`, the base of what task.json holds, and its derivation.

Importing a config loads neither TensorFlow nor a reader of data.
"""

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_tf.checkpoints import HEADS_ON_POOLER, Checkpoint
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.checkpoints.labels import default_labels
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, first_few, whole_number
from bert_tf.families.usage_options import UsageOptions
from bert_tf.text.token_table import Packing
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    import keras

    from bert_tf.encoders import BertEncoder

# Marks fields of `added_later`.
ADDED_LATER = {"added_later": True}


def added_later(default: Any) -> Any:
    """Declares a field that task.json lacks where it has its default."""
    return dataclasses.field(default=default, metadata=ADDED_LATER)


@dataclasses.dataclass(frozen=True)
class TaskConfig(abc.ABC):
    """How a fine-tuned model is used: the content of task.json.

    Attributes:
      task: the name of the task.
      labels: the labels in the order of the outputs, if any.
      max_seq_length: the longest row in tokens.
    """

    task: str
    labels: tuple[str, ...]
    max_seq_length: int

    # The name of the task on huggingface.co.
    pipeline_tag: ClassVar[str]
    # The head of the model in a checkpoint; empty for none.
    head: ClassVar[str]
    # The function of `bert_tf.models` that builds the model.
    builder: ClassVar[str]
    # The values of `UsageOptions.task` that fit the model.
    tasks: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of_recipe(cls, recipe: Any, **values: Any) -> Self:
        """Returns `values` with the settings of a recipe of the same names."""
        names = cls.__dataclass_fields__.keys() & vars(recipe).keys()
        return cls(**{name: getattr(recipe, name) for name in names} | values)

    def to_dict(self) -> dict[str, Any]:
        """Returns what task.json holds; see `added_later`."""
        values = dataclasses.asdict(self)
        for field in dataclasses.fields(self):
            is_default = values[field.name] == field.default
            if field.metadata.get("added_later") and is_default:
                del values[field.name]
        return values

    @classmethod
    @abc.abstractmethod
    def of_head(cls, head: "HeadInFolder") -> Self:
        """Derives the config of a folder that has a head and no task.json.

        Raises:
          UserError: an option does not apply to the model.
        """

    def build(
        self, encoder: "BertEncoder", unpadded: bool = True
    ) -> "keras.Model":
        """Builds a model from the encoder's inputs to logits.

        Args:
          encoder: the encoder, whose weights the model shares.
          unpadded: whether it skips padding, with shapes that are known only at
            run time.
        """
        from bert_tf import models

        builder = getattr(models, self.builder)
        return builder(encoder, *self.head_sizes, unpadded=unpadded)

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """The number of outputs, if the builder takes it."""
        return ()

    @abc.abstractmethod
    def sample(self) -> dict[str, Any]:
        """An example request, by the inputs of the served model."""

    @property
    def reads_pooler(self) -> bool:
        """Whether the head is on the pooled output."""
        return self.head in HEADS_ON_POOLER

    @property
    def problem_type(self) -> str | None:
        """The problem type of a classifier; see `Checkpoint`."""
        return None

    @property
    def texts_per_row(self) -> int:
        """The texts of a row, 1 or 2."""
        return 1

    def summary(self) -> dict[str, Any]:
        """The values that results.json repeats."""
        return {}

    def stated(self) -> dict[str, Any]:
        """The values that `UsageOptions` must not contradict, by name.

        The task is included only if the head has several uses.
        """
        return {
            "labels": self.labels,
            "max_seq_length": self.max_seq_length,
            "threshold": self.summary().get("threshold"),
        }


@dataclasses.dataclass(frozen=True)
class CalibratedConfig(TaskConfig):
    """The config of a model whose answers have probabilities.

    Attributes:
      calibration_temperature: divides the logits; see `calibration.py`.
    """

    # mypy knows only `field` as a keyword.
    calibration_temperature: float = dataclasses.field(
        default=1.0, kw_only=True, metadata=ADDED_LATER
    )

    def summary(self) -> dict[str, Any]:
        """The temperature of a calibrated model."""
        if self.calibration_temperature == 1:
            return {}
        return {"calibration_temperature": self.calibration_temperature}


@dataclasses.dataclass(frozen=True)
class HeadInFolder:
    """A model folder that has a head and no task.json.

    Attributes:
      folder: the folder, for errors.
      checkpoint: its checkpoint.
      options: the caller's options.
      tokenizer: its tokenizer.
    """

    folder: str
    checkpoint: Checkpoint
    options: UsageOptions
    tokenizer: Tokenizer

    def labels(self, head: str) -> tuple[str, ...]:
        """Returns the names of the outputs."""
        outputs = num_labels(self.checkpoint, head)
        known, given = self.checkpoint.labels, self.options.labels
        if given is None:
            return known or default_labels(outputs)
        if len(given) != outputs:
            raise UserError(
                f"`labels`: are {len(given)} ({first_few(given)}), but "
                f"{self.folder} has {outputs} outputs; name each."
            )
        if known is not None and tuple(given) != known:
            raise UserError(
                f"{self.options.shown('labels')}: {self.folder} names its "
                f"outputs {first_few(known)}; leave it out."
            )
        return tuple(given)

    def length(self, num_texts: int, least: int) -> int:
        """Returns the longest row, with room for `least` tokens of text."""
        special = self.tokenizer.packing.num_special(num_texts)
        return check_length(
            self.folder, self.checkpoint, self.options, special + least
        )

    def refuse(self, task: str, *names: str) -> None:
        """Raises `UserError` if options are given that a task does not have."""
        for name in names:
            if name in self.options.given:
                raise UserError(
                    f"{self.options.shown(name)}: does not apply "
                    f"to {task}, as which {self.folder} is used; leave it out."
                )


def check_segments(
    source: str, config: BertConfig, packing: Packing, texts_per_row: int = 2
) -> None:
    """Raises `UserError` if a model has no segment for the second text."""
    if texts_per_row > 1 and packing.second_segment >= config.segment_limit:
        raise UserError(
            f"{source}: type_vocab_size is {config.type_vocab_size}, so it "
            "cannot tell the two texts of a row apart; choose another model."
        )


def check_length(
    folder: str, checkpoint: Checkpoint, options: UsageOptions, least: int
) -> int:
    """Returns the longest row, checked against the model's positions."""
    longest = checkpoint.config.longest_input
    length = options.max_seq_length
    if length is None:
        return checkpoint.max_seq_length or longest
    why = f"longest_input of {folder}"
    return whole_number("max_seq_length", length, least, longest, why)
