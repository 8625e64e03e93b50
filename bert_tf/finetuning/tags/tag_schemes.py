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
