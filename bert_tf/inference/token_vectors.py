"""Weights of terms and vectors of tokens; see `LoadedModel.encode`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.sentence_modules import SparseModules
from bert_tf.errors import UserError, check_choice
from bert_tf.families.data.similarity import COSINE, DOT, SHORTEST, max_sim
from bert_tf.families.pretrained.late_interaction import (
    MASK,
    TOKEN_EMBEDDINGS,
    LateInteractionModel,
)
from bert_tf.families.pretrained.settings import Settings
from bert_tf.inference.load import LoadedModel
from bert_tf.inference.vectors import open_model, text_vectors
from bert_tf.libraries import require_extra
from bert_tf.side_by_side import side_by_side
from bert_tf.text.given_texts import Text, members, text_parts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# As sentence-transformers 6.2, of a MultiVectorEncoder.
MAX_SIM, MEAN_MAX_SIM = "maxsim", "meanmaxsim"


def encode_sparse(
    model: LoadedModel, texts: str | Iterable[Text], prompt_name: str | None
) -> "csr_matrix":
    """Computes the weights of terms, float32 [N, V]; N is 1 for one string."""
    require_extra("sparse", "encode of a SparseEncoder")
    from scipy.sparse import csr_matrix, vstack

    settings = Settings(batch_size=model.batch_size, prompt_name=prompt_name)
    opened = open_model(model, settings)
    given = [texts] if isinstance(texts, str) else members(texts, "`texts`")
    found = [csr_matrix((0, opened.width), dtype=np.float32)]
    for chunk in text_vectors(opened, given):
        found.append(csr_matrix(chunk.vectors[:, 0]))
    return vstack(found, format="csr")


def tokens(model: LoadedModel, vectors: Any) -> Any:
    """Returns the weights of vectors by token; see `LoadedModel.tokens`."""
    modules = model.served.modules
    if not isinstance(modules, SparseModules):
        raise UserError(
            f"{model.folder}: is no SparseEncoder; the numbers of its vectors "
            "belong to no tokens."
        )
    known = model.tokenizer.vocabulary.tokens
    found = []
    for row in _sparse_rows("vectors", vectors, modules):
        pairs = zip(row.data.tolist(), row.indices.tolist(), strict=True)
        in_order = sorted(pairs, key=lambda pair: -pair[0])
        # Some models pad the vocabulary to a round number.
        found.append({known[i]: w for w, i in in_order if i < len(known)})
    return found[0] if len(found) == 1 else found


def sparse_similarity(
    model: LoadedModel, modules: SparseModules, first: Any, second: Any
) -> np.ndarray:
    """Computes the similarities of sparse vectors, float32 [A, B]."""
    place = f"{model.folder}: similarity_fn_name"
    name = check_choice(place, modules.similarity or DOT, (DOT, COSINE))
    rows = [
        _sparse_rows(*pair, modules)
        for pair in (("first", first), ("second", second))
    ]
    product = (rows[0] @ rows[1].T).toarray()
    if name == COSINE:
        norms = [np.sqrt(each.multiply(each).sum(axis=1)) for each in rows]
        first, second = (np.maximum(each, SHORTEST) for each in norms)
        product = np.asarray(product / first / second.T)
    return product


def _sparse_rows(name: str, given: Any, modules: SparseModules) -> "csr_matrix":
    """Returns an argument as sparse vectors, float32 [N, V]."""
    require_extra("sparse", f"`{name}` of a SparseEncoder")
    from scipy.sparse import csr_matrix, issparse

    try:
        rows = csr_matrix(
            given if issparse(given) else np.atleast_2d(given), dtype=np.float32
        )
    except (TypeError, ValueError):
        raise UserError(
            f"`{name}` holds other things than numbers; take vectors of encode."
        ) from None
    if rows.shape[1] != modules.vocab_size:
        raise UserError(
            f"`{name}` is {rows.shape[1]} wide, and this model has "
            f"{modules.vocab_size} tokens; take vectors of encode."
        )
    return rows


def encode_tokens(
    model: LoadedModel, texts: str | Iterable[str], task: str
) -> Any:
    """Computes the vectors of the tokens of queries or of documents.

    Args:
      model: a model with a `LateInteractionModel`.
      texts: N strings, or one.
      task: query or document; empty is refused.

    Returns:
      N arrays, float32 [T, D]; for one string its array.
    """
    if not task:
        raise UserError(
            f"{model.folder}: is a MultiVectorEncoder, which encodes queries "
            "and documents differently; take encode_query and encode_document."
        )
    assert isinstance(model.served, LateInteractionModel)
    function = model.served.functions[task]
    is_one = isinstance(texts, str)
    given: list[str] = []
    rows = [texts] if is_one else members(texts, "`texts`")
    for number, text in enumerate(rows):
        parts = text_parts(text, f"texts[{number}]")
        if len(parts) > 1:
            raise UserError(
                f"texts[{number}] is a pair; a MultiVectorEncoder takes "
                "strings."
            )
        given += parts
    # The longest first, so that running out of memory shows early.
    order = np.argsort([-len(text) for text in given], kind="stable")
    size = model.batch_size
    batches = [order[i : i + size] for i in range(0, len(given), size)]

    def compute(chosen: np.ndarray) -> list[np.ndarray]:
        outputs = function(text=tf.constant([given[i] for i in chosen]))
        vectors, mask = (outputs[k].numpy() for k in (TOKEN_EMBEDDINGS, MASK))
        if not np.isfinite(vectors).all():
            raise UserError(
                f"{model.folder}: the vectors of a text are not finite; the "
                "model needs `precision`=float32."
            )
        return [row[one != 0] for row, one in zip(vectors, mask, strict=True)]

    found: list[Any] = [None] * len(given)
    results = side_by_side(compute, batches)
    for chosen, arrays in zip(batches, results, strict=True):
        for number, array in zip(chosen.tolist(), arrays, strict=True):
            found[number] = array
    return found[0] if is_one else found


def token_similarity(model: LoadedModel, first: Any, second: Any) -> np.ndarray:
    """Computes the scores of documents for queries, float32 [Q, D]."""
    served = model.served
    assert isinstance(served, LateInteractionModel)
    place = f"{model.folder}: similarity_fn_name"
    stated = served.modules.similarity or MAX_SIM
    name = check_choice(place, stated, (MAX_SIM, MEAN_MAX_SIM))
    queries = _token_vectors("first", first, served.width)
    scores = max_sim(queries, _token_vectors("second", second, served.width))
    if name == MEAN_MAX_SIM:
        counts = np.array([[max(len(query), 1)] for query in queries])
        scores = scores / counts.astype(np.float32)
    return scores


def _token_vectors(name: str, given: Any, width: int) -> list[np.ndarray]:
    """Returns an argument as arrays, float32 [T, D]."""
    try:
        if np.ndim(given[0]) == 1:
            given = [given]
        found = [np.asarray(each, np.float32) for each in given]
    except (TypeError, ValueError, IndexError, KeyError):
        found = []
    for number, each in enumerate(found):
        if each.ndim != 2 or each.shape[1] != width:
            raise UserError(
                f"`{name}`[{number}] is of the shape {list(each.shape)}; this "
                f"model's vectors are [T, {width}]."
            )
    if not found:
        raise UserError(
            f"`{name}` holds no vectors of tokens; take the results of "
            "encode_query and encode_document."
        )
    return found
