"""The base class of the layers, dropout, dense layers and layer norm."""

import math
from typing import Any, Self

import keras
from keras import ops

from bert_tf.compat import custom_gradient
from bert_tf.config import BertConfig
from bert_tf.layers.initialization import add_random_weight
from bert_tf.layers.part_weights import LowRank, PartWeights, part_of
from bert_tf.layers.products import (
    activate,
    column_sums,
    gelu_product,
    in_rows,
    product,
)

# A random number of 32 bits decides on two elements, with 16 bits each.
_LEVELS = 2**16


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Dropout):
    """Zeroes elements at random and scales the rest to preserve the mean.

    Srivastava et al. 2014. The rate is rounded to a multiple of 2^-16, and so
    is the scale. Computes in float32: bfloat16 would round the scale.
    """

    @property
    def scale(self) -> float:
        """The factor of the elements that are kept."""
        return _LEVELS / (_LEVELS - self._levels)

    @property
    def _levels(self) -> int:
        return round(self.rate * _LEVELS)

    def drops(self, training: bool | None) -> bool:
        """Whether the layer drops anything."""
        return bool(training and self.rate)

    def draw(self, shape: tuple[Any, ...]) -> Any:
        """Draws a dropout mask, bool of a shape: True where kept."""
        # Static sizes first: their product takes no operation of a graph.
        size = math.prod(sorted(shape, key=lambda a: not isinstance(a, int)))
        numbers = keras.random.randint(
            ((size + 1) // 2, 1),
            -(2**31),
            2**31 - 1,
            dtype="int32",
            seed=self.seed_generator,
        )
        bits = ops.reshape(ops.view(numbers, "int16"), (-1,))
        bits = ops.reshape(bits[:size], shape)
        return ops.greater_equal(bits, self._levels - _LEVELS // 2)

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        """Applies dropout to a float tensor while training."""
        if not self.drops(training):
            return inputs
        scale = self.scale

        @custom_gradient
        def dropped(inputs: Any, mask: Any) -> Any:
            def gradient(upstream: Any) -> tuple[Any, None]:
                upstream = upstream * scale
                zeros = ops.zeros_like(upstream)
                return ops.where(mask, upstream, zeros), None

            return inputs * (ops.cast(mask, "float32") * scale), gradient

        return dropped(inputs, self.draw(ops.shape(inputs)))


class ConfiguredLayer(keras.layers.Layer):
    """Base class of layers that are configured by a `BertConfig`.

    Keras' autocast is off: layers cast explicitly (`compute` for matrix
    products; float32 for softmax and layer normalisation).

    Args:
      config: the architecture.
      name: name of the layer.
      dtype: Keras dtype policy or its name, such as "mixed_bfloat16".
      trainable: whether training changes the weights.
    """

    # The low-rank update of the layer's kernel.
    update: LowRank | None = None

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
        """Adds a kernel with the truncated normal initializer of the original.

        Source: google-research/bert, modeling.py, create_initializer.
        """
        initializer = keras.initializers.TruncatedNormal(
            stddev=self.config.initializer_range
        )
        return add_random_weight(self, name, shape, initializer)

    def add_bias(self, name: str, size: int) -> keras.Variable:
        """Adds a bias of zeros."""
        return self.add_weight(
            name=name, shape=(size,), initializer="zeros", autocast=False
        )

    def add_low_rank(self, prefix: str, inputs: int, units: int) -> LowRank:
        """Adds a low-rank update, initially 0.

        As in microsoft/LoRA, loralib/layers.py: `a` is uniform within I^-0.5,
        as PyTorch initializes linear layers, and `b` is 0.
        """
        rank, bound = self.config.lora_rank, inputs**-0.5
        a = add_random_weight(
            self,
            f"{prefix}lora_a",
            (inputs, rank),
            keras.initializers.RandomUniform(-bound, bound),
        )
        b = self.add_weight(
            name=f"{prefix}lora_b",
            shape=(rank, units),
            initializer="zeros",
            autocast=False,
        )
        return LowRank(a, b)

    def make_dropout(self, rate: float, name: str = "dropout") -> Dropout:
        """Makes a dropout layer that computes in float32."""
        return Dropout(rate, name=name, dtype="float32")

    def compute(self, tensor: Any) -> Any:
        """Casts a tensor or weight to the compute dtype."""
        return ops.cast(tensor, self.compute_dtype)

    def project(
        self,
        inputs: Any,
        kernel: Any,
        bias: Any,
        hidden_act: str = "linear",
        update: LowRank | None = None,
        training: bool | None = None,
    ) -> Any:
        """Computes activation(inputs @ kernel + bias) on flattened rows.

        A product of rank 3 by rank 2 is slower, and its gradient is summed
        over the batch in a second pass.

        Args:
          inputs: float [..., I].
          kernel: float [I, O].
          bias: float [O], or None.
          hidden_act: the activation; see `activate`.
          update: a low-rank update of the kernel.
          training: whether gradients will be computed.

        Returns:
          float [..., O] in the compute dtype.
        """
        kernel = self.compute(kernel)
        bias = None if bias is None else self.compute(bias)
        # TensorFlow fuses its own GELU with the product.
        fused = (
            hidden_act.startswith("gelu")
            and self.compute_dtype != "float32"
            and bias is not None
            and not training
        )

        def of_rows(rows: Any) -> Any:
            if update is None and fused:
                return gelu_product(rows, kernel, bias, hidden_act)
            if bias is None:
                outputs = ops.matmul(rows, kernel)
            else:
                outputs = product(rows, kernel, bias)
            if update is not None:
                scale = self.config.lora_alpha / self.config.lora_rank
                low = ops.matmul(rows, self.compute(update.a))
                outputs += ops.matmul(low, self.compute(update.b * scale))
                if fused:
                    return ops.gelu(outputs, approximate=hidden_act == "gelu")
            return activate(hidden_act, outputs)

        return in_rows(of_rows, self.compute(inputs))

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the layer from the result of `get_config`."""
        architecture = BertConfig.from_dict(config["config"], cls.__name__)
        return super().from_config({**config, "config": architecture})


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(ConfiguredLayer):
    """Computes activation(inputs @ kernel + bias) over the last axis.

    If the configuration sets lora_rank, the kernel has a low-rank update.

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
        """Creates the kernel [I, O] and, if configured, the bias [O]."""
        inputs = input_shape[-1]
        assert inputs is not None
        self.kernel = self.add_kernel("kernel", (inputs, self.units))
        self.bias = None
        if self.config.has_biases:
            self.bias = self.add_bias("bias", self.units)
        if self.config.lora_rank:
            self.update = self.add_low_rank("", inputs, self.units)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Maps float [..., I] to float [..., O] in the compute dtype."""
        return self.project(
            inputs,
            self.kernel,
            self.bias,
            self.hidden_act,
            self.update,
            training,
        )

    def part_weights(self) -> list[PartWeights]:
        """The weights of its one part."""
        return [part_of(self.kernel, self.bias, update=self.update)]

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {
            **super().get_config(),
            "units": self.units,
            "hidden_act": self.hidden_act,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class GlorotDense(Dense):
    """A `Dense` with the Glorot uniform initializer.

    Glorot and Bengio 2010, equation 16: the default of `tf.layers.dense`,
    which google-research/electra uses for some layers.
    """

    def add_kernel(self, name: str, shape: tuple[int, ...]) -> keras.Variable:
        """Adds a kernel that is uniform within (6 / (I + O))^0.5."""
        initializer = keras.initializers.GlorotUniform()
        return add_random_weight(self, name, shape, initializer)


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(ConfiguredLayer):
    """Layer normalisation of the last axis, in float32 under every policy.

    Ba et al. 2016, equation 4, with the biased variance, and layer_norm_eps
    inside the square root.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates gamma [H] and, if configured, beta [H]."""
        size = (input_shape[-1],)
        self.gamma = self.add_weight(
            name="gamma", shape=size, initializer="ones", autocast=False
        )
        self.beta = None
        if self.config.has_shifts:
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
        scales = [w for w in (self.gamma, self.beta) if w is not None]
        normalised = normalise(
            ops.cast(inputs, "float32"),
            self.config.layer_norm_eps,
            *(ops.cast(weight, "float32") for weight in scales),
        )
        return self.compute(normalised)

    def part_weights(self) -> list[PartWeights]:
        """The weights of its one part."""
        return [part_of(self.gamma, self.beta)]


def normalise(inputs: Any, epsilon: float, gamma: Any, *beta: Any) -> Any:
    """Computes layer normalisation, with a gradient in few passes.

    Args:
      inputs: float32 [..., H].
      epsilon: added to the variance.
      gamma: float32 [H].
      *beta: float32 [H], or nothing.

    Returns:
      float32 [..., H].
    """
    size = inputs.shape[-1]

    @custom_gradient
    def rows_normalised(x: Any, gamma: Any, *beta: Any) -> Any:
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        scale = ops.rsqrt(variance + epsilon)
        x = x * scale

        def gradient(upstream: Any) -> tuple[Any, ...]:
            product = upstream * x
            # Means weighted by gamma, as products with a vector.
            weights = ops.reshape(gamma, (size, 1)) / size
            mean = ops.matmul(upstream, weights)
            mean_product = ops.matmul(product, weights)
            of_x = (upstream * gamma - mean - x * mean_product) * scale
            of_beta = (column_sums(upstream) for _ in beta)
            return (of_x, column_sums(product), *of_beta)

        return sum(beta, x * gamma), gradient

    return in_rows(lambda rows: rows_normalised(rows, gamma, *beta), inputs)
