"""The model of a task, in the form that the loop trains."""

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.encoder import BertEncoder
from bert_tf.features import ENCODER_INPUTS


@keras.saving.register_keras_serializable(package="bert_tf")
class TaskModel(keras.Model):
    """A network on an encoder that takes batches which hold labels too.

    Args:
      network: what a function of `bert_tf.models` made, on a `BertEncoder`.
      name: name of the model.

    Call arguments:
      batch: the encoder's inputs, as `network` takes them; other keys are
        left alone.
      training: whether dropout is active.

    Returns:
      A dict of the network's outputs; the only one is called logits.
    """

    def __init__(self, network: keras.Model, name: str = "task_model") -> None:
        super().__init__(name=name)
        self.network = network
        (self.encoder,) = (
            layer for layer in network.layers if isinstance(layer, BertEncoder)
        )
        self.built = True

    def call(
        self, batch: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """Runs the network on a batch; see the class."""
        inputs = {f.name: batch[f.name] for f in ENCODER_INPUTS}
        outputs = self.network(inputs, training=training)
        return outputs if isinstance(outputs, dict) else {"logits": outputs}

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {
            "network": keras.saving.serialize_keras_object(self.network),
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "TaskModel":
        """Builds the model from what `get_config` returned."""
        network = keras.saving.deserialize_keras_object(config["network"])
        return cls(network, config["name"])
