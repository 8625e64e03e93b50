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
      queries: vectors, float [Q, D], or one, [D]; or with `model` a list of
        texts or one string. For a model with prompts, compute the vectors with
        `bert_tf.embed(model, queries, prompt_name="query")`.
      corpus: vectors, float [N, D]; or with `model` a list of texts.
      top_k: number of results per query, at most N.
      model: computes vectors of texts; see `bert_tf.embed`.

    Returns:
      Corpus indices, int64 [Q, K], and cosine similarities, float32 [Q, K],
      best first; [K] for one query. Ties have the order of the corpus. The
      similarity to a vector of zeros is 0.

    Raises:
      UserError: an argument holds other things than finite numbers or is empty,
        the widths differ, or top_k is no positive whole number.
    """
    top_k = whole_number("top_k", top_k, 1)
    given = as_vectors("queries", queries, model)
    corpus = np.atleast_2d(as_vectors("corpus", corpus, model))
    check_widths("queries", given, "corpus", corpus)
    begins = range(0, len(corpus), _ROWS)
    blocks = (corpus[begin : begin + _ROWS] for begin in begins)
    vectors = np.atleast_2d(given)
    indices, scores = nearest(vectors, blocks, min(top_k, len(corpus)))
    return (indices[0], scores[0]) if given.ndim == 1 else (indices, scores)


def check_widths(
    first: str, vectors: np.ndarray, second: str, others: np.ndarray
) -> None:
    """Raises `UserError` if two arguments have vectors of different widths."""
    widths = vectors.shape[-1], others.shape[-1]
    if widths[0] != widths[1]:
        raise UserError(
            f"`{first}` are {widths[0]} wide and `{second}` is {widths[1]}; "
            "take vectors of one model."
        )


def as_vectors(
    name: str, given: Any, model: "Model | None" = None
) -> np.ndarray:
    """Returns an argument as vectors.

    Args:
      name: the argument, for errors.
      given: vectors or one vector; or texts or one string, for `model`.
      model: computes vectors of texts.

    Returns:
      float32 [N, D]; [D] for one.

    Raises:
      UserError: it holds other things than finite numbers, or nothing.
    """
    found = _numbers(given)
    if not found.size and np.iterable(given):
        rows: Any = given
        if not isinstance(given, str):
            rows = list(members(given, f"`{name}`"))
        # The first of one string is a string too.
        if rows and isinstance(rows[0], str):
            if model is None:
                raise UserError(
                    f"`{name}` is {excerpt(rows)}, text; give `model`, which "
                    "makes vectors of it."
                )
            from bert_tf.inference.embed import embed

            return embed(model, rows)
        given, found = rows, _numbers(rows)
    if found.ndim not in (1, 2) or not found.size:
        raise UserError(
            f"`{name}` is {excerpt(given)}; give a matrix of numbers, a row "
            "for each text."
        )
    if not np.isfinite(found).all():
        row = int(np.argmin(np.isfinite(np.atleast_2d(found)).all(1)))
        raise UserError(f"`{name}`[{row}] holds NaN or infinite numbers.")
    return found


def _numbers(given: Any) -> np.ndarray:
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
