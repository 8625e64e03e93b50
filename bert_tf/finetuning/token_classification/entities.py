"""Tags of words, the entities that they mark, and what found ones are worth."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError

OUTSIDE = "O"
BEGIN, INSIDE = "B", "I"
# Tags of these begin an entity whatever comes before, or end it.
_FIRST = frozenset("BSU")
_LAST = frozenset("ESLU")
# Of an entity's only, first, inner and last word; IOB1 marks some by B- too.
IOB1, IOB2 = "IOB1", "IOB2"
SCHEMES = {IOB2: "BBII", IOB1: "IIII", "IOBES": "SBIE", "BILOU": "UBIL"}
_PREFIXES = frozenset((BEGIN, INSIDE)) | _FIRST | _LAST


class Entity(NamedTuple):
    """A stretch of words.

    Attributes:
      kind: its type.
      first: number of its first word.
      last: number of its last word.
    """

    kind: str
    first: int
    last: int


def is_tag(tag: str) -> bool:
    """Whether this is O, or a prefix of a scheme, a hyphen and a type."""
    prefix, kind = _parts(tag)
    return tag == OUTSIDE or (prefix in _PREFIXES and bool(kind))


def _parts(tag: str) -> tuple[str, str]:
    """The prefix and the type; a type may have hyphens itself."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def entities(
    tags: Sequence[str], sentence_starts: Sequence[int] | np.ndarray
) -> list[Entity]:
    """The entities of sentences, by conlleval's rules.

    One begins at a word with a tag other than O, if the word before it is
    none of its sentence, has O or another type, or if one of the two prefixes
    says so.

    Args:
      tags: tags of W words in a scheme that `is_tag` knows.
      sentence_starts: [N + 1], where each sentence begins; the last is W.

    Returns:
      The entities in the order of their words, which are counted from 0 over
      all sentences.
    """
    parts = {tag: _parts(tag) for tag in set(tags)}
    found = []
    starts = np.asarray(sentence_starts).tolist()
    for sentence, end in itertools.pairwise(starts):
        before, kind, first = OUTSIDE, "", sentence
        for word in range(sentence, end):
            prefix, new_kind = parts[tags[word]]
            ends = (
                prefix == OUTSIDE
                or new_kind != kind
                or prefix in _FIRST
                or before in _LAST
            )
            if ends and before != OUTSIDE:
                found.append(Entity(kind, first, word - 1))
            if ends:
                first = word
            before, kind = prefix, new_kind
        if before != OUTSIDE:
            found.append(Entity(kind, first, end - 1))
    return found


def in_scheme(
    tags: Sequence[str],
    sentence_starts: Sequence[int] | np.ndarray,
    scheme: str,
) -> list[str]:
    """The same entities as tags of a scheme; see `entities`.

    Args:
      tags: tags of W words in a scheme that `is_tag` knows.
      sentence_starts: [N + 1], where each sentence begins; the last is W.
      scheme: one of `SCHEMES`.
    """
    only, first, inner, last = tuple(SCHEMES[scheme])
    sentences = set(np.asarray(sentence_starts).tolist())
    converted = [OUTSIDE] * len(tags)
    for kind, begin, end in entities(tags, sentence_starts):
        marks = [only] if begin == end else [first] + [inner] * (end - begin)
        if begin < end:
            marks[-1] = last
        touches = begin and begin not in sentences
        if scheme == IOB1 and touches and _parts(tags[begin - 1])[1] == kind:
            marks[0] = BEGIN
        converted[begin : end + 1] = [f"{mark}-{kind}" for mark in marks]
    return converted


def scheme_of(
    tags: Sequence[str], sentence_starts: Sequence[int] | np.ndarray
) -> str:
    """The scheme of `SCHEMES` in which most of the tags would be the same."""

    def num_same(scheme: str) -> int:
        written = in_scheme(tags, sentence_starts, scheme)
        return sum(map(str.__eq__, tags, written))

    return max(SCHEMES, key=num_same)


def to_iob2(
    tags: Sequence[str], sentence_starts: Sequence[int] | np.ndarray
) -> list[str]:
    """The same entities in IOB2; see `entities`."""
    return in_scheme(tags, sentence_starts, IOB2)


def iob2_labels(tags: Iterable[str]) -> tuple[str, ...]:
    """The classes of a tagger: O, then B- and I- of every type by name."""
    kinds = sorted({_parts(tag)[1] for tag in tags if tag != OUTSIDE})
    marks = itertools.product(kinds, (BEGIN, INSIDE))
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind, prefix in marks))


def tag_numbers(
    tags: Sequence[str], labels: Sequence[str], path: str
) -> np.ndarray:
    """The classes of tags.

    Args:
      tags: tags of W words.
      labels: the classes; see `iob2_labels`.
      path: the file that they are from, for the error.

    Returns:
      int32 [W].

    Raises:
      UserError: a tag is none of the classes.
    """
    number = {label: place for place, label in enumerate(labels)}
    if unknown := sorted(set(tags) - number.keys()):
        raise UserError(
            f"{path}: has the tag {unknown[0]!r}, which is none of those to "
            f"learn: {', '.join(labels)}."
        )
    return np.fromiter(map(number.__getitem__, tags), np.int32, len(tags))


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
