"""Layers traced once compute what layers traced one by one compute."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import (
    encoder_inputs,
    fill,
    numpy,
    outputs_and_gradients,
    small_config,
)

from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.layers.traced_once import traced_each_time
from tests.contracts.architecture_cases import CASES

DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
UNPADDED = {"unpadded": True}
ALL = {"return_all_layers": True, "return_attention_probs": True}
PACKED = np.repeat([[1, 1, 1, 1, 2, 2, 2, 3, 3, 0]], 8, axis=0)


def passes(
    config,
    once: bool,
    arguments: dict,
    training: bool = True,
    packed: bool = False,
    jit_compile: bool = False,
    **of_encoder,
) -> list[np.ndarray]:
    """Outputs, gradients, and the dropout generators after the pass."""
    keras.utils.set_random_seed(3)
    encoder = fill(encoder_class(config)(config, **of_encoder), 1)
    inputs = encoder_inputs(config, rows=8)
    if packed:
        inputs["sequence_ids"] = PACKED.astype("int32")
        inputs["input_mask"] = np.minimum(inputs["sequence_ids"], 1)
        inputs["cls_positions"] = np.repeat([[0, 4, 7]], 8, axis=0)
    inputs = {k: tf.constant(v, tf.int32) for k, v in inputs.items()}

    @tf.function(autograph=False, jit_compile=jit_compile or None)
    def run(inputs: dict) -> list:
        return outputs_and_gradients(
            encoder, inputs, training=training, **arguments
        )

    with contextlib.nullcontext() if once else traced_each_time():
        results = run(inputs)
    return [numpy(v) for v in (*results, *encoder.non_trainable_variables)]


def assert_same_bits(config, arguments, **of_passes) -> None:
    plain = passes(config, False, arguments, **of_passes)
    once = passes(config, True, arguments, **of_passes)
    assert len(once) == len(plain)
    for left, right in zip(once, plain, strict=True):
        np.testing.assert_array_equal(left, right)


def small(**changes):
    return small_config(num_hidden_layers=3, **DROPOUT, **changes)


@pytest.mark.parametrize("unpadded", [False, True], ids=["padded", "unpadded"])
@pytest.mark.parametrize("name", ["albert", "electra", "modernbert"])
def test_architectures(name, unpadded) -> None:
    """Shared blocks, factorized embeddings, and two kinds of layers."""
    config = CASES[name].config(
        num_hidden_layers=4, hidden_size=24, num_attention_heads=3
    )
    arguments = {"unpadded": unpadded, "pooled_only": True}
    assert_same_bits(config, arguments)


@pytest.mark.parametrize(
    ("arguments", "of_passes"),
    [
        ({}, {}),
        pytest.param(
            UNPADDED,
            {},
            marks=pytest.mark.witness(
                "layers traced once are those traced one by one, to the bit"
            ),
        ),
        (UNPADDED, {"rematerialize": True}),
        ({}, {"rematerialize": True, "dtype": "mixed_bfloat16"}),
        (UNPADDED, {"dtype": "mixed_bfloat16"}),
        (UNPADDED, {"packed": True}),
        ({}, {"packed": True, "training": False}),
    ],
)
def test_modes(arguments, of_passes) -> None:
    """Dropout, of which generators keep count, included."""
    assert_same_bits(small(), arguments, **of_passes)


def test_all_layers_and_probabilities() -> None:
    """Gradients that several outputs add up to may round differently."""
    config = small_config(num_hidden_layers=3)
    plain, once = (passes(config, each, ALL) for each in (False, True))
    outputs = 2 + 3 + 1 + 3
    for left, right in zip(once[:outputs], plain[:outputs], strict=True):
        np.testing.assert_array_equal(left, right)
    for left, right in zip(once, plain, strict=True):
        np.testing.assert_allclose(
            left, right, rtol=0, atol=1e-5 * np.abs(right).max()
        )


def test_frozen_kernels_have_no_gradient() -> None:
    """Those under low-rank updates; all others are the same bits."""
    config = small(lora_rank=2, lora_alpha=4.0)
    assert_same_bits(config, UNPADDED)

    encoder = BertEncoder(config)
    inputs = encoder_inputs(config, rows=8)

    @tf.function(autograph=False)
    def run() -> None:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(encoder(inputs)["sequence_output"])
        tape.gradient(total, [v.value for v in encoder.trainable_variables])

    graph = run.get_concrete_function().graph.as_graph_def()
    gradients = [
        len(function.signature.output_arg)
        for function in graph.library.function
        if "backward" in function.signature.name
    ]
    # Of the hidden states and of two updates; that of the mask is 0.
    assert max(gradients) == 1 + 2 * 2 + 1


def test_compiled_by_xla() -> None:
    config = small_config()
    assert_same_bits(config, {}, jit_compile=True)


def test_replicas() -> None:
    strategy = tf.distribute.MirroredStrategy(
        [device.name for device in tf.config.list_logical_devices("CPU")]
    )
    assert strategy.num_replicas_in_sync == 2
    config = small()
    inputs = {k: tf.constant(v) for k, v in encoder_inputs(config).items()}

    def outputs(once: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        with strategy.scope():
            encoder = fill(BertEncoder(config), 1)

        @tf.function(autograph=False)
        def run(inputs: dict):
            return strategy.run(encoder, (inputs,))["sequence_output"]

        with contextlib.nullcontext() if once else traced_each_time():
            return [numpy(v) for v in run(inputs).values]

    for left, right in zip(outputs(True), outputs(False), strict=True):
        np.testing.assert_array_equal(left, right)


def test_more_layers_add_few_operations() -> None:
    def operations(layers: int) -> int:
        encoder = BertEncoder(small_config(num_hidden_layers=layers))
        traced = tf.function(
            lambda inputs: encoder(inputs, unpadded=True), autograph=False
        )
        inputs = encoder_inputs(encoder.config, rows=8)
        definition = traced.get_concrete_function(inputs).graph.as_graph_def()
        functions = definition.library.function
        return len(definition.node) + sum(len(f.node_def) for f in functions)

    # A call and the reading of sixteen weights, each a node and an input.
    assert operations(12) - operations(2) < 10 * 40
