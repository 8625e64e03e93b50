"""Tags of words, the entities that they mark, and conlleval's scores.

An entity is a range of words of one type. IOB1 marks its words by I-, its
first by B- only where an entity of the same type comes right before; IOB2
marks every first word by B-. Other schemes mark last words by E- or L- and
entities of one word by S- or U-. Where an entity begins and ends follows the
rules of conlleval (Tjong Kim Sang, CoNLL-2000), under which every sequence of
tags means something, so that all of them are read the same way.

A predicted entity is correct if its type and both of its ends are. A score
that is not defined (nothing predicted, nothing there) is 0.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError

OUTSIDE = "O"
BEGIN, INSIDE = "B", "I"
# Tags of these begin an entity whatever comes before, or end it.
_BEGINS = frozenset("BSU")
_ENDS = frozenset("ESLU")
# Of an entity's only, first, inner and last word; IOB1 marks some by B- too.
IOB1, IOB2 = "IOB1", "IOB2"
SCHEMES = {IOB2: "BBII", IOB1: "IIII", "IOBES": "SBIE", "BILOU": "UBIL"}
_PREFIXES = frozenset((BEGIN, INSIDE)) | _BEGINS | _ENDS


class Entity(NamedTuple):
    """Words of one type, from the number of the first to that of the last."""

    kind: str
    first: int
    last: int


class TagTable(NamedTuple):
    """What each tag of a list says of its word.

    Attributes:
      kinds: the K types by name.
      kind: int32 [C], the type of each tag by number, -1 for O.
      begins: bool [C], whether it begins an entity whatever comes before.
      ends: bool [C], whether it ends one whatever comes behind.
    """

    kinds: tuple[str, ...]
    kind: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def is_tag(tag: str) -> bool:
    """Whether this is O, or a prefix of a scheme, a hyphen and a type."""
    prefix, kind = _parts(tag)
    return tag == OUTSIDE or (prefix in _PREFIXES and bool(kind))


def _parts(tag: str) -> tuple[str, str]:
    """The prefix and the type; a type may have hyphens itself."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def tag_table(tags: Sequence[str]) -> TagTable:
    """What C tags say, in a scheme that `is_tag` knows."""
    prefixes, of_tags = zip(*map(_parts, tags), strict=True)
    kinds = tuple(sorted({kind for kind in of_tags if kind}))
    number = {kind: place for place, kind in enumerate(kinds)} | {"": -1}
    return TagTable(
        kinds,
        np.array([number[kind] for kind in of_tags], np.int32),
        np.array([prefix in _BEGINS for prefix in prefixes]),
        np.array([prefix in _ENDS for prefix in prefixes]),
    )


def continues(sentence: Any, kind: Any, begins: Any, ends: Any) -> Any:
    """Which words but the first are of the same entity as the one before.

    By conlleval's rules, an entity begins at a word with a tag other than O,
    if the word before it is none of its sentence, has O or another type, or
    if one of the two prefixes says so. Words with O continue one another.

    Args:
      sentence: whole numbers [W], NumPy's or a tensor, whose each word is.
      kind: whole numbers [W], the type of its tag; see `TagTable`.
      begins: bool [W], likewise.
      ends: bool [W], likewise.

    Returns:
      Bool [W - 1].
    """
    return (
        (sentence[1:] == sentence[:-1])
        & (kind[1:] == kind[:-1])
        & ~begins[1:]
        & ~ends[:-1]
    )


def entities(
    tags: Sequence[str], sentence_starts: Sequence[int] | np.ndarray
) -> list[Entity]:
    """The entities of sentences, by conlleval's rules; see `continues`.

    Args:
      tags: tags of W words in a scheme that `is_tag` knows.
      sentence_starts: [N + 1], where each sentence begins; the last is W.

    Returns:
      The entities in the order of their words, which are counted from 0 over
      all sentences.
    """
    if not tags:
        return []
    number: dict[str, int] = {}
    tag = [number.setdefault(tag, len(number)) for tag in tags]
    table, chosen = tag_table(list(number)), np.array(tag)
    sentence = np.repeat(
        np.arange(len(sentence_starts) - 1), np.diff(sentence_starts)
    )
    kind = table.kind[chosen]
    same = continues(sentence, kind, table.begins[chosen], table.ends[chosen])
    first = np.flatnonzero(np.append(True, ~same))
    last = np.append(first[1:], len(tags)) - 1
    inside = kind[first] >= 0
    return [
        Entity(table.kinds[kind], first, last)
        for kind, first, last in zip(
            kind[first][inside].tolist(),
            first[inside].tolist(),
            last[inside].tolist(),
            strict=True,
        )
    ]


def in_scheme(
    tags: Sequence[str],
    sentence_starts: Sequence[int] | np.ndarray,
    scheme: str = IOB2,
) -> list[str]:
    """The same entities as tags of one of `SCHEMES`; see `entities`."""
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


def iob2_labels(tags: Iterable[str]) -> tuple[str, ...]:
    """The classes of a tagger: O, then B- and I- of every type by name."""
    kinds = sorted({_parts(tag)[1] for tag in tags if tag != OUTSIDE})
    marks = itertools.product(kinds, (BEGIN, INSIDE))
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind, prefix in marks))


def tag_numbers(
    tags: Sequence[str], labels: Sequence[str], path: str
) -> np.ndarray:
    """The places of W tags among the labels, int32 [W].

    Raises:
      UserError: a tag of the file is none of the labels.
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
    """Entities of one type, or of all, in references, predictions and both."""

    num_gold: int
    num_predicted: int
    num_correct: int

    @property
    def precision(self) -> float:
        """The share of the predicted ones that are correct."""
        return self.num_correct / max(self.num_predicted, 1)

    @property
    def recall(self) -> float:
        """The share of the gold ones that were predicted."""
        return self.num_correct / max(self.num_gold, 1)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.num_correct / max(self.num_predicted + self.num_gold, 1)


@dataclasses.dataclass(frozen=True)
class EntityScores:
    """What conlleval prints.

    Attributes:
      overall: counts of all entities.
      by_type: counts of each type in either, by name.
      accuracy: the share of words whose tag is correct, prefix and type.
    """

    overall: EntityCounts
    by_type: dict[str, EntityCounts]
    accuracy: float

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
    """
    gold = entities(references, sentence_starts)
    predicted = entities(predictions, sentence_starts)
    parts = gold, predicted, set(gold).intersection(predicted)
    counts = [collections.Counter(e.kind for e in part) for part in parts]
    same = sum(map(str.__eq__, references, predictions))
    return EntityScores(
        overall=EntityCounts(*map(len, parts)),
        by_type={
            kind: EntityCounts(*(count[kind] for count in counts))
            for kind in sorted(counts[0] | counts[1])
        },
        accuracy=same / len(references),
    )


def entity_confusion(
    references: Sequence[str],
    predictions: Sequence[str],
    sentence_starts: Sequence[int] | np.ndarray,
) -> tuple[tuple[str, ...], np.ndarray]:
    """Which types are taken for which.

    Two entities belong together if both of their ends are the same. One whose
    ends are wrong is missed under its gold type and predicted where none is.

    Returns:
      The K types by name, and int64 [K + 1, K + 1]: the gold types by rows,
      the predicted ones by columns, the last of both being no entity.
    """
    gold, predicted = (
        {(e.first, e.last): e.kind for e in entities(tags, sentence_starts)}
        for tags in (references, predictions)
    )
    kinds = tuple(sorted({*gold.values(), *predicted.values()}))
    place = {kind: number for number, kind in enumerate((*kinds, None))}
    confusion = np.zeros((len(place), len(place)), np.int64)
    for span in gold.keys() | predicted.keys():
        confusion[place[gold.get(span)], place[predicted.get(span)]] += 1
    return kinds, confusion
