"""The numbers of reports on classes, values and sets of labels."""

import numpy as np
import pytest

from bert_tf.families.text_classification.report import statistics
from bert_tf.report.statistics import confusion_matrix
from tests.finetuning.report_pages import numbers_of, text_of
from tests.finetuning.report_runs import (
    classes_run,
    finished,
    multi_label_run,
    regression_run,
    results_of,
    write_report,
)


def test_numbers_of_classes():
    labels = ["contradiction", "entailment", "neutral"]
    run = classes_run(labels)
    lines = run.predictions
    found = statistics(lines, run.results)
    matrix = found["confusion_matrix"]
    assert matrix["labels"] == labels
    for i, truth in enumerate(labels):
        for j, answer in enumerate(labels):
            assert matrix["counts"][i][j] == sum(
                (line["label"], line["prediction"]) == (truth, answer)
                for line in lines
            )
    neutral = found["per_label"][2]
    true = [line for line in lines if line["label"] == "neutral"]
    given = [line for line in lines if line["prediction"] == "neutral"]
    both = [line for line in true if line["prediction"] == "neutral"]
    assert neutral["precision"] == pytest.approx(len(both) / len(given))
    assert neutral["recall"] == pytest.approx(len(both) / len(true))
    assert neutral["f1"] == pytest.approx(
        2 * len(both) / (len(given) + len(true))
    )
    worst = found["mistakes"]["worst"]
    wrong = [line for line in lines if line["label"] != line["prediction"]]
    assert found["mistakes"]["total"] == len(wrong)
    wrong = sorted(wrong, key=lambda line: -max(line["probabilities"]))
    assert [each["row"] for each in worst] == [x["row"] for x in wrong[:20]]
    assert worst[0]["confidence"] == max(wrong[0]["probabilities"])
    confusions = found["confusions"]
    assert confusions[0]["count"] == max(
        matrix["counts"][i][j] for i in range(3) for j in range(3) if i != j
    )


def test_numbers_of_regression():
    run = regression_run()
    lines = run.predictions
    found = statistics(lines, run.results)
    errors = np.array([x["prediction"] - x["label"] for x in lines])
    residuals = found["residuals"]
    assert residuals["mean_error"] == pytest.approx(errors.mean())
    assert residuals["mean_absolute_error"] == pytest.approx(abs(errors).mean())
    assert residuals["root_mean_squared_error"] == pytest.approx(
        np.sqrt((errors**2).mean())
    )
    assert sum(residuals["counts"]) == len(lines)
    assert residuals["edges"][0] == -residuals["edges"][-1]
    worst = found["mistakes"]["worst"]
    assert abs(worst[0]["error"]) == abs(errors).max()
    assert len(found["scatter"]["true"]) == 1500
    assert "calibration" not in found


def test_many_points_are_thinned(tmp_path):
    page = write_report(regression_run(4500), tmp_path)
    scatter = numbers_of(page)["predictions"]["scatter"]
    assert scatter["every"] == 3
    assert len(scatter["predicted"]) == 1500
    assert "One row in 3 is drawn." in text_of(page)
    assert page.stat().st_size < 500_000


def test_numbers_of_multi_label():
    run = multi_label_run()
    lines = run.predictions
    found = statistics(lines, run.results)
    joy = found["per_label"][0]
    true = [line for line in lines if "joy" in line["label"]]
    assert joy["count"] == len(true)
    assert joy["recall"] == pytest.approx(
        sum("joy" in line["prediction"] for line in true) / len(true)
    )
    exact = sum(line["label"] == line["prediction"] for line in lines)
    assert found["exact_matches"] == exact
    assert found["mistakes"]["total"] == len(lines) - exact
    assert sum(x["count"] for x in found["calibration"]["bins"]) == 6 * 300


def test_multi_label_mistakes_by_hand():
    rows = [
        {
            "identifier": "x",
            "row": number,
            "text_a": "t",
            "text_b": None,
            "label": label,
            "prediction": prediction,
            "probabilities": probabilities,
        }
        for number, label, prediction, probabilities in (
            (1, ["a"], ["a"], [0.9, 0.1]),
            (2, ["a"], [], [0.3, 0.2]),
            (3, ["a"], ["b"], [0.4, 0.95]),
            (4, [], ["b"], [0.1, 0.8]),
        )
    ]
    found = statistics(rows, {"labels": ["a", "b"]})["mistakes"]
    assert found["total"] == 3
    assert [each["row"] for each in found["worst"]] == [3, 4, 2]
    assert found["worst"][0]["missed"] == {"a": 0.4}
    assert found["worst"][0]["added"] == {"b": 0.95}
    assert found["worst"][2]["confidence"] == pytest.approx(0.7)


def test_no_mistakes_and_one_class_never_met(tmp_path):
    lines = [
        {
            "identifier": str(row),
            "row": row,
            "text_a": "yes",
            "text_b": None,
            "label": "ab"[row % 2],
            "prediction": "ab"[row % 2],
            "probabilities": [float("ab"[row % 2] == x) for x in "abc"],
        }
        for row in range(1, 5)
    ]
    results = results_of("MRPC", ["a", "b", "c"], {"f1": 1.0})
    page = write_report(finished(results, lines), tmp_path)
    text = text_of(page)
    assert "None in 4 rows." in text
    assert "there are no rows to take a share of" in text
    found = numbers_of(page)["predictions"]
    assert found["per_label"][2]["precision"] is None
    assert found["calibration"]["expected_calibration_error"] == 0


def test_large_confusion_matrix_pools_rare_classes():
    labels = [str(n) for n in range(40)]
    counts = np.arange(1600).reshape(40, 40)
    counts[7] = 0
    found = confusion_matrix(counts, labels)
    small = np.array(found["counts"])
    assert small.shape == (30, 30)
    assert found["pooled"] == 11
    assert small.sum() == counts.sum()
    assert "7" not in found["labels"]
    place = found["labels"].index("39")
    assert small[place, place] == counts[39, 39]
