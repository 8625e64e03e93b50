"""Vectors of texts with the names of sentence-transformers."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_tf.checkpoints.sentence_modules import (
    Modules,
    MultiVectorModules,
    SparseModules,
)
from bert_tf.config import FLOAT32, VECTOR_PRECISIONS
from bert_tf.errors import check_choice, whole_number
from bert_tf.families.data.similarity import COSINE, SIMILARITIES, normalized
from bert_tf.inference.embed import embed
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.quantized_vectors import (
    BYTES,
    number_ranges,
    quantize,
)
from bert_tf.inference.search import as_vectors, check_widths
from bert_tf.text.given_texts import Text


def is_of_tokens(modules: Modules | None) -> bool:
    """Whether modules compute weights of terms or vectors of tokens."""
    return isinstance(modules, SparseModules | MultiVectorModules)


def shortened(
    vectors: np.ndarray, truncate_dim: int | None, normalize: bool = False
) -> np.ndarray:
    """Keeps the first numbers of vectors, [N, D], and normalises the rest.

    Raises:
      UserError: the vectors have fewer numbers.
    """
    if truncate_dim is not None:
        why = "the width of the model's vectors"
        width = vectors.shape[1]
        kept = whole_number("truncate_dim", truncate_dim, 1, width, why)
        vectors = vectors[:, :kept]
    return normalized(vectors) if normalize else vectors


def encode(
    model: LoadedModel,
    texts: str | Iterable[Text],
    prompt_name: str | None = None,
    normalize: bool = False,
    truncate_dim: int | None = None,
    precision: str = "float32",
    calibration: Any = None,
) -> Any:
    """Computes a vector per text; see `LoadedModel.encode`."""
    check_choice("`precision`", precision, VECTOR_PRECISIONS)
    if is_of_tokens(model.served.modules):
        from bert_tf.inference.token_vectors import encode_tokens

        options = {
            "normalize": normalize or None,
            "truncate_dim": truncate_dim,
            "precision": None if precision == FLOAT32 else precision,
            "calibration": calibration,
        }
        return encode_tokens(model, texts, prompt_name, options)
    vectors = embed(
        model, texts, batch_size=model.batch_size, prompt_name=prompt_name
    )
    is_one = vectors.ndim == 1
    vectors = np.atleast_2d(vectors)
    vectors = shortened(vectors, truncate_dim, normalize)
    ranges = None
    if precision in BYTES:
        ranges = number_ranges(vectors, calibration)
    vectors = quantize(vectors, precision, ranges)
    return vectors[0] if is_one else vectors


def similarity(model: LoadedModel, first: Any, second: Any) -> np.ndarray:
    """Computes the similarities of vectors; see `LoadedModel.similarity`."""
    modules = model.served.modules
    if is_of_tokens(modules):
        from bert_tf.inference.token_vectors import token_similarity

        return token_similarity(model, first, second)
    name = (modules.similarity if modules is not None else None) or COSINE
    place = f"{model.folder}: similarity_fn_name"
    function = SIMILARITIES[check_choice(place, name, SIMILARITIES)]
    vectors, others = as_vectors("first", first), as_vectors("second", second)
    check_widths("first", vectors, "second", others)
    return function(np.atleast_2d(vectors), np.atleast_2d(others))
