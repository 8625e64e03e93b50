"""Nearest-neighbour search of vectors in memory, in NumPy."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.config import FLOAT32, VECTOR_PRECISIONS
from bert_tf.errors import UserError, check_choice, excerpt
from bert_tf.families.data.similarity import COSINE, SIMILARITIES
from bert_tf.inference.corpus import Corpus
from bert_tf.inference.quantized_vectors import (
    BYTES,
    form,
    number_ranges,
)
from bert_tf.text.given_texts import members

if TYPE_CHECKING:
    from bert_tf.inference.embed import Model


def search(
    queries: Any,
    corpus: Any,
    top_k: int = 10,
    model: "Model | None" = None,
    *,
    similarity: str = COSINE,
    precision: str = FLOAT32,
    calibration: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the nearest corpus rows to each query.

        vectors = bert_tf.embed(model, texts)
        indices, scores = bert_tf.search(
            bert_tf.embed(model, ["a calm sea"]), vectors, top_k=3
        )

    Quantized vectors of a corpus are compared with queries in float32:

        small = model.encode_document(texts, precision="ubinary")
        query = model.encode_query("a calm sea")
        bert_tf.search(query, small, precision="ubinary")

    Of bits, 4 x top_k candidates are found by the number of equal bits, and
    then rescored by their similarity to the query; others are all compared.

    Args:
      queries: vectors, float [Q, D], or one, [D]; or with `model` a list of
        texts or one string. For a model with prompts, compute the vectors with
        `LoadedModel.encode_query`.
      corpus: vectors, [N, D], or [N, ceil(D / 8)] of bits; or with `model` a
        list of texts.
      top_k: number of results per query, at most N.
      model: computes vectors of texts; see `bert_tf.embed`.
      similarity: cosine, dot, or the negative distance euclidean or manhattan.
      precision: that of the corpus, see `LoadedModel.encode`.
      calibration: that of a corpus with a byte per number.

    Returns:
      Corpus indices, int64 [Q, K], and similarities, float32 [Q, K], best
      first; [K] for one query. Ties have the order of the corpus. The cosine of
      a vector of zeros is 0.

    Raises:
      UserError: an argument holds other things than finite numbers or is empty,
        the widths differ, or an argument is invalid.
    """
    check_choice("`similarity`", similarity, SIMILARITIES)
    check_choice("`precision`", precision, VECTOR_PRECISIONS)
    given = as_vectors("queries", queries, model)
    vectors = np.atleast_2d(given)
    ranges = None
    if precision == FLOAT32:
        corpus = np.atleast_2d(as_vectors("corpus", corpus, model))
        check_widths("queries", given, "corpus", corpus)
    else:
        corpus = _quantized(corpus, precision, vectors.shape[1])
        if precision in BYTES:
            ranges = number_ranges(vectors[:1], calibration)
    arrays, sizes = [lambda: corpus], [len(corpus)]
    whole = Corpus(arrays, sizes, vectors.shape[1], precision, ranges)
    indices, scores = whole.search(vectors, top_k, similarity)
    return (indices[0], scores[0]) if given.ndim == 1 else (indices, scores)


def _quantized(given: Any, precision: str, width: int) -> np.ndarray:
    """Returns the quantized vectors of a corpus, or raises `UserError`."""
    found = np.asarray(given)
    kind, size = form(precision, width)
    if found.ndim != 2 or not len(found) or found.dtype != kind:
        raise UserError(
            f"`corpus` is {excerpt(given)}; `precision`={precision} takes a "
            f"matrix of {kind}, as encode returns it."
        )
    if found.shape[1] != size:
        raise UserError(
            f"`corpus` is {found.shape[1]} wide, and `queries` are {width}, "
            f"which `precision`={precision} makes {size}; take vectors of one "
            "model."
        )
    return found


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
    # The squares first, without an array of as many answers.
    with np.errstate(over="ignore"):
        squares = np.vecdot(found, found)
    if not (np.isfinite(squares).all() or np.isfinite(found).all()):
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
        return none if is_text else found.astype(np.float32, copy=False)
    except (TypeError, ValueError):
        return none
