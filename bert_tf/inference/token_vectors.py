"""Weights of terms and vectors of tokens; see `LoadedModel.encode`."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.sentence_modules import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    SparseModules,
)
from bert_tf.errors import UserError, check_choice, excerpt
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


def encode_tokens(
    model: LoadedModel,
    texts: str | Iterable[Text],
    prompt_name: str | None,
    options: Mapping[str, Any],
) -> Any:
    """Computes weights of terms or vectors of tokens.

    Args:
      model: a SparseEncoder or a MultiVectorEncoder.
      texts, prompt_name: see `LoadedModel.encode`.
      options: arguments that apply to dense vectors; None if they are not
        given.
    """
    for name, value in options.items():
        if value is not None:
            raise UserError(
                f"`{name}`={excerpt(value)}: applies to models of one dense "
                f"vector per text; {model.folder} is of {model.served.task}."
            )
    if isinstance(model.served, LateInteractionModel):
        return _encode_late(model, model.served, texts, prompt_name)
    return _encode_sparse(model, texts, prompt_name)


def _encode_sparse(
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


def _encode_late(
    model: LoadedModel,
    served: LateInteractionModel,
    texts: str | Iterable[Text],
    prompt_name: str | None,
) -> Any:
    """Computes vectors of tokens; the prompt determines how.

    Returns:
      N arrays, float32 [T, D]; for one string its array.
    """
    tasks = {"query": QUERY_PROMPTS, "document": DOCUMENT_PROMPTS}
    task = next((t for t, names in tasks.items() if prompt_name in names), None)
    if task is None:
        raise UserError(
            f"{model.folder}: encodes queries and documents differently; take "
            "encode_query and encode_document."
        )
    function = served.functions[task]
    is_one = isinstance(texts, str)
    given: list[str] = []
    rows = [texts] if is_one else members(texts, "`texts`")
    for number, text in enumerate(rows):
        parts = text_parts(text, f"texts[{number}]")
        if len(parts) > 1:
            raise UserError(
                f"texts[{number}] is a pair; {served.task} takes strings."
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


def token_similarity(model: LoadedModel, first: Any, second: Any) -> np.ndarray:
    """Computes similarities; see `LoadedModel.similarity`."""
    place, modules = f"{model.folder}: similarity_fn_name", model.served.modules
    given = (("first", first), ("second", second))
    if isinstance(modules, SparseModules):
        stated = modules.similarity or DOT
        check_choice(place, stated, (DOT, COSINE))
        rows = [_sparse_rows(*each, modules) for each in given]
        if stated == COSINE:
            rows = [_normalized(each) for each in rows]
        return (rows[0] @ rows[1].T).toarray()
    assert isinstance(model.served, LateInteractionModel)
    stated = model.served.modules.similarity or MAX_SIM
    check_choice(place, stated, (MAX_SIM, MEAN_MAX_SIM))
    width = model.served.width
    queries, documents = (_token_vectors(*each, width) for each in given)
    scores = max_sim(queries, documents)
    if stated == MEAN_MAX_SIM:
        counts = [[max(len(query), 1)] for query in queries]
        scores = scores / np.array(counts, np.float32)
    return scores


def _normalized(rows: "csr_matrix") -> "csr_matrix":
    """Scales sparse vectors to unit length; zeros stay zeros."""
    norms = np.sqrt(rows.multiply(rows).sum(axis=1))
    return rows.multiply(1 / np.maximum(norms, SHORTEST)).tocsr()


def _sparse_rows(name: str, given: Any, modules: SparseModules) -> "csr_matrix":
    """Returns an argument as sparse vectors, float32 [N, V]."""
    require_extra("sparse", f"`{name}` of a SparseEncoder")
    from scipy.sparse import csr_matrix, issparse

    try:
        rows = given if issparse(given) else np.atleast_2d(given)
        rows = csr_matrix(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise UserError(
            f"`{name}` is {excerpt(given)}; it takes vectors of encode."
        ) from None
    if rows.shape[1] != modules.vocab_size:
        raise UserError(
            f"`{name}` is {rows.shape[1]} wide, and this model has "
            f"{modules.vocab_size} tokens; take vectors of encode."
        )
    return rows


def _token_vectors(name: str, given: Any, width: int) -> list[np.ndarray]:
    """Returns an argument as arrays, float32 [T, D]; one array is one text."""
    try:
        if isinstance(given, np.ndarray) and given.ndim == 2:
            given = [given]
        found = [np.asarray(each, np.float32) for each in given]
    except (TypeError, ValueError):
        raise UserError(
            f"`{name}` is {excerpt(given)}; it takes the results of "
            "encode_query and encode_document."
        ) from None
    for number, each in enumerate(found):
        if each.ndim != 2 or each.shape[1] != width:
            raise UserError(
                f"`{name}`[{number}] has the shape {list(each.shape)}; vectors "
                f"of this model have [T, {width}]."
            )
    return found
