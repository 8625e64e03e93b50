"""Whatever encoder is traced becomes a file that computes the same."""

import keras
import numpy as np
import pytest
from keras import ops

from bert_tf.encoders import BertEncoder
from bert_tf.layers import TransformerBlock
from bert_tf.runtimes import litert_file, onnx_file
from bert_tf.runtimes.graph import GELU, LAYER_NORM
from bert_tf.runtimes.tracing import trace
from tests.inference.model_folders import rows
from tests.model_helpers import fill, small_config
from tests.runtimes.test_onnx_export import assert_near
from tests.user_errors import error_of

LENGTH = 12


def config(**changes):
    sizes = {"vocab_size": 60, "max_position_embeddings": LENGTH}
    return small_config(**sizes | changes)


class PreNormBlock(TransformerBlock):
    """Normalises the inputs of sub-layers instead of their outputs."""

    def call(self, hidden, attention_bias, training=None, **options):
        context, probabilities = self.attention(
            self.attention_norm(hidden),
            attention_bias,
            training=training,
            **options,
        )
        hidden = hidden + self.attention_output(context)
        inner = ops.relu(self.intermediate(self.output_norm(hidden)))
        outer = self.output_dense(ops.square(inner) / (1 + ops.exp(-inner)))
        return hidden + outer, probabilities


class PreNormEncoder(BertEncoder):
    block_class = PreNormBlock


class SortingEncoder(BertEncoder):
    def call(self, inputs, **options):
        outputs = super().call(inputs, **options)
        sequence = outputs["sequence_output"]
        return {"sequence_output": ops.sort(sequence, axis=-1)}


class ErrorFunctionEncoder(BertEncoder):
    def call(self, inputs, **options):
        outputs = super().call(inputs, **options)
        return {"sequence_output": ops.erf(outputs["sequence_output"])}


def traced(encoder, shape):
    def outputs(inputs):
        found = encoder(inputs, training=False)
        return {"sequence_output": found["sequence_output"]}

    return outputs, trace(outputs, shape, "`folder`=mine")


@pytest.mark.parametrize(
    ("module", "shape"), [(onnx_file, (None, None)), (litert_file, (1, LENGTH))]
)
def test_an_encoder_of_another_kind(module, shape, tmp_path):
    encoder = fill(PreNormEncoder(config()), seed=3, scale=0.5)
    outputs, graph = traced(encoder, shape)
    path = tmp_path / module.FILE
    module.write_model(path, graph, "mine")
    inputs = rows(3, LENGTH)
    expected = {n: np.asarray(v) for n, v in outputs(inputs).items()}
    assert_near(module.Runner(path)(inputs), expected, inputs)


@pytest.mark.parametrize(
    ("encoder_class", "written", "words"),
    [
        (SortingEncoder, False, "computes TopKV2 ("),
        (ErrorFunctionEncoder, True, "computes Erf, which"),
    ],
)
def test_what_no_file_computes_is_refused(
    encoder_class, written, words, tmp_path
):
    encoder = encoder_class(config())
    if written:
        _, graph = traced(encoder, (1, LENGTH))
        given = tmp_path / "x", graph, "`folder`=mine"
        line = error_of(litert_file.write_model, *given)
    else:
        line = error_of(traced, encoder, (None, None))
    assert line.startswith(f"`folder`=mine: {words}")
    assert "saved_model" in line


def operations(graph):
    """How often the graph has each operation."""
    counts, waiting, seen = {}, [*graph.outputs.values()], set()
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            counts[value.operation] = counts.get(value.operation, 0) + 1
            waiting += value.inputs
    return counts


@pytest.mark.parametrize(
    ("shape", "hidden_act"), [((None, None), "gelu"), ((1, LENGTH), "gelu_erf")]
)
def test_a_block_is_few_operations(shape, hidden_act):
    encoder = BertEncoder(config(hidden_act=hidden_act))
    counts = operations(traced(encoder, shape)[1])
    blocks = encoder.config.num_hidden_layers
    assert counts[LAYER_NORM] == 2 * blocks + 1
    assert counts[GELU] == blocks
    # Queries, keys, values, scores, context and three dense layers.
    assert counts["MatMul"] == 8 * blocks
    # Six biases, two residuals and the mask; three embeddings.
    assert counts["Add"] == 9 * blocks + 2
    # Into heads thrice, and out of them.
    assert counts["Reshape"] == 4 * blocks + 1
    assert counts["Transpose"] == 4 * blocks


def test_attention_is_not_cut(monkeypatch):
    # As if a row's scores were more than a core's cache holds.
    monkeypatch.setattr("bert_tf.layers.attention._BLOCK_SCORES", 1)
    encoder = BertEncoder(config())
    assert "While" not in operations(traced(encoder, (None, None))[1])


@pytest.mark.parametrize("name", ["mine", "its"])
def test_layers_of_keras_are_traced(name, tmp_path):
    dense = keras.layers.Dense(3, activation="sigmoid")

    def outputs(inputs):
        kept = ops.cast(inputs["input_mask"], "float32")[..., None]
        return {name: dense(ops.concatenate([kept, kept * 2.0], -1))}

    path = tmp_path / "model.onnx"
    onnx_file.write_model(path, trace(outputs, (None, None), ""), "")
    inputs = rows(2, 5)
    found = onnx_file.Runner(path)(inputs)
    np.testing.assert_allclose(
        found[name], np.asarray(outputs(inputs)[name]), atol=1e-6
    )
