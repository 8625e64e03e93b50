"""The numbers of reports on choices, against those worked by hand."""

import pytest

from tests.finetuning.report_pages import numbers_of, text_of
from tests.finetuning.report_runs import CHOICES, choice_run, write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(choice_run(), tmp_path_factory.mktemp("run"))


def test_positions(report):
    found = numbers_of(report)["predictions"]
    assert found["confusion_matrix"] == {
        "labels": ["0", "1", "2", "3"],
        "counts": [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]],
        "pooled": 0,
    }
    first, second, third, last = found["per_label"]
    assert (first["precision"], first["recall"]) == (0.5, 1.0)
    assert (second["precision"], second["recall"]) == (0.0, 0.0)
    assert (third["precision"], third["recall"]) == (None, None)
    assert (last["precision"], last["recall"]) == (1.0, 0.5)


def test_numbers_of_choices(report):
    found = numbers_of(report)["predictions"]["by_number_of_choices"]
    assert found == [
        {"choices": 2, "count": 2, "accuracy": 0.5, "chance": 0.5},
        {"choices": 4, "count": 2, "accuracy": 0.5, "chance": 0.25},
    ]


def test_calibration(report):
    """Over rows of several numbers of choices."""
    found = numbers_of(report)["predictions"]["calibration"]
    assert found["mean_confidence"] == pytest.approx((2.25 + 0.5) / 4)
    assert found["share_true"] == 0.5
    # Squared distances of all probabilities, row by row.
    rows = [
        2 * 0.25**2,
        2 * 0.125**2 + 0.625**2 + 0.875**2,
        0.25**2 + 0.25**2 + 0.5**2,
        2 * 0.875**2,
    ]
    assert found["brier_score"] == pytest.approx(sum(rows) / 4)


def test_mistakes(report):
    found = numbers_of(report)["predictions"]["mistakes"]
    assert found["total"] == 2
    assert [each["row"] for each in found["worst"]] == [5, 3]
    assert found["worst"][1]["confidence"] == 0.625
    assert found["worst"][1]["label_probability"] == 0.125
    text = text_of(report)
    assert "Predicted 1 at 62.5 % True 3 , given 12.5 % line 3, id 1" in text
    assert "context 1 Every choice begins: She 12.5 % choice 1 0" in text
    assert "predicted 62.5 % choice 1 1" in text
    assert "true 12.5 % choice 1 3" in text
    # The first row, which is right, is not among them.
    assert "choice 0 0" not in text


def test_all_right(tmp_path):
    page = write_report(choice_run(CHOICES[:1]), tmp_path)
    assert "None in 1 rows." in text_of(page)
