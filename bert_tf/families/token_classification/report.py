"""The report of taggers, by entities."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families.calibration import before_and_after, is_offered
from bert_tf.families.token_classification.entities import (
    Entity,
    entities,
    entity_confusion,
    has_scheme,
    in_scheme,
    learned_scheme,
    tag_numbers,
)
from bert_tf.report.answer_sections import (
    ReportWords,
    Row,
    calibration_section,
    confusion_section,
    mistakes_section,
)
from bert_tf.report.formats import percent
from bert_tf.report.sections import ReportTable, Section
from bert_tf.report.statistics import share
from bert_tf.report.texts import Mark, MarkedText

WORDS = ReportWords("sentences", "the most frequent tag for every word")
_ERRORS = {
    "right": "Correct type and boundaries",
    "other_type": "Correct boundaries, wrong type",
    "other_ends": "Wrong boundary",
    "missed": "Missed",
    "invented": "Predicted where there is none",
}


def sections(rows: Sequence[Row], results: Mapping[str, Any]) -> list[Section]:
    """The confusion of types, their scores, errors and mistakes.

    Args:
      rows: of dev_predictions.jsonl, one per sentence, with "words", their gold
        "tags" and "predictions".
      results: the contents of results.json.
    """
    starts = np.cumsum([0, *(len(row["words"]) for row in rows)])
    tags, predicted = (
        [tag for row in rows for tag in row[name]]
        for name in ("tags", "predictions")
    )
    gold, found = entities(tags, starts), entities(predicted, starts)
    kinds, counts = entity_confusion(gold, found)
    errors = _errors(gold, found)
    answers = confusion_section(counts, kinds, "entities", "type", "no entity")
    table = ReportTable(
        f"Errors on {len(gold):,} entities in {len(tags):,} words",
        [
            {"result": title, "entities": errors[key]}
            | {"% of true entities": share(errors[key], len(gold))}
            for key, title in _ERRORS.items()
        ],
        {"% of true entities": percent},
        note="An entity with a wrong boundary counts twice in the matrix: as "
        "missed under its true type, and as predicted where there is no "
        "entity. Without prefixes such as B- and I-, consecutive words with "
        "the same tag are one entity.",
    )
    measured = []
    if "calibration_temperature" in results:
        labels = results["labels"]
        gold_tags = in_scheme(tags, starts, learned_scheme(labels))
        targets = tag_numbers(gold_tags, labels)
        logits = np.concatenate([row["logits"] for row in rows])
        is_known = targets >= 0
        measured = before_and_after(
            logits[is_known], targets[is_known], results
        )
    numbers = {
        "has_scheme": has_scheme(set(tags)),
        "num_words": len(tags),
        "errors": errors,
    }
    return [
        answers._replace(
            parts=[*answers.parts, table],
            numbers={**answers.numbers, **numbers},
        ),
        calibration_section(
            measured,
            is_offered(results, len(rows)),
            "Confidence is the probability of the tag of a word.",
            ", summed over each tag: 0 is perfect, 2 the worst.",
        ),
        mistakes_section(
            _mistakes(rows),
            len(rows),
            "sentences, those with the most wrong entities first. Correct "
            "entities are underlined; framed ones are missed (in the true "
            "line) or wrong (in the predicted line)",
            ("row", "wrong"),
            _texts,
        ),
    ]


def _errors(gold: Sequence[Entity], found: Sequence[Entity]) -> dict[str, int]:
    """Counts correct entities and kinds of errors, the keys of `_ERRORS`."""
    kinds = {(first, last): kind for kind, first, last in found}
    predicted, true = (
        {word for _, first, last in each for word in range(first, last + 1)}
        for each in (found, gold)
    )
    counts = dict.fromkeys(_ERRORS, 0)
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


def _mistakes(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns the sentences with entities missed or wrongly found."""
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
    return sorted(described, key=lambda each: -each["wrong"])


def _listed(
    own: Sequence[Entity], others: Sequence[Entity]
) -> list[dict[str, Any]]:
    return [entity._asdict() | {"right": entity in others} for entity in own]


def _texts(row: Row) -> list[MarkedText]:
    """The words, joined by spaces, with the true and the predicted entities."""
    ends = np.cumsum([0, *(len(word) + 1 for word in row["words"])]).tolist()
    text = " ".join(row["words"])

    def mark(entity: Row, remark: str) -> Mark:
        kind, style = entity["kind"], "gold"
        if not entity["right"]:
            kind, style = f"{kind}, {remark}", "given"
        return Mark(
            ends[entity["first"]], ends[entity["last"] + 1] - 1, kind, style
        )

    true = [mark(entity, "not found") for entity in row["entities"]]
    predicted = [mark(entity, "wrong") for entity in row["predicted"]]
    return [
        MarkedText(text, "True", true),
        MarkedText(text, "Predicted", predicted),
    ]
