"""Computing on the tokens of a batch alone, without its padding."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from bert_tf.compat import custom_gradient, take_rows

# Rows are attended to in this many groups of similar length, where there are
# enough of them to fill these; sequences of packed rows, which differ more and
# are longer, in more groups.
_GROUPS, _ROWS_OF_A_GROUP, _PACKED_GROUPS = 4, 4, 8


def group_count(rows: int) -> int:
    """In how many groups attention sees rows of one sequence each."""
    return max(min(_GROUPS, rows // _ROWS_OF_A_GROUP), 1)


class TokenPlaces:
    """Where the T tokens of a batch are.

    Layers that work on each token by itself can work on the tokens alone,
    [T, C]. For attention they are put back into
    rows, one for each sequence, in groups of similar length, each padded to
    its own longest: no sequence's scores are computed with another's.

    Args:
      input_mask: int32 [B, S], 1 = token, 0 = padding. Of a row without tokens
        the first place counts as one.
      causal: whether the pooled token of a sequence is its last, not its first.
      sequence_ids: int32 [B, S], 0 = padding, 1..k = sequence of the row, whose
        tokens stand side by side; None: the row is one sequence.

    Attributes:
      masks: the mask of each group, int32 [G, L].
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
        self._places = ops.cast(ops.nonzero(flat)[0], "int32")
        # Of padding, that of the token before it, or the first of all.
        self._numbers = ops.maximum(ops.cumsum(flat) - 1, 0)
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
            # No row is without a sequence, so no group is empty.
            count = min(_PACKED_GROUPS, rows)
        self._groups = _row_groups(order, count)
        self.masks, slots = [], []
        for rows in self._groups:
            size = take_rows(lengths, rows)[:, None]
            place = ops.arange(ops.max(size), dtype="int32")[None]
            self.masks.append(ops.cast(place < size, "int32"))
            begin = take_rows(self._starts, rows)[:, None]
            slots.append(begin + ops.minimum(place, size - 1))
        # The token that stands in each slot of the groups.
        self._of_slots = slots
        self._of_slot = ops.concatenate([ops.reshape(s, (-1,)) for s in slots])
        real = ops.concatenate([ops.reshape(m, (-1,)) for m in self.masks])
        self._real = ops.not_equal(real, 0)[:, None]
        filled = ops.cast(ops.nonzero(real)[0], "int32")
        self._slots = take_rows(
            filled, ops.argsort(take_rows(self._of_slot, filled))
        )

    def _lengths(self, sequence_ids: Any) -> Any:
        """The number of tokens of each sequence of all rows, int32 [N]."""
        rows = ops.arange(self._shape[0], dtype="int32")[:, None]
        # Different in different rows.
        numbers = self.tokens(sequence_ids + rows * (self._shape[1] + 1))[0]
        begins = ops.cast(ops.not_equal(numbers[1:], numbers[:-1]), "int32")
        bounds = ops.nonzero(ops.pad(begins, [[1, 1]], constant_values=1))[0]
        return ops.cast(bounds[1:] - bounds[:-1], "int32")

    def tokens(self, inputs: Any) -> Any:
        """The tokens' entries of an input, [1, T] of int32 [B, S]."""
        return take_rows(ops.reshape(inputs, (-1,)), self._places)[None]

    def hidden_of_tokens(self, hidden: Any) -> Any:
        """The tokens' vectors, [T, C] of [B, S, C]."""
        rows = ops.reshape(hidden, (-1, hidden.shape[-1]))
        return take_rows(rows, self._places)

    def positions(self) -> Any:
        """The position of each token in its row, int32 [1, T]."""
        return ops.mod(self._places, self._shape[1])[None]

    def group(self, tokens: Any) -> list[Any]:
        """Puts tokens [T, C] into groups of rows, each [G, L, C].

        Padding repeats a token of its row, and nobody may read it.
        """

        @custom_gradient
        def grouped(rows: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                return take_rows(_concatenated(upstream), self._slots)

            # Not slices of one array, each of whose gradients would fill
            # zeros for all of it.
            return [take_rows(rows, s) for s in self._of_slots], gradient

        return grouped(tokens)

    def ungroup(self, groups: Sequence[Any]) -> Any:
        """The tokens [T, C] of groups; their padding gets no gradient."""

        @custom_gradient
        def ungrouped(rows: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                spread = take_rows(upstream, self._of_slot)
                return ops.where(self._real, spread, ops.zeros_like(spread))

            return take_rows(rows, self._slots), gradient

        return ungrouped(_concatenated(groups))

    def pooled(self, tokens: Any) -> Any:
        """The pooled token of each sequence, [N, 1, C], of tokens [T, C]."""
        return take_rows(tokens, self._pooled)[:, None]

    def group_rows(self, rows: Any) -> list[Any]:
        """Rows [B, 1, C] in groups, each [G, 1, C]."""
        return [take_rows(rows, group) for group in self._groups]

    def ungroup_rows(self, groups: Sequence[Any]) -> Any:
        """The rows [B, 1, C] of groups, each [G, 1, C]."""
        return take_rows(ops.concatenate(groups), self._unsorted)

    def padded(self, tokens: Any) -> Any:
        """Tokens [T, C] in the batch's own rows, [B, S, C].

        Padding repeats a token, and nobody may read it: no gradient comes
        from there.
        """

        @custom_gradient
        def spread(rows: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                return take_rows(upstream, self._places)

            return take_rows(rows, self._numbers), gradient

        return ops.reshape(spread(tokens), (*self._shape, tokens.shape[-1]))


def _concatenated(groups: Sequence[Any]) -> Any:
    """The rows of all groups [G, L, C] as one array [slots, C]."""
    width = groups[0].shape[-1]
    return ops.concatenate([ops.reshape(g, (-1, width)) for g in groups])


def _row_groups(order: Any, count: int) -> list[Any]:
    """The sequences of each group, of which there are at least as many."""
    if count < 2:
        return [order]
    sequences = ops.shape(order)[0]
    bounds = [sequences * number // count for number in range(count + 1)]
    return [
        order[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False)
    ]
