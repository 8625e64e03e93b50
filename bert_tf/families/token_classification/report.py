"""Report statistics of taggers, by entities.

Rows are those of dev_predictions.jsonl, one per sentence, with "words", their
gold "tags" and "predictions".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families.token_classification.entities import (
    Entity,
    entities,
    entity_confusion,
    has_scheme,
)
from bert_tf.report.statistics import (
    NUM_MISTAKES,
    confusion_matrix,
    per_label,
)

_NO_ENTITY = "no entity"

Row = Mapping[str, Any]


def statistics(
    rows: Sequence[Row], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the confusion of types, their scores, errors and mistakes."""
    del results
    starts = np.cumsum([0, *(len(row["words"]) for row in rows)])
    tags, predicted = (
        [tag for row in rows for tag in row[name]]
        for name in ("tags", "predictions")
    )
    gold, found = entities(tags, starts), entities(predicted, starts)
    kinds, counts = entity_confusion(gold, found)
    return {
        "has_scheme": has_scheme(set(tags)),
        "num_examples": len(rows),
        "num_words": len(tags),
        "confusion_matrix": confusion_matrix(counts, [*kinds, _NO_ENTITY]),
        "per_label": per_label(
            kinds, np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)
        ),
        "errors": _errors(gold, found),
        "mistakes": _mistakes(rows),
    }


def _errors(gold: Sequence[Entity], found: Sequence[Entity]) -> dict[str, int]:
    """Counts correct entities and kinds of errors.

    Returns:
      "right"; "other_type", found with both ends; "other_ends", overlapping a
      prediction; "missed"; and "invented", overlapping no gold entity.
    """
    kinds = {(first, last): kind for kind, first, last in found}
    predicted, true = (
        {word for _, first, last in each for word in range(first, last + 1)}
        for each in (found, gold)
    )
    counts = dict.fromkeys(
        ("right", "other_type", "other_ends", "missed", "invented"), 0
    )
    for kind, first, last in gold:
        if (first, last) in kinds:
            is_right = kinds[first, last] == kind
            counts["right" if is_right else "other_type"] += 1
        else:
            overlaps = not predicted.isdisjoint(range(first, last + 1))
            counts["other_ends" if overlaps else "missed"] += 1
    counts["invented"] = sum(
        true.isdisjoint(range(first, last + 1)) for _, first, last in found
    )
    return counts


def _mistakes(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns the sentences with most entities missed or wrongly found."""
    described: list[dict[str, Any]] = []
    for row in rows:
        gold, found = (
            entities(row[name], [0, len(row["words"])])
            for name in ("tags", "predictions")
        )
        if wrong := set(gold) ^ set(found):
            described.append(
                {
                    "row": row["row"],
                    "words": row["words"],
                    "wrong": len(wrong),
                    "entities": _listed(gold, found),
                    "predicted": _listed(found, gold),
                }
            )
    described.sort(key=lambda each: -each["wrong"])
    return {"total": len(described), "worst": described[:NUM_MISTAKES]}


def _listed(
    own: Sequence[Entity], others: Sequence[Entity]
) -> list[dict[str, Any]]:
    return [entity._asdict() | {"right": entity in others} for entity in own]
