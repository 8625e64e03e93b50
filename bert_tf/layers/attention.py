"""Multi-head self-attention."""

from typing import Any

import keras
from keras import ops

from bert_tf.layers.base import ConfiguredLayer

# Added to the scores of positions that may not be attended to
# (google-research/bert, modeling.py, attention_layer).
MASKED_SCORE = -10000.0


def attention_adder(
    input_mask: Any, sequence_ids: Any = None, causal: bool = False
) -> Any:
    """What is added to attention scores to hide positions.

    Only the attended-to side is masked: padding queries attend to the text
    as in the original, and nobody reads what they give.

    Args:
      input_mask: int32 [B, S], 1 = token, 0 = padding.
      sequence_ids: int32 [B, S], 0 = padding, 1..k = sequence of the row; a
        token attends only to its own sequence. None: the row is one sequence.
      causal: a token attends only to itself and to earlier positions.

    Returns:
      float32 [B, 1, 1, S], or [B, 1, S, S] with sequence_ids or causal: 0
      where a query may attend, `MASKED_SCORE` elsewhere.
    """
    allowed = ops.not_equal(input_mask, 0)[:, None, None, :]
    if sequence_ids is not None:
        same = ops.equal(sequence_ids[:, :, None], sequence_ids[:, None, :])
        allowed = ops.logical_and(allowed, same[:, None])
        real = ops.not_equal(sequence_ids, 0)[:, None, None, :]
        allowed = ops.logical_and(allowed, real)
    if causal:
        place = ops.arange(ops.shape(input_mask)[1])
        earlier = ops.greater_equal(place[:, None], place[None, :])
        allowed = ops.logical_and(allowed, earlier[None, None])
    return (1.0 - ops.cast(allowed, "float32")) * MASKED_SCORE


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(ConfiguredLayer):
    """Attention of a sequence to itself, N heads of size D = H / N.

    Vaswani et al. 2017, section 3.2. Queries, keys and values come out of
    one matrix product: the columns of the kernel are [query, key, value].
    The output projection belongs to the Transformer block.
    """

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the kernel [H, 3H] and the bias [3H]."""
        hidden = self.config.hidden_size
        self.kernel = self.add_kernel("qkv_kernel", (hidden, 3 * hidden))
        self.bias = self.add_bias("qkv_bias", 3 * hidden)
        self.dropout = self.make_dropout(
            self.config.attention_probs_dropout_prob
        )

    def call(
        self, hidden: Any, adder: Any, training: bool | None = None
    ) -> tuple[Any, Any]:
        """Attends.

        Args:
          hidden: float [B, S, H].
          adder: float32, broadcast to [B, N, S, S]; see `attention_adder`.
          training: whether dropout on the probabilities is active.

        Returns:
          The context float [B, S, H] and the probabilities before dropout
          float [B, N, S, S], both in the compute dtype.
        """
        heads = self.config.num_attention_heads
        size = self.config.hidden_size // heads
        batch, length = ops.shape(hidden)[:2]
        qkv = self.project(hidden, self.kernel, self.bias)
        qkv = ops.reshape(qkv, (batch, length, 3, heads, size))
        # One transpose and an unstack: the gradient of three slices would
        # fill three arrays of zeros as large as the whole.
        query, key, value = ops.unstack(
            ops.transpose(qkv, (2, 0, 3, 1, 4)), 3
        )  # [B, N, S, D]
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores = ops.cast(scores, "float32")  # [B, N, S, S]
        scores = scores * (size**-0.5) + adder
        probabilities = ops.softmax(scores, axis=-1)
        dropped = self.dropout(probabilities, training=training)
        context = ops.matmul(self.compute(dropped), value)  # [B, N, S, D]
        context = ops.transpose(context, (0, 2, 1, 3))
        context = ops.reshape(context, (batch, length, heads * size))
        return context, self.compute(probabilities)
