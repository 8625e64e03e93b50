"""The report of sentence embeddings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families.data.scores import best_accuracy, best_f1, ranks
from bert_tf.report.answer_sections import (
    ReportWords,
    Row,
    mistakes_section,
)
from bert_tf.report.figures import histogram
from bert_tf.report.sections import Figure, Lines, Section, fact_table
from bert_tf.report.texts import MarkedText

WORDS = ReportWords("rows", "the same similarity of all texts, without a model")
_BINS = 40
_FACTS = ("identifier", "row", "label", "prediction")


def sections(rows: Sequence[Row], results: Mapping[str, Any]) -> list[Section]:
    """Similarities by score or label, or ranks of positives; the worst rows.

    Args:
      rows: of dev_predictions.jsonl: "label" is a score, 0 or 1, or None;
        "prediction" is a similarity or a rank.
      results: the contents of results.json.
    """
    found = np.array([row["prediction"] for row in rows])
    if results["main_metric"] == "mrr@10":
        return [_ranks(found), _worst(rows, found, "the last ranks first")]
    if rows[0]["label"] is None:
        return [
            _similarities({"rows": found}, {}),
            _worst(rows, -found, "the least similar ones first"),
        ]
    labels = np.array([row["label"] for row in rows], np.float64)
    if results["main_metric"] == "average_precision":
        groups = {
            name: found[labels == value]
            for name, value in (("label 0", 0), ("label 1", 1))
        }
        facts: dict[str, float] = {}
        for name, score in (("accuracy", best_accuracy), ("f1", best_f1)):
            best = score(labels, found)
            facts |= {
                f"best_{name}": best.value,
                f"threshold_of_{name}": best.threshold,
            }
        wrong = np.where(labels == 1, -found, found)
        about = "the least similar with label 1 and the most with 0 first"
        return [_similarities(groups, facts), _worst(rows, wrong, about)]
    share = (ranks(labels) - 0.5) / len(labels)
    groups = {
        "lower half of scores": found[share < 0.5],
        "upper half of scores": found[share >= 0.5],
    }
    # A correlation of ranks suffers from differences of ranks.
    wrong = np.abs(ranks(labels) - ranks(found))
    about = "the largest differences of the ranks by score and similarity first"
    return [_similarities(groups, {}), _worst(rows, wrong, about)]


def _similarities(
    groups: Mapping[str, np.ndarray], facts: Mapping[str, float]
) -> Section:
    """The distribution of similarities in each group of rows."""
    every = np.concatenate([*groups.values()])
    # Rounding may exceed 1.
    reach = min(float(every.min()), 0.0), max(float(every.max()), 1.0)
    edges = np.linspace(*reach, _BINS + 1)
    counts = {
        name: np.histogram(values, edges)[0].tolist()
        for name, values in groups.items()
    }
    means = {
        f"mean_of_{name.replace(' ', '_')}": float(values.mean())
        for name, values in groups.items()
        if len(values)
    }
    drawn = histogram(edges.tolist(), counts, ("cosine similarity", "rows"), {})
    numbers = {"edges": edges.tolist(), "counts": counts, **means, **facts}
    return Section(
        "similarities",
        "Similarities",
        [
            Figure(drawn, "The more the groups differ, the better."),
            fact_table("Similarities", {**means, **facts}),
        ],
        {"similarities": numbers},
    )


def _ranks(found: np.ndarray) -> Section:
    """How many positives have which rank."""
    bounds = [1, 2, 3, 5, 10, 100]
    shares = {
        f"share_of_ranks_up_to_{bound}": float((found <= bound).mean())
        for bound in bounds
    }
    facts = {**shares, "median_rank": float(np.median(found))}
    line = (
        "The rank of each row's positive among those of all rows, by "
        "similarity to the anchor; 1 is the best."
    )
    return Section(
        "ranks",
        "Ranks of the positives",
        [Lines([line]), fact_table("Ranks", facts)],
        {"ranks": facts},
    )


def _worst(rows: Sequence[Row], badness: np.ndarray, order: str) -> Section:
    """The rows with the largest `badness`."""
    wrong = [rows[n] for n in np.argsort(-badness, kind="stable")]
    return mistakes_section(
        wrong,
        len(rows),
        f"rows, {order}. Check these rows for wrong labels in the file",
        _FACTS,
        lambda row: [MarkedText(text) for text in row["texts"]],
    )
