"""What the library writes to standard error when it is used in a script."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# More tokenizers than TensorFlow lets trace one function without a warning; and
# Keras, matplotlib, ONNX Runtime and OpenVINO would write into the home folder.
SCRIPT = """
import os, sys
os.fork = None
import bert_tf
bert_tf.BertConfig.from_size("tiny", vocab_size=9)
assert "tensorflow" not in sys.modules
assert "TF_CPP_MIN_LOG_LEVEL" not in os.environ
vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
for lower_case in [True, False] * 3:
    tokenizer = bert_tf.BertTokenizer(vocabulary, lower_case)
    assert tokenizer.tokenize("ab a").numpy().tolist() == [5, 6, 5]
encoder = bert_tf.BertEncoder(bert_tf.BertConfig.from_size("tiny", 9))
assert bert_tf.bert_classifier(encoder, 2).count_params() > 0
assert "keras" in sys.modules
assert "matplotlib" not in sys.modules
from keras.src.visualization import plot_image_gallery as gallery
from keras.src.backend.config import keras_home
assert keras_home() == os.path.join(os.environ["HOME"], ".keras")
assert "KERAS_HOME" not in os.environ
import bert_tf.runtimes.onnx_file
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
import bert_tf.runtimes.openvino_file
from bert_tf.report.figures import Panel, write_learning_curve
assert "matplotlib" not in sys.modules
write_learning_curve(sys.argv[1], [Panel([])], "")
assert gallery.plt.figure().axes == []
import matplotlib.pyplot
print("done")
"""
# In place of TensorFlow, whose import takes seconds, something that fails.
FAILING = """
import os, sys, bert_tf
class Failing:
    def find_spec(self, name, path, target=None):
        if name in ("keras", "tensorflow"):
            if len(sys.argv) < 2:
                os.write(2, b"a message of the import\\n")
            raise ImportError("the import has failed")
if len(sys.argv) > 1:
    os.close(2)
sys.meta_path.insert(0, Failing())
try:
    bert_tf.BertEncoder
except ImportError as error:
    print(error)
"""


def run(
    code: str, *arguments: object, **environment: str
) -> subprocess.CompletedProcess:
    unset = ("TF_CPP_MIN_LOG_LEVEL", "BERT_TF_HIDES_MESSAGES")
    inherited = {k: v for k, v in os.environ.items() if k not in unset}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.witness("a script gets no messages, its home folder no files")
def test_a_script_gets_no_messages_and_the_home_folder_no_files(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    done = run(SCRIPT, tmp_path / "a.png", HOME=str(home), MPLBACKEND="agg")
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
    assert (tmp_path / "a.png").exists()
    assert list(home.rglob("*")) == []


def test_the_users_log_level_and_settings_of_keras_apply(tmp_path):
    settings = tmp_path / ".keras" / "keras.json"
    settings.parent.mkdir()
    settings.write_text('{"epsilon": 0.001}')
    done = run(
        "import bert_tf, keras; print(keras.config.epsilon())\n"
        "bert_tf.BertEncoder",
        HOME=str(tmp_path),
        KERAS_BACKEND="tensorflow",
        TF_CPP_MIN_LOG_LEVEL="0",
    )
    assert done.stdout == "0.001\n"
    assert "oneDNN" in done.stderr
    assert settings.read_text() == '{"epsilon": 0.001}'


def test_messages_of_an_import_that_fails_are_shown():
    done = run(FAILING)
    assert done.stdout == "the import has failed\n", done.stderr
    assert done.stderr == "a message of the import\n"


def test_standard_error_may_be_closed():
    done = run(FAILING, "closed")
    assert done.stdout == "the import has failed\n"
