"""The numbers of reports on questions, against those worked by hand."""

import pytest

from bert_tf.families.question_answering.report import question_word
from tests.finetuning.report_pages import Page, numbers_of, text_of
from tests.finetuning.report_runs import (
    QUESTIONS,
    plain_question_run,
    question_run,
    write_report,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(question_run(), tmp_path_factory.mktemp("run"))


def groups(found):
    return {
        each["group"]: (each["count"], each["exact"], each["f1"])
        for each in found
    }


def test_groups(report):
    found = numbers_of(report)["predictions"]
    assert found["all"] == {
        "count": 4,
        "exact": 0.5,
        "f1": pytest.approx((2 / 3 + 1 + 0 + 1) / 4),
    }
    assert groups(found["by_question_word"]) == {
        "what": (2, 0.5, 0.5),
        "other": (1, 1.0, 1.0),
        "who": (1, 0.0, pytest.approx(2 / 3)),
    }
    assert [x["group"] for x in found["by_question_word"]][0] == "what"
    assert groups(found["by_answer_length"]) == {
        "1": (1, 1.0, 1.0),
        "2": (1, 0.0, pytest.approx(2 / 3)),
        "no answer": (2, 0.5, 0.5),
    }
    assert groups(found["by_context_length"]) == {
        "1 to 75": (3, pytest.approx(1 / 3), pytest.approx(5 / 9)),
        "101 to 150": (1, 1.0, 1.0),
    }


def test_with_and_without_an_answer(report):
    first, second = numbers_of(report)["predictions"]["parts"]
    assert (first["group"], first["count"], first["answered"]) == (
        "has an answer",
        2,
        2,
    )
    assert (first["exact"], first["f1"]) == (0.5, pytest.approx(5 / 6))
    assert (second["group"], second["answered"]) == ("no answer", 1)
    assert (second["exact"], second["f1"]) == (0.5, 0.5)
    text = text_of(report)
    assert "has an answer 2 2 50.0 83.3" in text
    assert "no answer 2 1 50.0 50.0" in text


def test_null_odds(report):
    odds = numbers_of(report)["predictions"]["null_odds"]
    assert odds["threshold"] == -0.5
    assert sum(odds["has_answer"]) == sum(odds["no_answer"]) == 2
    width = odds["edges"][1] - odds["edges"][0]
    for name, expected in (
        ("has_answer", [-6.0, -3.5]),
        ("no_answer", [-1, 4]),
    ):
        begins = [
            begin
            for begin, count in zip(odds["edges"], odds[name], strict=False)
            for _ in range(count)
        ]
        assert begins == pytest.approx(
            [value - width / 2 for value in expected], abs=width
        )
    text = text_of(report)
    assert "threshold of this model, -0.5" in text


def test_without_null_odds(tmp_path):
    page = write_report(plain_question_run(), tmp_path)
    found = numbers_of(page)["predictions"]
    assert found["null_odds"] is None
    assert found["parts"] == []
    text = text_of(page)
    assert "Detection of questions without an answer" not in text
    assert "Null odds" not in text


def test_one_threshold_and_one_value(tmp_path):
    lines = [line | {"null_odds": 2.0} for line in QUESTIONS]
    page = write_report(question_run(lines, threshold=2.0), tmp_path)
    odds = numbers_of(page)["predictions"]["null_odds"]
    assert sum(odds["has_answer"]) == 2
    assert odds["edges"][0] < 2 < odds["edges"][-1]


def test_mistakes_by_hand(report):
    found = numbers_of(report)["predictions"]["mistakes"]
    assert found["total"] == 2
    assert [each["identifier"] for each in found["worst"]] == ["q2", "q0"]
    page = Page(report.read_text(encoding="utf-8"))
    assert "Predicted 1901 True no answer F1 0.0 Null odds -1" in page.text
    assert (
        "Predicted Lovell sailed True Ada Lovell , Lovell F1 66.7" in page.text
    )
    assert "Best answers: Lovell sailed at 50.0 %, Lovell at 25.0 %" in (
        page.text
    )
    assert "Best answers: 1901 at 62.5 %, no answer at 25.0 %" in page.text
    # Ada is in one answer alone, Lovell in all three, sailed in the given.
    assert (
        "true Ada true predicted Lovell sailed from Hull to Oslo" in page.text
    )
    styles = [each["class"] for each in page.named("mark")]
    assert styles == ["given", "gold", "gold given", "given"]


def test_surer_mistakes_come_first(tmp_path):
    lines = [
        QUESTIONS[2] | {"identifier": name, "n_best": best}
        for name, best in (
            ("a", [["1901", 0.3]]),
            ("b", [["else", 0.9]]),
            ("c", [["1901", 0.7]]),
        )
    ]
    page = write_report(question_run(lines), tmp_path)
    worst = numbers_of(page)["predictions"]["mistakes"]["worst"]
    assert [each["identifier"] for each in worst] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("In which year did who?", "which"),
        ("WHOSE?", "who"),
        ("To whom", "who"),
        ("What's up", "what"),
        ("The whatnot of it", "other"),
        ("", "other"),
        ("How many", "how"),
    ],
)
def test_question_words(question, word):
    assert question_word({"question": question}) == word
