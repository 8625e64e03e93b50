"""Entities of tags, by hand, by a slow search and across schemes."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.finetuning.token_classification.entities import (
    SCHEMES,
    Entity,
    entities,
    in_scheme,
    iob2_labels,
    is_tag,
    scheme_of,
    tag_numbers,
)

IOB_TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def one(text):
    """The entities of one sentence, and its IOB2."""
    tags = text.split()
    bounds = [0, len(tags)]
    return entities(tags, bounds), " ".join(in_scheme(tags, bounds))


@st.composite
def tagged_sentences(draw, tags=IOB_TAGS):
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    count = sum(lengths)
    chosen = st.lists(st.sampled_from(tags), min_size=count, max_size=count)
    return draw(chosen), [0, *itertools.accumulate(lengths)]


def slow_entities(tags, starts):
    """Tries every stretch of words of every sentence."""
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
        ("O O", [], "O O"),
        ("I-PER I-PER O", [("PER", 0, 1)], "B-PER I-PER O"),
        ("B-PER I-PER O", [("PER", 0, 1)], "B-PER I-PER O"),
        # IOB1: B- only parts two neighbours of a type.
        (
            "I-PER B-PER I-PER",
            [("PER", 0, 0), ("PER", 1, 2)],
            "B-PER B-PER I-PER",
        ),
        ("I-PER I-LOC", [("PER", 0, 0), ("LOC", 1, 1)], "B-PER B-LOC"),
        # Sequences that no scheme writes have a meaning too.
        ("B-PER I-LOC", [("PER", 0, 0), ("LOC", 1, 1)], "B-PER B-LOC"),
        ("O I-PER O I-PER", [("PER", 1, 1), ("PER", 3, 3)], "O B-PER O B-PER"),
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
        ("I-PER E-PER I-PER", [("PER", 0, 1), ("PER", 2, 2)], None),
    ],
)
def test_entities_by_hand(text, expected, iob2):
    found, converted = one(text)
    assert found == [Entity(*entity) for entity in expected]
    if iob2:
        assert converted == iob2


def test_a_sentence_ends_its_entities():
    tags = ["B-PER", "I-PER", "I-PER", "O"]
    assert entities(tags, [0, 2, 4]) == [
        Entity("PER", 0, 1),
        Entity("PER", 2, 2),
    ]
    assert in_scheme(tags, np.array([0, 2, 4])) == [
        "B-PER",
        "I-PER",
        "B-PER",
        "O",
    ]


@given(tagged_sentences())
def test_entities_are_those_of_a_slow_search(case):
    tags, starts = case
    assert entities(tags, starts) == slow_entities(tags, starts)


@given(tagged_sentences(["O", *"BIESLU"]))
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
    "tag", ["", "PER", "X-PER", "B-", "-PER", "B", "o", "b-PER", "BI-PER"]
)
def test_what_is_no_tag(tag):
    assert not is_tag(tag)


@pytest.mark.parametrize("tag", ["O", "B-PER", "I-a-b", "S-x", "B-人名"])
def test_what_is_a_tag(tag):
    assert is_tag(tag)


def test_labels_have_both_tags_of_every_type():
    labels = iob2_labels(["O", "B-PER", "B-LOC", "I-LOC"])
    assert labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    numbers = tag_numbers(["I-PER", "O", "B-LOC"], labels, "f")
    assert numbers.dtype == np.int32
    assert numbers.tolist() == [4, 0, 1]
    with pytest.raises(UserError, match=r"^dev.txt: has the tag 'B-ORG', wh"):
        tag_numbers(["O", "B-ORG"], labels, "dev.txt")


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("IOB1", "I-A B-A I-A I-A O I-A I-B O | I-B"),
        ("IOB2", "B-A B-A I-A I-A O B-A B-B O | B-B"),
        ("IOBES", "S-A B-A I-A E-A O S-A S-B O | S-B"),
        ("BILOU", "U-A B-A I-A L-A O U-A U-B O | U-B"),
    ],
)
def test_schemes_are_written_and_recognised(scheme, expected):
    tags = [tag for tag in expected.split() if tag != "|"]
    for theirs in SCHEMES:
        other = in_scheme(tags, [0, 8, 9], theirs)
        assert in_scheme(other, [0, 8, 9], scheme) == tags
    assert scheme_of(tags, [0, 8, 9]) == scheme
    # A slip of whoever tagged it changes little.
    assert scheme_of([*tags, "I-C", "B-C"], [0, 8, 9, 11]) == scheme
    assert scheme_of(["O", "O"], [0, 2]) == "IOB2"


def test_a_sentence_ends_an_entity_in_every_scheme():
    assert in_scheme(["I-A", "I-A"], [0, 1, 2], "IOB1") == ["I-A", "I-A"]
    assert in_scheme(["I-A", "I-A"], [0, 1, 2], "IOB2") == ["B-A", "B-A"]
