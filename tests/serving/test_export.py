"""The public one-liner: what it writes, and what it refuses."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

import bert_tf

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "film"]
TOKENS += ["bad", "##ly", "made", "ü", "."]
TEXTS = ["a good film.", "Bad", "", "badly made ü film", "?"]
# The session-based loader is asked by the export itself.
EAGER = """
import json, sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
texts = tf.constant(json.loads(sys.argv[2]))
out = model.signatures["serving_default"](text=texts)
assert "bert_tf" not in sys.modules
print(json.dumps({k: v.numpy().tolist() for k, v in out.items()}))
"""


@pytest.fixture(scope="module")
def classifier():
    keras.utils.set_random_seed(3)
    config = bert_tf.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.5,
    )
    model = bert_tf.bert_classifier(bert_tf.BertEncoder(config), 3)
    pack = bert_tf.SentencePacker(bert_tf.BertTokenizer(TOKENS), 8)
    return model, pack


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    """A version without names of classes."""
    folder = tmp_path_factory.mktemp("export") / "sst2" / "1"
    model, pack = classifier
    bert_tf.export_saved_model(model, folder, text_input=pack)
    return folder


def test_a_fresh_process_gives_what_python_gives(classifier, exported):
    model, pack = classifier
    done = subprocess.run(
        [sys.executable, "-c", EAGER, exported, json.dumps(TEXTS)],
        cwd=exported,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    logits = model(pack(TEXTS), training=False).numpy()
    assert set(served) == {"logits", "probabilities"}
    np.testing.assert_allclose(served["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(
        served["probabilities"], tf.nn.softmax(logits), atol=1e-5
    )
    # Different texts must give different answers.
    assert len({tuple(row) for row in np.round(logits, 5)}) == len(TEXTS)


def test_tokens_signature_feeds_each_input_to_its_place(classifier, exported):
    model, pack = classifier
    tokens = tf.saved_model.load(str(exported)).signatures["tokens"]
    inputs = dict(pack(TEXTS))
    inputs["segment_ids"] = tf.ones_like(inputs["segment_ids"])
    np.testing.assert_allclose(
        tokens(**inputs)["logits"], model(inputs), atol=1e-5
    )


def test_a_version_is_as_whole_as_the_commands(exported):
    assert (exported / "assets" / "vocab.txt").read_text().split() == TOKENS
    extra = exported / "assets.extra"
    described = json.loads((extra / "model.json").read_text())
    assert described["task"] == "text classification"
    assert described["max_seq_length"] == 8
    assert described["hidden_size"] == 16
    assert not (extra / "labels.json").exists()
    path = extra / "tf_serving_warmup_requests"
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(r) for r in records]
    assert {log.predict_log.request.model_spec.name for log in logs} == {"sst2"}


def test_labels_are_named(classifier, tmp_path):
    model, pack = classifier
    labels = ["bad", "fair", "gut ü"]
    folder = tmp_path / "1"
    with pytest.raises(bert_tf.UserError, match="`labels`: are 2, .* 3 outp"):
        bert_tf.export_saved_model(model, folder, pack, labels[:2])
    assert list(tmp_path.iterdir()) == []
    bert_tf.export_saved_model(model, folder, pack, labels)
    written = (folder / "assets.extra" / "labels.json").read_text()
    assert json.loads(written) == labels
    loaded = tf.saved_model.load(str(folder))
    answers = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    best = np.argmax(model(pack(TEXTS), training=False), -1)
    assert [label.decode() for label in answers["label"].numpy()] == [
        labels[k] for k in best
    ]
    assert len(set(best)) > 1
    np.testing.assert_array_equal(
        answers["labels"][0].numpy(), [label.encode() for label in labels]
    )


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
    bert_tf.export_saved_model(model, tmp_path / "1", text_input=pack)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    answers = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    # One output is no class: it has no probabilities.
    assert set(answers) == {"logits"}
    np.testing.assert_allclose(answers["logits"], expected, atol=1e-6)
    assert len(set(expected[:, 0].tolist())) == len(TEXTS)


def test_a_version_is_never_written_over(classifier, tmp_path):
    model, pack = classifier
    (tmp_path / "1").mkdir()
    with pytest.raises(bert_tf.UserError, match="exists already"):
        bert_tf.export_saved_model(model, tmp_path / "1", text_input=pack)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
