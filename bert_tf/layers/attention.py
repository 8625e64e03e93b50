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
    in_cpu_graph,
    map_in_graph,
    take_rows,
)
from bert_tf.config import ALL_DENSE
from bert_tf.layers.base import ConfiguredLayer
from bert_tf.layers.heads import at_positions, last_positions
from bert_tf.layers.part_weights import LowRank, PartWeights, Weight
from bert_tf.layers.products import after, sizes
from bert_tf.layers.unpadding import TokenPlaces

# Added to the scores of positions that may not be attended to
# (google-research/bert, modeling.py, attention_layer).
MASKED_SCORE = -10000.0
# About what a core's cache holds.
_BLOCK_SCORES = 2**20
# As they lie side by side in the kernel.
_PARTS = ("query", "key", "value")
_IS_CUT = contextvars.ContextVar("_IS_CUT", default=True)


@contextlib.contextmanager
def uncut_attention() -> Iterator[None]:
    """Traces attention in one piece, for runtimes that block it themselves."""
    token = _IS_CUT.set(False)
    try:
        yield
    finally:
        _IS_CUT.reset(token)


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


def _powers(size: int) -> tuple[float, float]:
    """size^-0.5 as a power of two, by which products are exact, and a rest."""
    power = 2.0 ** math.floor(-0.5 * math.log2(size))
    return power, size**-0.5 / power


def _scores(query: Any, key: Any) -> Any:
    """The scaled products of queries and keys, float32 [..., Q, S]."""
    power, rest = _powers(query.shape[-1])
    # The queries are fewer than the scores.
    scores = ops.matmul(query * power, ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32")
    if rest != 1.0:
        scores = scores * rest
    return scores


def _probabilities(query: Any, key: Any, adder: Any) -> Any:
    """The softmax of the scores and `adder`, float32 [..., Q, S]."""
    return ops.softmax(_scores(query, key) + adder, axis=-1)


class _Blocks(NamedTuple):
    """How attention is cut, so that a core's cache holds a block's scores.

    On a CPU, operations on a block find in its cache what those before left
    there; the scores of a whole batch go to memory and back for each.
    """

    count: Any
    rows: Any
    heads: Any
    # Of the batch.
    all_rows: Any
    all_heads: int

    @classmethod
    def of(cls, adder: Any, count: int) -> Self | None:
        """The blocks of S queries of some heads; None where one is all.

        Args:
          adder: float32 [B, 1, 1 or S, S].
          count: N, the number of heads.
        """
        if not _IS_CUT.get() or not in_cpu_graph():
            return None
        batch, length = ops.shape(adder)[0], ops.shape(adder)[-1]
        # Whole batches of short rows, then rows, then some heads of a row.
        heads_at_once = _BLOCK_SCORES // (length * length)
        few_rows = batch * count <= heads_at_once
        rows = _either(few_rows, batch, 1)
        size = 1
        for part in range(2, count + 1):
            if count % part == 0:
                size = _either(part <= heads_at_once, part, size)
        size = _either(few_rows, count, size)
        blocks = batch * count // (rows * size)
        if isinstance(blocks, int) and blocks == 1:
            return None
        return cls(blocks, rows, size, batch, count)


class AttentionMask(NamedTuple):
    """What hides positions, and how attention to the others is computed.

    Made once for all layers: where a graph knows its sizes at run time only,
    that takes many operations.

    Attributes:
      adder: float32, broadcast to [B, N, Q, S]; see `attention_adder`.
      blocks: how attention is cut; None: not at all.
      rows: B.
    """

    adder: Any
    blocks: _Blocks | None
    rows: Any

    @classmethod
    def of(cls, adder: Any, queries: int | None, heads: int) -> Self:
        """The mask of an adder [B, 1, 1 or S, S].

        Args:
          adder: see `attention_adder`.
          queries: 1 for a single one of each row, else S.
          heads: N.
        """
        blocks = None if queries == 1 else _Blocks.of(adder, heads)
        return cls(adder, blocks, ops.shape(adder)[0])


def _in_blocks(
    blocks: _Blocks | None,
    function: Callable[..., Any],
    heads: Sequence[Any],
    adder: Any,
    like: Any,
) -> Any:
    """What a function gives of arrays of heads and the adder, block by block.

    Args:
      blocks: how they are cut; None: not at all.
      function: takes arrays [..., Q or S, D or S] and the adder, gives such.
      heads: arrays [B, N, Q or S, D or S].
      adder: float32, broadcast to [B, N, Q, S].
      like: which of the arrays its results are like.

    Returns:
      One array or a tuple, each [B, N, Q or S, D].
    """
    if blocks is None:
        return function(*heads, adder)
    size = (blocks.count, blocks.rows, blocks.heads)
    parts = [ops.reshape(x, (*size, *sizes(x, 2))) for x in heads]
    groups = blocks.all_rows // blocks.rows
    adders = ops.reshape(adder, (groups, blocks.rows, *sizes(adder, 1)))

    def block(place: Any) -> Any:
        row = place * groups // blocks.count
        here = (take_rows(part, place) for part in parts)
        return function(*here, take_rows(adders, row))

    cut = [
        n if isinstance(n, int) else None for n in (blocks.rows, blocks.heads)
    ]
    results = tree.map_structure(
        lambda x: keras.KerasTensor((*cut, *x.shape[2:]), x.dtype), like
    )
    found = map_in_graph(block, blocks.count, results)
    whole = (blocks.all_rows, blocks.all_heads, -1)
    return tree.map_structure(
        lambda x: ops.reshape(x, (*whole, x.shape[-1])), found
    )


def _either(condition: Any, then: Any, otherwise: Any) -> Any:
    """One of two numbers; a tensor where sizes are known at run time only."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    return ops.where(condition, then, otherwise)


def _weighted(scale: float, *parts: Any) -> Any:
    """The context of query, key, value, perhaps the mask, and the adder."""
    query, key, value, *kept, adder = parts
    weights = _probabilities(query, key, adder)
    for mask in kept:
        weights = ops.where(mask, weights * scale, 0.0)
    return ops.matmul(ops.cast(weights, value.dtype), value)


def _slopes(scale: float, *parts: Any) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value, from that of the context."""
    query, key, value, *kept, upstream, adder = parts
    weights = left = _probabilities(query, key, adder)
    for mask in kept:
        left = ops.where(mask, weights * scale, 0.0)
    slope = ops.matmul(upstream, ops.swapaxes(value, -1, -2))
    slope = ops.cast(slope, "float32") * left
    slope = slope - ops.sum(slope, axis=-1, keepdims=True) * weights
    power, rest = _powers(query.shape[-1])
    if rest != 1.0:
        slope = slope * rest
    slope = ops.cast(slope, query.dtype)
    left = ops.cast(left, value.dtype)
    return (
        ops.matmul(slope, key) * power,
        ops.matmul(ops.swapaxes(slope, -1, -2), query) * power,
        ops.matmul(ops.swapaxes(left, -1, -2), upstream),
    )


def attend(
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask,
    kept: Any = None,
    kept_scale: float = 1.0,
) -> Any:
    """Values weighted by the softmax of the scaled products and the adder.

    The gradient computes the probabilities again: of all that is as large as
    them, the backward pass keeps `kept` alone, a byte for each (Rabe and Staats
    2021, "Self-attention does not need O(n^2) memory", section 4).

    Args:
      query: float [B, N, Q, D].
      key: float [B, N, S, D].
      value: float [B, N, S, D].
      mask: what hides positions; has no gradient.
      kept: bool [B, N, Q, S], the probabilities that dropout leaves; None for
        all.
      kept_scale: what these are multiplied by.

    Returns:
      float [B, N, Q, D] in the dtype of `value`.
    """
    weighted = functools.partial(_weighted, kept_scale)
    slopes = functools.partial(_slopes, kept_scale)
    blocks = mask.blocks

    @custom_gradient
    def attended(
        query: Any, key: Any, value: Any, adder: Any, *kept: Any
    ) -> Any:
        def gradient(upstream: Any) -> tuple[Any, ...]:
            late = after(query, upstream)
            heads = (late, key, value, *kept, upstream)
            like = query, key, value
            found = _in_blocks(blocks, slopes, heads, adder, like)
            return (*found, ops.zeros_like(adder), *(None for _ in kept))

        heads = (query, key, value, *kept)
        return _in_blocks(blocks, weighted, heads, adder, value), gradient

    given = () if kept is None else (kept,)
    return attended(query, key, value, mask.adder, *given)


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
        """Creates the kernel [H, 3A] and, of most, the bias [3A]."""
        hidden, width = self.config.hidden_size, self.config.attention_size
        self.kernel = self.add_kernel("qkv_kernel", (hidden, 3 * width))
        self.bias = None
        if self.config.has_biases:
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
        return_probabilities: bool = True,
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
          return_probabilities: whether to compute them once more, to return.

        Returns:
          The context float [B, Q, A] and the probabilities before dropout
          float [B, N, Q, S] or None, both in the compute dtype.
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
        mask = AttentionMask.of(
            adder, query.shape[2], self.config.num_attention_heads
        )
        context = self._attend(query, key, value, mask, training)
        if not return_probabilities:
            return context, None
        return context, self.compute(_probabilities(query, key, adder))

    def scores(self, hidden: Any) -> Any:
        """What each position scores every other by, before the softmax.

        Args:
          hidden: float [B, S, H].

        Returns:
          float32 [B, N, S, S].
        """
        return _scores(*self._heads(hidden, 0, 2))

    def of_tokens(
        self,
        tokens: Any,
        places: TokenPlaces,
        masks: Sequence[AttentionMask],
        cls_only: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Attends in a batch without padding.

        Args:
          tokens: float [T, H].
          places: where they are.
          masks: those of the groups of `places`.
          cls_only: only the pooled token of each row attends.
          training: whether dropout on the probabilities is active.

        Returns:
          The context float [T, A]; with cls_only, [B, 1, A].
        """
        if cls_only:
            masks = [
                self._of_pooled(mask, tokens_of)
                for mask, tokens_of in zip(masks, places.masks, strict=True)
            ]
        parts = self._project(tokens, 1 if cls_only else 0, 3)
        heads = [
            self._split(part, mask.rows)
            for part, mask in zip(places.group(parts), masks, strict=True)
        ]
        if cls_only:
            pooled = self._project(places.pooled(tokens), 0, 1)
            heads = [
                self._split(one, mask.rows) + rest
                for one, rest, mask in zip(
                    places.group_rows(pooled), heads, masks, strict=True
                )
            ]
        contexts = [
            self._attend(query, key, value, mask, training)
            for (query, key, value), mask in zip(heads, masks, strict=True)
        ]
        if cls_only:
            return places.ungroup_rows(contexts)
        return places.ungroup(contexts)

    def _of_pooled(self, mask: AttentionMask, tokens: Any) -> AttentionMask:
        """The mask of the pooled token of each row of a group.

        Args:
          mask: the mask of all tokens of the group.
          tokens: int32 [G, L], 1 = token, 0 = padding.
        """
        adder = mask.adder[:, :, :1]
        if self.config.causal:
            last = last_positions(tokens)
            adder = at_positions(mask.adder[:, 0], last)[:, None]
        return AttentionMask.of(adder, 1, self.config.num_attention_heads)

    def part_weights(self) -> list[PartWeights]:
        """The weights by part of a table: query, key and value."""
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
    ) -> Any:
        """The context [B, Q, A] of heads [B, N, ...]."""
        kept = None
        if self.dropout.drops(training):
            kept = self.dropout.draw((*ops.shape(query)[:3], ops.shape(key)[2]))
        context = attend(query, key, value, mask, kept, self.dropout.scale)
        context = ops.transpose(context, (0, 2, 1, 3))
        return ops.reshape(context, (mask.rows, -1, self.config.attention_size))

    def _heads(self, hidden: Any, first: int, last: int) -> list[Any]:
        """Some of query, key and value (0, 1, 2), each [B, N, S, D]."""
        parts = self._project(hidden, first, last)
        return self._split(parts, ops.shape(parts)[0])

    def _project(self, hidden: Any, first: int, last: int) -> Any:
        """Some of query, key and value side by side, [..., P * A]."""
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

    def _split(self, parts: Any, rows: Any) -> list[Any]:
        """Each of P parts [B, S, P * A] in heads, [B, N, S, D]; `rows` is B."""
        heads = self.config.num_attention_heads
        width = self.config.attention_size
        count = parts.shape[-1] // width
        shape = (rows, -1, count, heads, width // heads)
        parts = ops.transpose(ops.reshape(parts, shape), (2, 0, 3, 1, 4))
        # One transpose and an unstack: the gradient of three slices would
        # fill three arrays of zeros as large as the whole.
        return ops.unstack(parts, count)
