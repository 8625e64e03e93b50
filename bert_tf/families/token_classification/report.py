"""Report statistics of tagged words: of the entities that the tags mark.

Rows are those of dev_predictions.jsonl, one a sentence: "words", and of each
word its gold tag in "tags" and the model's in "predictions".
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
    """Confusion of types, their scores, kinds of errors and mistakes."""
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
    """How many entities are right, and what is wrong with the others.

    Returns:
      "right"; "other_type", found with both ends but of another type;
      "other_ends", of which a part was found, whatever its type; "missed"
      altogether; and "invented", found where there is no part of any.
    """
    spans = {(first, last): kind for kind, first, last in found}
    covered = _words_of(found)
    counts = dict.fromkeys(
        ("right", "other_type", "other_ends", "missed", "invented"), 0
    )
    for kind, first, last in gold:
        if (first, last) in spans:
            is_right = spans[first, last] == kind
            counts["right" if is_right else "other_type"] += 1
        elif covered.isdisjoint(range(first, last + 1)):
            counts["missed"] += 1
        else:
            counts["other_ends"] += 1
    there = _words_of(gold)
    counts["invented"] = sum(
        there.isdisjoint(range(first, last + 1)) for _, first, last in found
    )
    return counts


def _words_of(found: Sequence[Entity]) -> set[int]:
    return {n for _, first, last in found for n in range(first, last + 1)}


def _mistakes(rows: Sequence[Row]) -> dict[str, Any]:
    """The sentences with the most wrong entities, missed or found."""
    described: list[dict[str, Any]] = []
    for row in rows:
        starts = [0, len(row["words"])]
        gold = entities(row["tags"], starts)
        found = entities(row["predictions"], starts)
        wrong = set(gold) ^ set(found)
        if wrong:
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
    mine: Sequence[Entity], others: Sequence[Entity]
) -> list[dict[str, Any]]:
    """Entities, and whether the others have them too."""
    return [entity._asdict() | {"right": entity in others} for entity in mine]
