"""How a model of any family is used, and what its folder states of that.

Config classes and what is imported here load neither TensorFlow nor a reader
of data.
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
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    import keras

    from bert_tf.encoders import BertEncoder


@dataclasses.dataclass(frozen=True)
class TaskConfig(abc.ABC):
    """How a fine-tuned model is used: task.json.

    Attributes:
      task: the task's name.
      labels: the labels in the order of the outputs, where there are such.
      max_seq_length: S at most.
    """

    task: str
    labels: tuple[str, ...]
    max_seq_length: int

    # What huggingface.co calls what such a model does.
    pipeline_tag: ClassVar[str]
    # The head of a checkpoint that such a model has; empty for none.
    head: ClassVar[str]
    # What a caller may state as `UsageOptions.task` of such a model.
    tasks: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abc.abstractmethod
    def of_head(cls, head: "HeadInFolder") -> Self:
        """How a model is used whose folder has a head and no task.json.

        Raises:
          UserError: an option does not apply to the model.
        """

    @abc.abstractmethod
    def build(
        self, encoder: "BertEncoder", unpadded: bool = True
    ) -> "keras.Model":
        """The head on an encoder, from the encoder's inputs to logits.

        Args:
          encoder: whose weights the model shares.
          unpadded: whether it computes on the tokens alone, by shapes that
            are known at run time only.
        """

    @abc.abstractmethod
    def sample(self) -> dict[str, Any]:
        """A question to such a model, by the inputs that it is served with."""

    @property
    def reads_pooler(self) -> bool:
        """Whether the head is on the pooled output."""
        return self.head in HEADS_ON_POOLER

    @property
    def problem_type(self) -> str | None:
        """What a classifier's outputs are; see `Checkpoint`."""
        return None

    @property
    def num_segments(self) -> int:
        """How many texts of a row the model tells apart."""
        return 1

    def summary(self) -> dict[str, Any]:
        """What results.json repeats of it."""
        return {}

    def stated(self) -> dict[str, Any]:
        """What a caller's `UsageOptions` must not contradict, by their names.

        The task is not among them where the head has one use.
        """
        return {
            "labels": self.labels,
            "max_seq_length": self.max_seq_length,
            "threshold": self.summary().get("threshold"),
        }


@dataclasses.dataclass(frozen=True)
class HeadInFolder:
    """The head of a model whose folder has no task.json.

    Attributes:
      place: the folder, for errors.
      checkpoint: what it holds.
      options: what the caller states.
      tokenizer: that of the model.
    """

    place: str
    checkpoint: Checkpoint
    options: UsageOptions
    tokenizer: Tokenizer

    def labels(self, head: str) -> tuple[str, ...]:
        """The names of the outputs."""
        outputs = num_labels(self.checkpoint, head)
        known, given = self.checkpoint.labels, self.options.labels
        if given is None:
            return known or default_labels(outputs)
        if len(given) != outputs:
            raise UserError(
                f"`labels`: are {len(given)} ({first_few(given)}), but "
                f"{self.place} has {outputs} outputs; name each."
            )
        if known is not None and tuple(given) != known:
            raise UserError(
                f"{self.options.shown('labels')}: {self.place} names its "
                f"outputs {first_few(known)}; leave it out."
            )
        return tuple(given)

    def length(self, num_texts: int, least: int) -> int:
        """The longest row, with room for `least` tokens of text."""
        special = self.tokenizer.packing.num_special(num_texts)
        return check_length(
            self.place, self.checkpoint, self.options, special + least
        )

    def refuse(self, task: str, *names: str) -> None:
        """Refuses options that do not apply to a task."""
        for name in names:
            if name in self.options.given:
                raise UserError(
                    f"{self.options.shown(name)}: does not apply "
                    f"to {task}, as which {self.place} is used; leave it out."
                )


def check_segments(source: str, config: BertConfig, count: int) -> None:
    """Raises `UserError` where a model cannot tell `count` texts apart."""
    if count > config.segment_limit:
        raise UserError(
            f"{source}: type_vocab_size is {config.type_vocab_size}, so it "
            "cannot tell the two texts of a row apart; choose another model."
        )


def check_length(
    place: str, checkpoint: Checkpoint, options: UsageOptions, least: int
) -> int:
    """The longest row, checked against the model's positions."""
    longest = checkpoint.config.longest_input
    length = options.max_seq_length
    if length is None:
        return checkpoint.max_seq_length or longest
    why = f"longest_input of {place}"
    return whole_number("max_seq_length", length, least, longest, why)
