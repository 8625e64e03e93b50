"""The nearest texts to a text, by the cosine of their vectors: NumPy alone."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.errors import UserError, excerpt, whole_number
from bert_tf.text.given_texts import members

if TYPE_CHECKING:
    from bert_tf.inference.embed import Model

# Scores that are computed at a time, and rows of the corpus at the most.
_SCORES, _ROWS = 1 << 22, 1 << 14


def search(
    queries: Any,
    corpus: Any,
    top_k: int = 10,
    model: "Model | None" = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds for each query what of a corpus is nearest to it.

        vectors = bert_tf.embed(model, texts)
        places, scores = bert_tf.search(
            bert_tf.embed(model, ["a calm sea"]), vectors, top_k=3
        )

    Args:
      queries: vectors, float [Q, H]; or with `model` a list of texts. Where a
        model has prompts for queries, make their vectors with
        `bert_tf.embed(model, queries, prompt_name="query")`.
      corpus: vectors, float [N, H]; or with `model` a list of texts.
      top_k: how many of each query; all of a smaller corpus.
      model: makes vectors of texts, as `bert_tf.embed` does by default.

    Returns:
      The rows of the corpus, int64 [Q, K], and their cosines, float32 [Q, K],
      the best first and of equal ones the first in the corpus. The cosine
      with a vector of zeros is 0.

    Raises:
      UserError: something is no matrix of finite numbers, or empty, the
        widths differ, or top_k is no whole number of at least 1.
    """
    top_k = whole_number("top_k", top_k, 1)
    asked = _vectors("queries", queries, model)
    kept = _vectors("corpus", corpus, model)
    if asked.shape[1] != kept.shape[1]:
        raise UserError(
            f"`queries` are {asked.shape[1]} wide and `corpus` is "
            f"{kept.shape[1]}; take vectors of one model."
        )
    top_k = min(top_k, len(kept))
    places = np.empty((len(asked), top_k), np.int64)
    scores = np.empty((len(asked), top_k), np.float32)
    asked = _of_length_one(asked)
    step = max(_SCORES // min(len(kept), _ROWS), 1)
    for begin in range(0, len(asked), step):
        part = slice(begin, begin + step)
        places[part], scores[part] = _nearest(asked[part], kept, top_k)
    return places, scores


def _nearest(
    queries: np.ndarray, corpus: np.ndarray, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """`search` of queries of length one, the corpus in blocks."""
    best = np.full((len(queries), top_k), -np.inf, np.float32)
    places = np.zeros((len(queries), top_k), np.int64)
    rows = np.arange(len(queries))
    for begin in range(0, len(corpus), _ROWS):
        block = _of_length_one(corpus[begin : begin + _ROWS])
        scores = queries @ block.T
        # What is not above the worst so far stands behind it.
        query, place = np.nonzero(scores > best[:, -1:])
        score = np.concatenate([best.ravel(), scores[query, place]])
        place = np.concatenate([places.ravel(), place + begin])
        query = np.concatenate([np.repeat(rows, top_k), query])
        order = np.lexsort((place, -score, query))
        counts = np.bincount(query, minlength=len(queries))
        first = np.cumsum(counts) - counts
        chosen = order[first[:, None] + np.arange(top_k)]
        best, places = score[chosen], place[chosen]
    return places, best


def _vectors(name: str, given: Any, model: "Model | None") -> np.ndarray:
    """Vectors, float32 [N, H], given or made of texts."""
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

            rows = list(embed(model, rows))
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
    """Numbers as an array; an empty one of one axis where they are none."""
    none: np.ndarray = np.zeros(0)
    try:
        found = np.asarray(given)
        # NumPy would make a number of the text "1".
        first = next(iter(found.ravel()), 0)
        is_text = found.dtype.kind in "US" or isinstance(first, str)
        return none if is_text else found.astype(np.float32)
    except (TypeError, ValueError):
        return none


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(
        vectors, norms, out=np.zeros_like(vectors), where=norms > 0
    )
