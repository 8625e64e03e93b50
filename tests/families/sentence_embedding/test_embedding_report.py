"""The sections of the report, by what dev rows state."""

import numpy as np
import pytest

from bert_tf.families.sentence_embedding.report import sections
from bert_tf.report.sections import merged_numbers


def numbers_of(metric, predictions, labels):
    rows = [
        {
            "identifier": str(n),
            "row": n + 1,
            "texts": [f"text {n}", "other"],
            "label": label,
            "prediction": prediction,
        }
        for n, (prediction, label) in enumerate(
            zip(predictions, labels, strict=True)
        )
    ]
    found = sections(rows, {"main_metric": metric})
    for section in found:
        assert section.parts
    return merged_numbers(found)


def worst(numbers):
    return [row["identifier"] for row in numbers["mistakes"]["worst"]]


def test_pairs_with_scores():
    found = numbers_of("spearman", [0.1, 0.9, 0.5, -0.2], [1.0, 2.0, 3.0, 4.0])
    # Ranks by similarity are 2, 4, 3 and 1.
    assert worst(found) == ["3", "1", "0", "2"]
    similar = found["similarities"]
    assert similar["mean_of_lower_half_of_scores"] == pytest.approx(0.5)
    assert similar["mean_of_upper_half_of_scores"] == pytest.approx(0.15)
    counts = similar["counts"]
    assert [sum(values) for values in counts.values()] == [2, 2]
    assert similar["edges"][0] == -0.2
    assert similar["edges"][-1] == 1


def test_pairs_with_labels():
    found = numbers_of(
        "average_precision", [0.9, 0.8, 0.3, 0.7], [1.0, 1.0, 0.0, 0.0]
    )
    similar = found["similarities"]
    assert similar["best_accuracy"] == similar["best_f1"] == 1
    assert similar["threshold_of_accuracy"] == pytest.approx(0.75)
    assert similar["threshold_of_f1"] == pytest.approx(0.75)
    assert worst(found)[0] == "3"


def test_ranks_of_positives():
    found = numbers_of("mrr@10", [1, 12, 2, 1], [None] * 4)
    ranks = found["ranks"]
    assert ranks["share_of_ranks_up_to_1"] == 0.5
    assert ranks["share_of_ranks_up_to_10"] == 0.75
    assert ranks["median_rank"] == 1.5
    assert worst(found)[:2] == ["1", "2"]


def test_similarities_to_a_teacher():
    found = numbers_of("teacher_similarity", [0.9, 0.2, 0.7], [None] * 3)
    assert found["similarities"]["mean_of_rows"] == pytest.approx(0.6)
    assert worst(found) == ["1", "2", "0"]
    assert np.sum(found["similarities"]["counts"]["rows"]) == 3
