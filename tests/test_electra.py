"""ELECTRA beside transformers and KerasHub, and what it must not be."""

import dataclasses
import math

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.architectures.electra import ElectraConfig
from bert_tf.checkpoints import (
    CLASSIFIER,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.encoders.electra import ElectraEncoder
from bert_tf.finetuning.setup import lr_multipliers
from bert_tf.layers import ReplacedTokensHead
from bert_tf.models import model_arrays
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.runtimes.export import export_file
from bert_tf.text.vocabulary import Vocabulary
from tests.contracts.architecture_cases import CASES
from tests.model_helpers import fill
from tests.relatives import (
    CLOSE,
    Golden,
    random_weights,
    write_vocabulary,
)
from tests.user_errors import error_of

GOLDEN = Golden("electra")
DISCRIMINATOR = "ElectraForPreTraining"
GENERATOR = "ElectraForMaskedLM"
CLASSES = "ElectraForSequenceClassification"
batch = GOLDEN.batch
tiny_config = CASES["electra"].config


def test_the_layer_wise_decay_is_that_of_its_authors():
    """decay ** (L + 2 - depth): 0 of embeddings, l + 1 of layer l, L + 2."""
    encoder = ElectraEncoder(tiny_config())
    model = bert_tf.bert_classifier(encoder, 2)
    variables = model.trainable_variables
    layers = encoder.config.num_hidden_layers
    depths = {f"layer_{n}/": n + 1 for n in range(layers)} | {"embeddings": 0}
    found = lr_multipliers(encoder, variables, 0.5)
    for variable, factor in zip(variables, found, strict=True):
        parts = [part for part in depths if part in variable.path]
        depth = depths[parts[0]] if parts else layers + 2
        assert factor == 0.5 ** (layers + 2 - depth), variable.path
    assert min(found) == 0.5 ** (layers + 2)
    assert max(f for f in found if f < 1) == 0.25


@pytest.mark.parametrize("act", ["gelu", "tanh"])
def test_another_activation_of_a_classifier_would_be_seen(act, monkeypatch):
    monkeypatch.setattr(ElectraConfig, "pooler_act", act)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        GOLDEN.assert_logits(CLASSES)


def test_a_generators_head_has_gelu_whatever_its_blocks_have(tmp_path):
    checkpoint = load_checkpoint(GOLDEN.saved / GENERATOR)
    assert checkpoint.config.hidden_act == "relu"
    assert checkpoint.config.masked_lm_act == "gelu_erf"
    other = dataclasses.replace(checkpoint.config, masked_lm_act="")
    other = dataclasses.replace(checkpoint, config=other)
    line = error_of(save_checkpoint, tmp_path / "m", other, "hugging_face")
    assert "hugging_face cannot hold a masked LM head of relu" in line
    line = error_of(save_checkpoint, tmp_path / "m", checkpoint, "google_tf1")
    assert "google_tf1 cannot hold a masked LM head of gelu_erf" in line


def arrays_of(config, seed=0):
    """Those of an encoder with distinct weights."""
    return fill(ElectraEncoder(config), seed).to_arrays()


def test_with_one_width_it_is_a_bert():
    config = tiny_config(embedding_size=0)
    assert config == tiny_config(embedding_size=8)
    values = config.to_dict()
    del values["model_type"], values["embedding_size"]
    bert = BertEncoder(BertConfig(**values))
    arrays = arrays_of(config)
    assert arrays.keys() == bert.to_arrays().keys()
    bert.load_arrays(arrays)
    electra = ElectraEncoder(config)
    electra.load_arrays(arrays)
    np.testing.assert_array_equal(
        electra(batch())["sequence_output"], bert(batch())["sequence_output"]
    )


def test_nothing_follows_the_projection_of_the_embeddings():
    encoder = fill(ElectraEncoder(tiny_config()))
    layer = encoder.embeddings.project_to_hidden
    assert layer.kernel.shape == (6, 8)

    def embedded():
        outputs = encoder(batch(), return_all_layers=True)
        return outputs["embedding_output"] - layer.bias

    first = embedded()
    layer.kernel.assign(layer.kernel * 2)
    np.testing.assert_allclose(embedded(), 2 * first, **CLOSE)


def test_segments_are_read():
    encoder = fill(ElectraEncoder(tiny_config()))
    first = batch()
    second = first | {"segment_ids": 1 - first["segment_ids"]}
    difference = abs(
        encoder(first)["sequence_output"] - encoder(second)["sequence_output"]
    )
    assert np.min(np.max(difference, axis=-1)) > 1e-3


def test_initial_weights_are_drawn_as_by_googles_code():
    config = tiny_config(embedding_size=60, hidden_size=80)
    encoder = ElectraEncoder(config)
    head = ReplacedTokensHead(config)
    head.build(None)
    # Glorot and Bengio 2010: uniform within these.
    for layer, rows in (
        (encoder.embeddings.project_to_hidden, 60),
        (head.score, 80),
    ):
        bound = math.sqrt(6 / (rows + layer.kernel.shape[1]))
        kernel = np.abs(layer.kernel)
        assert 0.9 * bound < kernel.max() <= bound
        np.testing.assert_allclose(kernel.mean(), bound / 2, rtol=0.2)
    # All else within two standard deviations of 0.02.
    arrays = encoder.to_arrays()
    del arrays["bert/embeddings_project/kernel"]
    kernels = [a for a in arrays.values() if a.ndim == 2]
    for kernel in (*kernels, np.asarray(head.transform.kernel)):
        assert 0.03 < np.abs(kernel).max() <= 0.04


@pytest.mark.parametrize("unpadded", [False, True])
@pytest.mark.parametrize("pooled_only", [False, True])
def test_the_pooled_token_is_dropped_before_its_dense_layer(
    pooled_only, unpadded
):
    rates = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.0}
    encoder = fill(ElectraEncoder(tiny_config(**rates)))
    encoder.embeddings.dropout.rate = 0.0
    for block in encoder.blocks:
        block.attention_dropout.rate = block.output_dropout.rate = 0.0
    kernel, bias = encoder.pooler.weights
    kernel.assign(np.eye(8))
    bias.assign(np.zeros(8))

    def pooled(training):
        outputs = encoder(
            batch(),
            training=training,
            pooled_only=pooled_only,
            unpadded=unpadded,
        )
        return np.asarray(outputs["pooled_output"])

    outputs = encoder(batch(), unpadded=unpadded)
    first = np.asarray(outputs["sequence_output"])[:, 0]

    def gelu(values):
        return np.asarray(keras.ops.gelu(values, approximate=False))

    np.testing.assert_allclose(pooled(False), gelu(first), **CLOSE)
    trained = pooled(True)
    kept = trained != 0
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(trained[kept], gelu(2 * first)[kept], **CLOSE)


@pytest.mark.parametrize("width", [6, 8])
def test_presets_of_keras_hub(width, tmp_path, capsys):
    backbone = keras_hub.models.ElectraBackbone(
        vocab_size=24,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        embedding_dim=width,
        intermediate_dim=12,
        max_sequence_length=12,
    )
    random_weights(backbone)
    folder = tmp_path / "preset"
    backbone.save_to_preset(str(folder))
    inputs = GOLDEN.inputs
    expected = backbone(
        {
            "token_ids": inputs["input_ids"],
            "padding_mask": inputs["input_mask"],
            "segment_ids": inputs["segment_ids"],
        }
    )
    encoder = ElectraEncoder.from_checkpoint(folder)
    assert encoder.config.embedding_size == width
    np.testing.assert_allclose(
        GOLDEN.real(encoder(batch())["sequence_output"]),
        GOLDEN.real(expected["sequence_output"]),
        **CLOSE,
    )
    # Its pooler computes otherwise, and comes not along.
    assert load_checkpoint(folder).heads == ()
    theirs = tmp_path / "theirs"
    vocabulary = write_vocabulary(tmp_path)
    convert_checkpoint(folder, "hugging_face", theirs, vocab_file=vocabulary)
    assert "left out, no part of the model: model" in capsys.readouterr().out
    assert load_checkpoint(theirs).config == encoder.config


@pytest.mark.parametrize("make", [bert_tf.replaced_token_detector, "classes"])
def test_it_is_saved_in_keras_files(make, tmp_path):
    encoder = fill(ElectraEncoder(tiny_config(hidden_dropout_prob=0.4)))
    if make == "classes":
        model = bert_tf.bert_classifier(encoder, 2)
        assert model.get_layer("dropout").rate == 0.4
    else:
        model = make(encoder)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(batch()), again(batch()))


def test_files_of_other_runtimes_compute_the_same(tmp_path):
    """The export compares them with the Keras model itself."""
    config = tiny_config()
    vocabulary = Vocabulary.from_file(write_vocabulary(tmp_path))
    folder = tmp_path / "model"
    save_checkpoint(
        folder, bert_tf.Checkpoint(config, arrays_of(config), vocabulary, True)
    )
    for kind in ("onnx", "litert"):
        export_file(folder, tmp_path / kind, kind)


def test_small_has_narrow_embeddings():
    # Clark et al. 2020, table 6.
    assert ElectraConfig.from_size("small", 30522).embedding_size == 128
    # BERT's own files have no new key.
    assert "embedding_size" not in BertConfig(24).to_dict()


def test_what_is_refused():
    config = tiny_config()
    objective = PretrainingObjective()
    line = error_of(bert_tf.BertPretrainer, config, objective=objective)
    assert "next_sentence, and electra has no pooler" in line
    assert "ElectraConfig" in error_of(BertEncoder, config)
    bert = BertEncoder(BertConfig(24, hidden_size=8, num_attention_heads=2))
    line = error_of(bert_tf.replaced_token_detector, bert)
    assert "encoder is a BertEncoder" in line
    assert "embedding_size is -1" in error_of(tiny_config, embedding_size=-1)
    words = batch() | {"word_embeddings": tf.zeros([3, 9, 8])}
    assert "they take [B, S, 6]" in error_of(ElectraEncoder(config), words)


def test_a_task_begins_with_a_discriminator(capsys):
    """Its own head stays behind, and what is drawn is told in one line."""
    folder = GOLDEN.saved / DISCRIMINATOR
    model = bert_tf.bert_classifier(ElectraEncoder(tiny_config()), 2)
    drawn = bert_tf.restore(model, folder)
    assert drawn == ("pooler", CLASSIFIER)
    assert "has no classifier; initialized randomly" in capsys.readouterr().err
    ours, theirs = model_arrays(model), load_checkpoint(folder).arrays
    for name in theirs:
        if name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
