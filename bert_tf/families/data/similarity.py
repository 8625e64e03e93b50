"""Similarities of vectors and exact search by them, in NumPy."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

COSINE, DOT, EUCLIDEAN, MANHATTAN = "cosine", "dot", "euclidean", "manhattan"
# Of vectors of bits, packed as uint8.
HAMMING = "hamming"
# torch.nn.functional.normalize, eps: a zero vector stays zero.
SHORTEST = 1e-12
# At most this many vectors are compared at a time, and this many scores are
# computed.
ROWS_AT_ONCE = 1 << 14
_SCORES = 1 << 24
# Candidates for each result above which they are selected before sorting.
_CANDIDATES = 4


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors, float32 [N, D], to unit length; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, SHORTEST)


def _cosine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    # Cheaper than to normalise the larger of the two.
    norms = np.sqrt(np.vecdot(second, second))
    scores = normalized(first) @ second.T
    scores /= np.maximum(norms, SHORTEST)
    return scores


def _dot(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return first @ second.T


def _euclidean(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    # The difference of squares loses too many digits in float32.
    first, second = first.astype(np.float64), second.astype(np.float64)
    squares = [np.sum(np.square(each), axis=1) for each in (first, second)]
    distances = squares[0][:, None] - 2 * (first @ second.T) + squares[1]
    return -np.sqrt(np.maximum(distances, 0)).astype(np.float32)


def _manhattan(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    rows = [-np.abs(second - row).sum(axis=1) for row in first]
    return np.reshape(rows, (len(first), len(second)))


def _hamming(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    words = np.ascontiguousarray(_words(second).T)
    scores = np.empty((len(first), len(second)), np.float32)
    # One at a time, so that the words stay in the cache.
    for row, score in zip(_words(first), scores, strict=True):
        counts = np.bitwise_count(words ^ row[:, None])
        np.negative(counts.sum(axis=0, dtype=np.int32), out=score)
    return scores


def _words(packed: np.ndarray) -> np.ndarray:
    """Returns packed bits, uint8 [N, B], as words, uint64 [N, B / 8]."""
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))
    return padded.view(np.uint64)


# As sentence-transformers 6.2, util/similarity.py: distances are negative.
SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    COSINE: _cosine,
    DOT: _dot,
    EUCLIDEAN: _euclidean,
    MANHATTAN: _manhattan,
}
_FUNCTIONS = {**SIMILARITIES, HAMMING: _hamming}


def max_sim(
    queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]
) -> np.ndarray:
    """Scores documents by their tokens (Khattab and Zaharia 2020, equation 3).

    The score is the sum over the tokens of a query of their largest product
    with a token of the document; without tokens of a document minus infinity.

    Args:
      queries: Q arrays, float32 [T, D].
      documents: N arrays, float32 [T, D].

    Returns:
      float32 [Q, N].
    """
    scores = np.zeros((len(queries), len(documents)), np.float32)
    most = max(map(len, queries), default=0)
    begin = 0
    while begin < len(documents):
        end, count = begin + 1, len(documents[begin])
        while end < len(documents) and most * count < _SCORES:
            count += len(documents[end])
            end += 1
        block = documents[begin:end]
        lengths = np.array([len(each) for each in block])
        is_filled = lengths > 0
        starts = (np.cumsum(lengths) - lengths)[is_filled]
        table = np.concatenate(block).T
        for row, query in enumerate(queries):
            best = np.full((len(query), len(block)), -np.inf, np.float32)
            if len(starts):
                products = query @ table
                best[:, is_filled] = np.maximum.reduceat(products, starts, 1)
            scores[row, begin:end] = best.sum(axis=0)
        begin = end
    return scores


def in_blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    """Yields vectors in blocks that are compared at a time."""
    for begin in range(0, len(vectors), ROWS_AT_ONCE):
        yield vectors[begin : begin + ROWS_AT_ONCE]


def nearest(
    queries: np.ndarray,
    blocks: Iterable[np.ndarray],
    top_k: int,
    similarity: str = COSINE,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the most similar of N vectors, which are read once, in blocks.

    Args:
      queries: float32 [Q, D]; of HAMMING uint8 [Q, B].
      blocks: consecutive vectors as arrays of the same width and type.
      top_k: K, at most N.
      similarity: one of `SIMILARITIES`, or HAMMING.

    Returns:
      Indices, int64 [Q, K], and similarities, float32 [Q, K], best first; ties
      have the order of the vectors.
    """
    compute = _FUNCTIONS[similarity]
    best = np.full((len(queries), top_k), -np.inf, np.float32)
    indices = np.zeros((len(queries), top_k), np.int64)
    begin = 0
    for block in blocks:
        step = max(_SCORES // len(block), 1)
        for first in range(0, len(queries), step):
            part = slice(first, first + step)
            scores = compute(queries[part], block)
            indices[part], best[part] = _merged(
                indices[part], best[part], scores, begin
            )
        begin += len(block)
    return indices, best


def _merged(
    indices: np.ndarray, best: np.ndarray, scores: np.ndarray, begin: int
) -> tuple[np.ndarray, np.ndarray]:
    """Merges the scores of a block, [Q, N], into the best ones, [Q, K]."""
    count, top_k = best.shape
    # Only what exceeds the worst result so far, since ties rank lower.
    is_candidate = scores > best[:, -1:]
    if np.count_nonzero(is_candidate) > _CANDIDATES * best.size:
        # Cheaper than sorting all of them, as in the first block.
        worst = np.partition(scores, -top_k, axis=1)[:, -top_k, None]
        is_candidate &= scores >= worst
    query, index = np.nonzero(is_candidate)
    score = np.concatenate([best.ravel(), scores[query, index]])
    index = np.concatenate([indices.ravel(), index + begin])
    query = np.concatenate([np.repeat(np.arange(count), top_k), query])
    order = np.lexsort((index, -score, query))
    counts = np.bincount(query, minlength=count)
    first = np.cumsum(counts) - counts
    chosen = order[first[:, None] + np.arange(top_k)]
    return index[chosen], score[chosen]
