"""How a model of the family is used: what task.json holds."""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_tf.checkpoints import MULTIPLE_CHOICE
from bert_tf.families.config import HeadInFolder, TaskConfig
from bert_tf.families.usage_options import CHOICE_TASK

if TYPE_CHECKING:
    import keras

    from bert_tf.encoders import BertEncoder


@dataclasses.dataclass(frozen=True)
class MultipleChoiceConfig(TaskConfig):
    """What task.json holds of a model of choices.

    Attributes:
      has_start: whether choices have a common beginning in a column of its
        own.
    """

    has_start: bool

    pipeline_tag: ClassVar[str] = "multiple-choice"
    head: ClassVar[str] = MULTIPLE_CHOICE
    tasks: ClassVar[tuple[str, ...]] = (CHOICE_TASK,)

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """The best of the texts that may follow one."""
        task = CHOICE_TASK
        head.refuse(task, "labels", "threshold")
        return cls(task, (), head.length(2, 2), False)

    def build(
        self, encoder: "BertEncoder", unpadded: bool = True
    ) -> "keras.Model":
        """See `bert_multiple_choice`."""
        from bert_tf.models import bert_multiple_choice

        return bert_multiple_choice(encoder, unpadded=unpadded)

    def sample(self) -> dict[str, Any]:
        """A text, how it may go on, and how every choice begins."""
        choices = ["sat down.", "was green."]
        start = {"start": "She"} if self.has_start else {}
        return {"text": "A woman came in.", "choices": choices, **start}

    @property
    def num_segments(self) -> int:
        """Two: the context and a choice."""
        return 2
