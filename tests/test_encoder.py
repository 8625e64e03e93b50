"""The encoder: parity, packing, masks, sensitivity, precision, arrays."""

import keras
import numpy as np
import pytest
from model_helpers import encoder_inputs, fill, numpy, small_config
from reference_bert import ReferenceBert

from bert_tf.config import ACTIVATIONS
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError

# What changes the computation of an encoder.
VARIANTS = {
    **{act: {"hidden_act": act, "type_vocab_size": 3} for act in ACTIVATIONS},
    "causal": {"causal": True},
    "BiLSTM": {"bilstm": True},
    "causal BiLSTM": {"bilstm": True, "causal": True},
    # 24 is no multiple of 5; 2 * 8 and 5 * 7 lie below and above it.
    "narrow heads": {"num_attention_heads": 2, "attention_head_size": 8},
    "wide heads": {"num_attention_heads": 5, "attention_head_size": 7},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_output_is_the_reference(variant) -> None:
    """With padding and without, and where only the pooled output is asked."""
    config = small_config(**VARIANTS[variant])
    encoder = fill(BertEncoder(config), scale=0.15)
    inputs = encoder_inputs(config, rows=5)
    real = inputs["input_mask"] == 1
    reference = ReferenceBert(config, encoder.to_arrays())(inputs)
    outputs = encoder(
        inputs, return_all_layers=True, return_attention_probs=True
    )
    unpadded = encoder(inputs, return_all_layers=True, unpadded=True)
    assert set(encoder(inputs)) == {"sequence_output", "pooled_output"}
    assert set(outputs) == set(reference)
    assert set(unpadded) == set(reference) - {"attention_probs"}
    for name, expected in reference.items():
        expected = keras.tree.flatten(expected)
        ours = keras.tree.flatten(outputs[name])
        for left, right in zip(ours, expected, strict=True):
            assert np.abs(right).max() > 0.1
            np.testing.assert_allclose(numpy(left), right, atol=1e-5)
        if name in unpadded:
            ours = keras.tree.flatten(unpadded[name])
            for left, right in zip(ours, expected, strict=True):
                left = numpy(left)
                if name != "pooled_output":
                    left, right = left[real], right[real]
                np.testing.assert_allclose(left, right, atol=1e-5)
    for without_padding in (False, True):
        pooled = encoder(inputs, pooled_only=True, unpadded=without_padding)
        assert set(pooled) == {"pooled_output"}
        np.testing.assert_allclose(
            numpy(pooled["pooled_output"]),
            reference["pooled_output"],
            atol=1e-5,
        )


def test_words_given_as_embeddings() -> None:
    config = small_config()
    encoder = fill(BertEncoder(config))
    inputs = encoder_inputs(config)
    table = numpy(encoder.embeddings.word_table)
    rows = table[inputs["input_ids"]]
    expected = encoder(inputs, return_attention_probs=True)
    # The ids are not looked up then.
    others = {**inputs, "input_ids": 0 * inputs["input_ids"]}
    for name, given in (
        ("rows", encoder({**others, "word_embeddings": rows})),
        ("no rows", encoder({**others, "word_embeddings": 0 * rows})),
    ):
        for output, value in given.items():
            same = np.array_equal(numpy(value), numpy(expected[output]))
            assert same == (name == "rows")
    short = {**inputs, "word_embeddings": rows[..., :-1]}
    with pytest.raises(UserError, match=r"\(3, 10, 23\)"):
        encoder(short)
    with pytest.raises(UserError, match="unpadded .* word_emb"):
        encoder({**inputs, "word_embeddings": rows}, unpadded=True)


@pytest.mark.parametrize("how", [{}, {"unpadded": True}])
@pytest.mark.parametrize("bilstm", [False, True])
def test_what_is_padded_changes_nothing(bilstm, how) -> None:
    config = small_config(bilstm=bilstm)
    encoder = fill(BertEncoder(config))
    inputs = encoder_inputs(config)
    real = inputs["input_mask"].astype(bool)
    before = encoder(inputs, **how)
    others = {
        name: np.where(real, inputs[name], 1 - inputs[name] % 2)
        for name in ("input_ids", "segment_ids")
    }
    longer = {
        name: np.pad(value, [(0, 0), (0, 6)])
        for name, value in {**inputs, **others}.items()
    }
    after = encoder(longer, **how)
    np.testing.assert_allclose(
        numpy(before["pooled_output"]), numpy(after["pooled_output"]), atol=1e-5
    )
    left, right = (numpy(x["sequence_output"])[:, :10] for x in (before, after))
    np.testing.assert_allclose(left[real], right[real], atol=1e-5)


def test_dropout_can_be_repeated() -> None:
    config = small_config(hidden_dropout_prob=0.2)
    inputs = encoder_inputs(config)
    outputs = []
    for _ in range(2):
        keras.utils.set_random_seed(11)
        encoder = BertEncoder(config)
        outputs.append(
            [numpy(encoder(inputs, training=True)["pooled_output"])]
            + [numpy(encoder(inputs, training=True)["pooled_output"])]
        )
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert np.abs(outputs[0][0] - outputs[0][1]).max() > 1e-4


def test_arrays_that_do_not_fit_change_nothing() -> None:
    encoder = fill(BertEncoder(small_config()))
    before = encoder.to_arrays()
    # Those of heads are left alone.
    encoder.load_arrays({**before, "cls/predictions/output_bias": np.ones(3)})
    arrays = {k: v + 1 for k, v in before.items()}
    del arrays["bert/pooler/dense/bias"]
    arrays["bert/pooler/dense/offset"] = np.ones(2)
    arrays["bert/embeddings/word_embeddings"] = np.ones((30, 24))
    with pytest.raises(UserError) as caught:
        encoder.load_arrays(arrays)
    message = str(caught.value)
    assert "missing: bert/pooler/dense/bias" in message
    assert "unexpected: bert/pooler/dense/offset" in message
    assert "word_embeddings is (30, 24) where the model has (41, 24)" in message
    for name, value in encoder.to_arrays().items():
        np.testing.assert_array_equal(value, before[name])


def test_inside_a_functional_model_with_unknown_length() -> None:
    config = small_config()
    encoder = fill(BertEncoder(config))
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    outputs = encoder(
        inputs, return_all_layers=True, return_attention_probs=True
    )
    model = keras.Model(inputs, outputs)
    for length in (6, 9):
        batch = encoder_inputs(config, length=length)
        direct = encoder(
            batch, return_all_layers=True, return_attention_probs=True
        )
        result = model(batch)
        assert set(result) == set(outputs)
        for ours, through, symbol in zip(
            keras.tree.flatten(direct),
            keras.tree.flatten(result),
            keras.tree.flatten(outputs),
            strict=True,
        ):
            np.testing.assert_array_equal(numpy(ours), numpy(through))
            assert len(symbol.shape) == len(ours.shape)
            for fixed, real in zip(symbol.shape, ours.shape, strict=True):
                assert fixed in (None, real)
            assert symbol.dtype == keras.backend.standardize_dtype(ours.dtype)


def test_a_missing_input_is_named() -> None:
    config = small_config()
    inputs = encoder_inputs(config)
    del inputs["segment_ids"]
    with pytest.raises(UserError, match="missing input segment_ids"):
        BertEncoder(config)(inputs)
    with pytest.raises(UserError, match="the inputs are a ndarray") as caught:
        BertEncoder(config)(inputs["input_ids"])
    assert "\n" not in str(caught.value)


def test_a_layer_of_a_model_refuses_a_sequence_that_is_too_long() -> None:
    """Of arrays, see `contracts/test_architectures.py`."""
    config = small_config()
    inputs = {
        name: keras.Input((21,), dtype="int32")
        for name in encoder_inputs(config)
    }
    with pytest.raises(UserError, match="21 positions, .* 20"):
        BertEncoder(config)(inputs)
