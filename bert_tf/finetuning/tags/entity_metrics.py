"""The scores of conlleval (Tjong Kim Sang, CoNLL-2000), as shares.

An entity counts as found if its type and both of its ends are right. Where a
score is not defined (nothing was found, nothing is there) it is 0.
"""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.finetuning.tags.tag_schemes import entities


@dataclasses.dataclass(frozen=True)
class EntityCounts:
    """Entities of one type, or of all.

    Attributes:
      wanted: how many the references have.
      found: how many the predictions have.
      right: how many both have.
    """

    wanted: int
    found: int
    right: int

    @property
    def precision(self) -> float:
        """The share of those found that are right."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of those wanted that were found."""
        return self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.found + self.wanted
        return 2 * self.right / both if both else 0.0


@dataclasses.dataclass(frozen=True)
class EntityScores:
    """What conlleval prints.

    Attributes:
      overall: counts of all entities.
      by_type: counts of each type in either, by name.
      accuracy: the share of words whose tag is right, prefix and type.
      words: how many there are.
    """

    overall: EntityCounts
    by_type: dict[str, EntityCounts]
    accuracy: float
    words: int

    def scores(self) -> dict[str, float]:
        """F1, precision, recall and accuracy by name."""
        return {
            "f1": self.overall.f1,
            "precision": self.overall.precision,
            "recall": self.overall.recall,
            "accuracy": self.accuracy,
        }


def score_entities(
    references: Sequence[str],
    predictions: Sequence[str],
    sentence_starts: Sequence[int] | np.ndarray,
) -> EntityScores:
    """Scores tags by the entities that they mark.

    Accuracy compares the tags as they are, as conlleval does, so both should be
    of one scheme, and it is another number in IOB1 than in IOB2.

    Args:
      references: the right tags of W words.
      predictions: the tags predicted.
      sentence_starts: [N + 1], where each sentence begins; the last is W.

    Raises:
      UserError: there are no tags, or not as many predictions as references.
    """
    _check(references, predictions)
    wanted = entities(references, sentence_starts)
    found = entities(predictions, sentence_starts)
    right = set(wanted).intersection(found)
    wanted_of, found_of, right_of = (
        collections.Counter(entity.kind for entity in part)
        for part in (wanted, found, right)
    )
    same = sum(map(str.__eq__, references, predictions))
    return EntityScores(
        overall=EntityCounts(len(wanted), len(found), len(right)),
        by_type={
            kind: EntityCounts(wanted_of[kind], found_of[kind], right_of[kind])
            for kind in sorted(wanted_of | found_of)
        },
        accuracy=same / len(references),
        words=len(references),
    )


def entity_confusion(
    references: Sequence[str],
    predictions: Sequence[str],
    sentence_starts: Sequence[int] | np.ndarray,
) -> tuple[tuple[str, ...], np.ndarray]:
    """Which types are taken for which.

    Two entities belong together if both of their ends are the same. One whose
    ends are wrong is missed under its right type and found where none is.

    Args:
      references: the right tags of W words.
      predictions: the tags predicted.
      sentence_starts: [N + 1], where each sentence begins; the last is W.

    Returns:
      The K types by name, and int64 [K + 1, K + 1]: the right types by rows,
      the predicted ones by columns, the last of both being no entity.

    Raises:
      UserError: there are no tags, or not as many predictions as references.
    """
    _check(references, predictions)
    wanted, found = (
        {(first, last): kind for kind, first, last in entities(tags, starts)}
        for tags, starts in (
            (references, sentence_starts),
            (predictions, sentence_starts),
        )
    )
    kinds = tuple(sorted({*wanted.values(), *found.values()}))
    place = {kind: number for number, kind in enumerate((*kinds, None))}
    confusion = np.zeros((len(place), len(place)), np.int64)
    for span in wanted.keys() | found.keys():
        confusion[place[wanted.get(span)], place[found.get(span)]] += 1
    return kinds, confusion


def _check(references: Sequence[str], predictions: Sequence[str]) -> None:
    if len(references) != len(predictions):
        raise UserError(
            f"there are {len(references)} reference tags and "
            f"{len(predictions)} predicted ones; every word has one of each."
        )
    if not references:
        raise UserError("references: there are none to score.")
