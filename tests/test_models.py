"""The classifier: an ordinary Keras model."""

import keras
import numpy as np
import pytest
from model_helpers import encoder_inputs, fill, numpy, small_config

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.checkpoints.array_file import read_arrays, write_arrays
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
    model_arrays,
    restore,
)

MAKERS = {
    "classifier": lambda encoder: bert_classifier(encoder, 4),
    "token_classifier": lambda encoder: bert_token_classifier(encoder, 4),
    "span": bert_span_labeler,
    "multiple_choice": bert_multiple_choice,
    "masked_lm": bert_tf.BertPretrainer,
}


@pytest.mark.parametrize("head", ["classifier", "token_classifier", "span"])
def test_logits_are_a_linear_map_of_what_the_head_is_on(head) -> None:
    config = small_config()
    encoder = BertEncoder(config)
    model = fill(MAKERS[head](encoder))
    inputs = encoder_inputs(config)
    on = "pooled_output" if head == "classifier" else "sequence_output"
    name = {
        "classifier": "",
        "token_classifier": "cls/token_classification/",
        "span": "cls/squad/",
    }[head]
    arrays = model_arrays(model)
    expected = numpy(encoder(inputs)[on]) @ arrays[f"{name}output_weights"].T
    expected += arrays[f"{name}output_bias"]
    logits = model(inputs)
    if head == "span":
        logits = np.stack(
            [numpy(logits[f"{end}_logits"]) for end in ("start", "end")], -1
        )
    np.testing.assert_allclose(numpy(logits), expected, atol=1e-5)


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


def test_choices_are_scored_one_by_one() -> None:
    config = small_config()
    encoder = BertEncoder(config)
    model = fill(bert_multiple_choice(encoder))
    arrays = model_arrays(model)
    for choices in (2, 3):
        flat = encoder_inputs(config, rows=2 * choices)
        inputs = {k: v.reshape(2, choices, 10) for k, v in flat.items()}
        pooled = numpy(encoder(flat)["pooled_output"])
        expected = pooled @ arrays["cls/multiple_choice/output_weights"][0]
        expected += arrays["cls/multiple_choice/output_bias"]
        np.testing.assert_allclose(
            numpy(model(inputs)), expected.reshape(2, choices), atol=1e-5
        )


@pytest.mark.parametrize("head", MAKERS)
def test_a_model_comes_back_from_its_folder(head, tmp_path, capfd) -> None:
    config = small_config(hidden_act="gelu_erf", layer_norm_eps=1e-5)
    model = fill(MAKERS[head](BertEncoder(config)), seed=3)
    save_checkpoint(tmp_path, Checkpoint(config, model_arrays(model)))
    assert head in load_checkpoint(tmp_path).heads
    again = MAKERS[head](BertEncoder.from_checkpoint(tmp_path))
    message = capfd.readouterr().err
    if head == "masked_lm":
        assert message == ""
    else:
        assert message.startswith(
            f"{tmp_path}: its {head} is left out; restore("
        )
        assert message.count("\n") == 1
    assert restore(again, tmp_path) == ()
    assert capfd.readouterr().err == ""
    for name, array in model_arrays(again).items():
        np.testing.assert_array_equal(array, model_arrays(model)[name])


def test_a_new_head_is_told_in_one_line(tmp_path, capfd) -> None:
    config = small_config()
    pretrained = fill(bert_tf.BertPretrainer(config))
    save_checkpoint(tmp_path, Checkpoint(config, pretrained.to_arrays()))
    model = fill(bert_classifier(BertEncoder(config), 3), seed=5)
    before = model_arrays(model)
    assert restore(model, str(tmp_path)) == ("classifier",)
    assert capfd.readouterr().err == (
        f"{tmp_path}: has no classifier; initialized randomly.\n"
    )
    after = model_arrays(model)
    np.testing.assert_array_equal(
        after["output_weights"], before["output_weights"]
    )
    for name, array in pretrained.encoder.to_arrays().items():
        np.testing.assert_array_equal(after[name], array)
    # Without a pooler, as some task models of other libraries come.
    encoder = {k: v for k, v in after.items() if k.startswith("bert/")}
    arrays = {k: v for k, v in encoder.items() if "pooler" not in k}
    save_checkpoint(tmp_path, Checkpoint(config, arrays))
    BertEncoder.from_checkpoint(tmp_path)
    message = "has no pooler; initialized randomly."
    assert capfd.readouterr().err == f"{tmp_path}: {message}\n"
    bert_tf.BertPretrainer.from_checkpoint(tmp_path)
    message = (
        "has no pooler and no masked_lm and no next_sentence; initialized "
        "randomly."
    )
    assert capfd.readouterr().err == f"{tmp_path}: {message}\n"


def test_a_head_for_other_labels(capfd) -> None:
    config = small_config()
    trained = fill(bert_classifier(BertEncoder(config), 3))
    checkpoint = Checkpoint(config, model_arrays(trained))
    model = fill(bert_classifier(BertEncoder(config), 2), seed=1)
    before = model_arrays(model)
    with pytest.raises(UserError, match=r"output_weights is \(3, 24\) where"):
        restore(model, checkpoint)
    for name, array in model_arrays(model).items():
        np.testing.assert_array_equal(array, before[name])
    assert restore(model, checkpoint, fresh=["classifier"]) == ("classifier",)
    assert capfd.readouterr().err == ""
    with pytest.raises(UserError, match="unknown head 'clasifier'"):
        restore(model, checkpoint, fresh=["clasifier"])


def test_a_head_is_placed_by_the_names_of_its_labels(capfd) -> None:
    config = small_config()
    trained = fill(bert_classifier(BertEncoder(config), 3))
    checkpoint = Checkpoint(
        config, model_arrays(trained), labels=("b", "c", "a")
    )
    model = fill(bert_classifier(BertEncoder(config), 3), seed=1)
    drawn = model_arrays(model)["output_weights"]
    for labels, fresh, weights in (
        (["a", "b", "d"], ("classifier",), drawn),
        (["a", "b", "c"], (), checkpoint.arrays["output_weights"][[2, 0, 1]]),
    ):
        assert restore(model, checkpoint, labels=labels) == fresh
        found = model_arrays(model)["output_weights"]
        np.testing.assert_array_equal(found, weights)
    assert capfd.readouterr().err.count("only in the data: 'd'") == 1
    for labels in (["a", "b"], ["a", "b", "c", "d"]):
        with pytest.raises(UserError, match=f"names {len(labels)} outputs"):
            restore(model, checkpoint, labels=labels)
    with pytest.raises(UserError, match="has no classifier; name each"):
        restore(BertEncoder(config), checkpoint, labels=["a", "b", "c"])


def test_models_that_compute_otherwise_are_refused() -> None:
    arrays = model_arrays(fill(BertEncoder(small_config())))
    for change in (
        {"hidden_act": "gelu_erf"},
        {"layer_norm_eps": 1e-5},
        {"num_attention_heads": 2},
        {"causal": True},
    ):
        checkpoint = Checkpoint(small_config(**change), arrays)
        with pytest.raises(UserError, match=f"{next(iter(change))} is"):
            restore(BertEncoder(small_config()), checkpoint)


def test_a_model_without_an_encoder_is_refused() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    checkpoint = Checkpoint(small_config(), {})
    with pytest.raises(UserError, match="has 0 BertEncoders"):
        restore(model, checkpoint)
    with pytest.raises(UserError, match="takes a BertEncoder"):
        bert_classifier(model, 2)


def test_a_masked_lm_head_of_other_forms_is_refused(tmp_path, capfd) -> None:
    forms = {"masked_lm_act": "gelu_erf", "masked_lm_layer_norm_eps": 1e-5}
    config = small_config(**forms)
    trained = fill(bert_tf.BertPretrainer(config))
    save_checkpoint(tmp_path, Checkpoint(config, trained.to_arrays()))
    plain = fill(bert_tf.BertPretrainer(small_config()), seed=1)
    before = plain.to_arrays()
    for key, value in forms.items():
        own = {name: form for name, form in forms.items() if name != key}
        model = bert_tf.BertPretrainer(small_config(**own))
        with pytest.raises(UserError, match=f"{key} is {value!r}, and"):
            restore(model, tmp_path)
    with pytest.raises(UserError, match="masked_lm_act") as error:
        restore(plain, tmp_path)
    assert "\n" not in str(error.value)
    for name, array in plain.to_arrays().items():
        np.testing.assert_array_equal(array, before[name])
    # The same forms by another name, and models that do not compute them.
    same = small_config(masked_lm_act="gelu", masked_lm_layer_norm_eps=1e-12)
    stored = Checkpoint(plain.config, before)
    assert restore(bert_tf.BertPretrainer(same), stored) == ()
    assert restore(plain, tmp_path, fresh=["masked_lm"]) == ("masked_lm",)
    restore(bert_classifier(BertEncoder(small_config()), 2), tmp_path)
    assert capfd.readouterr().err.count("\n") == 1
    equal = bert_tf.BertPretrainer(config)
    assert restore(equal, tmp_path) == ()


@pytest.mark.parametrize(
    ("family", "file", "name", "value"),
    [
        (
            "bert_tf",
            "bert_model.safetensors",
            "bert/encoder/layer_1/output/dense/kernel",
            np.nan,
        ),
        (
            "hugging_face",
            "model.safetensors",
            "bert.encoder.layer.1.output.dense.weight",
            -np.inf,
        ),
    ],
)
def test_weights_that_are_not_finite_are_refused(
    family, file, name, value, tmp_path
) -> None:
    model = fill(bert_tf.BertPretrainer(small_config()))
    checkpoint = Checkpoint(model.config, model.to_arrays())
    save_checkpoint(tmp_path / "folder", checkpoint, to=family)
    arrays = read_arrays(tmp_path / "folder" / file)
    arrays[name][0, 1] = value
    write_arrays(tmp_path / "folder" / file, arrays)
    opened = load_checkpoint(tmp_path / "folder")
    for load in (
        lambda: BertEncoder.from_checkpoint(tmp_path / "folder"),
        lambda: bert_tf.BertPretrainer.from_checkpoint(tmp_path / "folder"),
        lambda: restore(model, tmp_path / "folder"),
        lambda: dict(opened.arrays),
    ):
        with pytest.raises(UserError, match="not finite") as error:
            load()
        assert "\n" not in str(error.value)
        assert f"{name} holds" in str(error.value)
        assert str(tmp_path / "folder") in str(error.value)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_folder_opened_in_16_bits(dtype, tmp_path) -> None:
    config = small_config()
    model = fill(bert_tf.BertPretrainer(config), scale=0.2)
    save_checkpoint(tmp_path, Checkpoint(config, model.to_arrays()))
    encoder = BertEncoder.from_checkpoint(tmp_path, dtype=dtype)
    assert {w.dtype for w in encoder.weights} == {dtype}
    for name, array in encoder.to_arrays().items():
        exact = model.encoder.to_arrays()[name]
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, exact, rtol=2**-8, atol=1e-7)
    inputs = encoder_inputs(config)
    for how in ({}, {"pooled_only": True}, {"unpadded": True}):
        pooled = encoder(inputs, **how)["pooled_output"]
        assert keras.backend.standardize_dtype(pooled.dtype) == dtype
        exact = numpy(model.encoder(inputs)["pooled_output"])
        np.testing.assert_allclose(numpy(pooled), exact, atol=0.05)
    restore(bert_classifier(encoder, 2), tmp_path)
    assert bert_tf.BertPretrainer.from_checkpoint(tmp_path, dtype)
