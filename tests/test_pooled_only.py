"""`pooled_only` computes the pooled output of the whole encoder."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import encoder_inputs, fill, numpy, small_config

from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.layers import TransformerBlock
from bert_tf.models import bert_classifier, bert_multiple_choice


def packed(config) -> dict[str, np.ndarray]:
    """Rows of two sequences, each with positions from 0, and padding."""
    inputs = encoder_inputs(config, rows=3, length=10)
    ids = np.int32([[1] * 4 + [2] * 6, [1] * 5 + [2] * 3 + [0] * 2, [1] * 10])
    places = [
        [(ids[row, :at] == ids[row, at]).sum() for at in range(10)]
        for row in range(3)
    ]
    return {
        **inputs,
        "input_mask": (ids > 0).astype("int32"),
        "sequence_ids": ids,
        "position_ids": np.int32(places),
    }


def pooled_and_gradients(encoder, inputs, upstream, **how):
    with tf.GradientTape() as tape:
        pooled = encoder(inputs, **how)["pooled_output"]
        total = tf.reduce_sum(tf.cast(pooled, "float32") * upstream)
    weights = [w.value for w in encoder.trainable_weights]
    return pooled, tape.gradient(total, weights)


@pytest.mark.parametrize(
    ("make", "causal", "layers", "graph"),
    [
        (encoder_inputs, False, 3, True),
        (encoder_inputs, True, 1, False),
        (packed, False, 1, False),
        (packed, True, 3, True),
    ],
)
def test_output_and_gradients_are_those_of_the_whole(
    make, causal, layers, graph
) -> None:
    config = small_config(
        num_hidden_layers=layers, causal=causal, hidden_act="gelu_erf"
    )
    encoder = fill(BertEncoder(config), scale=0.2)
    inputs = make(config)
    upstream = np.random.default_rng(1).normal(size=(3, 24)).astype("float32")
    run = tf.function(pooled_and_gradients) if graph else pooled_and_gradients
    whole, expected = run(encoder, inputs, upstream)
    pooled, found = run(encoder, inputs, upstream, pooled_only=True)
    np.testing.assert_allclose(pooled, whole, atol=1e-6)
    for weight, ours, theirs in zip(
        encoder.trainable_weights, found, expected, strict=True
    ):
        np.testing.assert_allclose(
            ours, theirs, rtol=1e-4, atol=1e-5, err_msg=weight.path
        )
    # Not zeros: a causal [CLS] attends only to itself.
    kernel = encoder.blocks[-1].output_dense.kernel
    at = [w is kernel for w in encoder.trainable_weights].index(True)
    assert np.abs(found[at]).max() > 1e-2


@pytest.mark.parametrize(
    ("causal", "pooled_only"), [(False, True), (True, False), (True, True)]
)
def test_every_token_still_matters_and_padding_does_not(
    causal, pooled_only
) -> None:
    config = small_config(num_hidden_layers=1, causal=causal)
    encoder = fill(BertEncoder(config))
    inputs = encoder_inputs(config, rows=2)
    inputs["input_mask"][0, 7:] = 0

    def pooled(ids):
        given = {**inputs, "input_ids": ids}
        return numpy(encoder(given, pooled_only=pooled_only)["pooled_output"])

    before = pooled(inputs["input_ids"])
    for place in range(10):
        ids = inputs["input_ids"].copy()
        ids[0, place] = (ids[0, place] + 5) % config.vocab_size
        change, other = np.abs(pooled(ids) - before).max(axis=-1)
        assert change > 1e-4 if place < 7 else change < 1e-6, place
        assert other == 0


def test_the_last_layer_works_on_one_position(monkeypatch) -> None:
    config = small_config()
    encoder = BertEncoder(config)
    shapes = []
    call = TransformerBlock.call

    def recorded(self, hidden, *args, **kwargs):
        kwargs = kwargs | {"return_probabilities": True}
        outputs = call(self, hidden, *args, **kwargs)
        shapes.append((hidden.shape, outputs[0].shape, outputs[1].shape))
        return outputs

    monkeypatch.setattr(TransformerBlock, "call", recorded)
    inputs = encoder_inputs(config)
    choices = {name: value[:, None] for name, value in inputs.items()}
    for run in (
        lambda: encoder(inputs, pooled_only=True),
        lambda: bert_classifier(encoder, 2)(inputs),
        lambda: bert_multiple_choice(encoder)(choices),
    ):
        shapes.clear()
        run()
        assert shapes == [
            ((3, 10, 24), (3, 10, 24), (3, 3, 10, 10)),
            ((3, 10, 24), (3, 1, 24), (3, 3, 1, 10)),
        ]
    shapes.clear()
    encoder(inputs)
    assert shapes[1] == shapes[0] == ((3, 10, 24), (3, 10, 24), (3, 3, 10, 10))


def test_it_is_alone() -> None:
    config = small_config()
    encoder, inputs = BertEncoder(config), encoder_inputs(config)
    assert set(encoder(inputs, pooled_only=True)) == {"pooled_output"}
    symbols = {
        name: keras.Input((None,), dtype="int32", name=name) for name in inputs
    }
    outputs = encoder(symbols, pooled_only=True)
    assert {n: s.shape for n, s in outputs.items()} == {
        "pooled_output": (None, 24)
    }
    with pytest.raises(UserError, match="with return_all_layers") as error:
        encoder(inputs, pooled_only=True, return_all_layers=True)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="with return_attention_probs"):
        encoder(inputs, pooled_only=True, return_attention_probs=True)
