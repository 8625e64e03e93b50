"""Multi-head self-attention."""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import keras
from keras import ops, tree

from bert_tf.compat import (
    custom_gradient,
    function_of_graph,
    in_cpu_graph,
    map_in_graph,
    take_rows,
)
from bert_tf.config import ALL_DENSE
from bert_tf.layers.band import MASKED_SCORE, Band, within_window
from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.heads import at_positions, last_positions
from bert_tf.layers.part_weights import LowRank, PartWeights, Weight
from bert_tf.layers.products import choose, in_backward_pass, sizes
from bert_tf.layers.traced_once import can_trace_once
from bert_tf.layers.unpadding import TokenIndices

# Scores per block: about what fits the cache of a core.
_BLOCK_SCORES = 2**20
# In the order of the kernel's columns.
_PARTS = ("query", "key", "value")
_USE_BLOCKS = contextvars.ContextVar("_USE_BLOCKS", default=True)


@contextlib.contextmanager
def uncut_attention() -> Iterator[None]:
    """Traces attention without blocks, for runtimes with their own blocking."""
    token = _USE_BLOCKS.set(False)
    try:
        yield
    finally:
        _USE_BLOCKS.reset(token)


def attention_bias(
    input_mask: Any, sequence_ids: Any = None, causal: bool = False
) -> Any:
    """Computes the bias that masks positions in the attention scores.

    Only keys are masked: queries at padding attend to the text as in the
    original, and their outputs are never used.

    Args:
      input_mask: int32 [B, S], 1 = token, 0 = padding.
      sequence_ids: int32 [B, S], 0 = padding, 1..k = sequence of the row; a
        token attends only to its own sequence. None: a row is one sequence.
      causal: whether a token attends only to itself and earlier positions.

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
        position = ops.arange(ops.shape(input_mask)[1])
        earlier = ops.greater_equal(position[:, None], position[None, :])
        allowed = ops.logical_and(allowed, earlier[None, None])
    return (1.0 - ops.cast(allowed, "float32")) * MASKED_SCORE


def _scale(size: int) -> tuple[float, float]:
    """size^-0.5 as a power of two, whose products are exact, and the rest."""
    power = 2.0 ** math.floor(-0.5 * math.log2(size))
    return power, size**-0.5 / power


def _scores(query: Any, key: Any) -> Any:
    """Computes scaled dot products, float32 [..., Q, S]."""
    power, rest = _scale(query.shape[-1])
    # Scaling the queries is cheaper than scaling the scores.
    scores = ops.matmul(query * power, ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32")
    if rest != 1.0:
        scores = scores * rest
    return scores


def _probabilities(query: Any, key: Any, bias: Any) -> Any:
    """Computes the softmax of the biased scores, float32 [..., Q, S]."""
    scores = _scores(query, key) + bias
    # Keras warns of a softmax of one score.
    if scores.shape[-1] == 1:
        return ops.ones_like(scores)
    return ops.softmax(scores, axis=-1)


class _Blocks(NamedTuple):
    """Sizes of attention blocks whose scores fit the cache of a core.

    On a CPU, consecutive operations on a block find their inputs in the cache;
    the scores of a whole batch are written to memory and read back each time.
    """

    count: Any
    rows: Any
    heads: Any
    batch_rows: Any
    batch_heads: int

    @classmethod
    def of(
        cls, batch: Any, scores: Any, count: int, most_scores: int | None = None
    ) -> Self | None:
        """Chooses the block size; None if one block holds everything.

        Args:
          batch: B, the number of rows.
          scores: scores per head and row.
          count: N, the number of heads.
          most_scores: the largest number of scores per head and row, if
            `scores` is known only at run time.
        """
        if not _USE_BLOCKS.get() or not in_cpu_graph():
            return None
        is_bounded = most_scores is not None and isinstance(batch, int)
        # A loop takes most of the operations of attention.
        if is_bounded and batch * count * most_scores <= _BLOCK_SCORES:
            return None
        # The whole batch if rows are short, else a row, else heads of a row.
        heads_per_block = _BLOCK_SCORES // scores
        few_rows = batch * count <= heads_per_block
        rows = choose(few_rows, batch, 1)
        size = 1
        for part in range(2, count + 1):
            if count % part == 0:
                size = choose(part <= heads_per_block, part, size)
        size = choose(few_rows, count, size)
        blocks = batch * count // (rows * size)
        if isinstance(blocks, int) and blocks == 1:
            return None
        return cls(blocks, rows, size, batch, count)


class AttentionMask(NamedTuple):
    """The attention bias of a batch, and the blocks attention is computed in.

    Made once for all layers, because choosing blocks for sizes that are known
    only at run time takes many operations.

    Attributes:
      bias: float32, broadcast to [B, N, Q, S]; see `attention_bias`. With
        `band` it does not mask what is outside of the window.
      blocks: the block sizes; None computes attention in one piece.
      rows: B.
      band: the blocks of queries and keys of local attention; None computes
        all scores.
    """

    bias: Any
    blocks: _Blocks | None
    rows: Any
    band: Band | None = None

    @classmethod
    def of(
        cls,
        bias: Any,
        queries: int | None,
        heads: int,
        window: int | None = None,
        longest: int | None = None,
    ) -> Self:
        """Builds the mask of a bias [B, 1, 1 or S, S].

        Args:
          bias: see `attention_bias`.
          queries: Q; 1 is never cut into blocks.
          heads: N.
          window: the largest distance between a query and its keys, at most
            S; None for all. Requires Q = S.
          longest: the largest S, if it is known.
        """
        batch, length = ops.shape(bias)[0], ops.shape(bias)[-1]
        band, scores = None, length * length
        most_scores = None if longest is None else longest * longest
        if window is not None:
            band = Band.of(bias, window) if _USE_BLOCKS.get() else None
            if band is None:
                bias = within_window(bias, window)
            else:
                scores, most_scores = band.scores, None
        blocks = None
        if queries != 1:
            blocks = _Blocks.of(batch, scores, heads, most_scores)
        return cls(bias, blocks, batch, band)


def _map_blocks(
    blocks: _Blocks | None,
    function: Callable[..., Any],
    heads: Sequence[Any],
    bias: Any,
    like: Any,
) -> Any:
    """Applies a function to arrays of heads and the bias, block by block.

    Args:
      blocks: the block sizes; None applies it once.
      function: maps arrays [..., Q or S, D or S] and the bias to such arrays.
      heads: arrays [B, N, Q or S, D or S].
      bias: float32, broadcast to [B, N, Q, S].
      like: an array or tuple with the shapes and dtypes of the results.

    Returns:
      One array or a tuple, each [B, N, Q or S, D].
    """
    if blocks is None:
        return function(*heads, bias)
    size = (blocks.count, blocks.rows, blocks.heads)
    parts = [ops.reshape(x, (*size, *sizes(x, 2))) for x in heads]
    groups = blocks.batch_rows // blocks.rows
    biases = ops.reshape(bias, (groups, blocks.rows, *sizes(bias, 1)))

    def block(index: Any) -> Any:
        row = index * groups // blocks.count
        inputs = (take_rows(part, index) for part in parts)
        return function(*inputs, take_rows(biases, row))

    static = [
        n if isinstance(n, int) else None for n in (blocks.rows, blocks.heads)
    ]
    results = tree.map_structure(
        lambda x: keras.KerasTensor((*static, *x.shape[2:]), x.dtype), like
    )
    outputs = map_in_graph(block, blocks.count, results)
    whole = (blocks.batch_rows, blocks.batch_heads, -1)
    return tree.map_structure(
        lambda x: ops.reshape(x, (*whole, x.shape[-1])), outputs
    )


def _context(scale: float, *inputs: Any) -> Any:
    """The context of query, key, value, an optional dropout mask and bias."""
    query, key, value, *dropout_mask, bias = inputs
    weights = _probabilities(query, key, bias)
    for mask in dropout_mask:
        weights = ops.where(mask, weights * scale, 0.0)
    return ops.matmul(ops.cast(weights, value.dtype), value)


def _gradients(scale: float, *inputs: Any) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value from that of the context."""
    query, key, value, *dropout_mask, upstream, bias = inputs
    weights = dropped = _probabilities(query, key, bias)
    for mask in dropout_mask:
        dropped = ops.where(mask, weights * scale, 0.0)
    gradient = ops.matmul(upstream, ops.swapaxes(value, -1, -2))
    gradient = ops.cast(gradient, "float32") * dropped
    gradient = gradient - ops.sum(gradient, axis=-1, keepdims=True) * weights
    power, rest = _scale(query.shape[-1])
    if rest != 1.0:
        gradient = gradient * rest
    gradient = ops.cast(gradient, query.dtype)
    dropped = ops.cast(dropped, value.dtype)
    return (
        ops.matmul(gradient, key) * power,
        ops.matmul(ops.swapaxes(gradient, -1, -2), query) * power,
        ops.matmul(ops.swapaxes(dropped, -1, -2), upstream),
    )


def _band_context(band: Band, scale: float, *inputs: Any) -> Any:
    """`_context` of local attention."""
    query, key, value, *dropout_mask, bias = inputs
    context = _context(
        scale,
        band.queries(query),
        band.keys(key),
        band.keys(value),
        *map(band.weights, dropout_mask),
        bias,
    )
    return band.merged(context, query)


def _band_gradients(
    band: Band, scale: float, *inputs: Any
) -> tuple[Any, Any, Any]:
    """`_gradients` of local attention."""
    query, key, value, *dropout_mask, upstream, bias = inputs
    gradients = _gradients(
        scale,
        band.queries(query),
        band.keys(key),
        band.keys(value),
        *map(band.weights, dropout_mask),
        band.queries(upstream),
        bias,
    )
    return (
        band.merged(gradients[0], query),
        band.key_gradient(gradients[1], key),
        band.key_gradient(gradients[2], value),
    )


def attend(
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask,
    dropout_mask: Any = None,
    dropout_scale: float = 1.0,
) -> Any:
    """Computes scaled dot-product attention in blocks that fit the cache.

    The backward pass recomputes the probabilities: of everything their size,
    only `dropout_mask` is stored, a byte per score (Rabe and Staats 2021,
    "Self-attention does not need O(n^2) memory", section 4).

    Args:
      query: float [B, N, Q, D].
      key: float [B, N, S, D].
      value: float [B, N, S, D].
      mask: the masked positions; has no gradient.
      dropout_mask: bool, True where dropout keeps a probability, in the shape
        that `dropout_shape` returns; None applies no dropout.
      dropout_scale: factor of the probabilities that are kept.

    Returns:
      float [B, N, Q, D] in the dtype of `value`.
    """
    if mask.band is None:
        bias = mask.bias
        context = functools.partial(_context, dropout_scale)
        gradients = functools.partial(_gradients, dropout_scale)
    else:
        bias = mask.band.bias
        context = functools.partial(_band_context, mask.band, dropout_scale)
        gradients = functools.partial(_band_gradients, mask.band, dropout_scale)
    blocks = mask.blocks

    @custom_gradient
    def attended(
        query: Any, key: Any, value: Any, bias: Any, *dropout_mask: Any
    ) -> Any:
        def gradient(upstream: Any) -> tuple[Any, ...]:
            late = in_backward_pass(query, upstream)
            heads = (late, key, value, *dropout_mask, upstream)
            like = query, key, value
            results = _map_blocks(blocks, gradients, heads, bias, like)
            return (
                *results,
                ops.zeros_like(bias),
                *(None for _ in dropout_mask),
            )

        heads = (query, key, value, *dropout_mask)
        return _map_blocks(blocks, context, heads, bias, value), gradient

    optional = () if dropout_mask is None else (dropout_mask,)
    return attended(query, key, value, bias, *optional)


def dropout_shape(query: Any, mask: AttentionMask) -> tuple[Any, ...]:
    """The shape of the dropout mask of `attend`.

    [B, N, Q, S], or with local attention the queries and keys of its blocks.
    """
    batch, heads, queries, _ = ops.shape(query)
    if mask.band is None:
        return batch, heads, queries, ops.shape(mask.bias)[-1]
    size, halo, count, _ = mask.band
    return batch, heads, count * size, size + 2 * halo


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention with N heads of size D, A = N * D.

    Vaswani et al. 2017, section 3.2, where A is H. Queries, keys and values
    are one matrix product: the columns of the kernel are [query, key, value].
    The output projection belongs to the Transformer block.
    """

    # Of query, key and value, the projections with low-rank updates.
    updates: Mapping[str, LowRank] = {}
    # The largest distance between a query and its keys; None for all.
    window: int | None = None

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Creates the kernel [H, 3A] and, if configured, the bias [3A]."""
        hidden, width = self.config.hidden_size, self.config.attention_size
        self.kernel = self.add_kernel("qkv_kernel", (hidden, 3 * width))
        self.bias = None
        if self.config.has_biases:
            self.bias = self.add_bias("qkv_bias", 3 * width)
        if self.config.lora_rank:
            self.add_updates(hidden, width)
        self.dropout = self.make_dropout(
            self.config.attention_probs_dropout_prob
        )

    def add_updates(self, hidden: int, width: int) -> None:
        """Creates the low-rank updates of kernels [hidden, width]."""
        all_dense = self.config.lora_on == ALL_DENSE
        self.updates = {
            part: self.add_low_rank(f"{part}_", hidden, width)
            for part in (_PARTS if all_dense else ("query", "value"))
        }

    def call(
        self,
        hidden: Any,
        attention_bias: Any,
        cls_only: bool = False,
        training: bool | None = None,
        cls_positions: Any = None,
        return_probabilities: bool = True,
    ) -> tuple[Any, Any]:
        """Computes the context of a batch.

        Args:
          hidden: float [B, S, H].
          attention_bias: float32, broadcast to [B, N, S, S]; see the function.
          cls_only: whether only the first position attends (to all S): Q = 1
            instead of S.
          training: whether dropout on the probabilities is active.
          cls_positions: int32 [B, Q], with cls_only: the positions that attend
            instead of the first; `attention_bias` is [B, 1, S, S] then.
          return_probabilities: whether to recompute and return them.

        Returns:
          The context float [B, Q, A] and the probabilities before dropout
          float [B, N, Q, S] or None, both in the compute dtype.
        """
        bias = attention_bias
        if cls_only:
            if cls_positions is None:
                first, bias = hidden[:, :1], bias[:, :, :1]
            else:
                first = at_positions(hidden, cls_positions)
                bias = at_positions(bias[:, 0], cls_positions)[:, None]
            (query,) = self._heads(first, 0, 1)
            key, value = self._heads(hidden, 1, 3)
        else:
            query, key, value = self._heads(hidden, 0, 3)
        rows = None
        if cls_only:
            rows = cls_positions
            if rows is None:
                rows = ops.zeros((1, 1), "int32")
        query, key = self.positioned(query, key, rows)
        heads, window = self.config.num_attention_heads, self.window
        if cls_only and window is not None:
            bias, window = within_window(bias, window, rows), None
        mask = AttentionMask.of(bias, query.shape[2], heads, window)
        context = self._attend(query, key, value, mask, training)
        if not return_probabilities:
            return context, None
        if window is not None:
            bias = within_window(bias, window)
        return context, self.compute(_probabilities(query, key, bias))

    def full_bias(self, bias: Any) -> Any:
        """Computes the bias of all pairs of tokens.

        Args:
          bias: float32 [B, 1, 1 or S, S]; see `attention_bias`.

        Returns:
          float32, broadcast to [B, N, S, S], with the window.
        """
        if self.window is None:
            return bias
        return within_window(bias, self.window)

    def scores(self, hidden: Any) -> Any:
        """Computes the scores before the softmax.

        Args:
          hidden: float [B, S, H].

        Returns:
          float32 [B, N, S, S].
        """
        return _scores(*self.positioned(*self._heads(hidden, 0, 2)))

    def positioned(
        self, query: Any, key: Any, query_positions: Any = None
    ) -> tuple[Any, Any]:
        """Encodes positions in queries and keys; here they stay as they are.

        Args:
          query: float [B, N, Q, D].
          key: float [B, N, S, D], at the positions 0..S-1.
          query_positions: int32 [B or 1, Q]; None means those of the keys.
        """
        del query_positions
        return query, key

    def of_tokens(
        self,
        tokens: Any,
        token_indices: TokenIndices,
        masks: Sequence[AttentionMask],
        cls_only: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Computes the context of a batch without padding.

        Args:
          tokens: float [T, H].
          token_indices: their positions in the batch.
          masks: a mask for each group of `token_indices`.
          cls_only: whether only the pooled token of each row attends.
          training: whether dropout on the probabilities is active.

        Returns:
          The context float [T, A]; with cls_only, [B, 1, A].
        """
        if cls_only:
            masks = [
                self._pooled_mask(mask, input_mask)
                for mask, input_mask in zip(
                    masks, token_indices.masks, strict=True
                )
            ]
        parts = self._project(tokens, 1 if cls_only else 0, 3)
        heads = [
            self._split(part, mask.rows)
            for part, mask in zip(
                token_indices.group(parts), masks, strict=True
            )
        ]
        if cls_only:
            pooled = self._project(token_indices.pooled(tokens), 0, 1)
            heads = [
                self._split(query, mask.rows) + rest
                for query, rest, mask in zip(
                    token_indices.group_rows(pooled), heads, masks, strict=True
                )
            ]
        first = ops.zeros((1, 1), "int32") if cls_only else None
        # The attention of the groups is traced once.
        attention = attend
        if len(masks) > 1 and can_trace_once():
            attention = function_of_graph(attend, attend)
        contexts = [
            self._attend(
                *self.positioned(query, key, first),
                value,
                mask,
                training,
                attention,
            )
            for (query, key, value), mask in zip(heads, masks, strict=True)
        ]
        if cls_only:
            return token_indices.ungroup_rows(contexts)
        return token_indices.ungroup(contexts)

    def _pooled_mask(
        self, mask: AttentionMask, input_mask: Any
    ) -> AttentionMask:
        """The mask of the pooled token of each row, from that of all tokens."""
        bias, pooled = mask.bias[:, :, :1], ops.zeros((1, 1), "int32")
        if self.config.causal:
            pooled = last_positions(input_mask)
            bias = at_positions(mask.bias[:, 0], pooled)[:, None]
        if self.window is not None:
            bias = within_window(bias, self.window, pooled)
        return AttentionMask.of(bias, 1, self.config.num_attention_heads)

    def part_weights(self) -> list[PartWeights]:
        """The weights of query, key and value."""
        variables = [v for v in (self.kernel, self.bias) if v is not None]
        return [
            PartWeights(
                tuple(Weight(variable, third) for variable in variables),
                self.updates.get(part),
            )
            for third, part in enumerate(_PARTS)
        ]

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        mask: AttentionMask,
        training: bool | None,
        attention: Callable[..., Any] = attend,
    ) -> Any:
        """The context [B, Q, A] of heads [B, N, ...]."""
        dropout_mask = None
        if self.dropout.drops(training):
            dropout_mask = self.dropout.draw(dropout_shape(query, mask))
        context = attention(
            query, key, value, mask, dropout_mask, self.dropout.scale
        )
        context = ops.transpose(context, (0, 2, 1, 3))
        return ops.reshape(context, (mask.rows, -1, self.config.attention_size))

    def _heads(self, hidden: Any, first: int, last: int) -> list[Any]:
        """Parts `first` to `last` of (query, key, value), each [B, N, S, D]."""
        parts = self._project(hidden, first, last)
        return self._split(parts, ops.shape(parts)[0])

    def _project(self, hidden: Any, first: int, last: int) -> Any:
        """The same parts side by side, [..., P * A]."""
        width = self.config.attention_size
        kernel, bias = self.kernel, self.bias
        if (first, last) != (0, len(_PARTS)):
            columns = slice(first * width, last * width)
            kernel = kernel[:, columns]
            bias = None if bias is None else bias[columns]
        return self.project(
            hidden, kernel, bias, update=self._update(first, last)
        )

    def _update(self, first: int, last: int) -> LowRank | None:
        """The updates of the same parts as one with a block-diagonal `b`."""
        width, downs, ups = self.config.attention_size, [], []
        for index, part in enumerate(_PARTS[first:last]):
            if part in self.updates:
                a, b = self.updates[part]
                padding = index * width, (last - first - 1 - index) * width
                downs.append(a)
                ups.append(ops.pad(b, ((0, 0), padding)))
        if not downs:
            return None
        return LowRank(
            ops.concatenate(downs, axis=1), ops.concatenate(ups, axis=0)
        )

    def _split(self, parts: Any, rows: Any) -> list[Any]:
        """Splits P parts [B, S, P * A] into heads, each [B, N, S, D]."""
        heads = self.config.num_attention_heads
        width = self.config.attention_size
        count = parts.shape[-1] // width
        shape = (rows, -1, count, heads, width // heads)
        parts = ops.transpose(ops.reshape(parts, shape), (2, 0, 3, 1, 4))
        # One transpose and an unstack: the gradient of three slices would
        # fill three arrays of zeros as large as the whole.
        return ops.unstack(parts, count)
