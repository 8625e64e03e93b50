"""Layer normalisation in float32."""

from typing import Any

import keras
from keras import ops

from bert_tf.layers.base import ConfiguredLayer


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(ConfiguredLayer):
    """Normalises the last axis in float32, whatever the precision policy.

    Ba et al. 2016, equation 4, with the biased variance and the epsilon of
    the configuration inside the square root.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates gamma [H] and beta [H]."""
        size = (input_shape[-1],)
        self.gamma = self.add_weight(
            name="gamma", shape=size, initializer="ones", autocast=False
        )
        self.beta = self.add_weight(
            name="beta", shape=size, initializer="zeros", autocast=False
        )

    def call(self, inputs: Any) -> Any:
        """Normalises.

        Args:
          inputs: float [..., H].

        Returns:
          float [..., H] in the compute dtype.
        """
        x = ops.cast(inputs, "float32")
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        x = x * ops.rsqrt(variance + self.config.layer_norm_eps)
        gamma = ops.cast(self.gamma, "float32")
        return self.compute(x * gamma + ops.cast(self.beta, "float32"))
