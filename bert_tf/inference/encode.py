"""Vectors of texts with the names of sentence-transformers."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import check_choice, whole_number
from bert_tf.families.data.similarity import COSINE, SIMILARITIES, normalized
from bert_tf.inference.embed import embed
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.quantized_vectors import (
    BYTES,
    PRECISIONS,
    number_ranges,
    quantize,
)
from bert_tf.inference.search import as_vectors, check_widths
from bert_tf.text.given_texts import Text

# As sentence-transformers 6.2, `encode_query` and `encode_document`.
QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def first_prompt(model: LoadedModel, names: Sequence[str]) -> str | None:
    """Returns the first of some prompts that a model has; None for none."""
    modules = model.served.modules
    known = modules.prompts if modules is not None else ()
    return next((name for name in names if name in known), None)


def encode(
    model: LoadedModel,
    texts: str | Iterable[Text],
    prompt_name: str | None = None,
    normalize: bool = False,
    truncate_dim: int | None = None,
    precision: str = "float32",
    calibration: Any = None,
) -> np.ndarray:
    """Computes a vector per text; see `LoadedModel.encode`."""
    check_choice("`precision`", precision, PRECISIONS)
    vectors = embed(
        model, texts, batch_size=model.batch_size, prompt_name=prompt_name
    )
    is_one = vectors.ndim == 1
    vectors = np.atleast_2d(vectors)
    width = vectors.shape[1]
    if truncate_dim is not None:
        why = "the width of the model's vectors"
        kept = whole_number("truncate_dim", truncate_dim, 1, width, why)
        vectors = vectors[:, :kept]
    if normalize:
        vectors = normalized(vectors)
    ranges = None
    if precision in BYTES:
        ranges = number_ranges(vectors, calibration)
    vectors = quantize(vectors, precision, ranges)
    return vectors[0] if is_one else vectors


def similarity(model: LoadedModel, first: Any, second: Any) -> np.ndarray:
    """Computes the similarities of vectors; see `LoadedModel.similarity`."""
    modules = model.served.modules
    name = (modules.similarity if modules is not None else None) or COSINE
    place = f"{model.folder}: similarity_fn_name"
    function = SIMILARITIES[check_choice(place, name, SIMILARITIES)]
    vectors, others = as_vectors("first", first), as_vectors("second", second)
    check_widths("first", vectors, "second", others)
    return function(np.atleast_2d(vectors), np.atleast_2d(others))
