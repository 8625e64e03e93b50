"""Configuration of multiple-choice models, as task.json stores it."""

import dataclasses
from typing import Any, ClassVar, Self

from bert_tf.checkpoints import MULTIPLE_CHOICE
from bert_tf.families.config import CalibratedConfig, HeadInFolder
from bert_tf.families.usage_options import CHOICE_TASK


@dataclasses.dataclass(frozen=True)
class MultipleChoiceConfig(CalibratedConfig):
    """Configuration of a multiple-choice model.

    Attributes:
      has_start: whether a separate column has the common start of the choices.
    """

    has_start: bool

    pipeline_tag: ClassVar[str] = "multiple-choice"
    builder: ClassVar[str] = "bert_multiple_choice"
    head: ClassVar[str] = MULTIPLE_CHOICE
    texts_per_row: ClassVar[int] = 2
    tasks: ClassVar[tuple[str, ...]] = (CHOICE_TASK,)

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """Returns the config for a folder that has no task.json."""
        task = CHOICE_TASK
        head.refuse(task, "labels", "threshold")
        return cls(task, (), head.length(2, 2), False)

    def sample(self) -> dict[str, Any]:
        """Returns a text with two choices and their common start."""
        choices = ["sat down.", "was green."]
        start = {"start": "She"} if self.has_start else {}
        return {"text": "A woman came in.", "choices": choices, **start}
