"""Tags of words, the entities that they mark, and conlleval's scores.

An entity is a range of words of one type. IOB1 marks its words by I-, its
first by B- only where an entity of the same type comes right before; IOB2
marks every first word by B-. Other schemes mark last words by E- or L-, inner
words by M- and entities of one word by S- or U-. Where an entity begins and
ends follows the rules of conlleval (Tjong Kim Sang, CoNLL-2000), under which
every sequence of tags means something, so that all of them are read the same
way.

Tags without prefixes are types themselves: IO, and labels of every word such as
parts of speech. Under the same rules an entity is then a run of words with the
same tag, as Hugging Face's pipeline groups them.

A predicted entity is correct if its type and both of its ends are. A score
that is not defined (nothing predicted, nothing there) is 0.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError, excerpt

OUTSIDE = "O"
BEGIN, INSIDE = "B", "I"
# Tags of these begin an entity whatever comes before, or end it.
_BEGINS = frozenset("BSU")
_ENDS = frozenset("ESLU")
_PREFIXES = frozenset("BIM") | _BEGINS | _ENDS
# What stands before the type of an entity's only, first, inner and last word;
# IOB1 marks some by B- too.
IOB1, IOB2, IO = "IOB1", "IOB2", "IO"
SCHEMES = {
    IOB2: ("B-", "B-", "I-", "I-"),
    IOB1: ("I-", "I-", "I-", "I-"),
    "IOBES": ("S-", "B-", "I-", "E-"),
    "BILOU": ("U-", "B-", "I-", "L-"),
    "BMES": ("S-", "B-", "M-", "E-"),
    IO: ("", "", "", ""),
}
# Prefixes in forms that are not read: B_PER; PER-B; b-per.
_OTHER_FORMS = (
    re.compile(r"(?P<prefix>[BIESLUM])[_:/|.](?P<kind>\S+)"),
    re.compile(r"(?P<kind>\S+)[-_:/|.](?P<prefix>[BIESLUM])"),
    re.compile(r"(?P<prefix>[bieslum])-(?P<kind>\S+)"),
)


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
    return tag == OUTSIDE or bool(_parts(tag, True)[0])


def has_scheme(tags: Collection[str]) -> bool:
    """Whether tags have prefixes: any has B- or I-, or all but O have one.

    In other tags, what looks like one is a part of the label, as in S-PRO, a
    part of speech of the Russian National Corpus.
    """
    return all(map(is_tag, tags)) or any(
        _parts(tag, True)[0] in (BEGIN, INSIDE) for tag in tags
    )


def _parts(tag: str, prefixed: bool) -> tuple[str, str]:
    """The prefix and the type, either of them empty where there is none.

    A type may have hyphens itself.
    """
    if tag == OUTSIDE:
        return "", ""
    prefix, _, kind = tag.partition("-")
    if prefixed and prefix in _PREFIXES and kind:
        return prefix, kind
    return "", tag


def tag_table(tags: Sequence[str]) -> TagTable:
    """What C tags say, with prefixes or without; see `has_scheme`."""
    prefixed = has_scheme(tags)
    prefixes, of_tags = zip(*(_parts(t, prefixed) for t in tags), strict=True)
    kinds = tuple(sorted({kind for kind in of_tags if kind}))
    number = {kind: place for place, kind in enumerate(kinds)} | {"": -1}
    return TagTable(
        kinds,
        np.array([number[kind] for kind in of_tags], np.int32),
        np.array([prefix in _BEGINS for prefix in prefixes]),
        np.array([prefix in _ENDS for prefix in prefixes]),
    )


def wrong_tags(tags: Collection[str]) -> dict[str, str]:
    """Which tags of a file cannot be read, and what to write.

    In a file with a scheme each tag is O or has a prefix. Tags that have
    prefixes in another form, such as B_PER, are of no scheme and no labels.

    Args:
      tags: the distinct tags of the file.

    Returns:
      Each such tag to the end of a sentence that begins with it.
    """
    others = set(tags) - {OUTSIDE}
    prefixed = sorted(filter(is_tag, others))
    forms = {tag: form for tag in others if (form := _proper_form(tag))}
    wrong = {}
    if prefixed and has_scheme(tags):
        wrong = dict.fromkeys(
            others.difference(prefixed),
            f"has no prefix, unlike {excerpt(prefixed[0])}; write O, or B- or "
            "I- and a type, such as B-PER",
        )
    elif others - {"0", "o"} != forms.keys() or not any(
        form[0] in (BEGIN, INSIDE) for form in forms.values()
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


def _proper_form(tag: str) -> str:
    """A tag with its prefix in another form, in the proper one, or nothing."""
    if is_tag(tag):
        return ""
    for pattern in _OTHER_FORMS:
        if match := pattern.fullmatch(tag):
            return f"{match['prefix'].upper()}-{match['kind']}"
    return ""


def sentence_of_words(starts: Sequence[int] | np.ndarray) -> np.ndarray:
    """The sentence of each of W words, int64 [W], of its starts [N + 1]."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


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
      tags: tags of W words.
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
    sentence = sentence_of_words(sentence_starts)
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
    return tags_of(entities(tags, sentence_starts), sentence_starts, scheme)


def tags_of(
    found: Iterable[Entity],
    sentence_starts: Sequence[int] | np.ndarray,
    scheme: str,
) -> list[str]:
    """The tags of W words in one of `SCHEMES`, of their entities in order."""
    only, first, inner, last = SCHEMES[scheme]
    starts = np.asarray(sentence_starts).tolist()
    tags, sentences = [OUTSIDE] * starts[-1], set(starts)
    kind_before, end_before = "", -1
    for kind, begin, end in found:
        marks = [only] if begin == end else [first] + [inner] * (end - begin)
        if begin < end:
            marks[-1] = last
        touches = begin == end_before + 1 and begin not in sentences
        if scheme == IOB1 and touches and kind_before == kind:
            marks[0] = f"{BEGIN}-"
        tags[begin : end + 1] = [f"{mark}{kind}" for mark in marks]
        kind_before, end_before = kind, end
    return tags


def scheme_of(
    tags: Sequence[str], sentence_starts: Sequence[int] | np.ndarray
) -> str:
    """The scheme of `SCHEMES` in which most of the tags would be the same."""

    def num_same(scheme: str) -> int:
        written = in_scheme(tags, sentence_starts, scheme)
        return sum(map(str.__eq__, tags, written))

    return max(SCHEMES, key=num_same)


def labels_of(tags: Iterable[str]) -> tuple[str, ...]:
    """The classes of a tagger that learns these tags.

    Where they have prefixes, these are O, then B- and I- of every type by name;
    else the tags themselves, O first.
    """
    distinct = set(tags)
    if not has_scheme(distinct):
        rest = sorted(distinct - {OUTSIDE})
        return (*([OUTSIDE] if OUTSIDE in distinct else []), *rest)
    kinds = tag_table(sorted(distinct)).kinds
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

    def scores(self) -> dict[str, float]:
        """F1, precision and recall, from 0 to 1."""
        total = self.num_predicted + self.num_gold
        return {
            "f1": 2 * self.num_correct / max(total, 1),
            "precision": self.num_correct / max(self.num_predicted, 1),
            "recall": self.num_correct / max(self.num_gold, 1),
        }


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
        return self.overall.scores() | {"accuracy": self.accuracy}


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
    gold: Iterable[Entity], predicted: Iterable[Entity]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Which types are taken for which.

    Two entities belong together if both of their ends are the same. One whose
    ends are wrong is missed under its gold type and predicted where none is.

    Returns:
      The K types by name, and int64 [K + 1, K + 1]: the gold types by rows,
      the predicted ones by columns, the last of both being no entity.
    """
    rows, columns = (
        {(first, last): kind for kind, first, last in found}
        for found in (gold, predicted)
    )
    kinds = tuple(sorted({*rows.values(), *columns.values()}))
    number = {kind: place for place, kind in enumerate((*kinds, None))}
    confusion = np.zeros((len(number), len(number)), np.int64)
    for span in rows.keys() | columns.keys():
        confusion[number[rows.get(span)], number[columns.get(span)]] += 1
    return kinds, confusion
