"""Nearest-neighbour search by cosine similarity, in NumPy."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.errors import UserError, excerpt, whole_number
from bert_tf.families.data.similarity import nearest
from bert_tf.text.given_texts import members

if TYPE_CHECKING:
    from bert_tf.inference.embed import Model

# At most this many corpus rows are compared at a time.
_ROWS = 1 << 14


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
    begins = range(0, len(corpus), _ROWS)
    blocks = (corpus[begin : begin + _ROWS] for begin in begins)
    return nearest(queries, blocks, min(top_k, len(corpus)))


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
