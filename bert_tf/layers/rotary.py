"""Self-attention with rotary positions."""

from typing import Any

import keras
from keras import ops

from bert_tf.compat import custom_gradient
from bert_tf.config import BertConfig
from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.part_weights import LowRank, PartWeights, part_of


def _turned(x: Any, cosines: Any, sines: Any) -> Any:
    """Rotates the pairs (d, d + D / 2) of float [..., D], in float32."""
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    pairs = [first * cosines - second * sines, second * cosines + first * sines]
    return ops.cast(ops.concatenate(pairs, axis=-1), x.dtype)


@custom_gradient
def _rotated(heads: Any, cosines: Any, sines: Any) -> Any:
    """Rotates heads; the gradient is rotated back, so nothing is stored."""

    def gradient(upstream: Any) -> tuple[Any, Any, Any]:
        zeros = ops.zeros_like(cosines)
        return _turned(upstream, cosines, -sines), zeros, zeros

    return _turned(heads, cosines, sines), gradient


@keras.saving.register_keras_serializable(package="bert_tf")
class RotaryAttention(SelfAttention):
    """Self-attention whose queries and keys are rotated by their positions.

    Su et al. 2021, "RoFormer", section 3.2.2: dimension d is paired with d +
    D / 2, and the pair is rotated by position * base^(-2 d / D). The scores
    depend on distances only, so that positions in a row serve every sequence
    of the row.

    Args:
      config: the architecture.
      base: the base of the rotations.
      window: the largest distance between a query and its keys; None for all.
      name: name of the layer.
      dtype: Keras dtype policy or its name.
      trainable: whether training changes the weights.
    """

    def __init__(
        self,
        config: BertConfig,
        base: float,
        window: int | None = None,
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(config, name=name, dtype=dtype, trainable=trainable)
        self.base = base
        self.window = window

    def add_updates(self, hidden: int, width: int) -> None:
        """Creates one update of the kernel of all three parts."""
        self.update = self.add_low_rank("", hidden, 3 * width)

    def rotated(self, heads: Any, positions: Any = None) -> Any:
        """Rotates heads [B, N, S, D] by positions [S], by default 0..S-1."""
        size = heads.shape[-1]
        if positions is None:
            positions = ops.arange(ops.shape(heads)[2], dtype="int32")[None]
        powers = [self.base ** (-2 * pair / size) for pair in range(size // 2)]
        angles = ops.cast(positions, "float32")[
            ..., None
        ] * ops.convert_to_tensor(powers, "float32")
        angles = angles[:, None]
        return _rotated(heads, ops.cos(angles), ops.sin(angles))

    def positioned(
        self, query: Any, key: Any, query_positions: Any = None
    ) -> tuple[Any, Any]:
        """See `SelfAttention.positioned`."""
        return self.rotated(query, query_positions), self.rotated(key)

    def part_weights(self) -> list[PartWeights]:
        """The weights of its one part."""
        return [part_of(self.kernel, self.bias, update=self.update)]

    def _update(self, first: int, last: int) -> LowRank | None:
        if self.update is None:
            return None
        width = self.config.attention_size
        a, b = self.update
        return LowRank(a, b[:, first * width : last * width])

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments as plain data."""
        return {
            **super().get_config(),
            "base": self.base,
            "window": self.window,
        }
