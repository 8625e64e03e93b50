"""Scores of pairs by their similarity, against a search of all thresholds."""

import numpy as np
import pytest

from bert_tf.families.data import scores


def brute_force(labels, similarities, score):
    """The best value of a score over all thresholds."""
    values = np.unique(similarities)
    cuts = [values[0] - 1, *(values[:-1] + values[1:]) / 2, values[-1] + 1]
    return max(score(labels, similarities > cut) for cut in cuts)


def accuracy(labels, predicted):
    return np.mean(labels == predicted)


def f1(labels, predicted):
    correct = np.sum(labels * predicted)
    return 2 * correct / max(labels.sum() + predicted.sum(), 1)


@pytest.mark.parametrize("seed", range(20))
def test_best_thresholds(seed):
    random = np.random.default_rng(seed)
    labels = (random.random(17) < random.random()).astype(int)
    # Some are equal.
    similarities = np.round(random.random(17) + 0.3 * labels, 1)
    for compute, score in (
        (scores.best_accuracy, accuracy),
        (scores.best_f1, f1),
    ):
        best = compute(labels, similarities)
        assert best.value == pytest.approx(
            brute_force(labels, similarities, score)
        )
        found = score(labels, similarities > best.threshold)
        if np.any(similarities != similarities.min()) and labels.any():
            at_least = score(labels, similarities >= best.threshold)
            assert best.value == pytest.approx(max(found, at_least))


def test_average_precision():
    # By hand: ranks 1 and 3 of 4 are relevant.
    labels, similarities = (
        np.array([1, 0, 1, 0]),
        np.array([0.9, 0.8, 0.5, 0.1]),
    )
    found = scores.average_precision(labels, similarities)
    assert found == pytest.approx((1 + 2 / 3) / 2)
    # Equal scores have one rank: precision 1/2 at recall 1/2.
    similarities = np.array([0.9, 0.9, 0.5, 0.1])
    found = scores.average_precision(labels, similarities)
    assert found == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert scores.average_precision(np.zeros(4), similarities) == 0
