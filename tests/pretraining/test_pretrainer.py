"""The pre-training model: heads, losses at the start, learning, arrays."""

import keras
import pytest
import tensorflow as tf
from model_helpers import (
    encoder_inputs,
    fill,
    numpy,
    pretraining_batch,
    small_config,
)
from numpy.testing import assert_allclose
from reference_bert import ReferenceBert, pretraining_loss

from bert_tf.config import ACTIVATIONS
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.optimization import adamw
from bert_tf.pretraining.objective import (
    LeftToRightLanguageModeling,
    MaskedLanguageModeling,
    PretrainingObjective,
)
from bert_tf.pretraining.pretrainer import BertPretrainer


@pytest.mark.parametrize("hidden_act", ACTIVATIONS)
def test_every_output_is_the_reference(hidden_act) -> None:
    config = small_config(hidden_act=hidden_act)
    model = fill(BertPretrainer(config), scale=0.15)
    batch = pretraining_batch(config)
    outputs = model(batch)
    reference = ReferenceBert(config, model.to_arrays())(batch)
    assert set(outputs) == {
        "masked_lm_logits",
        "next_sentence_logits",
        "sequence_output",
        "pooled_output",
    }
    for name, value in outputs.items():
        assert_allclose(numpy(value), reference[name], atol=1e-5, err_msg=name)


def test_the_loss_is_the_reference_and_that_of_a_replica_its_share() -> None:
    config = small_config()
    batch = pretraining_batch(config, rows=5)
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        model = fill(BertPretrainer(config), scale=0.15)
        model.compile()
    whole = float(model.compute_loss(x=batch, y_pred=model(batch)))
    reference = ReferenceBert(config, model.to_arrays())(batch)
    expected = sum(pretraining_loss(reference, batch))
    assert_allclose(whole, expected, rtol=1e-5)
    shares = strategy.run(
        lambda: model.compute_loss(x=batch, y_pred=model(batch))
    )
    for share in strategy.experimental_local_results(shares):
        assert_allclose(2 * float(share), whole, rtol=1e-5)


def test_logits_are_float32_under_bfloat16() -> None:
    config = small_config()
    exact = fill(BertPretrainer(config), scale=0.1)
    model = BertPretrainer(config, dtype="mixed_bfloat16")
    model.load_arrays(exact.to_arrays())
    batch = pretraining_batch(config)
    outputs = model(batch)
    for name in ("masked_lm_logits", "next_sentence_logits"):
        dtype = keras.backend.standardize_dtype(outputs[name].dtype)
        assert dtype == "float32"
        assert_allclose(
            numpy(outputs[name]), numpy(exact(batch)[name]), atol=0.1
        )
    assert model.encoder.compute_dtype == "bfloat16"
    assert {w.dtype for w in model.weights} == {"float32"}


def test_eight_examples_are_learnt_by_heart() -> None:
    keras.utils.set_random_seed(1)
    config = small_config(hidden_size=48, intermediate_size=96)
    model = BertPretrainer(config)
    batch = pretraining_batch(config, rows=8, seed=4)
    data = tf.data.Dataset.from_tensors(batch).repeat(150)
    model.compile(optimizer=adamw(3e-3, total_steps=150))
    history = model.fit(data, verbose=0, shuffle=False).history
    assert history["loss"][0] > 0.1
    result = model.evaluate(data.take(1), verbose=0, return_dict=True)
    assert result["loss"] < 0.05
    assert result["masked_lm_accuracy"] == 1.0
    assert result["next_sentence_accuracy"] == 1.0


def test_fit_reports_the_weighted_accuracy() -> None:
    config = small_config()
    model = fill(BertPretrainer(config))
    batch = pretraining_batch(config, rows=6)
    model.compile(optimizer=adamw(1e-3, total_steps=10))
    cut = [{k: v[a:b] for k, v in batch.items()} for a, b in ((0, 2), (2, 6))]
    data = tf.data.Dataset.from_generator(
        lambda: cut,
        output_signature={
            k: tf.TensorSpec([None, *v.shape[1:]], v.dtype)
            for k, v in batch.items()
        },
    )
    with pytest.warns(UserWarning, match="ran out of data") as caught:
        result = model.evaluate(data, steps=3, verbose=0, return_dict=True)
    assert caught
    _, metrics = PretrainingObjective()(model(batch), batch)
    for name, (right, weight) in metrics.items():
        assert_allclose(result[name], float(right) / float(weight), rtol=1e-6)


def test_labels_of_another_shape() -> None:
    config = small_config()
    model, batch = fill(BertPretrainer(config)), pretraining_batch(config)
    batch["next_sentence_labels"] = batch["next_sentence_labels"][:, None]
    with pytest.raises(UserError, match=r"next_sentence_labels: .* \(\d, 1\)"):
        PretrainingObjective()(model(batch), batch)


def test_an_objective_that_does_not_fit() -> None:
    config = small_config()
    with pytest.raises(UserError, match="LeftToRight.* causal=True"):
        BertPretrainer(config, objective=LeftToRightLanguageModeling())
    # Its backward direction reads the tokens that are predicted.
    leaking = small_config(causal=True, bilstm=True)
    with pytest.raises(UserError, match="LeftToRight.* bilstm=False"):
        BertPretrainer(leaking, objective=LeftToRightLanguageModeling())
    batch = pretraining_batch(config)
    del batch["masked_lm_ids"], batch["next_sentence_labels"]
    for objective, missing in (
        (MaskedLanguageModeling(), "hold no masked_lm_ids."),
        (None, "hold no masked_lm_ids, next_sentence_labels."),
    ):
        model = BertPretrainer(config, objective=objective)
        model.compile()
        with pytest.raises(UserError, match=missing):
            model.compute_loss(x=batch, y_pred=model(batch))


def test_predict_needs_no_labels() -> None:
    config = small_config()
    model = fill(BertPretrainer(config))
    batch = pretraining_batch(config)
    inputs = {
        k: v
        for k, v in batch.items()
        if k.startswith("input") or k in ("segment_ids", "masked_lm_positions")
    }
    predicted = model.predict(inputs, verbose=0)
    assert_allclose(
        predicted["masked_lm_logits"],
        numpy(model(batch)["masked_lm_logits"]),
        atol=1e-5,
    )


def test_a_missing_input_is_named() -> None:
    config = small_config()
    with pytest.raises(UserError, match="missing input masked_lm_positions"):
        BertPretrainer(config)(encoder_inputs(config))


def test_arrays_have_googles_names_and_shapes() -> None:
    model = BertPretrainer(small_config())
    heads = {
        name: value.shape
        for name, value in model.to_arrays().items()
        if name.startswith("cls/")
    }
    assert heads == {
        "cls/predictions/transform/dense/kernel": (24, 24),
        "cls/predictions/transform/dense/bias": (24,),
        "cls/predictions/transform/LayerNorm/gamma": (24,),
        "cls/predictions/transform/LayerNorm/beta": (24,),
        "cls/predictions/output_bias": (41,),
        "cls/seq_relationship/output_weights": (2, 24),
        "cls/seq_relationship/output_bias": (2,),
    }
    assert set(model.encoder.to_arrays()) == set(model.to_arrays()) - set(heads)


def test_an_encoder_alone_does_not_fit_the_heads() -> None:
    model = BertPretrainer(small_config())
    with pytest.raises(UserError, match="missing: cls/predictions/output_bias"):
        model.load_arrays(model.encoder.to_arrays())


def test_heads_are_put_on_a_given_encoder() -> None:
    config = small_config()
    encoder = fill(BertEncoder(config, dtype="mixed_bfloat16"))
    model = BertPretrainer(encoder)
    assert model.encoder is encoder
    assert model.config is encoder.config
    assert model.masked_lm.compute_dtype == "bfloat16"
