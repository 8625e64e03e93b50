"""Layer normalisation in float32."""

from typing import Any

import keras
from keras import ops

from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.products import column_sums


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
        normalised = normalise(
            ops.cast(inputs, "float32"),
            ops.cast(self.gamma, "float32"),
            ops.cast(self.beta, "float32"),
            self.config.layer_norm_eps,
        )
        return self.compute(normalised)


def normalise(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Layer normalisation with a gradient in few passes over the rows.

    Args:
      inputs: float32 [..., H].
      gamma: float32 [H].
      beta: float32 [H].
      epsilon: added to the variance.

    Returns:
      float32 [..., H].
    """
    size = inputs.shape[-1]

    @ops.custom_gradient
    def rows_normalised(x: Any, gamma: Any, beta: Any) -> Any:
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        scale = ops.rsqrt(variance + epsilon)
        x = x * scale

        def gradient(*args: Any, upstream: Any = None) -> tuple[Any, Any, Any]:
            # TensorFlow hands the gradient over by position, JAX by name.
            upstream = args[0] if upstream is None else upstream
            product = upstream * x
            # Both means of a row weigh it with gamma: products with a vector.
            weights = ops.reshape(gamma, (size, 1)) / size
            level = ops.matmul(upstream, weights)
            share = ops.matmul(product, weights)
            slope = (upstream * gamma - level - x * share) * scale
            return slope, column_sums(product), column_sums(upstream)

        return x * gamma + beta, gradient

    rows = ops.reshape(inputs, (-1, size))
    return ops.reshape(rows_normalised(rows, gamma, beta), ops.shape(inputs))
