"""Configuration of taggers, as task.json stores it."""

import dataclasses
from typing import Any, ClassVar, Self

from bert_tf.checkpoints import TOKEN_CLASSIFIER
from bert_tf.families.config import CalibratedConfig, HeadInFolder
from bert_tf.families.usage_options import TOKEN_CLASSIFICATION


@dataclasses.dataclass(frozen=True)
class TokenClassificationConfig(CalibratedConfig):
    """Configuration of a tagger, whose labels are IOB2 or without prefixes.

    Attributes:
      context: context of each row, "document" or "sentence".
      doc_stride: tokens between the windows of a long sentence; 0 is half a
        window.
    """

    context: str
    doc_stride: int

    pipeline_tag: ClassVar[str] = "token-classification"
    builder: ClassVar[str] = "bert_token_classifier"
    head: ClassVar[str] = TOKEN_CLASSIFIER
    tasks: ClassVar[tuple[str, ...]] = (TOKEN_CLASSIFICATION,)

    @classmethod
    def of_head(cls, head: HeadInFolder) -> Self:
        """Returns the config for a folder that has no task.json."""
        task = TOKEN_CLASSIFICATION
        head.refuse(task, "threshold")
        labels, length = head.labels(TOKEN_CLASSIFIER), head.length(1, 1)
        return cls(task, labels, length, context="sentence", doc_stride=0)

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """The number of tags."""
        return (len(self.labels),)

    def sample(self) -> dict[str, Any]:
        """Returns a sentence."""
        return {"text": "Ada lives in London."}


@dataclasses.dataclass(frozen=True)
class FeatureTaggingConfig(TokenClassificationConfig):
    """Configuration of a tagger on features; see `FeatureRecipe`.

    Attributes:
      features: the layers that a word's features come from.
      lstm_units: units of each direction of both layers.
      tagger_dropout: dropout rate of the input of each layer.
    """

    features: str
    lstm_units: int
    tagger_dropout: float

    # A checkpoint has no such head.
    head: ClassVar[str] = ""
