"""The classifier: an ordinary Keras model."""

import keras
import numpy as np
import pytest
from model_helpers import encoder_inputs, fill, numpy, small_config

from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.models import bert_classifier
from bert_tf.optimization import adamw

LOSS = keras.losses.SparseCategoricalCrossentropy


def test_logits_are_a_linear_map_of_the_pooled_output() -> None:
    config = small_config()
    encoder = BertEncoder(config)
    model = fill(bert_classifier(encoder, num_classes=4))
    inputs = encoder_inputs(config)
    kernel, bias = (numpy(w) for w in model.get_layer("logits").weights)
    assert kernel.shape == (24, 4)
    pooled = numpy(encoder(inputs)["pooled_output"])
    np.testing.assert_allclose(
        numpy(model(inputs)), pooled @ kernel + bias, atol=1e-5
    )


def test_it_learns_eight_rows_by_heart_with_stock_keras() -> None:
    keras.utils.set_random_seed(2)
    config = small_config(hidden_size=48, intermediate_size=96)
    model = bert_classifier(BertEncoder(config), num_classes=3, dropout=0.0)
    inputs = encoder_inputs(config, rows=8)
    labels = np.int32([0, 1, 2, 0, 1, 2, 0, 1])
    model.compile(
        adamw(2e-3, total_steps=60),
        LOSS(from_logits=True),
        metrics=["accuracy"],
    )
    first = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert abs(first["loss"] - np.log(3)) < 0.1
    model.fit(inputs, labels, batch_size=8, epochs=60, verbose=0)
    last = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert last["loss"] < 0.1
    assert last["accuracy"] == 1.0
    predicted = model.predict(inputs, verbose=0).argmax(-1)
    np.testing.assert_array_equal(predicted, labels)


def test_keras_file_brings_back_weights_and_optimizer(tmp_path) -> None:
    config = small_config()
    encoder = BertEncoder(config)
    model = fill(bert_classifier(encoder, num_classes=3, dropout=0.0))
    inputs, labels = encoder_inputs(config), np.int32([0, 1, 2])
    model.compile(adamw(1e-2, total_steps=10), LOSS(from_logits=True))
    model.fit(inputs, labels, epochs=2, verbose=0)
    model.save(tmp_path / "classifier.keras")
    loaded = keras.models.load_model(tmp_path / "classifier.keras")
    np.testing.assert_array_equal(
        model.predict(inputs, verbose=0), loaded.predict(inputs, verbose=0)
    )
    for before, after in zip(
        model.optimizer.variables, loaded.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(numpy(before), numpy(after))
    for each in (model, loaded):
        each.fit(inputs, labels, epochs=1, verbose=0)
    for before, after in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_allclose(numpy(before), numpy(after), atol=1e-6)


def test_logits_are_float32_under_bfloat16() -> None:
    config = small_config()
    encoder = BertEncoder(config, dtype="mixed_bfloat16")
    model = bert_classifier(encoder, num_classes=2)
    logits = model(encoder_inputs(config))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


def test_dropout_is_on_the_pooled_output_in_training_only() -> None:
    config = small_config()
    model = fill(bert_classifier(BertEncoder(config), 2, dropout=0.5))
    inputs = encoder_inputs(config)
    first, second = (numpy(model(inputs, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_array_equal(
        numpy(model(inputs)), numpy(model(inputs, training=False))
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "num_classes is 0"),
        ({"num_classes": 2, "dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_bad_arguments_are_named(changes, message) -> None:
    with pytest.raises(UserError, match=message):
        bert_classifier(BertEncoder(small_config()), **changes)
