"""The numbers of reports on tags, against those worked by hand."""

import pytest

from tests.finetuning.report_pages import numbers_of, text_of
from tests.finetuning.report_runs import TAGS, tag_run, write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(tag_run(), tmp_path_factory.mktemp("run"))


def test_types(report):
    found = numbers_of(report)["predictions"]
    assert (found["num_examples"], found["num_words"]) == (3, 10)
    # Ada Lovell is right, Oslo an ORG, New York and Hull are missed, York and
    # calls are none.
    assert found["confusion_matrix"] == {
        "labels": ["LOC", "ORG", "PER", "no entity"],
        "counts": [[0, 1, 0, 2], [0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0]],
        "pooled": 0,
    }
    by_type = {
        each["label"]: (each["count"], each["predicted"], each["f1"])
        for each in found["per_label"]
    }
    assert by_type == {
        "LOC": (3, 1, 0.0),
        "ORG": (0, 1, 0.0),
        "PER": (1, 2, pytest.approx(2 / 3)),
    }


def test_kinds_of_errors_are_shown(report):
    text = text_of(report)
    assert "Errors on 4 entities in 10 words" in text
    assert "Missed 1 25.0" in text
    assert "Predicted where there is none 1" in text


def test_each_kind_of_error_has_its_own_count(tmp_path):
    tags = "B-A I-A O B-A B-A O B-B I-B I-B O O O O O O O B-A O B-A O B-A O"
    answers = "O O O O O O B-B B-B O O B-A O B-A O B-A O B-B O B-A O B-A O"
    line = {
        "row": 1,
        "words": ["w"] * 22,
        "tags": tags.split(),
        "predictions": answers.split(),
    }
    other_ends = {
        "row": 2,
        "words": ["w"] * 4,
        "tags": ["B-A", "I-A", "B-A", "I-A"],
        "predictions": ["O", "B-A", "I-A", "O"],
    }
    page = write_report(tag_run([line, other_ends, other_ends]), tmp_path)
    assert numbers_of(page)["predictions"]["errors"] == {
        "right": 2,
        "other_type": 1,
        "other_ends": 5,
        "missed": 3,
        "invented": 3,
    }


def test_mistakes(report):
    found = numbers_of(report)["predictions"]["mistakes"]
    assert found["total"] == 2
    first, second = found["worst"]
    assert (first["row"], first["wrong"]) == (7, 4)
    assert (second["row"], second["wrong"]) == (1, 2)
    assert second["entities"] == [
        {"kind": "PER", "first": 0, "last": 1, "right": True},
        {"kind": "LOC", "first": 3, "last": 3, "right": False},
    ]
    text = text_of(report)
    assert "True LOC, not found New York calls LOC, not found Hull" in text
    assert "Predicted New LOC, wrong York PER, wrong calls Hull" in text
    assert "True PER Ada Lovell saw LOC, not found Oslo ." in text
    assert "Predicted PER Ada Lovell saw ORG, wrong Oslo ." in text


def test_no_entity_at_all(tmp_path):
    text = text_of(write_report(tag_run(TAGS[2:]), tmp_path))
    assert "There is no entity in 1 sentences, and none was predicted." in text
    assert "None in 1 sentences." in text


def test_many_types(tmp_path):
    """More than fit in a matrix are pooled, and the page is made."""
    tags = [f"B-T{number:02}" for number in range(40)]
    line = {"row": 1, "words": ["w"] * 40, "tags": tags}
    line["predictions"] = [*tags[1:], tags[0]]
    page = write_report(tag_run([line]), tmp_path)
    found = numbers_of(page)["predictions"]
    assert found["confusion_matrix"]["pooled"] == 12
    assert len(found["per_label"]) == 40
    assert "12 other types" in text_of(page)
