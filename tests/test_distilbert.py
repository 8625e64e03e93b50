"""DistilBERT beside transformers and KerasHub, and what it must not be."""

import dataclasses
import functools
import json
import math
import shutil

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import (
    CLASSIFIER,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.checkpoints.folder import save_adapter
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders.distilbert import DistilBertBlock
from bert_tf.errors import UserError
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.text.vocabulary import Vocabulary
from tests.relatives import (
    CLOSE,
    Golden,
    assert_the_whole_way_by_commands,
    classifier_weights,
    random_weights,
    tiny,
    write_vocabulary,
)

GOLDEN = Golden("distilbert")
INPUTS = GOLDEN.inputs
# They are taken and not read.
batch = GOLDEN.batch
tiny_config = functools.partial(tiny, bert_tf.DistilBertConfig)


@pytest.mark.parametrize("unpadded", [False, True])
@pytest.mark.parametrize("name", GOLDEN.classes)
def test_every_hidden_state_is_that_of_transformers(name, unpadded):
    GOLDEN.assert_hidden_states(name, unpadded)


@pytest.mark.parametrize("name", [n for n in GOLDEN.classes if "For" in n])
def test_logits_are_those_of_transformers(name):
    GOLDEN.assert_logits(name)


def test_gradients_of_a_classifier_are_those_of_transformers():
    name = "DistilBertForSequenceClassification"
    model = GOLDEN.model(name)
    GOLDEN.assert_gradients(name, classifier_weights(model), model)


def test_gradients_of_a_masked_lm_are_those_of_transformers():
    name = "DistilBertForMaskedLM"
    model = GOLDEN.model(name)
    named = {
        n: w for n, w in model.named_weights().items() if "/pooler/" not in n
    }
    GOLDEN.assert_gradients(name, named, model)


@pytest.mark.parametrize("name", GOLDEN.classes)
def test_converting_there_and_back_is_exact_and_proved(name, tmp_path):
    GOLDEN.assert_round_trip(name, tmp_path)


def write_preset(folder, model):
    model.save_to_preset(str(folder))
    return folder


def test_presets_of_keras_hub(tmp_path):
    backbone = keras_hub.models.DistilBertBackbone(
        vocabulary_size=24,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=12,
    )
    model = keras_hub.models.DistilBertTextClassifier(
        backbone, num_classes=3, preprocessor=None
    )
    random_weights(model)
    given = {
        "token_ids": INPUTS["input_ids"],
        "padding_mask": INPUTS["input_mask"],
    }
    folder = write_preset(tmp_path / "preset", model)
    encoder = bert_tf.DistilBertEncoder.from_checkpoint(folder)
    np.testing.assert_allclose(
        GOLDEN.real(encoder(batch())["sequence_output"]),
        GOLDEN.real(backbone(given)),
        **CLOSE,
    )
    ours = bert_tf.bert_classifier(encoder, 3)
    assert bert_tf.restore(ours, folder) == ()
    np.testing.assert_allclose(ours(batch()), model(given), **CLOSE)
    convert_checkpoint(
        folder,
        "hugging_face",
        tmp_path / "theirs",
        vocab_file=write_vocabulary(tmp_path),
    )
    assert num_labels(load_checkpoint(tmp_path / "theirs"), CLASSIFIER) == 3


def test_attention_has_no_dropout_before_its_residual():
    config = tiny_config(
        hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0
    )
    block = DistilBertBlock(config)
    block.build((None, None, 8))
    block.output_dropout.rate = 0.0
    hidden = keras.random.normal((2, 5, 8), seed=1)
    adder = np.zeros((2, 1, 1, 5), "float32")
    still, _ = block(hidden, adder, training=False)
    trained, _ = block(hidden, adder, training=True)
    np.testing.assert_array_equal(still, trained)


def test_an_adapter_is_written_as_peft_names_it_and_proved(tmp_path):
    random = np.random.default_rng(0)

    def checkpoint(**changes):
        config = tiny_config(**changes)
        arrays = {
            name: random.normal(0, 0.3, array.shape).astype("float32")
            for name, array in bert_tf.DistilBertEncoder(config)
            .to_arrays()
            .items()
        }
        return bert_tf.Checkpoint(config, arrays, lower_case=True)

    base = checkpoint()
    vocabulary = Vocabulary.from_file(write_vocabulary(tmp_path))
    base = dataclasses.replace(
        base, vocabulary=vocabulary, source=str(tmp_path / "base")
    )
    save_checkpoint(tmp_path / "base", base)
    trained = checkpoint(lora_rank=2, lora_on="all_dense")
    trained.arrays.update(
        {
            "output_weights": np.ones((3, 8), "float32"),
            "output_bias": np.zeros(3, "float32"),
        }
    )
    # What is not trained is the base's.
    for name, array in base.arrays.items():
        if "pooler" not in name:
            trained.arrays[name] = array
    folder = tmp_path / "adapter"
    save_adapter(folder, trained, base)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["target_modules"] == [
        "q_lin",
        "k_lin",
        "v_lin",
        "out_lin",
        "lin1",
        "lin2",
    ]
    assert config["modules_to_save"] == ["classifier", "pre_classifier"]
    again = load_checkpoint(folder, merge=False)
    assert again.arrays.keys() == trained.arrays.keys()
    for name, array in trained.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    report = convert_checkpoint(folder, "hugging_face", tmp_path / "merged")
    assert report.output_dir == tmp_path / "merged"


def test_segments_change_nothing_and_have_no_table():
    encoder = bert_tf.DistilBertEncoder(tiny_config())
    assert not any("token_type" in name for name in encoder.to_arrays())
    first = batch()
    second = first | {"segment_ids": tf.zeros_like(first["segment_ids"])}
    np.testing.assert_array_equal(
        encoder(first)["sequence_output"], encoder(second)["sequence_output"]
    )


def test_it_is_saved_in_keras_files(tmp_path):
    encoder = bert_tf.DistilBertEncoder(tiny_config(seq_classif_dropout=0.4))
    model = bert_tf.bert_classifier(encoder, 2)
    assert model.get_layer("dropout").rate == 0.4
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(batch()), again(batch()))


@pytest.mark.parametrize("predictions", [0, 4])
def test_its_parameters_are_counted(predictions):
    config = tiny_config()
    encoder = bert_tf.DistilBertEncoder(config)
    if predictions:
        trained = bert_tf.BertPretrainer(encoder).trainable_weights
    else:
        trained = bert_tf.bert_classifier(encoder, 2).weights
    work = Workload(config, 8, 2, predictions, "float32")
    assert work.num_parameters == sum(math.prod(w.shape) for w in trained)


def refused(function, *parts):
    with pytest.raises(UserError) as caught:
        function()
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_what_is_refused(tmp_path):
    config = tiny_config()
    refused(
        lambda: bert_tf.BertPretrainer(
            config, objective=PretrainingObjective()
        ),
        "next_sentence",
        "distilbert has no pooler",
        "masked_lm",
    )
    refused(
        lambda: bert_tf.BertEncoder(config), "DistilBertConfig", "BertConfig"
    )
    refused(
        lambda: bert_tf.BertConfig.from_dict({"model_type": "xlnet"}, "here"),
        "here: model_type is 'xlnet'; it takes one of bert, distilbert",
    )
    refused(lambda: tiny_config(type_vocab_size=2), "type_vocab_size is 2")
    source = GOLDEN.saved / "DistilBertModel"
    refused(
        lambda: save_checkpoint(
            tmp_path / "google", load_checkpoint(source), "google_tf1"
        ),
        "distilbert",
        "bert_tf or hugging_face",
    )
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "folder"
    shutil.copytree(source, folder)
    text = (folder / "config.json").read_text()
    for other, part in (
        (text.replace('"distilbert"', '"xlnet"'), "model_type is 'xlnet'"),
        (text.replace('"distilbert"', '"bert"'), "do not fit"),
        (text.replace('"n_layers": 2', '"n_layers": 3'), "do not fit"),
        (text.replace('"gelu"', '"silu"'), "activation is 'silu'"),
    ):
        (folder / "config.json").write_text(other)
        refused(lambda: load_checkpoint(folder), str(folder), part)


@pytest.mark.slow
def test_the_whole_way_by_commands(tmp_path):
    """Converted, fine-tuned, scored, exported with its check, and asked."""
    config = tiny_config(hidden_size=16, max_position_embeddings=32)
    assert_the_whole_way_by_commands(config, tmp_path)
