"""Which weights are kept, when a run stops, and that a resume knows both."""

import math

import keras
import numpy as np

from bert_tf.training.saved_states import BestWeights, split_off_best


def made(patience=0, lower_is_better=False):
    variables = [keras.Variable(np.zeros(3, "float32")) for _ in range(12)]
    return variables, BestWeights(
        variables, dict, "f1", patience, lower_is_better
    )


def offer_all(best, variables, values, first=1):
    taken = []
    for step, value in enumerate(values, start=first):
        for index, variable in enumerate(variables):
            variable.assign(np.full(3, step + index / 100, "float32"))
        if best.offer(step, {"f1": value, "loss": -value}):
            taken.append(step)
    return taken


def test_the_best_is_kept_the_earlier_of_two_equal_ones():
    variables, best = made()
    assert offer_all(best, variables, [0.2, 0.5, 0.5, 0.4]) == [1, 2]
    assert best.step == 2
    assert not best.is_newest
    best.assign()
    for index, variable in enumerate(variables):
        np.testing.assert_allclose(variable.numpy(), 2 + index / 100)


def test_the_lowest_is_kept_where_lower_is_better():
    variables, best = made(patience=2, lower_is_better=True)
    values = [math.nan, 0.5, 0.2, 0.4, math.nan]
    assert offer_all(best, variables, values) == [1, 2, 3]
    assert (best.step, best.exhausted) == (3, True)


def test_a_nan_is_worse_than_any_number():
    variables, best = made()
    values = [math.nan, math.nan, -0.9, math.nan]
    assert offer_all(best, variables, values) == [1, 3]


def test_without_an_evaluation_nothing_is_assigned():
    variables, best = made()
    variables[0].assign(np.ones(3, "float32"))
    best.assign()
    np.testing.assert_array_equal(variables[0].numpy(), 1)
    assert best.arrays() == {}


def test_patience():
    variables, best = made(patience=2)
    offer_all(best, variables, [0.5, 0.1])
    assert not best.exhausted
    offer_all(best, variables, [0.6, 0.2], first=3)
    assert not best.exhausted
    offer_all(best, variables, [0.6], first=5)
    assert best.exhausted
    variables, endless = made()
    offer_all(endless, variables, [0.5] * 9)
    assert not endless.exhausted


def test_it_goes_on_from_what_a_state_holds():
    variables, best = made(patience=2)
    offer_all(best, variables, [0.5, 0.1])
    arrays, kept = split_off_best({"weights/0": 1, **best.arrays()})
    assert arrays == {"weights/0": 1}
    others, again = made(patience=2)
    again.restore(best.facts(), kept)
    offer_all(again, others, [0.5], first=3)
    assert again.exhausted
    again.assign()
    for index, variable in enumerate(others):
        np.testing.assert_allclose(variable.numpy(), 1 + index / 100)
