"""The public one-liner: what it writes, and what it refuses."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.text_model import encoders_of
from bert_tf.inference import export
from bert_tf.inference.export import PackedClassifier
from bert_tf.inference.saving import save
from tests.model_helpers import small_config
from tests.user_errors import error_of

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "film"]
TOKENS += ["bad", "##ly", "made", "ü", "."]
TEXTS = ["a good film.", "Bad", "", "badly made ü film", "?"]
LABELS = ["bad", "fair", "gut ü"]


@pytest.fixture(scope="module")
def classifier():
    keras.utils.set_random_seed(3)
    config = small_config(
        vocab_size=len(TOKENS),
        max_position_embeddings=16,
        initializer_range=0.5,
        hidden_dropout_prob=0.1,
    )
    model = bert_tf.bert_classifier(bert_tf.BertEncoder(config), 3)
    pack = bert_tf.SentencePacker(bert_tf.BertTokenizer(TOKENS), 8)
    return model, pack


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    """The folder of a version; its answers are proven as it is written."""
    folder = tmp_path_factory.mktemp("export") / "sst2" / "1"
    bert_tf.export_saved_model(classifier[0], folder, classifier[1], LABELS)
    return folder


def test_the_version_gives_what_python_gives(classifier, exported):
    model, pack = classifier
    signatures = tf.saved_model.load(str(exported)).signatures
    served = signatures["serving_default"](text=tf.constant(TEXTS))
    logits = model(pack(TEXTS), training=False).numpy()
    np.testing.assert_allclose(served["logits"], logits, atol=1e-5)
    shares = tf.nn.softmax(logits)
    np.testing.assert_allclose(served["probabilities"], shares, atol=1e-5)
    best = [LABELS[k].encode() for k in np.argmax(logits, -1)]
    assert served["label"].numpy().tolist() == best
    assert len(set(best)) > 1
    names = [label.encode() for label in LABELS]
    assert served["labels"].numpy().tolist() == [names] * len(TEXTS)
    # Different texts must give different answers.
    assert len({tuple(row) for row in np.round(logits, 5)}) == len(TEXTS)
    # Each input is fed to its place.
    inputs = dict(pack(TEXTS))
    inputs["segment_ids"] = tf.ones_like(inputs["segment_ids"])
    logits = signatures["tokens"](**inputs)["logits"]
    np.testing.assert_allclose(logits, model(inputs), atol=1e-5)


def test_a_version_is_as_whole_as_the_commands(exported):
    assert (exported / "assets" / "vocab.txt").read_text().split() == TOKENS
    extra = exported / "assets.extra"
    described = json.loads((extra / "model.json").read_text())
    assert described["task"] == "text classification"
    assert described["max_seq_length"] == 8
    assert described["hidden_size"] == 24
    assert json.loads((extra / "labels.json").read_text()) == LABELS
    assert (extra / "tf_serving_warmup_requests").is_file()


def test_without_labels_there_are_no_names(classifier):
    signatures = PackedClassifier(*classifier).signatures()
    answers = signatures["serving_default"](text=tf.constant(TEXTS))
    assert set(answers) == {"logits", "probabilities"}


def test_a_text_classifier_has_its_own_packer(
    classifier, tmp_path, monkeypatch
):
    written = []
    monkeypatch.setattr(
        export, "write_version", lambda served, *_, **__: written.append(served)
    )
    (encoder,), tokenizer = encoders_of(classifier[0]), classifier[1].tokenizer
    model = bert_tf.TextClassifier(encoder, tokenizer, LABELS, 8)
    bert_tf.export_saved_model(model, tmp_path / "1")
    (served,) = written
    answers = served.answers(tf.constant(TEXTS))
    logits = model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(answers["logits"], logits, atol=1e-5)
    best = [LABELS[k].encode() for k in np.argmax(logits, -1)]
    assert answers["label"].numpy().tolist() == best
    pairs = bert_tf.TextClassifier(encoder, tokenizer, LABELS, 8, pairs=True)
    for other, line in (
        (pairs, "`model`: takes pairs of texts; write it with its save_check"),
        (classifier[0], "`text_input`: give the SentencePacker of the train"),
    ):
        error = error_of(bert_tf.export_saved_model, other, tmp_path / "1")
        assert error.startswith(line)


class BagOfWords(keras.Model):
    """A model of the user's own, with no encoder of ours in it."""

    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(len(TOKENS), 1)

    def call(self, inputs):
        mask = keras.ops.cast(inputs["input_mask"], "float32")[..., None]
        return keras.ops.sum(self.table(inputs["input_ids"]) * mask, axis=1)


def test_any_model_of_the_inputs_is_taken(classifier, tmp_path):
    pack, model = classifier[1], BagOfWords()
    expected = model(pack(TEXTS)).numpy()
    save(PackedClassifier(model, pack), tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    answers = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    # One output is no class: it has no probabilities.
    assert set(answers) == {"logits"}
    np.testing.assert_allclose(answers["logits"], expected, atol=1e-6)
    assert len(set(expected[:, 0].tolist())) == len(TEXTS)


def test_mistakes_leave_the_folder_as_it_was(classifier, tmp_path):
    given = classifier[0], tmp_path / "1", classifier[1]
    with pytest.raises(bert_tf.UserError, match="`labels`: are 2, .* 3 outp"):
        bert_tf.export_saved_model(*given, LABELS[:2])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "1").mkdir()
    with pytest.raises(bert_tf.UserError, match="`export_dir`=.*1: exists alr"):
        bert_tf.export_saved_model(*given)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
