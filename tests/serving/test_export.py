import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "film"]
TOKENS += ["bad", "##ly", "made", "ü", "."]
TEXTS = ["a good film.", "Bad", "", "badly made ü film", "?"]
EAGER = """
import json, sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
texts = tf.constant(json.loads(sys.argv[2]))
out = model.signatures["serving_default"](text=texts)
assert "bert_tf" not in sys.modules
print(json.dumps({k: v.numpy().tolist() for k, v in out.items()}))
"""

# The way of TensorFlow Serving.
SESSION = """
import json, sys
import tensorflow as tf, tensorflow_text
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1])
    signature = loaded.signature_def["serving_default"]
    out = session.run(
        {name: info.name for name, info in signature.outputs.items()},
        {signature.inputs["text"].name: json.loads(sys.argv[2])},
    )
assert "bert_tf" not in sys.modules
print(json.dumps({k: v.tolist() for k, v in out.items()}))
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


@pytest.mark.parametrize("loader", [EAGER, SESSION])
def test_a_fresh_process_gives_what_python_gives(classifier, tmp_path, loader):
    model, pack = classifier
    bert_tf.export_saved_model(model, tmp_path / "1", text_input=pack)
    done = subprocess.run(
        [sys.executable, "-c", loader, tmp_path / "1", json.dumps(TEXTS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    logits = model(pack(TEXTS), training=False).numpy()
    np.testing.assert_allclose(served["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(
        served["probabilities"], tf.nn.softmax(logits), atol=1e-5
    )
    # Different texts must give different answers.
    assert len({tuple(row) for row in np.round(logits, 5)}) == len(TEXTS)


def test_tokens_signature_feeds_each_input_to_its_place(classifier, tmp_path):
    model, pack = classifier
    bert_tf.export_saved_model(model, tmp_path / "1", text_input=pack)
    tokens = tf.saved_model.load(str(tmp_path / "1")).signatures["tokens"]
    inputs = dict(pack(TEXTS))
    inputs["segment_ids"] = tf.ones_like(inputs["segment_ids"])
    np.testing.assert_allclose(
        tokens(**inputs)["logits"], model(inputs), atol=1e-5
    )


def test_a_version_is_never_written_over(classifier, tmp_path):
    model, pack = classifier
    (tmp_path / "1").mkdir()
    with pytest.raises(bert_tf.UserError, match="exists already"):
        bert_tf.export_saved_model(model, tmp_path / "1", text_input=pack)
    assert list(pathlib.Path(tmp_path).rglob("*.partial")) == []
