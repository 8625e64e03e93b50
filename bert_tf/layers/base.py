"""What every layer here shares: a configuration and explicit precision."""

from typing import Any, Self

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers.activations import activate
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.products import gelu_erf_product, product


class ConfiguredLayer(keras.layers.Layer):
    """Base of the layers: takes a `BertConfig` and keeps it when saved.

    Keras' automatic casting is off. A layer casts where the computation
    wants it (`compute` for matrix products; float32 for softmax and layer
    normalisation), so that the precision of each step can be read in it.

    Args:
      config: the architecture.
      name: name of the layer.
      dtype: Keras dtype policy or its name, such as "mixed_bfloat16".
      trainable: whether training changes the weights.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(
            name=name, dtype=dtype, trainable=trainable, autocast=False
        )
        self.config = config

    def add_kernel(self, name: str, shape: tuple[int, ...]) -> keras.Variable:
        """Adds a weight drawn from the truncated normal of the paper's code.

        Source: google-research/bert, modeling.py, create_initializer (values
        beyond two standard deviations are drawn again).
        """
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=keras.initializers.TruncatedNormal(
                stddev=self.config.initializer_range
            ),
            autocast=False,
        )

    def add_bias(self, name: str, size: int) -> keras.Variable:
        """Adds a vector of zeros."""
        return self.add_weight(
            name=name, shape=(size,), initializer="zeros", autocast=False
        )

    def make_dropout(self, rate: float, name: str = "dropout") -> Dropout:
        """A dropout layer that works in float32, as `Dropout` does."""
        return Dropout(rate, name=name, dtype="float32")

    def compute(self, tensor: Any) -> Any:
        """Casts a tensor or weight to the dtype of matrix products."""
        return ops.cast(tensor, self.compute_dtype)

    def project(
        self, inputs: Any, kernel: Any, bias: Any, hidden_act: str = "linear"
    ) -> Any:
        """activation(inputs @ kernel + bias), one product of two matrices.

        A product of rank 3 by rank 2 is slower and its gradient is summed
        over the batch in a second pass.

        Args:
          inputs: float [..., I].
          kernel: float [I, O].
          bias: float [O].
          hidden_act: the activation; see `activate`.

        Returns:
          float [..., O] in the compute dtype.
        """
        rows = ops.reshape(self.compute(inputs), (-1, kernel.shape[0]))
        parts = rows, self.compute(kernel), self.compute(bias)
        if hidden_act == "gelu_erf" and self.compute_dtype != "float32":
            rows = gelu_erf_product(*parts)
        else:
            rows = activate(hidden_act, product(*parts))
        return ops.reshape(rows, (*ops.shape(inputs)[:-1], kernel.shape[1]))

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the layer from what `get_config` returned."""
        architecture = BertConfig.from_dict(config["config"], cls.__name__)
        return super().from_config({**config, "config": architecture})
