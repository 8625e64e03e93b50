"""Local attention: which queries and keys are near each other."""

from typing import Any, NamedTuple, Self

from keras import ops

from bert_tf.layers.products import choose, sizes

# Added to the scores of masked positions (google-research/bert, modeling.py,
# attention_layer).
MASKED_SCORE = -10000.0
# Fewest queries per block.
_LEAST_QUERIES = 64


def within_window(bias: Any, window: int, query_positions: Any = None) -> Any:
    """Masks keys at a distance of more than a window from the query.

    Args:
      bias: float32, broadcast to [B, 1, Q, S]; see `attention_bias`.
      window: the largest distance that is not masked.
      query_positions: int32 [B or 1, Q]; None means 0..S-1.

    Returns:
      float32, broadcast to [B, 1, Q, S].
    """
    positions = ops.arange(ops.shape(bias)[-1], dtype="int32")
    if query_positions is None:
        query_positions = positions[None]
    distances = ops.abs(query_positions[:, None, :, None] - positions)
    return ops.where(distances > window, MASKED_SCORE, bias)


class Band(NamedTuple):
    """Blocks of consecutive queries and the keys near them.

    A block attends to itself and to `halo` keys on each side, so that time and
    memory grow with the length, not its square.

    Attributes:
      size: queries per block.
      halo: keys before and behind a block.
      count: number of blocks; the last one is padded.
      bias: float32 [B, 1, count, size, size + 2 halo].
    """

    size: Any
    halo: Any
    count: Any
    bias: Any = None

    @classmethod
    def of(cls, bias: Any, window: int) -> Self | None:
        """Chooses the blocks; None if they hold more keys than a row.

        Args:
          bias: float32 [B, 1, 1 or S, S].
          window: the largest distance between a query and its keys.
        """
        length = ops.shape(bias)[-1]
        size = max(window, _LEAST_QUERIES)
        is_short = length <= size + 2 * window
        if is_short is True:
            return None
        # A row that turns out to be short at run time is one block.
        size, halo = choose(is_short, length, size), choose(is_short, 0, window)
        band = cls(size, halo, (length + size - 1) // size)
        distances = ops.abs(
            ops.arange(size + 2 * halo, dtype="int32")
            - ops.arange(halo, size + halo, dtype="int32")[:, None]
        )
        # Keys in the padding of blocks are masked too.
        visible = bias - MASKED_SCORE
        if bias.shape[2] == 1:
            visible = band.keys(ops.swapaxes(visible, 2, 3))
            visible = ops.swapaxes(visible, 3, 4)
        else:
            visible = band.diagonal(visible)
        bias = ops.where(
            distances > window, MASKED_SCORE, visible + MASKED_SCORE
        )
        return band._replace(bias=bias)

    @property
    def scores(self) -> Any:
        """Scores per head and row."""
        return self.count * self.size * (self.size + 2 * self.halo)

    def queries(self, x: Any) -> Any:
        """Cuts [B, N, S, D] into blocks [B, N, count, size, D]."""
        missing = self.count * self.size - ops.shape(x)[2]
        x = ops.pad(x, [[0, 0], [0, 0], [0, missing], [0, 0]])
        shape = (*sizes(x, 0, 2), self.count, self.size, x.shape[-1])
        return ops.reshape(x, shape)

    def keys(self, x: Any) -> Any:
        """The same with halos, [B, N, count, size + 2 halo, D]."""
        x = self.queries(x)
        before = _shifted(x[:, :, :-1, self.size - self.halo :], 1, 0)
        behind = _shifted(x[:, :, 1:, : self.halo], 0, 1)
        return ops.concatenate([before, x, behind], axis=3)

    def diagonal(self, x: Any) -> Any:
        """Takes the blocks near the diagonal of [B, 1, S, S].

        Returns:
          float [B, 1, count, size, size + 2 halo].
        """
        batch, size, halo, count = ops.shape(x)[0], *self[:3]
        missing = count * size - ops.shape(x)[2]
        x = ops.pad(x, [[0, 0], [0, 0], [0, missing], [halo, halo + missing]])
        x = ops.reshape(x, (batch, count, size, count * size + 2 * halo))
        # Rows that are longer by a block: each block's keys begin in column 0.
        x = ops.swapaxes(x, 1, 2)
        x = ops.reshape(x, (batch, size, -1))
        x = ops.pad(x, [[0, 0], [0, 0], [0, count * size]])
        x = ops.reshape(x, (batch, size, count, (count + 1) * size + 2 * halo))
        return ops.swapaxes(x[..., : size + 2 * halo], 1, 2)[:, None]

    def merged(self, blocks: Any, like: Any) -> Any:
        """Joins blocks [B, N, count, size, D] to the shape of an array."""
        shape = (*ops.shape(blocks)[:2], -1, blocks.shape[-1])
        return ops.reshape(blocks, shape)[:, :, : ops.shape(like)[2]]

    def key_gradient(self, gradient: Any, like: Any) -> Any:
        """Adds up the gradients of `keys`, in the shape of its argument."""
        end = self.halo + self.size
        rest = self.size - self.halo
        before = _shifted(gradient[:, :, 1:, : self.halo], 0, 1)
        behind = _shifted(gradient[:, :, :-1, end:], 1, 0)
        inner = gradient[:, :, :, self.halo : end]
        sides = [[0, 0]] * 3
        inner = inner + ops.pad(before, [*sides, [rest, 0], [0, 0]])
        inner = inner + ops.pad(behind, [*sides, [0, rest], [0, 0]])
        return self.merged(inner, like)

    def weights(self, mask: Any) -> Any:
        """Cuts a dropout mask [B, N, count * size, K] into blocks."""
        shape = (self.count, self.size, self.size + 2 * self.halo)
        return ops.reshape(mask, (*ops.shape(mask)[:2], *shape))


def _shifted(blocks: Any, front: int, end: int) -> Any:
    """Pads blocks [B, N, count, K, D] by empty ones."""
    return ops.pad(blocks, [[0, 0], [0, 0], [front, end], [0, 0], [0, 0]])
