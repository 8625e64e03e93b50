"""Entities of tags and their scores: by hand, by slow counts, by conlleval."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.families.token_classification.entities import (
    SCHEMES,
    Entity,
    EntityCounts,
    entities,
    entity_confusion,
    in_scheme,
    labels_of,
    scheme_of,
    score_entities,
    tag_numbers,
    wrong_tags,
)

IOB_TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@st.composite
def tagged_sentences(draw, tags=IOB_TAGS):
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    count = sum(lengths)
    chosen = st.lists(st.sampled_from(tags), min_size=count, max_size=count)
    return draw(chosen), [0, *itertools.accumulate(lengths)]


def slow_entities(tags, starts):
    """Tries every range of words of every sentence."""
    found = []
    for begin, end in itertools.pairwise(starts):
        kinds = [tag[2:] for tag in tags[begin:end]]
        first = [
            kinds[k] != ""
            and (
                k == 0
                or kinds[k - 1] != kinds[k]
                or tags[begin + k].startswith("B")
            )
            for k in range(end - begin)
        ]
        for i in range(end - begin):
            for j in range(i, end - begin):
                whole = all(kind == kinds[i] != "" for kind in kinds[i : j + 1])
                alone = first[i] and not any(first[i + 1 : j + 1])
                over = j + 1 == end - begin or not kinds[j + 1] or first[j + 1]
                if whole and alone and over:
                    found.append(Entity(kinds[i], begin + i, begin + j))
    return found


@pytest.mark.parametrize(
    ("text", "expected", "iob2"),
    [
        # IOB1: B- only parts two neighbours of a type.
        (
            "I-PER B-PER I-PER",
            [("PER", 0, 0), ("PER", 1, 2)],
            "B-PER B-PER I-PER",
        ),
        ("B-a-b I-a-b", [("a-b", 0, 1)], "B-a-b I-a-b"),
        # BIOES, BILOU and IOE.
        (
            "S-PER S-PER B-LOC I-LOC E-LOC E-LOC",
            [("PER", 0, 0), ("PER", 1, 1), ("LOC", 2, 4), ("LOC", 5, 5)],
            "B-PER B-PER B-LOC I-LOC I-LOC B-LOC",
        ),
        (
            "U-PER B-PER L-PER O",
            [("PER", 0, 0), ("PER", 1, 2)],
            "B-PER B-PER I-PER O",
        ),
        # BMES.
        (
            "B-N M-N M-N E-N S-N O M-N",
            [("N", 0, 3), ("N", 4, 4), ("N", 6, 6)],
            "B-N I-N I-N I-N B-N O B-N",
        ),
        # IO, parts of speech, and what looks like a prefix in these.
        (
            "PER PER O LOC",
            [("PER", 0, 1), ("LOC", 3, 3)],
            "B-PER I-PER O B-LOC",
        ),
        ("S S-PRO A", [("S", 0, 0), ("S-PRO", 1, 1), ("A", 2, 2)], None),
        # Labels of a hub's tagger that trained on special tokens.
        ("[CLS] B-X I-X X", [("[CLS]", 0, 0), ("X", 1, 3)], None),
    ],
)
def test_entities_by_hand(text, expected, iob2):
    tags = text.split()
    bounds = [0, len(tags)]
    assert entities(tags, bounds) == [Entity(*entity) for entity in expected]
    if iob2:
        assert " ".join(in_scheme(tags, bounds)) == iob2


@given(tagged_sentences())
def test_entities_are_those_of_a_slow_search(case):
    tags, starts = case
    assert entities(tags, starts) == slow_entities(tags, starts)


@given(tagged_sentences(["O", *"BIESLUM"]))
def test_conversion_keeps_entities_and_is_done_once(case):
    tags, starts = case
    tags = [tag if tag == "O" else f"{tag}-X" for tag in tags]
    converted = in_scheme(tags, starts)
    assert entities(converted, starts) == entities(tags, starts)
    assert in_scheme(converted, starts) == converted
    assert set(converted) <= {"O", "B-X", "I-X"}
    # No I- without its own kind before it.
    for begin, end in itertools.pairwise(starts):
        for word in range(begin, end):
            if converted[word] == "I-X":
                assert word > begin
                assert converted[word - 1] != "O"


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("IOB1", "I-A B-A I-A I-A O I-A I-B O | I-B"),
        ("IOB2", "B-A B-A I-A I-A O B-A B-B O | B-B"),
        ("IOBES", "S-A B-A I-A E-A O S-A S-B O | S-B"),
        ("BILOU", "U-A B-A I-A L-A O U-A U-B O | U-B"),
        ("BMES", "S-A B-A M-A E-A O S-A S-B O | S-B"),
    ],
)
def test_schemes_are_written_and_recognised(scheme, expected):
    tags = [tag for tag in expected.split() if tag != "|"]
    # IO cannot tell two neighbours of a type apart.
    for theirs in SCHEMES.keys() - {"IO"}:
        other = in_scheme(tags, [0, 8, 9], theirs)
        assert in_scheme(other, [0, 8, 9], scheme) == tags
    assert scheme_of(tags, [0, 8, 9]) == scheme
    # A slip of whoever tagged it changes little.
    assert scheme_of([*tags, "I-C", "B-C"], [0, 8, 9, 11]) == scheme
    assert scheme_of(["O", "O"], [0, 2]) == "IOB2"
    # A sentence ends an entity in every scheme.
    ended = {"IOB1": "I-A", "IOB2": "B-A", "IOBES": "S-A", "BILOU": "U-A"}
    ended["BMES"] = "S-A"
    converted = in_scheme(["I-A", "I-A"], [0, 1, 2], scheme)
    assert converted == [ended[scheme]] * 2


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER S-X", {}),
        ("DET NOUN S-PRO B O o", {}),
        ("0 1 2", {}),
        ("B_PER I_PER O", {"B_PER": "B-PER", "I_PER": "I-PER"}),
        ("PER-B PER-I O", {"PER-B": "B-PER", "PER-I": "I-PER"}),
        ("b-per i-per o", {"b-per": "B-per", "i-per": "I-per", "o": "O"}),
        ("B-PER B_LOC LOC o", {"B_LOC": "B-LOC", "LOC": "'B-PER'", "o": "O"}),
        ("PER LOC 0", {"0": "letter O"}),
        ("B-PER 0", {"0": "letter O"}),
        # A suffix of number, and one of a scheme that nothing begins.
        ("NOM-S NOM-P DET-S", {}),
        ("VERB-L NOUN-S", {}),
    ],
)
def test_tags_that_cannot_be_read(tags, expected):
    found = wrong_tags(set(tags.split()))
    assert found.keys() == expected.keys()
    for tag, named in expected.items():
        assert named in found[tag]
    assert "is empty" in wrong_tags({"", "O"})[""]


@given(tagged_sentences(), st.randoms())
def test_scores_are_those_of_a_slow_search(case, draw):
    tags, bounds = case
    other = [draw.choice(IOB_TAGS) for _ in tags]
    scores = score_entities(tags, other, bounds)
    gold, found = (slow_entities(each, bounds) for each in (tags, other))
    both = [entity for entity in gold if entity in found]
    assert scores.overall == EntityCounts(len(gold), len(found), len(both))
    kinds, confusion = entity_confusion(gold, found)
    assert kinds == tuple(scores.by_type)
    assert confusion[-1, -1] == 0
    for number, kind in enumerate(kinds):
        parts = ([e for e in x if e.kind == kind] for x in (gold, found, both))
        counts = EntityCounts(*map(len, parts))
        assert scores.by_type[kind] == counts
        assert confusion[number].sum() == counts.num_gold
        assert confusion[:, number].sum() == counts.num_predicted
        assert confusion[number, number] == counts.num_correct


def test_labels_have_both_tags_of_every_type():
    labels = labels_of(["O", "B-PER", "B-LOC", "I-LOC"])
    assert labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    numbers = tag_numbers(["I-PER", "O", "B-ORG"], labels)
    assert numbers.dtype == np.int32
    assert numbers.tolist() == [4, 0, -1]
    assert labels_of(["NOUN", "O", "ADJ", "NOUN"]) == ("O", "ADJ", "NOUN")
    assert labels_of(["NOUN", "ADJ"]) == ("ADJ", "NOUN")


def test_confusion_by_hand():
    gold = "B-PER I-PER O B-LOC O B-ORG I-ORG B-LOC O O B-MISC".split()
    predicted = "B-PER I-PER O B-PER O B-ORG O O O B-LOC I-LOC".split()
    kinds, confusion = entity_confusion(
        *(entities(tags, [0, 7, 11]) for tags in (gold, predicted))
    )
    assert kinds == ("LOC", "MISC", "ORG", "PER")
    assert confusion.tolist() == [
        # A place taken for a person, and one missed.
        [0, 0, 0, 1, 1],
        [0, 0, 0, 0, 1],
        # One that is cut too short is missed, and found where there is none.
        [0, 0, 0, 0, 1],
        [0, 0, 0, 1, 0],
        [1, 0, 1, 0, 0],
    ]


def test_what_conlleval_prints():
    """Recorded from the script's version of 2004-01-26."""
    gold = (
        "I-PER I-PER O B-LOC I-LOC B-LOC O I-ORG O "
        "O I-MISC I-ORG I-ORG B-ORG O O B-PER I-LOC I-LOC O B-A-B I-A-B"
    ).split()
    predicted = (
        "I-PER B-PER O I-LOC I-LOC I-LOC O B-ORG O "
        "I-PER B-MISC B-ORG I-ORG I-ORG O I-LOC I-PER B-LOC I-LOC O I-A-B I-A-B"
    ).split()
    scores = score_entities(gold, predicted, [0, 9, 16, 22])
    assert scores.overall == EntityCounts(10, 11, 5)
    shown = {k: f"{100 * value:.2f}" for k, value in scores.scores().items()}
    assert shown == {
        "accuracy": "45.45",
        "precision": "45.45",
        "recall": "50.00",
        "f1": "47.62",
    }
    assert [
        "{} {precision:.2%} {recall:.2%} {f1:.2%} {}".format(
            kind, part.num_predicted, **part.scores()
        )
        for kind, part in scores.by_type.items()
    ] == [
        "A-B 100.00% 100.00% 100.00% 1",
        "LOC 33.33% 33.33% 33.33% 3",
        "MISC 100.00% 100.00% 100.00% 1",
        "ORG 50.00% 33.33% 40.00% 2",
        "PER 25.00% 50.00% 33.33% 4",
    ]
    nothing = score_entities(["B-PER", "O"], ["O", "O"], [0, 2])
    assert [*nothing.scores().values()] == [0, 0, 0, 0.5]
