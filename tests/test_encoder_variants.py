"""BiLSTMs, causal models and heads of other widths, in an encoder and files.

Their outputs are compared with the reference in `test_encoder.py`.
"""

import dataclasses
import json

import keras
import numpy as np
import pytest
from model_helpers import (
    assert_computes,
    encoder_inputs,
    fill,
    gradients_in_every_form,
    numpy,
    small_config,
)
from reference_bert import ReferenceBert

from bert_tf.checkpoints import (
    CLASSIFIER,
    MASKED_LM,
    POOLER,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.inference.embed import embed
from bert_tf.layers import BiLSTM
from bert_tf.models import bert_classifier, model_arrays, restore
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
from tests.user_errors import error_of

KERNEL = "bert/bilstm/backward/recurrent_kernel"


def checkpoint_of(config: BertConfig, **arguments) -> Checkpoint:
    arrays = fill(BertEncoder(config), scale=0.15).to_arrays()
    return Checkpoint(config, arrays, **arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"bilstm": True},
        {"classifier_pooling": "mean"},
        {
            "num_attention_heads": 2,
            "attention_head_size": 8,
            "lora_rank": 3,
            "lora_on": "all_dense",
        },
    ],
    ids=["bilstm", "mean", "narrow heads with LoRA"],
)
def test_gradients_in_every_form(changes) -> None:
    config = small_config(num_hidden_layers=1, **changes)
    found = gradients_in_every_form(config)
    if "lora_rank" in changes:
        shapes = {gradient.shape for gradient in found}
        assert {(24, 3), (3, 16), (16, 3)} <= shapes
        # Two matrices of six kernels, and the pooler.
        assert len(found) == 2 * 6 + 2


@pytest.mark.parametrize("variant", ["bilstm", "causal"])
def test_vectors_of_texts(variant, eagerly) -> None:
    """Of the blocks below a BiLSTM, and of a causal model's last token."""
    pair = small_encoder(**{variant: True}), small_tokenizer()
    texts = some_texts(6)
    each = [alone(*pair, text) for text in texts]
    place = -1 if variant == "causal" else 0
    for pooling, vector in (
        ("mean", lambda one: one["layers"][-1].mean(axis=0)),
        ("cls", lambda one: one["layers"][-1][place]),
        ("pooled", lambda one: one["pooled"]),
    ):
        expected = np.stack([vector(one) for one in each])
        found = embed(pair, texts, pooling=pooling)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_lstms_are_initialized_as_by_keras() -> None:
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


def test_what_a_bilstm_excludes() -> None:
    encoder = BertEncoder(small_config(bilstm=True))
    inputs = encoder_inputs(encoder.config)
    inputs["sequence_ids"] = inputs["input_mask"]
    assert "sequence_ids" in error_of(encoder, inputs)
    with pytest.raises(UserError, match="hidden_size is 3"):
        BertConfig(7, hidden_size=3, num_attention_heads=1, bilstm=True)


def test_models_of_the_usual_form_are_written_as_ever(tmp_path) -> None:
    """Digests and bytes of the version before there were variants."""
    config = BertConfig.from_size("tiny", 100)
    assert digest(config.to_dict()) == (
        "b413eac5fa61c3a7eaa38242a46a0151043d6da1bd4fe5670a0b794b41aab630"
    )
    config.save(tmp_path / "bert_config.json")
    text = (tmp_path / "bert_config.json").read_text()
    assert text.endswith('"causal": false\n}\n')
    for changes in (
        {"bilstm": True},
        {"attention_head_size": 64},
        {"classifier_pooling": "mean"},
    ):
        variant = dataclasses.replace(config, **changes)
        assert variant.to_dict() == config.to_dict() | changes
        variant.save(tmp_path / "variant.json")
        assert BertConfig.from_json(tmp_path / "variant.json") == variant
        assert digest(variant.to_dict()) != digest(config.to_dict())


def test_folders_of_a_bilstm(tmp_path, capfd) -> None:
    checkpoint = checkpoint_of(small_config(bilstm=True))
    save_checkpoint(tmp_path / "model", checkpoint)
    loaded = load_checkpoint(tmp_path / "model")
    assert loaded.heads == ("pooler", "bilstm")
    again = BertEncoder.from_checkpoint(tmp_path / "model")
    for name, value in again.to_arrays().items():
        np.testing.assert_array_equal(value, checkpoint.arrays[name])
    assert capfd.readouterr().err == ""
    # A checkpoint without a BiLSTM leaves it as initialized, with a message.
    plain = BertEncoder(small_config())
    save_checkpoint(
        tmp_path / "plain", Checkpoint(plain.config, plain.to_arrays())
    )
    before = again.to_arrays()[KERNEL]
    assert restore(again, tmp_path / "plain") == ("bilstm",)
    assert "has no bilstm; initialized" in capfd.readouterr().err
    np.testing.assert_array_equal(again.to_arrays()[KERNEL], before)
    assert restore(again, loaded, fresh=["bilstm"]) == ("bilstm",)
    assert capfd.readouterr().err == ""
    # The other way round it would be another computation.
    assert "bilstm is True, and False in the" in error_of(
        restore, plain, loaded
    )
    for to in ("google_tf1", "hugging_face"):
        line = error_of(save_checkpoint, tmp_path / to, checkpoint, to)
        assert f"{to} has no place for a BiLSTM" in line
        assert not (tmp_path / to).exists()
    arrays = dict(checkpoint.arrays)
    del arrays[KERNEL]
    part = dataclasses.replace(checkpoint, arrays=arrays)
    assert f"missing: {KERNEL}" in error_of(
        save_checkpoint, tmp_path / "part", part
    )
    path = tmp_path / "model" / "bert_config.json"
    values = json.loads(path.read_text())
    del values["bilstm"]
    path.write_text(json.dumps(values))
    line = error_of(load_checkpoint, tmp_path / "model")
    assert "unexpected: bert/bilstm/backward/" in line


def test_the_mean_of_the_tokens_is_pooled(tmp_path) -> None:
    config = small_config(classifier_pooling="mean")
    encoder = fill(BertEncoder(config))
    first = BertEncoder(small_config())
    first.load_arrays(encoder.to_arrays())
    inputs = encoder_inputs(config)
    inputs["input_mask"][0, 7:] = 0
    hidden = numpy(first(inputs)["sequence_output"])
    mask = inputs["input_mask"][:, :, None]
    means = (hidden * mask).sum(axis=1) / mask.sum(axis=1)
    expected = numpy(encoder.pooler(means[:, None]))
    for how in ({}, {"pooled_only": True}, {"unpadded": True}):
        found = numpy(encoder(inputs, **how)["pooled_output"])
        np.testing.assert_allclose(found, expected, atol=1e-5)
    # Encoders exchange weights, classifiers only with the same pooling.
    model = bert_classifier(encoder, 2)
    checkpoint = Checkpoint(config, model_arrays(model))
    save_checkpoint(tmp_path / "model", checkpoint)
    loaded = load_checkpoint(tmp_path / "model")
    assert loaded.config.classifier_pooling == "mean"
    assert not restore(model, loaded)
    other = bert_classifier(first, 2)
    line = error_of(restore, other, loaded)
    assert "classifier_pooling is 'mean'" in line
    assert restore(other, loaded, fresh=[CLASSIFIER]) == (CLASSIFIER,)
    for to in ("google_tf1", "hugging_face"):
        line = error_of(save_checkpoint, tmp_path / to, checkpoint, to)
        assert f"pooler of {to}" in line
        assert not (tmp_path / to).exists()


def test_the_conversion_of_a_bilstm_is_proved(tmp_path) -> None:
    config = tiny_config(causal=True, bilstm=True)
    heads = ("pooler", "classifier", "span", "bilstm")
    source, target = tmp_path / "source", tmp_path / "target"
    arrays = random_arrays(config, heads)
    save_checkpoint(
        source, Checkpoint(config, arrays, Vocabulary(TOKENS), True)
    )
    fewer = tmp_path / "vocab.txt"
    fewer.write_text("\n".join([*SPECIAL_TOKENS, "vu", "élan", "new", "a"]))
    report = convert_checkpoint(
        source, "bert_tf", target, vocab_file=fewer, max_position_embeddings=9
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


# Rows of two sequences, and padding; the second begins at these positions.
IDS = np.int32([[1] * 4 + [2] * 5 + [0], [1] * 3 + [2] * 3 + [0] * 4])
STARTS = np.int32([[0, 4, 0], [0, 3, 0]])


def test_each_sequence_of_a_row_has_its_own_last_token() -> None:
    config = small_config(causal=True)
    encoder = fill(BertEncoder(config))
    inputs = encoder_inputs(config, rows=2, length=10, seed=4) | {
        "input_mask": (IDS > 0).astype("int32"),
        "sequence_ids": IDS,
        "cls_positions": STARTS,
    }
    outputs = encoder(inputs)
    hidden = numpy(outputs["sequence_output"])
    pooler = encoder.pooler
    # Unused positions, which are 0, have the output of the first sequence.
    for row, ends in enumerate([(3, 8, 3), (2, 5, 2)]):
        states = hidden[row, ends]
        expected = np.tanh(states @ numpy(pooler.kernel) + numpy(pooler.bias))
        np.testing.assert_allclose(
            numpy(outputs["pooled_output"])[row], expected, atol=1e-6
        )
    first = {k: v for k, v in inputs.items() if k != "cls_positions"}
    for how in ({}, {"pooled_only": True}):
        np.testing.assert_allclose(
            numpy(encoder(first, **how)["pooled_output"]),
            numpy(outputs["pooled_output"])[:, 0],
            atol=1e-6,
        )
    del inputs["sequence_ids"]
    assert "come without sequence_ids" in error_of(encoder, inputs)


def test_transformers_pools_the_first_token(tmp_path, capfd) -> None:
    """So a causal pooler is not written and not read; all else is."""
    config = tiny_config(causal=True)
    arrays = random_arrays(config, (POOLER, CLASSIFIER))
    causal = Checkpoint(config, arrays)
    line = error_of(save_checkpoint, tmp_path / "a", causal, "hugging_face")
    assert "causal is true" in line
    assert "(`drop_heads`=pooler,classifier)" in line
    assert not (tmp_path / "a").exists()
    bidirectional = tiny_config()
    for heads in ((POOLER,), (POOLER, MASKED_LM), (POOLER, CLASSIFIER)):
        folder = tmp_path / "-".join(heads)
        arrays = random_arrays(bidirectional, heads)
        save_checkpoint(
            folder, Checkpoint(bidirectional, arrays), "hugging_face"
        )
        path = folder / "config.json"
        text = path.read_text()
        path.write_text(
            text.replace('"is_decoder": false', '"is_decoder": true')
        )
        if CLASSIFIER in heads:
            assert "its classifier scores" in error_of(load_checkpoint, folder)
            continue
        read = load_checkpoint(folder)
        assert read.config.causal
        assert set(read.heads) == set(heads) - {POOLER}
        assert len(read.left_out) == 2
        assert "its pooler is left out" in capfd.readouterr().err
        # What is read can be written, and is the same.
        again = tmp_path / f"again-{len(heads)}"
        save_checkpoint(again, read, "hugging_face")
        assert set(load_checkpoint(again).arrays) == set(read.arrays)


def with_heads(heads: int, size: int) -> BertConfig:
    return small_config(num_attention_heads=heads, attention_head_size=size)


def test_the_usual_width_is_the_same_model() -> None:
    usual = small_config()
    encoder, again = BertEncoder(usual), BertEncoder(with_heads(3, 8))
    again.set_weights(encoder.get_weights())
    inputs = encoder_inputs(usual)
    for name, value in encoder(inputs).items():
        np.testing.assert_array_equal(numpy(again(inputs)[name]), numpy(value))


def test_folders_of_other_widths(tmp_path) -> None:
    # 24 is no multiple of 5.
    config = with_heads(5, 7)
    checkpoint = checkpoint_of(config, source="a model")
    name = "bert/encoder/layer_1/attention"
    assert checkpoint.arrays[f"{name}/self/query/kernel"].shape == (24, 35)
    assert checkpoint.arrays[f"{name}/output/dense/kernel"].shape == (35, 24)
    save_checkpoint(tmp_path / "ours", checkpoint)
    assert load_checkpoint(tmp_path / "ours").config == config
    inputs = encoder_inputs(config)
    expected = ReferenceBert(config, checkpoint.arrays)(inputs)
    names = ("sequence_output", "pooled_output")
    expected = {name: expected[name] for name in names}
    assert_computes(tmp_path / "ours", inputs, expected)
    for layout in ("hugging_face", "google_tf1"):
        line = error_of(save_checkpoint, tmp_path / layout, checkpoint, layout)
        assert "5 attention heads of 7 in a model of 24" in line
        assert not (tmp_path / layout).exists()
    # The usual width can be written.
    usual = Checkpoint(
        with_heads(3, 8), BertEncoder(small_config()).to_arrays()
    )
    save_checkpoint(tmp_path / "theirs", usual, "hugging_face")
    assert load_checkpoint(tmp_path / "theirs").config == small_config(
        layer_norm_eps=1e-12
    )


def test_another_width_is_another_model() -> None:
    checkpoint = checkpoint_of(with_heads(2, 8))
    usual = bert_classifier(BertEncoder(with_heads(4, 4)), 2)
    line = error_of(restore, usual, checkpoint)
    assert "num_attention_heads is 2, and 4" in line
    narrow = bert_classifier(BertEncoder(with_heads(2, 7)), 2)
    line = error_of(restore, narrow, checkpoint)
    assert "query/kernel is (24, 16) where the model has (24, 14)" in line
    line = error_of(with_heads, 2, -1)
    assert "attention_head_size is -1" in line
