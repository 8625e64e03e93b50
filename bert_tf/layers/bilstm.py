"""A bidirectional LSTM over the tokens of a sequence."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.part_weights import PartWeights, part_of


def _orthogonal(shape: Sequence[int], dtype: Any = None) -> Any:
    # Keras' default; TensorFlow has no QR decomposition in bfloat16.
    kernel = keras.initializers.Orthogonal()(shape, dtype="float32")
    return ops.cast(kernel, dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class BiLSTM(ConfiguredLayer):
    """Concatenates a forward and a backward LSTM of H / 2 units each.

    Devlin et al. 2019, section 5.1, fine-tune a model with a randomly
    initialised BiLSTM on top (table 5). `keras.layers.LSTM` (Hochreiter and
    Schmidhuber 1997) has gates i, f, c and o and a forget bias of 1.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates a kernel, a recurrent kernel and a bias per direction."""
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
        """Runs both directions over the tokens of each row.

        Args:
          hidden: float [B, S, H].
          input_mask: int32 [B, S], 1 = token, 0 = padding.

        Returns:
          The outputs float [B, S, H], 0 at padding, and the final states of
          both directions float [B, H] (forward at the last token, backward at
          the first), in the compute dtype.
        """
        mask = ops.not_equal(input_mask, 0)
        outputs = [lstm(hidden, mask=mask) for lstm in self.directions]
        (forward, forward_end, _), (backward, backward_end, _) = outputs
        tokens = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=2)
        tokens = ops.where(mask[:, :, None], tokens, ops.zeros_like(tokens))
        return tokens, ops.concatenate([forward_end, backward_end], axis=1)

    def part_weights(self) -> list[PartWeights]:
        """The weights of each direction."""
        cells = (direction.cell for direction in self.directions)
        return [
            part_of(cell.kernel, cell.recurrent_kernel, cell.bias)
            for cell in cells
        ]
