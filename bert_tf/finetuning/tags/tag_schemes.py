"""Tags of words and the entities that they mark.

An entity is a stretch of words of one type. IOB1 marks its words by I-, its
first by B- only where an entity of the same type comes right before; IOB2
marks every first word by B-. Other schemes mark last words by E- or L- and
entities of one word by S- or U-. Where an entity begins and ends follows the
rules of conlleval (Tjong Kim Sang, CoNLL-2000), under which every sequence of
tags means something, so that all of them are read alike.
"""

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


def to_iob2(
    tags: Sequence[str], sentence_starts: Sequence[int] | np.ndarray
) -> list[str]:
    """The same entities in IOB2; see `entities`."""
    converted = [OUTSIDE] * len(tags)
    for kind, first, last in entities(tags, sentence_starts):
        converted[first] = f"{BEGIN}-{kind}"
        for word in range(first + 1, last + 1):
            converted[word] = f"{INSIDE}-{kind}"
    return converted


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
