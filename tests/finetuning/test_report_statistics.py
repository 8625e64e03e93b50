"""The numbers of reports of each family, against those worked by hand."""

import numpy as np
import pytest

from bert_tf.families.multiple_choice import report as choices
from bert_tf.families.question_answering import report as questions
from bert_tf.families.question_answering.report import question_word
from bert_tf.families.text_classification import report as texts
from bert_tf.families.token_classification import report as tags
from bert_tf.report.sections import merged_numbers
from bert_tf.report.statistics import confusion_matrix
from tests.finetuning.report_runs import (
    CHOICES,
    QUESTIONS,
    TAGS,
    classes_run,
    multi_label_run,
    regression_run,
)

BOTH = {"threshold": -0.5}


def numbers_of(family, rows, results):
    """What report.json holds of the answers."""
    return merged_numbers(family.sections(rows, results))


def test_classes():
    labels = ["contradiction", "entailment", "neutral"]
    run = classes_run(labels)
    rows = run.finished.predictions
    found = numbers_of(texts, rows, run.finished.results)
    assert found["num_examples"] == len(rows)
    pairs = [(row["label"], row["prediction"]) for row in rows]
    counts = found["confusion_matrix"]["counts"]
    assert counts == [[pairs.count((a, b)) for b in labels] for a in labels]
    true, given = (sum(pair[i] == "neutral" for pair in pairs) for i in (0, 1))
    both = pairs.count(("neutral", "neutral"))
    neutral = found["per_label"][2]
    assert neutral["precision"] == pytest.approx(both / given)
    assert neutral["recall"] == pytest.approx(both / true)
    assert neutral["f1"] == pytest.approx(2 * both / (given + true))
    wrong = [row for row in rows if row["label"] != row["prediction"]]
    assert found["mistakes"]["total"] == len(wrong)
    wrong.sort(key=lambda row: -max(row["probabilities"]))
    worst = found["mistakes"]["worst"]
    assert [each["row"] for each in worst] == [x["row"] for x in wrong[:20]]
    assert worst[0]["confidence"] == max(wrong[0]["probabilities"])
    assert found["confusions"][0]["count"] == max(
        counts[i][j] for i in range(3) for j in range(3) if i != j
    )


def test_regression():
    run = regression_run()
    found = numbers_of(texts, run.finished.predictions, run.finished.results)
    errors = np.array(
        [x["prediction"] - x["label"] for x in run.finished.predictions]
    )
    residuals = found["residuals"]
    assert residuals["mean_error"] == pytest.approx(errors.mean())
    assert residuals["mean_absolute_error"] == pytest.approx(abs(errors).mean())
    assert residuals["root_mean_squared_error"] == pytest.approx(
        np.sqrt((errors**2).mean())
    )
    assert sum(residuals["counts"]) == len(errors)
    assert residuals["edges"][0] == -residuals["edges"][-1]
    worst = found["mistakes"]["worst"]
    assert abs(worst[0]["error"]) == abs(errors).max()
    assert len(found["scatter"]["true"]) == len(errors)
    assert "calibration" not in found


def test_sets_of_labels():
    run = multi_label_run()
    rows = run.finished.predictions
    found = numbers_of(texts, rows, run.finished.results)
    joy = found["per_label"][0]
    true = [row for row in rows if "joy" in row["label"]]
    assert joy["count"] == len(true)
    assert joy["recall"] == pytest.approx(
        sum("joy" in row["prediction"] for row in true) / len(true)
    )
    exact = sum(row["label"] == row["prediction"] for row in rows)
    assert found["exact_matches"] == exact
    assert found["mistakes"]["total"] == len(rows) - exact
    assert sum(x["count"] for x in found["calibration"]["bins"]) == 6 * 300
    # The most confident wrong decision about a label comes first.
    rows = [
        dict.fromkeys(("identifier", "text_a", "text_b"))
        | {"row": row, "label": a, "prediction": b, "probabilities": shares}
        for row, a, b, shares in (
            (1, ["a"], ["a"], [0.9, 0.1]),
            (2, ["a"], [], [0.3, 0.2]),
            (3, ["a"], ["b"], [0.4, 0.95]),
            (4, [], ["b"], [0.1, 0.8]),
        )
    ]
    mistakes = numbers_of(texts, rows, {"labels": ["a", "b"]})["mistakes"]
    assert mistakes["total"] == 3
    first, _, last = mistakes["worst"]
    assert [each["row"] for each in mistakes["worst"]] == [3, 4, 2]
    assert (first["missed"], first["added"]) == ({"a": 0.4}, {"b": 0.95})
    assert last["confidence"] == pytest.approx(0.7)


def test_rare_classes_of_a_large_matrix_are_pooled():
    counts = np.arange(1600).reshape(40, 40)
    counts[7] = 0
    found = confusion_matrix(counts, [str(n) for n in range(40)])
    small = np.array(found["counts"])
    assert small.shape == (30, 30)
    assert found["pooled"] == 11
    assert small.sum() == counts.sum()
    assert "7" not in found["labels"]
    index = found["labels"].index("39")
    assert small[index, index] == counts[39, 39]


def test_choices():
    found = numbers_of(choices, CHOICES, {})
    assert found["confusion_matrix"] == {
        "labels": ["0", "1", "2", "3"],
        "counts": [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]],
        "pooled": 0,
    }
    assert [(x["precision"], x["recall"]) for x in found["per_label"]] == [
        *((0.5, 1.0), (0.0, 0.0), (None, None), (1.0, 0.5))
    ]
    assert found["by_number_of_choices"] == [
        {"choices": 2, "count": 2, "accuracy": 0.5, "chance": 0.5},
        {"choices": 4, "count": 2, "accuracy": 0.5, "chance": 0.25},
    ]
    calibration = found["calibration"]
    assert calibration["mean_confidence"] == pytest.approx((2.25 + 0.5) / 4)
    assert calibration["share_true"] == 0.5
    # Squared distances of all probabilities, row by row.
    distances = [
        2 * 0.25**2,
        2 * 0.125**2 + 0.625**2 + 0.875**2,
        0.25**2 + 0.25**2 + 0.5**2,
        2 * 0.875**2,
    ]
    assert calibration["brier_score"] == pytest.approx(sum(distances) / 4)
    mistakes = found["mistakes"]
    assert mistakes["total"] == 2
    assert [each["row"] for each in mistakes["worst"]] == [5, 3]
    assert mistakes["worst"][1]["confidence"] == 0.625
    assert mistakes["worst"][1]["label_probability"] == 0.125


def groups(found):
    return {
        each["group"]: (each["count"], each["exact"], each["f1"])
        for each in found
    }


def test_answers():
    found = numbers_of(questions, QUESTIONS, BOTH)
    third, ninth = pytest.approx(2 / 3), pytest.approx(5 / 9)
    f1 = pytest.approx((2 / 3 + 1 + 0 + 1) / 4)
    assert found["all"] == {
        "count": 4,
        "answered": 3,
        "exact": 0.5,
        "f1": f1,
    }
    assert groups(found["by_question_word"]) == {
        "what": (2, 0.5, 0.5),
        "other": (1, 1.0, 1.0),
        "who": (1, 0.0, third),
    }
    assert found["by_question_word"][0]["group"] == "what"
    assert groups(found["by_answer_length"]) == {
        "1": (1, 1.0, 1.0),
        "2": (1, 0.0, third),
        "no answer": (2, 0.5, 0.5),
    }
    assert groups(found["by_context_length"]) == {
        "1 to 75": (3, pytest.approx(1 / 3), ninth),
        "101 to 150": (1, 1.0, 1.0),
    }
    first, second = found["parts"]
    assert (first["group"], first["answered"]) == ("has an answer", 2)
    assert (first["exact"], first["f1"]) == (0.5, pytest.approx(5 / 6))
    assert (second["group"], second["answered"]) == ("no answer", 1)
    mistakes = found["mistakes"]
    assert mistakes["total"] == 2
    assert [x["identifier"] for x in mistakes["worst"]] == ["q2", "q0"]
    # The more confident ones of equal F1 come first.
    rows = [
        QUESTIONS[2] | {"identifier": name, "n_best": [best]}
        for name, best in zip(
            "abc", (["1901", 0.3], ["else", 0.9], ["1901", 0.7]), strict=True
        )
    ]
    worst = numbers_of(questions, rows, BOTH)["mistakes"]["worst"]
    assert [each["identifier"] for each in worst] == ["c", "a", "b"]


def test_null_odds():
    odds = numbers_of(questions, QUESTIONS, BOTH)["null_odds"]
    assert odds["threshold"] == -0.5
    width = odds["edges"][1] - odds["edges"][0]
    for name, values in (("has_answer", [-6, -3.5]), ("no_answer", [-1, 4])):
        begins = np.repeat(odds["edges"][:-1], odds[name])
        np.testing.assert_allclose(begins + width / 2, values, atol=width)
    # One value, which is the threshold.
    rows = [row | {"null_odds": 2.0} for row in QUESTIONS]
    odds = numbers_of(questions, rows, {"threshold": 2.0})["null_odds"]
    assert sum(odds["has_answer"]) == 2
    assert odds["edges"][0] < 2 < odds["edges"][-1]
    rows = [row | {"null_odds": None} for row in QUESTIONS[:2]]
    found = numbers_of(questions, rows, {})
    assert (found["null_odds"], found["parts"]) == (None, [])


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


def test_tags():
    found = numbers_of(tags, TAGS, {})
    assert (found["num_examples"], found["num_words"]) == (3, 10)
    # Ada Lovell is right, Oslo an ORG, New York and Hull are missed, York and
    # calls are none.
    assert found["confusion_matrix"] == {
        "labels": ["LOC", "ORG", "PER", "no entity"],
        "counts": [[0, 1, 0, 2], [0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0]],
        "pooled": 0,
    }
    assert {
        each["label"]: (each["count"], each["predicted"], each["f1"])
        for each in found["per_label"]
    } == {
        "LOC": (3, 1, 0.0),
        "ORG": (0, 1, 0.0),
        "PER": (1, 2, pytest.approx(2 / 3)),
    }
    assert found["mistakes"]["total"] == 2
    first, second = found["mistakes"]["worst"]
    assert (first["row"], first["wrong"]) == (7, 4)
    assert (second["row"], second["wrong"]) == (1, 2)
    assert second["entities"] == [
        {"kind": "PER", "first": 0, "last": 1, "right": True},
        {"kind": "LOC", "first": 3, "last": 3, "right": False},
    ]


def test_each_kind_of_error_has_its_own_count():
    rows = [
        {"row": 1, "words": ["w"] * len(tags.split())}
        | {"tags": tags.split(), "predictions": predictions.split()}
        for tags, predictions in (
            (
                "B-A I-A O B-A B-A O B-B I-B I-B O O O O O O O B-A O B-A O B-A "
                "O",
                "O O O O O O B-B B-B O O B-A O B-A O B-A O B-B O B-A O B-A O",
            ),
            *[("B-A I-A B-A I-A", "O B-A I-A O")] * 2,
        )
    ]
    assert numbers_of(tags, rows, {})["errors"] == {
        "right": 2,
        "other_type": 1,
        "other_ends": 5,
        "missed": 3,
        "invented": 3,
    }
