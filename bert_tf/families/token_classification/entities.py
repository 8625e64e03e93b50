"""Tagging schemes, entities, and the scores of conlleval.

An entity is a range of words of one type. IOB1 tags its words I-, and the first
one B- only if an entity of the same type ends right before it; IOB2 tags every
first word B-. Other schemes tag last words E- or L-, inner words M- and
single-word entities S- or U-. Where an entity begins and ends follows the rules
of conlleval (Tjong Kim Sang, CoNLL-2000), which interpret every sequence of
tags, so one function reads all schemes.

Tags without prefixes are types themselves: IO, and labels of every word such as
parts of speech. An entity is then a run of words with the same tag, which is
how Hugging Face's pipeline groups them.

A predicted entity is correct if its type and both of its ends are. Scores
without a denominator are 0.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import excerpt

OUTSIDE = "O"
_BEGIN, _INSIDE = "B", "I"
# Prefixes that begin an entity whatever comes before, or end it.
_BEGINS = frozenset("BSU")
_ENDS = frozenset("ESLU")
_PREFIXES = frozenset("BIM") | _BEGINS | _ENDS
IOB1, IOB2, IO = "IOB1", "IOB2", "IO"
# Prefixes of the only, first, inner and last word of an entity.
SCHEMES = {
    IOB2: ("B-", "B-", "I-", "I-"),
    IOB1: ("I-", "I-", "I-", "I-"),
    "IOBES": ("S-", "B-", "I-", "E-"),
    "BILOU": ("U-", "B-", "I-", "L-"),
    "BMES": ("S-", "B-", "M-", "E-"),
    IO: ("", "", "", ""),
}
# Unsupported forms: B_PER; PER-B; b-per.
_OTHER_FORMS = (
    re.compile(r"(?P<prefix>[BIESLUM])[_:/|.](?P<kind>\S+)"),
    re.compile(r"(?P<kind>\S+)[-_:/|.](?P<prefix>[BIESLUM])"),
    re.compile(r"(?P<prefix>[bieslum])-(?P<kind>\S+)"),
)
Starts = Sequence[int] | np.ndarray


class Entity(NamedTuple):
    """A range of words of one type, by the indices of its ends."""

    kind: str
    first: int
    last: int


class TagTable(NamedTuple):
    """The meaning of each of C tags.

    Attributes:
      kinds: the K types by name.
      kind: int32 [C], the index of each tag's type, -1 for O.
      begins: bool [C], whether the tag begins an entity whatever comes before.
      ends: bool [C], whether the tag ends an entity whatever comes after.
    """

    kinds: tuple[str, ...]
    kind: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def is_tag(tag: str) -> bool:
    """Whether a tag is O, or the prefix of a scheme, a hyphen and a type."""
    return tag == OUTSIDE or bool(_split(tag, True)[0])


def has_scheme(tags: Collection[str]) -> bool:
    """Whether tags have prefixes: one has B- or I-, or all but O have one.

    Otherwise what looks like a prefix belongs to the label, as in S-PRO, a part
    of speech of the Russian National Corpus.
    """
    return all(map(is_tag, tags)) or any(
        _split(tag, True)[0] in (_BEGIN, _INSIDE) for tag in tags
    )


def _split(tag: str, prefixed: bool) -> tuple[str, str]:
    """Splits a tag into prefix and type, which may be empty."""
    if tag == OUTSIDE:
        return "", ""
    prefix, _, kind = tag.partition("-")
    if prefixed and prefix in _PREFIXES and kind:
        return prefix, kind
    return "", tag


def tag_table(tags: Sequence[str]) -> TagTable:
    """Returns the meaning of C tags, with or without prefixes."""
    prefixed = has_scheme(tags)
    prefixes, types = zip(*(_split(t, prefixed) for t in tags), strict=True)
    kinds = tuple(sorted({kind for kind in types if kind}))
    index = {kind: number for number, kind in enumerate(kinds)} | {"": -1}
    return TagTable(
        kinds,
        np.array([index[kind] for kind in types], np.int32),
        np.array([prefix in _BEGINS for prefix in prefixes]),
        np.array([prefix in _ENDS for prefix in prefixes]),
    )


def wrong_tags(tags: Collection[str]) -> dict[str, str]:
    """Returns the distinct tags of a file that cannot be read, with advice.

    In a file with a scheme each tag is O or has a prefix. Tags with prefixes in
    an unsupported form, such as B_PER, are of no scheme and no labels.

    Returns:
      Each wrong tag with the end of an error message that begins with it.
    """
    others = set(tags) - {OUTSIDE}
    prefixed = sorted(filter(is_tag, others))
    forms = {tag: form for tag in others if (form := _supported_form(tag))}
    wrong = {}
    if prefixed and has_scheme(tags):
        wrong = dict.fromkeys(
            others.difference(prefixed),
            f"has no prefix, unlike {excerpt(prefixed[0])}; write O, or B- or "
            "I- and a type, such as B-PER",
        )
    elif others - {"0", "o"} != forms.keys() or not any(
        form[0] in (_BEGIN, _INSIDE) for form in forms.values()
    ):
        forms = {}
    if forms or wrong:
        wrong["o"] = "is a small letter; write O"
    if not all(map(str.isdecimal, others)):
        wrong["0"] = "is the digit zero; write the letter O"
    wrong[""] = "is empty; write O for words without a label"
    for tag, form in forms.items():
        wrong[tag] = f"has its prefix in a form that is not read; write {form}"
    return {tag: wrong[tag] for tag in wrong.keys() & others}


def _supported_form(tag: str) -> str:
    """Rewrites a tag of an unsupported form; empty for other tags."""
    for pattern in () if is_tag(tag) else _OTHER_FORMS:
        if match := pattern.fullmatch(tag):
            return f"{match['prefix'].upper()}-{match['kind']}"
    return ""


def sentence_of_words(starts: Starts) -> np.ndarray:
    """Returns the sentence of each of W words, int64 [W], of starts [N + 1]."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def continues(sentence: Any, kind: Any, begins: Any, ends: Any) -> Any:
    """Returns which words continue the entity of the word before.

    By conlleval's rules, a word with a tag other than O begins an entity if the
    word before it is in another sentence, has O or another type, or if one of
    their prefixes says so. Words with O continue one another.

    Args:
      sentence: integers [W], a NumPy array or a tensor: sentence of each word.
      kind: integers [W], likewise: type of each tag; see `TagTable`.
      begins: bool [W], likewise.
      ends: bool [W], likewise.

    Returns:
      Bool [W - 1], for all words but the first.
    """
    return (
        (sentence[1:] == sentence[:-1])
        & (kind[1:] == kind[:-1])
        & ~begins[1:]
        & ~ends[:-1]
    )


def entities(tags: Sequence[str], sentence_starts: Starts) -> list[Entity]:
    """Returns the entities of sentences, by conlleval's rules.

    Args:
      tags: tags of W words.
      sentence_starts: [N + 1], the first word of each sentence, and W.

    Returns:
      The entities in order, with words counted over all sentences.
    """
    if not tags:
        return []
    distinct = list(dict.fromkeys(tags))
    table = tag_table(distinct)
    index = {tag: number for number, tag in enumerate(distinct)}
    chosen = np.array([index[tag] for tag in tags])
    sentence, kind = sentence_of_words(sentence_starts), table.kind[chosen]
    same = continues(sentence, kind, table.begins[chosen], table.ends[chosen])
    first = np.flatnonzero(np.append(True, ~same))
    last = np.append(first[1:], len(tags)) - 1
    columns = (x[kind[first] >= 0].tolist() for x in (kind[first], first, last))
    return [
        Entity(table.kinds[number], *ends)
        for number, *ends in zip(*columns, strict=True)
    ]


def in_scheme(
    tags: Sequence[str], sentence_starts: Starts, scheme: str = IOB2
) -> list[str]:
    """Converts tags to one of `SCHEMES`; see `entities`."""
    return tags_of(entities(tags, sentence_starts), sentence_starts, scheme)


def learned_scheme(labels: Collection[str]) -> str:
    """Returns the scheme of a model's labels: IOB2, or IO without prefixes."""
    return IOB2 if has_scheme(labels) else IO


def tags_of(
    found: Iterable[Entity], sentence_starts: Starts, scheme: str
) -> list[str]:
    """Returns the tags of W words in one of `SCHEMES`, from their entities."""
    only, first, inner, last = SCHEMES[scheme]
    starts = np.asarray(sentence_starts).tolist()
    tags, sentences = [OUTSIDE] * starts[-1], set(starts)
    before = Entity("", -1, -1)
    for entity in found:
        kind, begin, end = entity
        marks = [first, *[inner] * (end - begin - 1), last]
        if begin == end:
            marks = [only]
        touches = begin == before.last + 1 and begin not in sentences
        if scheme == IOB1 and touches and before.kind == kind:
            marks[0] = f"{_BEGIN}-"
        tags[begin : end + 1] = [f"{mark}{kind}" for mark in marks]
        before = entity
    return tags


def scheme_of(tags: Sequence[str], sentence_starts: Starts) -> str:
    """Returns the scheme of `SCHEMES` that leaves most tags unchanged."""

    def num_same(scheme: str) -> int:
        converted = in_scheme(tags, sentence_starts, scheme)
        return sum(map(str.__eq__, tags, converted))

    return max(SCHEMES, key=num_same)


def labels_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Returns the classes of a tagger that is trained on these tags.

    With prefixes, these are O, then B- and I- of every type by name; otherwise
    the tags themselves, O first.
    """
    distinct = set(tags)
    if not has_scheme(distinct):
        rest = sorted(distinct - {OUTSIDE})
        return (*([OUTSIDE] if OUTSIDE in distinct else []), *rest)
    kinds = tag_table(sorted(distinct)).kinds
    marks = itertools.product(kinds, (_BEGIN, _INSIDE))
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind, prefix in marks))


def tag_numbers(tags: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Returns the indices of W tags among the labels, int32 [W], -1 if none."""
    number = {label: index for index, label in enumerate(labels)}
    return np.array([number.get(tag, -1) for tag in tags], np.int32)


@dataclasses.dataclass(frozen=True)
class EntityCounts:
    """Numbers of gold, predicted and correct entities."""

    num_gold: int
    num_predicted: int
    num_correct: int

    def scores(self) -> dict[str, float]:
        """Computes F1, precision and recall, from 0 to 1."""
        total = self.num_predicted + self.num_gold
        return {
            "f1": 2 * self.num_correct / max(total, 1),
            "precision": self.num_correct / max(self.num_predicted, 1),
            "recall": self.num_correct / max(self.num_gold, 1),
        }


@dataclasses.dataclass(frozen=True)
class EntityScores:
    """The scores that conlleval prints.

    Attributes:
      overall: counts of all entities.
      by_type: counts of each type.
      accuracy: share of words with the correct tag, prefix and type.
    """

    overall: EntityCounts
    by_type: dict[str, EntityCounts]
    accuracy: float

    def scores(self) -> dict[str, float]:
        """Returns F1, precision, recall and accuracy by name."""
        return self.overall.scores() | {"accuracy": self.accuracy}


def score_entities(
    references: Sequence[str],
    predictions: Sequence[str],
    sentence_starts: Starts,
) -> EntityScores:
    """Scores predicted tags by their entities.

    Accuracy compares the tags unconverted, as conlleval does. Both must be in
    one scheme, and the accuracy in IOB1 differs from that in IOB2.
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
    gold: Iterable[Entity], predicted: Iterable[Entity]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Counts which types are confused.

    Entities match if both of their ends are the same. An entity with a wrong
    end counts as missed under its gold type and as a spurious prediction.

    Returns:
      The K types by name, and int64 [K + 1, K + 1] with gold types in rows and
      predicted types in columns; the last row and column are for no entity.
    """
    rows, columns = (
        {(first, last): kind for kind, first, last in found}
        for found in (gold, predicted)
    )
    kinds = tuple(sorted({*rows.values(), *columns.values()}))
    index = {kind: number for number, kind in enumerate((*kinds, None))}
    confusion = np.zeros((len(index), len(index)), np.int64)
    for span in rows.keys() | columns.keys():
        confusion[index[rows.get(span)], index[columns.get(span)]] += 1
    return kinds, confusion
