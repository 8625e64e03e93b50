"""Weights that a checkpoint provides are created without random numbers."""

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.layers.initialization import assigned_later
from bert_tf.models import bert_classifier, model_arrays
from tests.model_helpers import small_config

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def drawn(monkeypatch) -> list[tuple[int, ...]]:
    """The shapes that truncated normal initializers have drawn."""
    shapes: list[tuple[int, ...]] = []
    draw = keras.initializers.TruncatedNormal.__call__

    def noted(self, shape, dtype=None):
        shapes.append(tuple(shape))
        return draw(self, shape, dtype)

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", noted)
    return shapes


def test_missing_arrays_are_drawn_as_in_a_new_model(tmp_path, drawn) -> None:
    """Those of a head that the folder lacks, and no other."""
    config = small_config()
    keras.utils.set_random_seed(1)
    encoder = bert_tf.BertEncoder(config)
    arrays = {
        name: array
        for name, array in encoder.to_arrays().items()
        if not name.startswith("bert/pooler")
    }
    bert_tf.save_checkpoint(tmp_path, bert_tf.Checkpoint(config, arrays))

    keras.utils.set_random_seed(2)
    new = bert_tf.BertEncoder(config).to_arrays()
    drawn.clear()
    keras.utils.set_random_seed(2)
    loaded = bert_tf.load_encoder(tmp_path).to_arrays()

    assert drawn == [(config.hidden_size, config.hidden_size)]
    for name, array in loaded.items():
        expected = arrays.get(name, new[name])
        np.testing.assert_array_equal(array, expected, err_msg=name)


def test_what_is_not_assigned_has_the_values_of_a_new_model() -> None:
    """At the end of the context; low-rank updates and BiLSTM included."""
    config = small_config(lora_rank=2, lora_alpha=2.0, bilstm=True)

    def arrays() -> dict[str, np.ndarray]:
        return model_arrays(bert_classifier(bert_tf.BertEncoder(config), 3))

    keras.utils.set_random_seed(3)
    expected = arrays()
    keras.utils.set_random_seed(3)
    with assigned_later():
        model = bert_classifier(bert_tf.BertEncoder(config), 3)
    found = model_arrays(model)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_an_error_ends_the_context() -> None:
    with pytest.raises(ZeroDivisionError), assigned_later():
        raise ZeroDivisionError
    keras.utils.set_random_seed(4)
    kernel = bert_tf.BertEncoder(small_config()).blocks[0].weights[0]
    assert 0 < float(keras.ops.std(kernel)) < 1
