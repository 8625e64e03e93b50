"""Multi-head self-attention."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import ALL_DENSE
from bert_tf.layers.base import ConfiguredLayer, LowRank
from bert_tf.layers.heads import at_positions
from bert_tf.layers.unpadding import TokenPlaces

# Added to the scores of positions that may not be attended to
# (google-research/bert, modeling.py, attention_layer).
MASKED_SCORE = -10000.0
# As they lie side by side in the kernel.
_PARTS = ("query", "key", "value")


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


@ops.custom_gradient
def masked_scores(query: Any, key: Any, adder: Any) -> Any:
    """The scaled products of queries and keys, and `adder`.

    The gradient takes nothing from within, so that TensorFlow fuses product,
    scale and sum in training too.

    Args:
      query: float [B, N, Q, D].
      key: float [B, N, S, D].
      adder: float32, broadcast to [B, N, Q, S]; has no gradient.

    Returns:
      float32 [B, N, Q, S].
    """
    scale = query.shape[-1] ** -0.5

    def gradient(*args: Any, upstream: Any = None) -> tuple[Any, Any, Any]:
        # TensorFlow hands the gradient over by position, JAX by name.
        upstream = args[0] if upstream is None else upstream
        upstream = ops.cast(upstream * scale, query.dtype)
        return (
            ops.matmul(upstream, key),
            ops.matmul(ops.transpose(upstream, (0, 1, 3, 2)), query),
            ops.zeros_like(adder),
        )

    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    return ops.cast(scores, "float32") * scale + adder, gradient


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(ConfiguredLayer):
    """Attention of a sequence to itself, N heads of size D, A = N * D together.

    Vaswani et al. 2017, section 3.2, where A is H. Queries, keys and values
    come out of one matrix product: the columns of the kernel are [query, key,
    value]. The output projection belongs to the Transformer block.
    """

    # Of query, key and value, those that have one.
    updates: Mapping[str, LowRank] = {}

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the kernel [H, 3A] and the bias [3A]."""
        hidden, width = self.config.hidden_size, self.config.attention_size
        self.kernel = self.add_kernel("qkv_kernel", (hidden, 3 * width))
        self.bias = self.add_bias("qkv_bias", 3 * width)
        if self.config.lora_rank:
            everywhere = self.config.lora_on == ALL_DENSE
            self.updates = {
                part: self.add_low_rank(f"{part}_", hidden, width)
                for part in (_PARTS if everywhere else ("query", "value"))
            }
        self.dropout = self.make_dropout(
            self.config.attention_probs_dropout_prob
        )

    def call(
        self,
        hidden: Any,
        adder: Any,
        cls_only: bool = False,
        training: bool | None = None,
        cls_positions: Any = None,
    ) -> tuple[Any, Any]:
        """Attends.

        Args:
          hidden: float [B, S, H].
          adder: float32, broadcast to [B, N, S, S]; see `attention_adder`.
          cls_only: only the first position attends (to all S): Q = 1, where
            otherwise Q = S.
          training: whether dropout on the probabilities is active.
          cls_positions: int32 [B, Q], with cls_only: which positions attend,
            in place of the first; `adder` is [B, 1, S, S] then.

        Returns:
          The context float [B, Q, A] and the probabilities before dropout
          float [B, N, Q, S], both in the compute dtype.
        """
        if cls_only:
            if cls_positions is None:
                first, adder = hidden[:, :1], adder[:, :, :1]
            else:
                first = at_positions(hidden, cls_positions)
                adder = at_positions(adder[:, 0], cls_positions)[:, None]
            (query,) = self._heads(first, 0, 1)
            key, value = self._heads(hidden, 1, 3)
        else:
            query, key, value = self._heads(hidden, 0, 3)
        return self._attend(query, key, value, adder, training)

    def of_tokens(
        self,
        tokens: Any,
        places: TokenPlaces,
        cls_only: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Attends in a batch without padding.

        Args:
          tokens: float [1, T, H].
          places: where they are.
          cls_only: only the pooled token of each row attends.
          training: whether dropout on the probabilities is active.

        Returns:
          The context float [1, T, A]; with cls_only, [B, 1, A].
        """
        parts = self._project(tokens, 1 if cls_only else 0, 3)
        heads = [self._split(part) for part in places.group(parts)]
        if cls_only:
            pooled = self._project(places.pooled(tokens), 0, 1)
            heads = [
                self._split(one) + rest
                for one, rest in zip(
                    places.group_rows(pooled), heads, strict=True
                )
            ]
        # A pooled token sees the whole row, in a causal model as its last.
        causal = self.config.causal and not cls_only
        contexts = []
        for (query, key, value), mask in zip(heads, places.masks, strict=True):
            adder = attention_adder(mask, causal=causal)
            context, _ = self._attend(query, key, value, adder, training)
            contexts.append(context)
        if cls_only:
            return places.ungroup_rows(contexts)
        return places.ungroup(contexts)

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        adder: Any,
        training: bool | None,
    ) -> tuple[Any, Any]:
        """The context [B, Q, A] of heads [B, N, ...], and probabilities."""
        probabilities = ops.softmax(masked_scores(query, key, adder), axis=-1)
        dropped = self.dropout(probabilities, training=training)
        context = ops.matmul(self.compute(dropped), value)  # [B, N, Q, D]
        context = ops.transpose(context, (0, 2, 1, 3))
        size = (*ops.shape(context)[:2], self.config.attention_size)
        return ops.reshape(context, size), self.compute(probabilities)

    def _heads(self, hidden: Any, first: int, last: int) -> list[Any]:
        """Some of query, key and value (0, 1, 2), each [B, N, S, D]."""
        return self._split(self._project(hidden, first, last))

    def _project(self, hidden: Any, first: int, last: int) -> Any:
        """Some of query, key and value side by side, [B, S, P * A]."""
        width = self.config.attention_size
        columns = slice(first * width, last * width)
        return self.project(
            hidden,
            self.kernel[:, columns],
            self.bias[columns],
            update=self._update(first, last),
        )

    def _update(self, first: int, last: int) -> LowRank | None:
        """The updates of some parts as one, whose b is 0 off the diagonal."""
        width, downs, ups = self.config.attention_size, [], []
        for place, part in enumerate(_PARTS[first:last]):
            if part in self.updates:
                a, b = self.updates[part]
                beside = place * width, (last - first - 1 - place) * width
                downs.append(a)
                ups.append(ops.pad(b, ((0, 0), beside)))
        if not downs:
            return None
        return LowRank(
            ops.concatenate(downs, axis=1), ops.concatenate(ups, axis=0)
        )

    def _split(self, parts: Any) -> list[Any]:
        """Each of P parts [B, S, P * A] in heads, [B, N, S, D]."""
        heads = self.config.num_attention_heads
        width = self.config.attention_size
        count = parts.shape[-1] // width
        batch, length = ops.shape(parts)[:2]
        shape = (batch, length, count, heads, width // heads)
        parts = ops.transpose(ops.reshape(parts, shape), (2, 0, 3, 1, 4))
        # One transpose and an unstack: the gradient of three slices would
        # fill three arrays of zeros as large as the whole.
        return ops.unstack(parts, count)
