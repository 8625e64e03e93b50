"""Calibration by hand, and against a plain implementation."""

import math

import numpy as np
import pytest

from bert_tf.report.statistics import (
    brier_score,
    class_calibration,
    expected_calibration_error,
    label_calibration,
    reliability_bins,
)


def plain_error(
    probabilities: list[float], outcomes: list[bool], num_bins: int
) -> float:
    """Equation 3 of Guo et al. 2017, one example at a time."""
    total = 0.0
    for m in range(1, num_bins + 1):
        inside = [
            (p, y)
            for p, y in zip(probabilities, outcomes, strict=True)
            if (m - 1) / num_bins < p <= m / num_bins
        ]
        if inside:
            accuracy = sum(y for _, y in inside) / len(inside)
            confidence = math.fsum(p for p, _ in inside) / len(inside)
            share = len(inside) / len(probabilities)
            total += share * abs(accuracy - confidence)
    return total


def test_error_agrees_with_the_definition() -> None:
    random = np.random.default_rng(2)
    probabilities = random.random(500)
    outcomes = random.random(500) < probabilities**2
    for num_bins in (1, 7, 15):
        bins = reliability_bins(probabilities, outcomes, num_bins)
        assert expected_calibration_error(bins) == pytest.approx(
            plain_error(list(probabilities), list(outcomes), num_bins)
        )
        assert sum(each["count"] for each in bins) == 500


def test_a_bin_holds_its_upper_edge_and_the_first_one_zero() -> None:
    probabilities = np.array([0.0, 0.2, 0.20001, 1.0, 1.0 + 1e-7])
    bins = reliability_bins(probabilities, np.ones(5, bool), num_bins=5)
    assert [each["count"] for each in bins] == [2, 1, 0, 0, 2]
    assert bins[2]["share_true"] is None
    assert bins[2]["mean_probability"] is None
    assert bins[0]["mean_probability"] == pytest.approx(0.1)


def test_brier_score_is_the_sum_over_the_classes() -> None:
    # 0.2^2 + 0.2^2 = 0.08 and 0.7^2 + 0.7^2 = 0.98.
    probabilities = np.array([[0.8, 0.2], [0.7, 0.3]])
    targets = np.array([[1, 0], [0, 1]])
    assert brier_score(probabilities, targets) == pytest.approx(0.53)
    sure_and_wrong = np.array([[0.0, 1.0]])
    assert brier_score(sure_and_wrong, np.array([[1, 0]])) == 2


def test_classes_by_hand() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    found = class_calibration(probabilities, np.array([0, 1]))
    assert found["mean_confidence"] == pytest.approx(0.6)
    assert found["share_true"] == 0.5
    assert found["expected_calibration_error"] == pytest.approx(
        0.5 * 0.5 + 0.5 * 0.7
    )
    first, second = 0.25 + 0.09 + 0.04, 0.01 + 0.64 + 0.49
    assert found["brier_score"] == pytest.approx((first + second) / 2)


def test_labels_are_pooled() -> None:
    probabilities = np.array([[0.9, 0.1], [0.6, 0.3]])
    found = label_calibration(probabilities, np.array([[1, 0], [0, 1]]))
    assert found["share_true"] == 0.5
    assert found["mean_confidence"] == pytest.approx(0.475)
    assert found["brier_score"] == pytest.approx(
        (0.01 + 0.01 + 0.36 + 0.49) / 4
    )
    assert found["expected_calibration_error"] == pytest.approx(
        (0.1 + 0.1 + 0.6 + 0.7) / 4
    )
