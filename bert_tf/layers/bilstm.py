"""A bidirectional LSTM on the tokens of a sequence."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.part_weights import PartWeights, part_of


def _orthogonal(shape: Sequence[int], dtype: Any = None) -> Any:
    """Keras' own initial recurrent kernel, which TensorFlow has in no bfloat16.

    Saxe et al. 2014.
    """
    drawn = keras.initializers.Orthogonal()(shape, dtype="float32")
    return ops.cast(drawn, dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class BiLSTM(ConfiguredLayer):
    """An LSTM in each direction, H / 2 wide, side by side.

    Devlin et al. 2019, section 5.1, put a randomly initialised BiLSTM on top
    of a model for fine-tuning (table 5). Hochreiter and Schmidhuber 1997, in
    the form of `keras.layers.LSTM`: gates i, f, c and o, and a forget gate
    whose bias begins at 1.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates a kernel, a recurrent kernel and a bias each."""
        hidden = self.config.hidden_size
        self.directions = [
            keras.layers.LSTM(
                hidden // 2,
                recurrent_initializer=_orthogonal,
                return_sequences=True,
                return_state=True,
                go_backwards=name == "backward",
                name=name,
                dtype=self.dtype_policy,
            )
            for name in ("forward", "backward")
        ]
        for direction in self.directions:
            direction.build((None, None, hidden))

    def call(self, hidden: Any, input_mask: Any) -> tuple[Any, Any]:
        """Reads each row in both directions, without its padding.

        Args:
          hidden: float [B, S, H].
          input_mask: int32 [B, S], 1 = token, 0 = padding.

        Returns:
          What both directions say of each token, float [B, S, H], 0 of
          padding; and what they say at the end of their way, the forward one
          at the last token and the backward one at the first, float [B, H].
          Both in the compute dtype.
        """
        mask = ops.not_equal(input_mask, 0)
        found = [lstm(hidden, mask=mask) for lstm in self.directions]
        (forward, forward_end, _), (backward, backward_end, _) = found
        tokens = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=2)
        tokens = ops.where(mask[:, :, None], tokens, ops.zeros_like(tokens))
        return tokens, ops.concatenate([forward_end, backward_end], axis=1)

    def part_weights(self) -> list[PartWeights]:
        """The weights by part of a table: those of each direction."""
        cells = (direction.cell for direction in self.directions)
        return [
            part_of(cell.kernel, cell.recurrent_kernel, cell.bias)
            for cell in cells
        ]
