"""Reports on tasks that tag words."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.report.checks import require_exactly
from bert_tf.finetuning.report.confusion import confusion_matrix, per_label
from bert_tf.finetuning.report.kind import (
    NUM_MISTAKES,
    PAPER_ON_DEV,
    Kind,
)
from bert_tf.finetuning.report.tag_sections import tag_sections
from bert_tf.finetuning.tags.feature_recipe import FeatureRecipe
from bert_tf.finetuning.tags.tag_recipe import OwnTagRecipe
from bert_tf.finetuning.token_classification.entities import (
    Entity,
    entities,
    entity_confusion,
    is_tag,
    score_entities,
)
from bert_tf.recipe import check_kind

NO_ENTITY = "no entity"


class TagRow(NamedTuple):
    """One line of dev_predictions.jsonl: a sentence.

    Attributes:
      row: its line in the data file, counted from 1.
      words: its words.
      tags: the right tag of each.
      predictions: the model's.
    """

    row: int
    words: list[str]
    tags: list[str]
    predictions: list[str]


def read_tags(
    line: Mapping[str, Any], results: Mapping[str, Any], place: str
) -> TagRow:
    """Reads a line strictly.

    Args:
      line: the line's object.
      results: results.json.
      place: file and line, for errors.

    Raises:
      UserError: something is missing, or is not what it should be.
    """
    del results
    require_exactly(line, TagRow._fields, place)
    check_kind("row", int, line["row"], place)
    for name in ("words", "tags", "predictions"):
        check_kind(name, list, line[name], place)
        for number, value in enumerate(line[name]):
            check_kind(f"{name}[{number}]", str, value, place)
        if not line[name] or len(line[name]) != len(line["words"]):
            raise UserError(
                f"{place}: has {len(line['words'])} words and "
                f"{len(line[name])} {name}; every word has one, and a "
                "sentence a word or more."
            )
    for name in ("tags", "predictions"):
        for tag in line[name]:
            if not is_tag(tag):
                raise UserError(
                    f"{place}: {name} have {tag!r}, which is no tag; one is O, "
                    "or B- or I- and a type."
                )
    return TagRow(**line)


def tag_numbers(
    rows: Sequence[TagRow], results: Mapping[str, Any]
) -> dict[str, Any]:
    """Confusion of types, their scores, kinds of errors and mistakes.

    Args:
      rows: the lines of dev_predictions.jsonl.
      results: results.json.
    """
    del results
    starts = np.cumsum([0, *(len(row.words) for row in rows)])
    tags = [tag for row in rows for tag in row.tags]
    answers = [tag for row in rows for tag in row.predictions]
    scores = score_entities(tags, answers, starts)
    kinds, counts = entity_confusion(tags, answers, starts)
    by_type = [scores.by_type[kind] for kind in kinds]
    return {
        "num_examples": len(rows),
        "num_words": scores.words,
        "confusion_matrix": confusion_matrix(counts, [*kinds, NO_ENTITY]),
        "per_label": per_label(
            kinds,
            np.array([each.right for each in by_type]),
            np.array([each.found for each in by_type]),
            np.array([each.wanted for each in by_type]),
        ),
        "errors": _errors(entities(tags, starts), entities(answers, starts)),
        "mistakes": _mistakes(rows),
    }


def _errors(
    wanted: Sequence[Entity], found: Sequence[Entity]
) -> dict[str, int]:
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
    for kind, first, last in wanted:
        if (first, last) in spans:
            is_right = spans[first, last] == kind
            counts["right" if is_right else "other_type"] += 1
        elif covered.isdisjoint(range(first, last + 1)):
            counts["missed"] += 1
        else:
            counts["other_ends"] += 1
    there = _words_of(wanted)
    counts["invented"] = sum(
        there.isdisjoint(range(first, last + 1)) for _, first, last in found
    )
    return counts


def _words_of(found: Sequence[Entity]) -> set[int]:
    return set(
        itertools.chain.from_iterable(
            range(first, last + 1) for _, first, last in found
        )
    )


def _mistakes(rows: Sequence[TagRow]) -> dict[str, Any]:
    """The sentences with the most wrong entities, missed or found."""
    described: list[dict[str, Any]] = []
    for row in rows:
        starts = [0, len(row.words)]
        wanted = entities(row.tags, starts)
        found = entities(row.predictions, starts)
        wrong = set(wanted) ^ set(found)
        if wrong:
            described.append(
                {
                    "row": row.row,
                    "words": row.words,
                    "wrong": len(wrong),
                    "entities": _listed(wanted, found),
                    "predicted": _listed(found, wanted),
                }
            )
    described.sort(key=lambda each: -each["wrong"])
    return {"total": len(described), "worst": described[:NUM_MISTAKES]}


def _listed(
    mine: Sequence[Entity], others: Sequence[Entity]
) -> list[dict[str, Any]]:
    """Entities, and whether the others have them too."""
    return [entity._asdict() | {"right": entity in others} for entity in mine]


TAGS = Kind(
    key="tags",
    read=read_tags,
    numbers=tag_numbers,
    sections=tag_sections,
    recipes=(OwnTagRecipe, FeatureRecipe),
    unit="sentences",
    baseline=lambda labels: "finding no entity",
    published="published",
    paper_note=PAPER_ON_DEV,
)
