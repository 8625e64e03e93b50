"""A dense layer that multiplies matrices of rank two."""

from typing import Any

import keras

from bert_tf.config import BertConfig
from bert_tf.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(ConfiguredLayer):
    """activation(inputs @ kernel + bias) over the last axis.

    Args:
      config: the architecture.
      units: size of the output, O.
      hidden_act: the activation; see `bert_tf.config.ACTIVATIONS`.
      name: name of the layer.
      dtype: Keras dtype policy or its name.
      trainable: whether training changes the weights.
    """

    def __init__(
        self,
        config: BertConfig,
        units: int,
        hidden_act: str = "linear",
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(config, name=name, dtype=dtype, trainable=trainable)
        self.units = units
        self.hidden_act = hidden_act

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the kernel [I, O] and the bias [O]."""
        inputs = input_shape[-1]
        assert inputs is not None
        self.kernel = self.add_kernel("kernel", (inputs, self.units))
        self.bias = self.add_bias("bias", self.units)

    def call(self, inputs: Any) -> Any:
        """Maps float [..., I] to float [..., O] in the compute dtype."""
        return self.project(inputs, self.kernel, self.bias, self.hidden_act)

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {
            **super().get_config(),
            "units": self.units,
            "hidden_act": self.hidden_act,
        }
