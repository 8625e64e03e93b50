"""Several heads share an encoder, in any order."""

import keras
import numpy as np
import pytest
from model_helpers import encoder_inputs, fill, numpy, small_config

from bert_tf.encoders import BertEncoder
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
)
from bert_tf.optimization import adamw
from bert_tf.pretraining.pretrainer import BertPretrainer

CONFIG = small_config(num_hidden_layers=1)
INPUTS = encoder_inputs(CONFIG, rows=4)


def symbols() -> dict[str, keras.KerasTensor]:
    return {
        name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS
    }


def own_model(encoder: BertEncoder) -> keras.Model:
    """A user's head on the sequence output."""
    inputs = symbols()
    sequence = encoder(inputs)["sequence_output"]
    pooled = keras.layers.GlobalAveragePooling1D()(sequence)
    return keras.Model(inputs, keras.layers.Dense(2)(pooled))


def layers_model(encoder: BertEncoder) -> keras.Model:
    inputs = symbols()
    found = encoder(inputs, return_all_layers=True)
    layers = [found["embedding_output"], *found["all_encoder_layers"]]
    return keras.Model(inputs, layers[0] + layers[1])


HEADS = {
    "classifier": lambda encoder: bert_classifier(encoder, 3, dropout=0.0),
    "token_classifier": lambda encoder: bert_token_classifier(
        encoder, 9, dropout=0.0
    ),
    "span": bert_span_labeler,
    "multiple_choice": lambda encoder: bert_multiple_choice(encoder, 0.0),
    "own": own_model,
    "layers": layers_model,
    "pretrainer": BertPretrainer,
}


def inputs_of(head: str) -> dict[str, np.ndarray]:
    if head == "multiple_choice":
        return {name: value.reshape(2, 2, 10) for name, value in INPUTS.items()}
    if head == "pretrainer":
        return INPUTS | {"masked_lm_positions": np.int32([[1, 2]] * 4)}
    return INPUTS


def outputs_of(model: keras.Model, head: str) -> list[np.ndarray]:
    return [numpy(x) for x in keras.tree.flatten(model(inputs_of(head)))]


def assert_same(ours, expected, atol: float = 0.0) -> None:
    for left, right in zip(ours, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=atol)


@pytest.mark.parametrize("order", [1, -1])
def test_they_compute_and_come_back_from_files(order, tmp_path) -> None:
    shared = BertEncoder(CONFIG)
    models = {head: HEADS[head](shared) for head in list(HEADS)[::order]}
    for head, model in models.items():
        alone = HEADS[head](BertEncoder(CONFIG))
        alone.set_weights(fill(model).get_weights())
        expected = outputs_of(alone, head)
        assert_same(outputs_of(model, head), expected, 1e-6)
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert_same(outputs_of(loaded, head), expected, 1e-6)


def test_every_head_in_one_model_trains(tmp_path) -> None:
    shared = fill(BertEncoder(CONFIG))
    for make in HEADS.values():
        make(shared)
    inputs = symbols()
    # No nested models: Keras cannot load those that share a layer.
    pooled = shared(inputs, pooled_only=True)["pooled_output"]
    sequence = shared(inputs)["sequence_output"]
    outputs = {
        "class": keras.layers.Dense(3)(pooled),
        "tags": keras.layers.Dense(9)(sequence),
    }
    model = keras.Model(inputs, outputs)
    labels = {k: np.zeros(v.shape) for k, v in model(INPUTS).items()}
    before = shared.to_arrays()
    optimizer = adamw(1e-3, total_steps=9, warmup=0)
    model.compile(optimizer, "mse", run_eagerly=True)
    model.fit(INPUTS, labels, epochs=2, batch_size=4, verbose=0)
    after = shared.to_arrays()
    for name in (
        "bert/pooler/dense/kernel",
        "bert/encoder/layer_0/output/dense/kernel",
    ):
        assert np.abs(after[name] - before[name]).max() > 1e-4
    expected = outputs_of(model, "own")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same(outputs_of(loaded, "own"), expected, 1e-6)


def test_an_encoder_that_was_not_called_has_no_output() -> None:
    encoder = BertEncoder(CONFIG)
    with pytest.raises(AttributeError, match="never been called"):
        _ = encoder.output
    assert len(encoder(symbols(), pooled_only=True)) == len(encoder.output) == 1
    encoder(symbols())
    encoder(symbols(), pooled_only=True)
    assert len(encoder.output) == 2
