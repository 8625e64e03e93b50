"""What is written for LiteRT computes what the model does."""

import json

import numpy as np
import pytest
import tokenizers

from bert_tf.inference.export_file import export_file
from bert_tf.inference.served_folder import served_model
from bert_tf.models import padded
from bert_tf.runtimes import litert_file
from bert_tf.runtimes.tracing import trace
from tests.inference.model_folders import KINDS, LENGTH, make, rows
from tests.runtimes.test_onnx_export import assert_near, expected_of


@pytest.mark.parametrize(("kind", "changes"), KINDS)
def test_every_kind_of_model(kind, changes, eagerly, tmp_path):
    folder = make(tmp_path, kind, **changes)
    path = export_file(folder, tmp_path / "small", "litert")
    run = litert_file.Runner(path)
    served = served_model(folder)
    for count, length in ((4, 9), (1, LENGTH), (3, 2)):
        inputs = rows(count, length, seed=length)
        found = run(inputs)
        assert_near(found, expected_of(kind, served, inputs), inputs)
    about = json.loads((tmp_path / "small" / "model.json").read_text())
    assert about["format"] == "litert"
    assert about["outputs"] == list(found)
    tokenizer_file = str(tmp_path / "small" / "tokenizer.json")
    other = tokenizers.Tokenizer.from_file(tokenizer_file)
    # Rows are as long as the file takes them.
    assert len(other.encode("the ferry").ids) == run.length


def test_int8_is_smaller_and_near(tmp_path):
    folder = make(tmp_path, "classes", hidden_size=64, intermediate_size=256)
    exact = export_file(folder, tmp_path / "float32", "litert")
    model = padded(served_model(folder).model)
    graph = trace(
        lambda inputs: {"logits": model(inputs)}, (1, LENGTH), "model"
    )
    path = tmp_path / "int8.tflite"
    litert_file.write_model(path, graph, "model", int8=True)
    assert path.stat().st_size < 0.6 * exact.stat().st_size
    inputs = rows(8, LENGTH)
    right = litert_file.Runner(exact)(inputs)["logits"]
    found = litert_file.Runner(path)(inputs)["logits"]
    assert 0 < np.abs(found - right).max() < 0.1 * np.ptp(right)
