"""Scores by hand, and against plain implementations of their definitions."""

import math

import numpy as np
import pytest

from bert_tf.families.data import scores
from bert_tf.families.text_classification import metrics
from tests.user_errors import error_of

RANDOM = np.random.default_rng(7)


def plain_counts(references, predictions):
    """Hits and misses of class 1, counted one by one."""
    both = wrong = missed = neither = 0
    for gold, predicted in zip(references, predictions, strict=True):
        if gold == 1 and predicted == 1:
            both += 1
        elif predicted == 1:
            wrong += 1
        elif gold == 1:
            missed += 1
        else:
            neither += 1
    return both, wrong, missed, neither


def plain_f1(references, predictions):
    both, wrong, missed, _ = plain_counts(references, predictions)
    if not both:
        return 0.0
    precision, recall = both / (both + wrong), both / (both + missed)
    return 2 * precision * recall / (precision + recall)


def plain_correlation(x, y):
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y))  # noqa: B905
    variance_x = sum((a - mean_x) ** 2 for a in x)
    variance_y = sum((b - mean_y) ** 2 for b in y)
    return covariance / math.sqrt(variance_x * variance_y)


def plain_rank(values, value):
    below = sum(v < value for v in values)
    same = sum(v == value for v in values)
    return below + (same + 1) / 2


def test_worked_by_hand():
    gold = np.array([1, 1, 1, 0, 0, 0, 0, 1])
    predicted = np.array([1, 1, 0, 1, 0, 0, 0, 1])
    # Three found of four, one too many: precision and recall 3/4.
    assert metrics.accuracy(gold, predicted) == 6 / 8
    assert metrics.binary_f1(gold, predicted) == pytest.approx(0.75)
    # (3 * 3 - 1 * 1) / sqrt(4 * 4 * 4 * 4)
    assert metrics.matthews(gold, predicted) == pytest.approx(0.5)
    # F1 of class 0 is 3/4 too.
    assert metrics.macro_f1(gold, predicted) == pytest.approx(0.75)


def test_correlations_by_hand():
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4.
    x, y = np.array([1.0, 2.0, 2.0, 9.0]), np.array([3.0, 5.0, 6.0, 7.0])
    np.testing.assert_array_equal(scores.ranks(x), [1, 2.5, 2.5, 4])
    assert scores.spearman(x, y) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert scores.pearson(x, 3 * x + 1) == pytest.approx(1)
    assert scores.pearson(x, -x) == pytest.approx(-1)
    assert scores.spearman(x, np.exp(x)) == pytest.approx(1)


def test_macro_f1_takes_the_classes_that_occur():
    gold, predicted = np.array([0, 0, 4, 4]), np.array([0, 4, 4, 7])
    # 2/3 for 0, 1/2 for 4, 0 for 7.
    assert metrics.macro_f1(gold, predicted) == pytest.approx(7 / 18)
    names = np.array(["a", "a", "e", "e"]), np.array(["a", "e", "e", "h"])
    assert metrics.macro_f1(*names) == pytest.approx(7 / 18)


def test_several_labels_by_hand():
    gold = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]], bool)
    predicted = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]], bool)
    assert metrics.subset_accuracy(gold, predicted) == 0.5
    # Three correct, four predicted, four gold.
    assert metrics.label_micro_f1(gold, predicted) == pytest.approx(6 / 8)
    # 4/5, 2/3, and a label that never occurs: 0.
    macro = (4 / 5 + 2 / 3 + 0) / 3
    assert metrics.label_macro_f1(gold, predicted) == pytest.approx(macro)


@pytest.mark.parametrize("trial", range(30))
def test_against_plain_definitions(trial):
    random = np.random.default_rng(trial)
    size = int(random.integers(3, 40))
    gold, predicted = random.integers(0, 2, (2, size))
    both, wrong, missed, neither = plain_counts(gold, predicted)
    assert metrics.binary_f1(gold, predicted) == pytest.approx(
        plain_f1(gold, predicted)
    )
    if np.ptp(gold) and np.ptp(predicted):
        assert metrics.matthews(gold, predicted) == pytest.approx(
            # It is the correlation of zeros and ones.
            plain_correlation(gold.tolist(), predicted.tolist())
        )
    assert both + neither == round(metrics.accuracy(gold, predicted) * size)
    x = random.normal(size=size).round(1)
    y = (x + random.normal(size=size)).round(1)
    assert scores.pearson(x, y) == pytest.approx(plain_correlation(x, y))
    ranks = [[plain_rank(v, a) for a in v] for v in (x, y)]
    assert scores.spearman(x, y) == pytest.approx(plain_correlation(*ranks))


@pytest.mark.parametrize(
    ("score", "references", "predictions"),
    [
        (metrics.matthews, [1, 0, 1], [1, 1, 1]),
        (metrics.matthews, [0, 0, 0], [1, 0, 1]),
        (metrics.binary_f1, [0, 0], [0, 0]),
        (scores.pearson, [1.0, 2.0, 3.0], [0.1, 0.1, 0.1]),
        (scores.spearman, [2.5, 2.5, 2.5], [0.1, 0.3, 0.2]),
        (scores.pearson, [0.7], [0.3]),
    ],
)
def test_nothing_varies(score, references, predictions):
    assert score(np.array(references), np.array(predictions)) == 0


def test_large_and_small_numbers():
    x = np.array([1e-200, 2e-200, 4e-200])
    assert scores.pearson(x, x * 1e300) == pytest.approx(1)
    # The four counts' product is beyond 2**63.
    gold = RANDOM.integers(0, 2, 400_000)
    predicted = np.where(RANDOM.random(400_000) < 0.25, 1 - gold, gold)
    assert metrics.matthews(gold, predicted) == pytest.approx(0.5, abs=0.01)


def test_bad_arrays():
    line = error_of(metrics.accuracy, np.zeros(3), np.zeros(2))
    assert "(3,) and predictions (2,)" in line
    line = error_of(scores.pearson, np.zeros(0), np.zeros(0))
    assert "none to score" in line
