"""Mines hard negatives: texts that a model takes for the positive of another.

As `mine_hard_negatives` of sentence-transformers 6.2 with its strategy "top";
de Souza P. Moreira et al. 2024, "NV-Retriever", for the margin.
"""

import numpy as np

from bert_tf.families.data.similarity import (
    in_blocks,
    nearest,
    normalized,
)
from bert_tf.families.sentence_embedding.recipe import EmbeddingRecipe

# Candidates of each negative, of which some do not fit.
_CANDIDATES = 10


def mine(
    vectors: np.ndarray, numbers: np.ndarray, recipe: EmbeddingRecipe
) -> np.ndarray:
    """Finds the negatives of each row among the positives of the others.

    Args:
      vectors: float32 [N, 2, D], of the anchor and the positive of each row.
      numbers: int64 [N, 2], the number of each text; equal texts have one.
      recipe: how many negatives to find, and which fit.

    Returns:
      int64 [N, number of negatives], the rows whose positives are negatives of
      each row, the most similar first; -1 where there are none.
    """
    count = recipe.num_hard_negatives
    (queries, query), (corpus, document) = (
        np.unique(column, return_index=True, return_inverse=True)[1:]
        for column in numbers.T
    )
    unit = normalized(vectors[queries, 0])
    texts = normalized(vectors[corpus, 1])
    most_positives = int(np.bincount(query).max())
    skipped = recipe.hard_negatives_range_min
    margin = recipe.hard_negatives_relative_margin
    most = recipe.hard_negatives_max_score
    factor = _CANDIDATES if margin or most < 1 else 1
    top_k = skipped + count * factor + 2 * most_positives
    found, scores = nearest(unit, in_blocks(texts), min(top_k, len(texts)))
    # A pair of a query and a text as one number.
    first = np.arange(len(queries))[:, np.newaxis] * len(corpus)
    fits = ~np.isin(found + first, query * len(corpus) + document)
    if margin:
        own = np.einsum("nd,nd->n", unit[query], texts[document])
        least = np.full(len(queries), np.inf, np.float32)
        np.minimum.at(least, query, own)
        fits &= scores <= (least - margin * np.abs(least))[:, np.newaxis]
    if most < 1:
        fits &= scores <= most
    place = np.cumsum(fits, axis=1) - 1 - skipped
    row, column = np.nonzero(fits & (place >= 0) & (place < count))
    negatives = np.full((len(queries), count), -1)
    negatives[row, place[row, column]] = corpus[found[row, column]]
    return negatives[query]
