"""How a model of the family is used: what task.json holds."""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_tf.checkpoints import TOKEN_CLASSIFIER
from bert_tf.families.config import HeadInFolder, TaskConfig
from bert_tf.families.usage_options import TOKEN_CLASSIFICATION

if TYPE_CHECKING:
    import keras

    from bert_tf.encoders import BertEncoder


@dataclasses.dataclass(frozen=True)
class TokenClassificationConfig(TaskConfig):
    """What task.json holds of a tagger.

    Its labels are tags in IOB2, or those of the data where these have no
    prefixes.

    Attributes:
      context: what a row shows, "document" or "sentence".
      doc_stride: tokens from one window on a long sentence to the next; 0 is
        half of a window.
    """

    context: str
    doc_stride: int

    pipeline_tag: ClassVar[str] = "token-classification"
    head: ClassVar[str] = TOKEN_CLASSIFIER
    tasks: ClassVar[tuple[str, ...]] = (TOKEN_CLASSIFICATION,)

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """Entities of words; without names LABEL_0 and so on."""
        task = TOKEN_CLASSIFICATION
        head.refuse(task, "threshold")
        return cls(
            task=task,
            labels=head.labels(TOKEN_CLASSIFIER),
            max_seq_length=head.length(1, 1),
            context="sentence",
            doc_stride=0,
        )

    def build(
        self, encoder: "BertEncoder", unpadded: bool = True
    ) -> "keras.Model":
        """See `bert_token_classifier`."""
        from bert_tf.models import bert_token_classifier

        return bert_token_classifier(
            encoder, len(self.labels), unpadded=unpadded
        )

    def sample(self) -> dict[str, Any]:
        """A sentence."""
        return {"text": "Ada lives in London."}
