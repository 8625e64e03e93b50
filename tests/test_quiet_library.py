"""What the library writes to standard error when it is used in a script."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# More tokenizers than TensorFlow lets trace one function without a warning.
SCRIPT = """
import os, sys
import bert_tf
bert_tf.BertConfig.from_size("tiny", vocab_size=9)
assert "tensorflow" not in sys.modules
assert "TF_CPP_MIN_LOG_LEVEL" not in os.environ
vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
for lower_case in [True, False] * 3:
    tokenizer = bert_tf.BertTokenizer(vocabulary, lower_case)
    assert tokenizer.tokenize("ab a").numpy().tolist() == [5, 6, 5]
    ids, starts, ends = tokenizer.tokenize_with_offsets(["ab a"])
    assert ends.to_list() == [[1, 2, 4]]
encoder = bert_tf.BertEncoder(bert_tf.BertConfig.from_size("tiny", 9))
assert bert_tf.bert_classifier(encoder, 2).count_params() > 0
print("done")
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    unset = ("TF_CPP_MIN_LOG_LEVEL", "BERT_TF_HIDES_MESSAGES")
    kept = {k: v for k, v in os.environ.items() if k not in unset}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_script_writes_nothing_of_tensorflow() -> None:
    done = run(SCRIPT)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@pytest.mark.slow
def test_messages_are_shown_to_who_asks_and_where_the_import_fails() -> None:
    asked = run("import bert_tf; bert_tf.BertEncoder", TF_CPP_MIN_LOG_LEVEL="0")
    assert "oneDNN" in asked.stderr
    failing = (
        "import sys, os, bert_tf\n"
        "sys.modules['bert_tf.layers'] = None\n"
        "bert_tf.BertEncoder"
    )
    failed = run(failing)
    assert failed.returncode == 1
    assert "import of bert_tf.layers halted" in failed.stderr


@pytest.mark.slow
def test_standard_error_may_be_closed() -> None:
    done = run("import os; os.close(2); import bert_tf; bert_tf.BertEncoder")
    assert done.returncode == 0


def test_the_home_folder_stays_empty(tmp_path: pathlib.Path) -> None:
    """Keras, matplotlib and ONNX Runtime would write into it."""
    home = tmp_path / "home"
    home.mkdir()
    done = run(
        "import os, sys\n"
        "from bert_tf.libraries import import_tensorflow\n"
        "import_tensorflow()\n"
        "assert 'keras' in sys.modules\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from keras.src.visualization import plot_image_gallery as gallery\n"
        "from keras.src.backend.config import keras_home\n"
        f"assert keras_home() == {str(home / '.keras')!r}\n"
        "assert 'KERAS_HOME' not in os.environ\n"
        "import bert_tf.runtimes.onnx_file\n"
        "assert os.environ['ORT_DISABLE_TELEMETRY'] == '1'\n"
        "from bert_tf.report.figures import write_learning_curve\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"path = {str(tmp_path / 'a.png')!r}\n"
        "write_learning_curve(path, [], ['loss'], {}, '')\n"
        "assert gallery.plt.figure().axes == []\n"
        "import matplotlib.pyplot\n",
        HOME=str(home),
        MPLBACKEND="agg",
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert (tmp_path / "a.png").exists()
    assert list(home.rglob("*")) == []


def test_settings_of_keras_are_read_and_kept(tmp_path: pathlib.Path) -> None:
    settings = tmp_path / ".keras" / "keras.json"
    settings.parent.mkdir()
    settings.write_text('{"epsilon": 0.001}')
    done = run(
        "import bert_tf, keras; print(keras.config.epsilon())",
        HOME=str(tmp_path),
        KERAS_BACKEND="tensorflow",
    )
    assert done.stdout == "0.001\n"
    assert settings.read_text() == '{"epsilon": 0.001}'
