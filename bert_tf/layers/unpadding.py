"""Indices of the tokens of a batch, to compute on them without padding."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from bert_tf.compat import custom_gradient, take_rows

# Attention sees the rows in up to this many groups of similar length, each of
# at least so many rows; sequences of packed rows, which are longer and differ
# more, in more groups.
_GROUPS, _ROWS_PER_GROUP, _PACKED_GROUPS = 4, 4, 8


def group_count(rows: int) -> int:
    """The number of groups for attention over rows of one sequence each."""
    return max(min(_GROUPS, rows // _ROWS_PER_GROUP), 1)


class TokenIndices:
    """Converts between padded rows, their T tokens, and groups of rows.

    Layers that are applied per token run on [T, C], without padding. For
    attention, the tokens are put back into rows, one per sequence, in groups
    of similar length, each padded to its own longest row.

    Args:
      input_mask: int32 [B, S], 1 = token, 0 = padding. In a row without tokens
        the first position counts as one.
      causal: whether the pooled token of a sequence is its last, not its first.
      sequence_ids: int32 [B, S], 0 = padding, 1..k = sequence of the row, whose
        tokens are contiguous; None: a row is one sequence.

    Attributes:
      masks: the input mask of each group, int32 [G, L].
    """

    def __init__(
        self, input_mask: Any, causal: bool = False, sequence_ids: Any = None
    ):
        self._shape = ops.shape(input_mask)
        real = ops.cast(ops.not_equal(input_mask, 0), "int32")
        if sequence_ids is not None:
            real = ops.where(ops.equal(sequence_ids, 0), 0, real)
        empty = ops.equal(ops.max(real, axis=1, keepdims=True), 0)
        first = ops.equal(ops.arange(self._shape[1]), 0)
        real = ops.where(ops.logical_and(empty, first), 1, real)
        flat = ops.reshape(real, (-1,))
        self._positions = ops.cast(ops.nonzero(flat)[0], "int32")
        # The token at each position; at padding, the one before or the first.
        self._token_of_position = ops.maximum(ops.cumsum(flat) - 1, 0)
        if sequence_ids is None:
            lengths = ops.sum(real, axis=1)
        else:
            lengths = self._lengths(sequence_ids)
        self._starts = ops.cumsum(lengths) - lengths
        self._pooled = self._starts
        if causal:
            self._pooled = self._starts + lengths - 1
        order = ops.argsort(lengths)
        self._unsorted = ops.argsort(order)
        rows = input_mask.shape[0] or 1
        if sequence_ids is None:
            count = group_count(rows)
        else:
            # Every row has a sequence, so no group is empty.
            count = min(_PACKED_GROUPS, rows)
        self._groups = _row_groups(order, count)
        self.masks, slots = [], []
        for rows in self._groups:
            size = take_rows(lengths, rows)[:, None]
            column = ops.arange(ops.max(size), dtype="int32")[None]
            self.masks.append(ops.cast(column < size, "int32"))
            begin = take_rows(self._starts, rows)[:, None]
            slots.append(begin + ops.minimum(column, size - 1))
        # The token in each slot of the groups, and the slot of each token.
        self._group_tokens = slots
        self._slot_tokens = ops.concatenate(
            [ops.reshape(s, (-1,)) for s in slots]
        )
        real = ops.concatenate([ops.reshape(m, (-1,)) for m in self.masks])
        self._real = ops.not_equal(real, 0)[:, None]
        filled = ops.cast(ops.nonzero(real)[0], "int32")
        self._slots = take_rows(
            filled, ops.argsort(take_rows(self._slot_tokens, filled))
        )

    def _lengths(self, sequence_ids: Any) -> Any:
        """The number of tokens of each of the N sequences, int32 [N]."""
        rows = ops.arange(self._shape[0], dtype="int32")[:, None]
        # Distinct numbers in distinct rows.
        numbers = self.tokens(sequence_ids + rows * (self._shape[1] + 1))[0]
        begins = ops.cast(ops.not_equal(numbers[1:], numbers[:-1]), "int32")
        bounds = ops.nonzero(ops.pad(begins, [[1, 1]], constant_values=1))[0]
        return ops.cast(bounds[1:] - bounds[:-1], "int32")

    def tokens(self, inputs: Any) -> Any:
        """Gathers the tokens of an input int32 [B, S]: [1, T]."""
        return take_rows(ops.reshape(inputs, (-1,)), self._positions)[None]

    def hidden_of_tokens(self, hidden: Any) -> Any:
        """Gathers the vectors of the tokens: [T, C] from [B, S, C]."""
        rows = ops.reshape(hidden, (-1, hidden.shape[-1]))
        return take_rows(rows, self._positions)

    def positions(self) -> Any:
        """The position of each token in its row, int32 [1, T]."""
        return ops.mod(self._positions, self._shape[1])[None]

    def group(self, tokens: Any) -> list[Any]:
        """Puts tokens [T, C] into groups of rows, each [G, L, C].

        Padding repeats a token of its row, and must not be read.
        """

        @custom_gradient
        def grouped(rows: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                return take_rows(_concatenated(upstream), self._slots)

            # Slices of one array would each have a gradient of its size.
            return [take_rows(rows, s) for s in self._group_tokens], gradient

        return grouped(tokens)

    def ungroup(self, groups: Sequence[Any]) -> Any:
        """Takes tokens [T, C] out of groups; padding gets no gradient."""

        @custom_gradient
        def ungrouped(rows: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                spread = take_rows(upstream, self._slot_tokens)
                return ops.where(self._real, spread, ops.zeros_like(spread))

            return take_rows(rows, self._slots), gradient

        return ungrouped(_concatenated(groups))

    def pooled(self, tokens: Any) -> Any:
        """Gathers the pooled token of each sequence: [N, 1, C] from [T, C]."""
        return take_rows(tokens, self._pooled)[:, None]

    def group_rows(self, rows: Any) -> list[Any]:
        """Puts rows [B, 1, C] into groups, each [G, 1, C]."""
        return [take_rows(rows, group) for group in self._groups]

    def ungroup_rows(self, groups: Sequence[Any]) -> Any:
        """Takes rows [B, 1, C] out of groups, each [G, 1, C]."""
        return take_rows(ops.concatenate(groups), self._unsorted)

    def padded(self, tokens: Any) -> Any:
        """Puts tokens [T, C] back into the rows of the batch, [B, S, C].

        Padding repeats a token and must not be read; it has no gradient.
        """

        @custom_gradient
        def spread(rows: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                return take_rows(upstream, self._positions)

            return take_rows(rows, self._token_of_position), gradient

        return ops.reshape(spread(tokens), (*self._shape, tokens.shape[-1]))


def _concatenated(groups: Sequence[Any]) -> Any:
    """Concatenates groups [G, L, C] to [slots, C]."""
    width = groups[0].shape[-1]
    return ops.concatenate([ops.reshape(g, (-1, width)) for g in groups])


def _row_groups(order: Any, count: int) -> list[Any]:
    """Splits sequences, sorted by length, into groups of equal count."""
    if count < 2:
        return [order]
    sequences = ops.shape(order)[0]
    bounds = [sequences * number // count for number in range(count + 1)]
    return [
        order[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False)
    ]
