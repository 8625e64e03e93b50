"""Scores of rankings: nDCG, MRR, MAP, recall, precision and accuracy at k.

A ranking is the gains of the documents of a query, best document first. A gain
is the relevance of a document for the query, 0 if it is not relevant. nDCG has
linear gains, as trec_eval and BEIR (Järvelin and Kekäläinen 2002, with log2 of
the rank + 1); all other scores take every gain above 0 as relevant. With gains
of 0 and 1, they are those of sentence-transformers'
InformationRetrievalEvaluator.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

# The ranks at which BEIR and sentence-transformers cut rankings.
NDCG_AT, MRR_AT, MAP_AT = 10, 10, 100
SHARES_AT = (1, 3, 5, 10)


def ranking_scores(gains: np.ndarray, relevant: np.ndarray) -> dict[str, float]:
    """Computes the scores of one ranking.

    Args:
      gains: float [K], the gains of the ranked documents, best first.
      relevant: float [R], the gains of all relevant documents, at least one,
        in any order; ranked or not.

    Returns:
      ndcg@10, mrr@10, map@100, and accuracy, recall and precision at 1, 3, 5
      and 10.
    """
    is_hit = gains > 0
    ranks = np.flatnonzero(is_hit[:MAP_AT]) + 1
    precisions = np.arange(1, len(ranks) + 1) / ranks
    ideal = np.sort(relevant)[::-1]
    first = ranks[0] if len(ranks) else np.inf
    scores = {
        f"ndcg@{NDCG_AT}": _dcg(gains, NDCG_AT) / _dcg(ideal, NDCG_AT),
        f"mrr@{MRR_AT}": float(1 / first) if first <= MRR_AT else 0.0,
        f"map@{MAP_AT}": float(precisions.sum()) / min(len(relevant), MAP_AT),
    }
    hits = np.cumsum(is_hit)
    for k in SHARES_AT:
        found = int(hits[min(k, len(hits)) - 1]) if len(hits) else 0
        scores[f"accuracy@{k}"] = float(found > 0)
        scores[f"recall@{k}"] = found / len(relevant)
        scores[f"precision@{k}"] = found / k
    return scores


def mean_scores(rankings: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Averages the scores of one or more rankings."""
    rows = list(rankings)
    return {
        name: float(np.mean([row[name] for row in rows])) for name in rows[0]
    }


def best_first(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """Returns the indices of scores from the highest; ties keep their order."""
    return np.argsort(-np.asarray(scores, np.float64), kind="stable")


def _dcg(gains: np.ndarray, at_most: int) -> float:
    gains = np.maximum(gains[:at_most], 0.0)
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))
