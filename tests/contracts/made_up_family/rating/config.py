"""The config of a model that rates texts."""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_tf.families.config import HeadInFolder, TaskConfig

if TYPE_CHECKING:
    import keras

    from bert_tf.encoders import BertEncoder


@dataclasses.dataclass(frozen=True)
class RatingConfig(TaskConfig):
    """The content of task.json.

    Attributes:
      steps: K, the highest rating.
    """

    steps: int

    pipeline_tag: ClassVar[str] = "text-classification"
    head: ClassVar[str] = "rating"

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """The head has an output for each step."""
        head.refuse("rating", "labels", "threshold")
        steps = len(head.labels(cls.head))
        return cls("rating", (), head.length(1, 1), steps)

    def build(
        self, encoder: "BertEncoder", unpadded: bool = True
    ) -> "keras.Model":
        """A linear layer on the pooled output with an output for each step."""
        import keras

        from bert_tf.features import ENCODER_INPUTS

        inputs = {
            each.name: keras.Input([None], dtype=each.dtype, name=each.name)
            for each in ENCODER_INPUTS
        }
        outputs = encoder(inputs, pooled_only=True, unpadded=unpadded)
        dense = keras.layers.Dense(self.steps, dtype="float32", name=self.head)
        return keras.Model(inputs, dense(outputs["pooled_output"]))

    @property
    def reads_pooler(self) -> bool:
        """Yes."""
        return True

    def sample(self) -> dict[str, Any]:
        """A text."""
        return {"text": "A lovely film."}
