"""Configuration of multiple-choice models, as task.json stores it."""

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
    """Configuration of a multiple-choice model.

    Attributes:
      has_start: whether a separate column has the common start of the choices.
    """

    has_start: bool

    pipeline_tag: ClassVar[str] = "multiple-choice"
    head: ClassVar[str] = MULTIPLE_CHOICE
    texts_per_row: ClassVar[int] = 2
    tasks: ClassVar[tuple[str, ...]] = (CHOICE_TASK,)

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """Returns the config for a folder that has no task.json."""
        task = CHOICE_TASK
        head.refuse(task, "labels", "threshold")
        return cls(task, (), head.length(2, 2), False)

    def build(
        self, encoder: "BertEncoder", unpadded: bool = True
    ) -> "keras.Model":
        """Builds a `bert_multiple_choice`."""
        from bert_tf.models import bert_multiple_choice

        return bert_multiple_choice(encoder, unpadded=unpadded)

    def sample(self) -> dict[str, Any]:
        """Returns a text with two choices and their common start."""
        choices = ["sat down.", "was green."]
        start = {"start": "She"} if self.has_start else {}
        return {"text": "A woman came in.", "choices": choices, **start}
