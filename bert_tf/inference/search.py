"""Nearest-neighbour search by cosine similarity, in NumPy."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.errors import UserError, excerpt, whole_number
from bert_tf.text.given_texts import members

if TYPE_CHECKING:
    from bert_tf.inference.embed import Model

# At most this many scores and corpus rows are computed at a time.
_SCORES, _ROWS = 1 << 22, 1 << 14


def search(
    queries: Any, corpus: Any, top_k: int = 10, model: "Model | None" = None
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the nearest corpus rows to each query.

        vectors = bert_tf.embed(model, texts)
        indices, scores = bert_tf.search(
            bert_tf.embed(model, ["a calm sea"]), vectors, top_k=3
        )

    Args:
      queries: vectors, float [Q, H]; or with `model` a list of texts. For a
        model with prompts, compute the vectors with
        `bert_tf.embed(model, queries, prompt_name="query")`.
      corpus: vectors, float [N, H]; or with `model` a list of texts.
      top_k: number of results per query, at most N.
      model: computes vectors of texts; see `bert_tf.embed`.

    Returns:
      Corpus indices, int64 [Q, K], and cosine similarities, float32 [Q, K],
      best first; ties have the order of the corpus. The similarity to a vector
      of zeros is 0.

    Raises:
      UserError: an argument is no matrix of finite numbers or is empty, the
        widths differ, or top_k is no positive whole number.
    """
    top_k = whole_number("top_k", top_k, 1)
    queries = _vectors("queries", queries, model)
    corpus = _vectors("corpus", corpus, model)
    if queries.shape[1] != corpus.shape[1]:
        raise UserError(
            f"`queries` are {queries.shape[1]} wide and `corpus` is "
            f"{corpus.shape[1]}; take vectors of one model."
        )
    top_k = min(top_k, len(corpus))
    indices = np.empty((len(queries), top_k), np.int64)
    scores = np.empty((len(queries), top_k), np.float32)
    queries = _normalized(queries)
    step = max(_SCORES // min(len(corpus), _ROWS), 1)
    for begin in range(0, len(queries), step):
        part = slice(begin, begin + step)
        indices[part], scores[part] = _nearest(queries[part], corpus, top_k)
    return indices, scores


def _nearest(
    queries: np.ndarray, corpus: np.ndarray, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Searches the corpus in blocks for normalized queries."""
    best = np.full((len(queries), top_k), -np.inf, np.float32)
    indices = np.zeros((len(queries), top_k), np.int64)
    rows = np.arange(len(queries))
    for begin in range(0, len(corpus), _ROWS):
        block = _normalized(corpus[begin : begin + _ROWS])
        scores = queries @ block.T
        # Only candidates above the worst result so far, since ties rank lower.
        query, index = np.nonzero(scores > best[:, -1:])
        score = np.concatenate([best.ravel(), scores[query, index]])
        index = np.concatenate([indices.ravel(), index + begin])
        query = np.concatenate([np.repeat(rows, top_k), query])
        order = np.lexsort((index, -score, query))
        counts = np.bincount(query, minlength=len(queries))
        first = np.cumsum(counts) - counts
        chosen = order[first[:, None] + np.arange(top_k)]
        best, indices = score[chosen], index[chosen]
    return indices, best


def _vectors(name: str, given: Any, model: "Model | None") -> np.ndarray:
    """Returns an argument as vectors, float32 [N, H]."""
    found = _matrix(given)
    if not found.size and np.iterable(given):
        rows = list(members(given, f"`{name}`"))
        if rows and isinstance(rows[0], str):
            if model is None:
                raise UserError(
                    f"`{name}` is {excerpt(rows)}, texts; give `model`, which "
                    "makes vectors of them."
                )
            from bert_tf.inference.embed import embed

            return embed(model, rows)
        given, found = rows, _matrix(rows)
    if found.ndim != 2 or not found.size:
        raise UserError(
            f"`{name}` is {excerpt(given)}; give a matrix of numbers, a row "
            "for each text."
        )
    if not np.isfinite(found).all():
        row = int(np.argmin(np.isfinite(found).all(1)))
        raise UserError(f"`{name}`[{row}] holds NaN or infinite numbers.")
    return found


def _matrix(given: Any) -> np.ndarray:
    """Returns numbers as a float32 array, or an empty array for non-numbers."""
    none: np.ndarray = np.zeros(0)
    try:
        found = np.asarray(given)
        # NumPy converts the text "1" to a number.
        first = next(iter(found.ravel()), 0)
        is_text = found.dtype.kind in "US" or isinstance(first, str)
        return none if is_text else found.astype(np.float32)
    except (TypeError, ValueError):
        return none


def _normalized(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(
        vectors, norms, out=np.zeros_like(vectors), where=norms > 0
    )
