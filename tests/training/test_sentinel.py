import keras
import numpy as np
import pytest

from bert_tf.training.sentinel import explain, first_non_finite, ids_outside


@pytest.fixture(scope="module")
def model():
    return keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)]
    )


GOOD = {"ids": np.array([[1, 2], [3, 0]])}
LIMITS = {"ids": 4}
NORMS = np.ones(4)


def test_the_first_bad_tensor_is_named():
    named = [("a", [1.0]), ("b", [1.0, np.nan, np.inf]), ("c", [np.nan])]
    assert first_non_finite(named) == "b (2 of 3 values)"
    assert first_non_finite(named[:1]) is None


@pytest.mark.parametrize("bad", [-1, 4])
def test_ids_outside(bad):
    ids = np.array([[1, 2], [bad, 0]])
    line = ids_outside({"ids": ids}, LIMITS)
    assert line == f"ids[1, 0] is {bad}, which is not in [0, 4)"
    assert ids_outside(GOOD, LIMITS) is None


def test_then_inputs_then_forward_then_gradients(model):
    batch = {**GOOD, "x": np.array([np.nan])}
    assert "the input x" in explain(model, batch, list, NORMS)
    forward = [("embedding_output", [1.0]), ("layer 1", [np.inf])]
    why = explain(model, GOOD, lambda _: forward, NORMS)
    assert "layer 1 (1 of 1 values)" in why
    norms = np.array([np.nan, np.nan, 1.0, 1.0])
    why = explain(model, GOOD, lambda _: [], norms)
    assert f"gradient of {model.trainable_variables[1].path}" in why
    why = explain(model, GOOD, lambda _: [], NORMS)
    assert "the loss itself" in why


def test_a_weight_that_is_not_finite(model):
    variable = model.trainable_variables[2]
    before = variable.numpy()
    variable.assign(np.full_like(before, np.nan))
    why = explain(model, GOOD, lambda _: [], NORMS)
    variable.assign(before)
    assert variable.path in why
