"""The official scores: by hand, and against plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.question_answering.prediction_files import Answers
from bert_tf.families.question_answering.squad_files import (
    Answer,
    Question,
    read_questions,
)
from bert_tf.families.question_answering.squad_metrics import (
    coverage_lines,
    normalize_answer,
    question_scores,
    score_squad_v1,
    score_squad_v2,
    tuned_threshold,
    word_f1,
)
from bert_tf.families.question_answering.task import QuestionAnsweringTask
from bert_tf.families.task import Answered
from tests.user_errors import error_of


def asked(identifier, *answers):
    return Question(
        identifier,
        "",
        "?",
        "context",
        tuple(Answer(answer, 0) for answer in answers),
        not answers,
    )


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat's, an\tidea!", "cats idea"),
        ("a", ""),
        ("A.", ""),
        ("then another", "then another"),
        ("a-the-b", "atheb"),
        ("the_a", "thea"),
        # Marks that are not ASCII stay, and divide words.
        ("“The” cat – 5%", "“ ” cat – 5"),
        ("U.S.A.", "usa"),
        ("\u00a0Ünï an\u00a0x ", "ünï x"),
        ("", ""),
    ],
)
def test_answers_are_normalised(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answer", "exact", "f1", "f1_or_none"),
    [
        ("the Norman dynasty", "Norman dynasty.", 1, 1, 1),
        ("Norman", "Norman dynasty", 0, 2 / 3, 2 / 3),
        ("in the Norman dynasty age", "Norman dynasty", 0, 2 / 3, 2 / 3),
        # Words count as often as they occur in both.
        ("so so so", "so so what", 0, 2 / 3, 2 / 3),
        ("Paris", "Rome", 0, 0, 0),
        # Nothing against nothing, and against something.
        ("", "", 1, 0, 1),
        ("the", "a", 1, 0, 1),
        ("", "an", 1, 0, 1),
        ("", "x", 0, 0, 0),
        ("x", "", 0, 0, 0),
        ("the", "x", 0, 0, 0),
    ],
)
def test_scores_of_one_answer(prediction, answer, exact, f1, f1_or_none):
    assert word_f1(prediction, answer) == pytest.approx(f1)
    assert word_f1(prediction, answer, True) == pytest.approx(f1_or_none)
    found = question_scores(asked("q", answer), prediction, False)
    assert found == (exact, pytest.approx(f1))


# To a question, right answers and a prediction, its scores by each script.
TRICKY = [
    (("the", "cat"), "", (1, 0), (0, 0)),
    (("the", "cat"), "a cat", (1, 1), (1, 1)),
    (("An",), "", (1, 0), (1, 1)),
    (("An",), "dog", (0, 0), (0, 0)),
    (("black cat",), "cat", (0, 2 / 3), (0, 2 / 3)),
]


@pytest.mark.parametrize("with_null", [False, True])
def test_one_rule_scores_a_question_wherever_it_is_scored(with_null):
    """Right answers that have no word, in the table and in the report."""
    questions = [asked(f"{i}", *row[0]) for i, row in enumerate(TRICKY)]
    texts = tuple(row[1] for row in TRICKY)
    expected = [row[3 if with_null else 2] for row in TRICKY]
    pairs = zip(questions, texts, strict=True)
    assert [question_scores(*pair, with_null) for pair in pairs] == expected
    names = tuple(question.identifier for question in questions)
    found = dict(zip(names, texts, strict=True))
    exact, f1 = (100 * sum(part) / 5 for part in zip(*expected, strict=True))
    score = score_squad_v2 if with_null else score_squad_v1
    scores = score(questions, found)
    # A question whose answers have no words has an answer all the same.
    assert scores.get("HasAns_total", 5) == 5
    assert "NoAns_total" not in scores
    name = "exact" if with_null else "exact_match"
    assert (scores[name], scores["f1"]) == pytest.approx((exact, f1))
    answers = Answers(
        n_best=((),) * 5,
        best=texts,
        spans=np.zeros((5, 2), np.int64),
        null_odds=np.zeros(5) if with_null else None,
    )
    config = QuestionAnsweringConfig("q", (), 9, 9, 9, 9, 9, with_null, 1.0)
    task = QuestionAnsweringTask(
        name="q", train_name="", dev_name="", with_null=False, main_metric="f1"
    )
    lines = task.prediction_lines(Answered(questions, answers, config))
    assert [(line["exact"], line["f1"]) for line in lines] == expected


def test_squad_1_by_hand():
    questions = [
        asked("a", "1066", "in 1066"),
        asked("b", "the Normans", "William of Normandy"),
        asked("c", "Rollo"),
        asked("d", "x"),
    ]
    predictions = {"a": "In 1066!", "b": "William", "c": "", "z": "x"}
    # b: a third of precision 1 and recall 1/3; d is missing.
    scores = score_squad_v1(questions, predictions)
    assert scores == pytest.approx({"exact_match": 25.0, "f1": 100 * 1.5 / 4})
    line = error_of(score_squad_v1, [asked("a", "x"), asked("b")], {})
    assert line.startswith("question 'b': has no right answer")


def test_missing_and_extra_predictions_are_told():
    questions = [asked(letter, letter) for letter in "abcdefghijk"]
    missing, extra = coverage_lines(questions, {"a": "a", "z": "z"}, "p.json")
    assert missing.startswith("p.json: 10 of 11 questions are unanswered")
    assert missing.endswith("'h', 'i' and 2 more.")
    assert extra.startswith("p.json: 1 ids belong to no question")
    assert coverage_lines(questions, dict.fromkeys("abcdefghijk"), "p") == []
    line = error_of(coverage_lines, questions, {"z": "z"}, "p.json")
    assert line.startswith("p.json: answers none of the 11")
    assert line.endswith("those in the file are 'z'.")
    line = error_of(coverage_lines, questions, {}, "p.json")
    assert line.endswith("those in the file are none.")


V2 = [
    asked("yes1", "Norman dynasty", "Normans"),
    asked("yes2", "Rome"),
    asked("no1"),
    asked("no2"),
]


def test_squad_2_by_hand():
    predictions = {"yes1": "Norman", "yes2": "", "no1": "", "no2": "Paris"}
    scores = score_squad_v2(V2, predictions)
    assert scores == pytest.approx(
        {
            "exact": 25.0,
            "f1": 100 * (2 / 3 + 1) / 4,
            "total": 4,
            "HasAns_exact": 0.0,
            "HasAns_f1": 100 / 3,
            "HasAns_total": 2,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )
    # What is missing scores nothing.
    found = {"yes1": "Normans", "no2": ""}
    scores = score_squad_v2(V2, found)
    assert scores["exact"] == 50.0
    assert scores["HasAns_exact"] == scores["NoAns_exact"] == 50.0
    odds = {"yes1": -1.0, "no2": 5.0}
    assert score_squad_v2(V2, found, odds)["best_f1"] == 50.0
    line = error_of(score_squad_v2, V2, {"no1": "", "z": ""}, {"yes1": 0.0})
    assert "have none for the question 'no1'" in line


def test_squad_2_with_null_odds_by_hand():
    predictions = {
        "yes1": "Norman",
        "yes2": "Rome",
        "no1": "Oslo",
        "no2": "Paris",
    }
    odds = {"yes1": -3.0, "no1": -2.0, "yes2": 0.5, "no2": 4.0, "else": 9.0}
    scores = score_squad_v2(V2, predictions, odds)
    # Above 1, no2 counts as answered with nothing, rightly.
    assert scores["exact"] == 50.0
    assert scores["f1"] == pytest.approx(100 * (2 / 3 + 1 + 1) / 4)
    assert scores["NoAns_exact"] == 50.0
    # Sums from 2 on, for nothing answered. F1: 2.67 up to -3, then 1.67,
    # 2.67, 1.67, of which the first is the best. Exact: 2, 1, 2, 1: never
    # more than for nothing, which is given as 0.
    assert scores["best_f1"] == pytest.approx(100 * (2 + 2 / 3) / 4)
    assert scores["best_f1_thresh"] == -3.0
    assert scores["best_exact"] == 50.0
    assert scores["best_exact_thresh"] == 0.0
    lower = score_squad_v2(V2, predictions, odds, threshold=-2.5)
    assert lower["f1"] == pytest.approx(scores["best_f1"])
    assert tuned_threshold(V2, predictions, odds) == -3.0
    # If nothing is right, it is best to answer nothing.
    predictions = dict.fromkeys(["yes1", "yes2", "no1", "no2"], "wrong")
    odds = {"yes1": -3.0, "no1": -5.0, "yes2": 0.5, "no2": 4.0}
    threshold = tuned_threshold(V2, predictions, odds)
    assert threshold < -5.0
    scores = score_squad_v2(V2, predictions, odds, threshold)
    assert scores["f1"] == scores["best_f1"] == 50.0


# The script takes an answer for one even where it has no words, and so may
# miss the best threshold; hence none such.
REAL_WORDS = st.sampled_from(["cat", "dog", "cat dog", "é cat dog"])


@given(
    st.lists(
        st.tuples(
            st.lists(REAL_WORDS, max_size=2),
            REAL_WORDS | st.just(""),
            st.integers(-40, 40).map(float),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[2],
    )
)
def test_the_best_threshold_is_the_best_of_all(rows):
    questions = [asked(str(i), *row[0]) for i, row in enumerate(rows)]
    predictions = {str(i): row[1] for i, row in enumerate(rows)}
    odds = {str(i): row[2] for i, row in enumerate(rows)}

    def f1(threshold):
        return score_squad_v2(questions, predictions, odds, threshold)["f1"]

    every = [f1(threshold) for threshold in (-99.0, *odds.values())]
    tuned = tuned_threshold(questions, predictions, odds)
    best = score_squad_v2(questions, predictions, odds)["best_f1"]
    assert f1(tuned) == pytest.approx(max(every))
    assert best == pytest.approx(max(every))


def test_real_answers_score_as_they_should(shared_data):
    path = str(shared_data / "squad" / "dev-v2.0.json")
    questions = read_questions(path)
    # One question's last answer is "a", which has no word.
    gold = {
        q.identifier: next(
            (a.text for a in q.answers if normalize_answer(a.text)), ""
        )
        for q in questions
    }
    scores = score_squad_v2(questions, gold)
    assert [scores[k] for k in ("exact", "f1", "total")] == [100, 100, 11873]
    assert (scores["HasAns_total"], scores["NoAns_total"]) == (5928, 5945)
    nothing = score_squad_v2(questions, dict.fromkeys(gold, ""))
    # The known score of answering nothing.
    assert nothing["exact"] == pytest.approx(50.07159100480081)
