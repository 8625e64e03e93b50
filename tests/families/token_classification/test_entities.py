"""Entities of tags and their scores: by hand, by slow counts, by conlleval."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.families.token_classification.entities import (
    SCHEMES,
    Entity,
    EntityCounts,
    entities,
    entity_confusion,
    in_scheme,
    is_tag,
    labels_of,
    scheme_of,
    score_entities,
    tag_numbers,
    wrong_tags,
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


def test_what_is_a_tag():
    assert all(map(is_tag, ["O", "B-PER", "I-a-b", "S-x", "B-人名"]))
    others = ["", "PER", "X-PER", "B-", "-PER", "B", "o", "b-PER", "BI-PER"]
    assert not any(map(is_tag, others))


def test_labels_have_both_tags_of_every_type():
    labels = labels_of(["O", "B-PER", "B-LOC", "I-LOC"])
    assert labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    numbers = tag_numbers(["I-PER", "O", "B-LOC"], labels, "f")
    assert numbers.dtype == np.int32
    assert numbers.tolist() == [4, 0, 1]
    assert labels_of(["NOUN", "O", "ADJ", "NOUN"]) == ("O", "ADJ", "NOUN")
    assert labels_of(["NOUN", "ADJ"]) == ("ADJ", "NOUN")
    with pytest.raises(UserError, match=r"^dev.txt: has the tag 'B-ORG', wh"):
        tag_numbers(["O", "B-ORG"], labels, "dev.txt")


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


# Two sentences; one entity right, one of the wrong type, one too short, one
# missed and one where there is none.
GOLD = "B-PER I-PER O B-LOC O B-ORG I-ORG | B-LOC O O B-MISC".split()
PREDICTED = "B-PER I-PER O B-PER O B-ORG O | O O B-LOC I-LOC".split()
BOUNDS = [0, 7, 11]


def tags_of(parts):
    return [tag for tag in parts if tag != "|"]


def test_scores_by_hand():
    scores = score_entities(tags_of(GOLD), tags_of(PREDICTED), BOUNDS)
    assert scores.overall == EntityCounts(
        num_gold=5, num_predicted=4, num_correct=1
    )
    assert scores.by_type == {
        "LOC": EntityCounts(2, 1, 0),
        "MISC": EntityCounts(1, 0, 0),
        "ORG": EntityCounts(1, 1, 0),
        "PER": EntityCounts(1, 2, 1),
    }
    # The harmonic mean of the next two.
    assert scores.scores() == {
        "f1": 2 / 9,
        "precision": 1 / 4,
        "recall": 1 / 5,
        "accuracy": 6 / 11,
    }
    person = scores.by_type["PER"]
    assert person.scores() == {"f1": 2 / 3, "precision": 0.5, "recall": 1.0}


def test_confusion_by_hand():
    kinds, confusion = entity_confusion(
        *(entities(tags_of(tags), BOUNDS) for tags in (GOLD, PREDICTED))
    )
    assert kinds == ("LOC", "MISC", "ORG", "PER")
    expected = np.zeros((5, 5), int)
    expected[0, 3] = 1  # a place taken for a person
    expected[0, 4] = 1  # a place missed
    expected[1, 4] = 1
    expected[2, 4] = 1  # cut too short: missed,
    expected[4, 2] = 1  # and found where there is none
    expected[3, 3] = 1
    expected[4, 0] = 1
    np.testing.assert_array_equal(confusion, expected)


def test_what_conlleval_prints():
    """Recorded from the script's version of 2004-01-26."""
    gold = (
        "I-PER I-PER O B-LOC I-LOC B-LOC O I-ORG O | "
        "O I-MISC I-ORG I-ORG B-ORG O O | B-PER I-LOC I-LOC O B-A-B I-A-B"
    ).split()
    predicted = (
        "I-PER B-PER O I-LOC I-LOC I-LOC O B-ORG O | "
        "I-PER B-MISC B-ORG I-ORG I-ORG O I-LOC | "
        "I-PER B-LOC I-LOC O I-A-B I-A-B"
    ).split()
    scores = score_entities(tags_of(gold), tags_of(predicted), [0, 9, 16, 22])
    assert scores.overall == EntityCounts(
        num_gold=10, num_predicted=11, num_correct=5
    )
    assert {
        name: f"{100 * value:.2f}" for name, value in scores.scores().items()
    } == {
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


@st.composite
def two_taggings(draw):
    tags, bounds = draw(tagged_sentences())
    count = len(tags)
    some = st.lists(st.sampled_from(IOB_TAGS), min_size=count, max_size=count)
    return tags, draw(some), bounds


@given(two_taggings())
def test_counts_are_those_of_a_slow_search(case):
    references, predictions, bounds = case
    scores = score_entities(references, predictions, bounds)
    gold, found = (slow_entities(tags, bounds) for tags in case[:2])
    both = [entity for entity in gold if entity in found]
    assert scores.overall == EntityCounts(len(gold), len(found), len(both))
    for name in ("num_gold", "num_predicted", "num_correct"):
        parts = [getattr(part, name) for part in scores.by_type.values()]
        assert getattr(scores.overall, name) == sum(parts)


@given(two_taggings())
def test_schemes_do_not_matter_to_entities(case):
    references, predictions, bounds = case
    scores = score_entities(references, predictions, bounds)
    converted = score_entities(
        in_scheme(references, bounds), in_scheme(predictions, bounds), bounds
    )
    assert scores.overall == converted.overall
    assert scores.by_type == converted.by_type


@given(two_taggings())
def test_confusion_adds_up_to_the_counts(case):
    references, predictions, bounds = case
    scores = score_entities(references, predictions, bounds)
    kinds, confusion = entity_confusion(
        *(entities(tags, bounds) for tags in (references, predictions))
    )
    assert kinds == tuple(scores.by_type)
    assert confusion[-1, -1] == 0
    for number, kind in enumerate(kinds):
        counts = scores.by_type[kind]
        assert confusion[number].sum() == counts.num_gold
        assert confusion[:, number].sum() == counts.num_predicted
        assert confusion[number, number] == counts.num_correct


def test_scores_of_tags_without_prefixes():
    """Runs of one tag, of which O is none; worked by hand."""
    scores = score_entities(
        "DET ADJ ADJ NOUN O VERB".split(),
        "DET ADJ NOUN NOUN O O".split(),
        [0, 5, 6],
    )
    assert scores.overall == EntityCounts(4, 3, 1)
    assert scores.accuracy == 4 / 6


def test_nothing_found_and_nothing_there():
    nothing = score_entities(["B-PER", "O"], ["O", "O"], [0, 2])
    assert nothing.scores() == {
        "f1": 0.0,
        "precision": 0.0,
        "recall": 0.0,
        "accuracy": 0.5,
    }
    empty = score_entities(["O"], ["O"], [0, 1])
    assert empty.scores()["f1"] == 0.0
    assert empty.scores()["accuracy"] == 1.0
