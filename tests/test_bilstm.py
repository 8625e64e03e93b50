"""A BiLSTM on top of the encoder: parity, padding, folders, what refuses it."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from model_helpers import (
    encoder_inputs,
    fill,
    gradients_in_every_form,
    numpy,
    small_config,
)
from reference_bert import ReferenceBert

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.inference.embed import embed
from bert_tf.layers import BiLSTM
from bert_tf.models import restore
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.run_folder import digest
from tests.families.pretrained.extraction_models import (
    alone,
    small_encoder,
    small_tokenizer,
    some_texts,
)
from tests.hugging_face_models import TOKENS, random_arrays, tiny_config
from tests.inference.serving_models import ask

WAYS = [{}, {"unpadded": True}]
KERNEL = "bert/bilstm/backward/recurrent_kernel"


def made(**changes) -> BertEncoder:
    config = small_config(bilstm=True, **changes)
    return fill(BertEncoder(config), scale=0.2)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("causal", [False, True])
def test_outputs_are_the_reference(causal, how) -> None:
    encoder = made(causal=causal)
    inputs = encoder_inputs(encoder.config, rows=5)
    reference = ReferenceBert(encoder.config, encoder.to_arrays())(inputs)
    outputs = encoder(inputs, return_all_layers=True, **how)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(
            numpy(outputs[name]), reference[name], atol=1e-5
        )
        assert np.abs(reference[name]).max() > 0.1
    real = inputs["input_mask"] == 1
    np.testing.assert_allclose(
        numpy(outputs["all_encoder_layers"][-1])[real],
        reference["all_encoder_layers"][-1][real],
        atol=1e-5,
    )
    alone = encoder(inputs, pooled_only=True, **how)
    assert set(alone) == {"pooled_output"}
    np.testing.assert_allclose(
        numpy(alone["pooled_output"]), reference["pooled_output"], atol=1e-5
    )


@pytest.mark.parametrize("how", WAYS)
def test_padding_is_not_read(how) -> None:
    encoder = made()
    inputs = encoder_inputs(encoder.config)
    real = inputs["input_mask"] == 1
    before = encoder(inputs, **how)
    others = np.where(real, inputs["input_ids"], 1)
    longer = {
        name: np.pad(value, [(0, 0), (0, 6)])
        for name, value in {**inputs, "input_ids": others}.items()
    }
    after = encoder(longer, **how)
    for name in before:
        left, right = numpy(before[name]), numpy(after[name])
        if name == "sequence_output":
            left, right = left[real], right[:, :10][real]
        np.testing.assert_allclose(left, right, atol=1e-6)


def test_each_direction_sees_its_own_side() -> None:
    layer = BiLSTM(small_config(bilstm=True))
    layer.build()
    fill(layer)
    hidden = np.random.default_rng(2).normal(size=(1, 6, 24)).astype("float32")
    mask = np.int32([[1, 1, 1, 1, 0, 0]])
    other = hidden.copy()
    other[0, 2] += 1
    tokens, ends = (
        np.abs(numpy(left) - numpy(right)).max(axis=0)
        for left, right in zip(
            layer(hidden, mask), layer(other, mask), strict=True
        )
    )
    forward = tokens[:, :12].max(axis=1) > 1e-4
    backward = tokens[:, 12:].max(axis=1) > 1e-4
    np.testing.assert_array_equal(forward, [0, 0, 1, 1, 0, 0])
    np.testing.assert_array_equal(backward, [1, 1, 1, 0, 0, 0])
    assert ends.min() > 0


def test_new_ones_are_drawn() -> None:
    kernels = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        layer = BiLSTM(small_config(bilstm=True))
        layer.build()
        for lstm in layer.directions:
            kernel = numpy(lstm.cell.recurrent_kernel)
            np.testing.assert_allclose(kernel @ kernel.T, np.eye(12), atol=1e-5)
            bias = numpy(lstm.cell.bias)
            np.testing.assert_array_equal(bias, np.repeat([0, 1, 0, 0], 12))
            kernels.append(kernel)
    np.testing.assert_array_equal(kernels[0], kernels[2])
    for other in (kernels[1], kernels[4]):
        assert np.abs(kernels[0] - other).max() > 0.1


def test_gradients_in_every_form() -> None:
    gradients_in_every_form(small_config(bilstm=True))


def test_rows_of_several_sequences_are_refused() -> None:
    encoder = made()
    inputs = encoder_inputs(encoder.config)
    inputs["sequence_ids"] = inputs["input_mask"]
    with pytest.raises(UserError, match="sequence_ids do not go with a BiL"):
        encoder(inputs)
    with pytest.raises(UserError, match="hidden_size is 3; it takes an even"):
        BertConfig(7, hidden_size=3, num_attention_heads=1, bilstm=True)


def test_models_without_one_are_written_as_before(tmp_path) -> None:
    """Digests and bytes of the version before there was one."""
    config = BertConfig.from_size("tiny", 100)
    assert digest(config.to_dict()) == (
        "b413eac5fa61c3a7eaa38242a46a0151043d6da1bd4fe5670a0b794b41aab630"
    )
    config.save(tmp_path / "bert_config.json")
    text = (tmp_path / "bert_config.json").read_text()
    assert text.endswith('"causal": false\n}\n')
    assert "bilstm" not in text
    with_one = dataclasses.replace(config, bilstm=True)
    with_one.save(tmp_path / "with_one.json")
    assert BertConfig.from_json(tmp_path / "with_one.json") == with_one
    assert digest(with_one.to_dict()) != digest(config.to_dict())


def test_folders(tmp_path, capfd) -> None:
    encoder = made()
    checkpoint = Checkpoint(encoder.config, encoder.to_arrays())
    save_checkpoint(tmp_path / "model", checkpoint)
    loaded = load_checkpoint(tmp_path / "model")
    assert loaded.heads == ("pooler", "bilstm")
    again = BertEncoder.from_checkpoint(tmp_path / "model")
    for name, value in again.to_arrays().items():
        np.testing.assert_array_equal(value, checkpoint.arrays[name])
    assert capfd.readouterr().err == ""
    # A model without one starts with one that is drawn, and says so.
    plain = BertEncoder(small_config())
    save_checkpoint(
        tmp_path / "plain", Checkpoint(plain.config, plain.to_arrays())
    )
    before = again.to_arrays()[KERNEL]
    assert restore(again, tmp_path / "plain") == ("bilstm",)
    assert capfd.readouterr().err.endswith(
        "has no bilstm; initialized randomly.\n"
    )
    np.testing.assert_array_equal(again.to_arrays()[KERNEL], before)
    assert restore(again, loaded, fresh=["bilstm"]) == ("bilstm",)
    assert capfd.readouterr().err == ""
    # The other way round it would be another computation.
    with pytest.raises(UserError, match="bilstm is True, and False in the"):
        restore(plain, loaded)
    for to in ("google_tf1", "hugging_face"):
        with pytest.raises(UserError, match=f"{to} has no place for a BiLSTM"):
            save_checkpoint(tmp_path / to, checkpoint, to)
        assert not (tmp_path / to).exists()
    arrays = dict(checkpoint.arrays)
    del arrays[KERNEL]
    with pytest.raises(UserError, match=f"missing: {KERNEL}"):
        save_checkpoint(
            tmp_path / "part", dataclasses.replace(checkpoint, arrays=arrays)
        )
    path = tmp_path / "model" / "bert_config.json"
    values = json.loads(path.read_text())
    del values["bilstm"]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="unexpected: bert/bilstm/backward/"):
        load_checkpoint(tmp_path / "model")


@pytest.mark.parametrize("causal", [False, True])
def test_a_conversion_is_proved(causal, tmp_path) -> None:
    config = tiny_config(causal=causal, bilstm=True)
    heads = ("pooler", "classifier", "span", "bilstm")
    source, target = tmp_path / "source", tmp_path / "target"
    save_checkpoint(
        source,
        Checkpoint(
            config, random_arrays(config, heads), Vocabulary(TOKENS), True
        ),
    )
    fewer = tmp_path / "vocab.txt"
    fewer.write_text("\n".join([*SPECIAL_TOKENS, "vu", "élan", "new", "a"]))
    report = convert_checkpoint(
        source,
        "bert_tf",
        target,
        vocab_file=fewer,
        max_position_embeddings=9,
    )
    assert {c.output for c in report.comparisons} == {
        *("sequence_output", "pooled_output"),
        *("classifier_logits", "span_logits"),
    }
    assert load_checkpoint(target).config.bilstm
    with pytest.raises(UserError, match="`drop_heads`=bilstm: all other"):
        convert_checkpoint(
            source, "bert_tf", tmp_path / "other", drop_heads=["bilstm"]
        )


def test_vectors_are_of_the_blocks(tmp_path) -> None:
    encoder, tokenizer = small_encoder(bilstm=True), small_tokenizer()
    texts = some_texts(12)
    each = [alone(encoder, tokenizer, text) for text in texts]
    pair = (encoder, tokenizer)
    served = PretrainedModel(encoder, tokenizer).signatures()["embed"]
    answers = ask(served, text=texts)
    for pooling, of in (
        ("mean", lambda one: one["layers"][-1].mean(axis=0)),
        ("cls", lambda one: one["layers"][-1][0]),
        ("pooled", lambda one: one["pooled"]),
    ):
        wanted = np.stack([of(one) for one in each])
        found = embed(pair, texts, pooling=pooling)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        if pooling in answers:
            np.testing.assert_allclose(answers[pooling], wanted, atol=1e-5)
