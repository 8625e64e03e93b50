"""`Corpus`, vectors of any precision in one array or many, and their search."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.config import BINARY, FLOAT32, UBINARY
from bert_tf.errors import whole_number
from bert_tf.families.data.similarity import (
    COSINE,
    HAMMING,
    ROWS_AT_ONCE,
    SIMILARITIES,
    in_blocks,
    nearest,
)
from bert_tf.inference.quantized_vectors import (
    dequantize,
    quantize,
    unsigned,
)

# Candidates by bits for each result, of which the best are chosen in float32.
_CANDIDATES = 4


@dataclasses.dataclass(frozen=True)
class Corpus:
    """N vectors in consecutive arrays.

    Attributes:
      arrays: functions that open the arrays, which may be larger than memory
        together.
      sizes: the number of vectors in each.
      width: D.
      precision: one of `config.VECTOR_PRECISIONS`.
      ranges: of its numbers, for a byte per number.
    """

    arrays: Sequence[Callable[[], np.ndarray]]
    sizes: Sequence[int]
    width: int
    precision: str = FLOAT32
    ranges: np.ndarray | None = None

    def search(
        self, queries: np.ndarray, top_k: int, similarity: str = COSINE
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the nearest vectors to each query, in float32.

        Of bits, four times as many candidates are found by the number of equal
        bits with the query's, and the best of them by their similarity to the
        query in float32. Other vectors are all compared.

        Args:
          queries: float32 [Q, D].
          top_k: K; at most N results are found.
          similarity: one of `SIMILARITIES`.

        Returns:
          Indices, int64 [Q, K], and similarities, float32 [Q, K], best first.

        Raises:
          UserError: `top_k` is no positive whole number.
        """
        total = sum(self.sizes)
        top_k = min(whole_number("top_k", top_k, 1), total)
        if self.precision not in (BINARY, UBINARY):
            blocks = map(self._dequantized, self._blocks())
            return nearest(queries, blocks, top_k, similarity)
        bits = quantize(queries, UBINARY)
        count = min(top_k * _CANDIDATES, total)
        blocks = map(unsigned, self._blocks())
        candidates, _ = nearest(bits, blocks, count, HAMMING)
        # Of equal scores the first in the corpus.
        candidates.sort(axis=1)
        scores = np.empty(candidates.shape, np.float32)
        step = max(ROWS_AT_ONCE // count, 1)
        for begin in range(0, len(queries), step):
            part = slice(begin, begin + step)
            rows, places = np.unique(candidates[part], return_inverse=True)
            vectors = self._dequantized(self._rows(rows))
            places = places.reshape(-1, count)
            for query, place in enumerate(places, start=begin):
                one = queries[query : query + 1]
                found = SIMILARITIES[similarity](one, vectors[place])
                scores[query] = found[0]
        order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        chosen = functools.partial(np.take_along_axis, indices=order, axis=1)
        return chosen(candidates), chosen(scores)

    def _dequantized(self, packed: np.ndarray) -> np.ndarray:
        return dequantize(packed, self.precision, self.width, self.ranges)

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yields the vectors in blocks."""
        for array in self.arrays:
            yield from in_blocks(array())

    def _rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns some vectors, given their sorted indices."""
        ends = np.cumsum(self.sizes)
        cuts = np.searchsorted(rows, ends)
        found = []
        begin = first = 0
        for array, cut, end in zip(self.arrays, cuts, ends, strict=True):
            if cut > first:
                found.append(array()[rows[first:cut] - begin])
            begin, first = end, cut
        return np.concatenate(found)
