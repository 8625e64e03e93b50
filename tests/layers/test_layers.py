"""Each layer against its formula.

Activations are in `test_activations.py`, and with attention's probabilities in
`tests/test_encoder.py`.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import fill, numpy, small_config
from reference_bert import layer_norm

from bert_tf.errors import UserError
from bert_tf.layers import (
    Dense,
    Embeddings,
    LayerNorm,
    MaskedLMHead,
    SelfAttention,
    TransformerBlock,
    attention_bias,
)
from bert_tf.layers.products import activate

CONFIG = small_config()
RANDOM = np.random.default_rng(5)


def normal(*shape) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def test_unknown_activation_is_named() -> None:
    with pytest.raises(UserError, match="swish"):
        activate("swish", np.float32([1.0]))


@settings(deadline=None, max_examples=25)
@given(
    scale=st.floats(1e-2, 1e3),
    shift=st.floats(-100, 100),
    seed=st.integers(0, 100),
)
def test_layer_norm_is_its_formula(scale, shift, seed) -> None:
    layer = LayerNorm(small_config(layer_norm_eps=1e-5))
    layer.build((None, 16))
    fill(layer, seed)
    x = np.random.default_rng(seed).normal(shift, scale, (4, 16))
    x = x.astype("float32")
    expected = layer_norm(
        x.astype("float64"), numpy(layer.gamma), numpy(layer.beta), 1e-5
    )
    tolerance = 1e-5 * (1 + abs(shift) / scale)
    np.testing.assert_allclose(numpy(layer(x)), expected, atol=tolerance)


def test_layer_norm_computes_in_float32_under_bfloat16() -> None:
    layer = LayerNorm(CONFIG, dtype="mixed_bfloat16")
    layer.build((None, 64))
    x = keras.ops.cast(normal(3, 64) + 200.0, "bfloat16")
    exact = layer_norm(numpy(x).astype("float64"), 1.0, 0.0, 1e-12)
    result = layer(x)
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    np.testing.assert_allclose(numpy(result), exact, rtol=1e-2, atol=1e-2)


def test_kernels_are_cut_at_two_standard_deviations() -> None:
    layer = Dense(small_config(initializer_range=0.02), 300)
    layer.build((None, 300))
    kernel = numpy(layer.kernel)
    # The truncated normal's own deviation is 0.8796 of the normal's.
    assert np.abs(kernel).max() <= 0.04
    assert np.abs(kernel).max() > 0.0395
    np.testing.assert_allclose(kernel.std(), 0.02 * 0.8796, rtol=0.01)
    assert not numpy(layer.bias).any()


def test_attention_bias_hides_padding_other_sequences_and_later_positions() -> (
    None
):
    mask = np.int32([[1, 1, 1, 1, 0]])
    sequences = np.int32([[1, 1, 2, 2, 0]])
    plain = numpy(attention_bias(mask))
    assert plain.tolist() == [[[[0, 0, 0, 0, -10000]]]]
    both = numpy(attention_bias(mask, sequences, causal=True))[0, 0] == 0
    assert both.astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    "layer", [Embeddings(CONFIG), SelfAttention(CONFIG), MaskedLMHead(CONFIG)]
)
def test_every_weight_gets_a_dense_gradient(layer) -> None:
    layer.build(None)
    fill(layer)
    ids = np.int32([[1, 2, 2, 4]])
    wide = tf.constant(normal(1, 4, 24))
    calls = {
        Embeddings: lambda: layer(ids, ids % 2, ids),
        SelfAttention: lambda: layer(wide, attention_bias(ids))[0],
        MaskedLMHead: lambda: layer(wide, ids[:, :2], normal(41, 24)),
    }
    with tf.GradientTape() as tape:
        outputs = calls[type(layer)]()
        loss = tf.reduce_sum(outputs * normal(*outputs.shape))
    for weight, gradient in zip(
        layer.trainable_weights,
        tape.gradient(loss, [w.value for w in layer.trainable_weights]),
        strict=True,
    ):
        assert isinstance(gradient, tf.Tensor), weight.path
        if weight.name != "qkv_bias":
            assert np.abs(gradient.numpy()).max() > 1e-4, weight.path


@pytest.mark.parametrize(
    "which", ["attention_probs_dropout_prob", "hidden_dropout_prob"]
)
def test_each_dropout_rate_is_used(which) -> None:
    layer = TransformerBlock(small_config(**{which: 0.5}))
    layer.build(None)
    fill(layer)
    x = normal(2, 5, 24)
    bias = attention_bias(np.ones((2, 5), "int32"))
    outputs = [numpy(layer(x, bias, training=t)[0]) for t in (True, False)]
    assert np.abs(outputs[0] - outputs[1]).max() > 0.01
