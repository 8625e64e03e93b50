"""The model of a sentence task, in the form that the loop trains."""

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.encoder import BertEncoder
from bert_tf.features import ENCODER_INPUTS
from bert_tf.models import bert_classifier


@keras.saving.register_keras_serializable(package="bert_tf")
class SentenceModel(keras.Model):
    """`bert_classifier` on batches that hold labels too.

    Args:
      encoder: a `BertEncoder`, whose weights the model shares.
      num_outputs: C, 1 for regression.
      name: name of the model.

    Call arguments:
      batch: input_ids, input_mask and segment_ids, int32 [B, S]; other keys
        are left alone.
      training: whether dropout is active.

    Returns:
      A dict of logits, float32 [B, C].
    """

    def __init__(
        self,
        encoder: BertEncoder,
        num_outputs: int,
        name: str = "sentence_model",
    ) -> None:
        super().__init__(name=name)
        self.encoder = encoder
        self.num_outputs = num_outputs
        self.classifier = bert_classifier(encoder, num_outputs)
        self.built = True

    def call(
        self, batch: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """Scores a batch; see the class."""
        inputs = {f.name: batch[f.name] for f in ENCODER_INPUTS}
        return {"logits": self.classifier(inputs, training=training)}

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "num_outputs": self.num_outputs,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "SentenceModel":
        """Builds the model from what `get_config` returned."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(encoder, config["num_outputs"], config["name"])
