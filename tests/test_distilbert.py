"""What DistilBERT has of its own; see contracts/test_architectures.py."""

import keras
import keras_hub
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import (
    CLASSIFIER,
    load_checkpoint,
)
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders.distilbert import DistilBertBlock
from bert_tf.pretraining.objective import PretrainingObjective
from tests.contracts.architecture_cases import CASES
from tests.relatives import (
    CLOSE,
    Golden,
    random_weights,
    write_vocabulary,
)
from tests.user_errors import error_of

GOLDEN = Golden("distilbert")
INPUTS = GOLDEN.inputs
# Segments are taken and not read.
batch = GOLDEN.batch
tiny_config = CASES["distilbert"].config


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
    attention_bias = np.zeros((2, 1, 1, 5), "float32")
    still, _ = block(hidden, attention_bias, training=False)
    trained, _ = block(hidden, attention_bias, training=True)
    np.testing.assert_array_equal(still, trained)


def test_segments_change_nothing_and_have_no_table():
    encoder = bert_tf.DistilBertEncoder(tiny_config())
    assert not any("token_type" in name for name in encoder.to_arrays())
    first = batch()
    second = first | {"segment_ids": tf.zeros_like(first["segment_ids"])}
    np.testing.assert_array_equal(
        encoder(first)["sequence_output"], encoder(second)["sequence_output"]
    )


def test_what_is_refused():
    config = tiny_config()
    objective = PretrainingObjective()
    line = error_of(bert_tf.BertPretrainer, config, objective=objective)
    assert "next_sentence, and distilbert has no pooler" in line
    line = error_of(tiny_config, type_vocab_size=2)
    assert line == (
        "type_vocab_size is 2; it takes 0 (a distilbert has no segments)."
    )


def test_classes_are_scored_with_their_own_dropout():
    encoder = bert_tf.DistilBertEncoder(tiny_config(seq_classif_dropout=0.4))
    model = bert_tf.bert_classifier(encoder, 2)
    assert model.get_layer("dropout").rate == 0.4
