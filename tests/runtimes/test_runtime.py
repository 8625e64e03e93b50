"""Networks that another runtime computes, and the files that are kept."""

import ctypes
import functools
import json
import pathlib
import shutil
import tempfile

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.families.usage_options import UsageOptions
from bert_tf.inference.export_file import Quantization, export_file
from bert_tf.runtimes import openvino_file, runtime
from tests.fine_tuned_models import TEXTS, write_folder
from tests.user_errors import error_of

CLASSIFIER, MASKED_LM = "BertForSequenceClassification", "BertForMaskedLM"
# The longest row of exported files.
LENGTH = 12
# In graphs, a runtime answers in tools/test_serve.py.
pytestmark = pytest.mark.usefixtures("eagerly")


def probabilities(model):
    return np.array([[*row["probabilities"].values()] for row in model(TEXTS)])


@functools.cache
def of_keras(max_seq_length=None):
    """What Keras answers; the weights of every folder are the same."""
    with tempfile.TemporaryDirectory() as place:
        folder = write_folder(pathlib.Path(place), CLASSIFIER)
        model = bert_tf.load(folder, max_seq_length=max_seq_length)
        return probabilities(model)


def assert_near(found, wanted, atol=2e-5):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)


def add_one(folder):
    """Changes a weight of a folder."""
    file = folder / "model.safetensors"
    arrays = safetensors.numpy.load_file(file)
    arrays["classifier.bias"] += [1, 0, 0]
    safetensors.numpy.save_file(arrays, file, {"format": "pt"})


def kept(folder):
    return sorted(
        (
            path.relative_to(folder / ".runtimes").as_posix(),
            path.stat().st_mtime_ns,
        )
        for path in (folder / ".runtimes").rglob("*")
    )


def test_a_file_is_written_once_for_the_same_weights(tmp_path):
    folder = write_folder(tmp_path, CLASSIFIER)
    first = probabilities(bert_tf.load(folder, runtime="openvino"))
    files = kept(folder)
    place = files[0][0]
    assert place.startswith("openvino-row_outputs-")
    assert [name for name, _ in files[1:]] == [
        f"{place}/{name}" for name in ("digests.json", "model.bin", "model.xml")
    ]
    # What an earlier version has left goes with the next conversion.
    (folder / ".runtimes" / "openvino-row_outputs").mkdir()
    again = bert_tf.load(folder, runtime="openvino")
    np.testing.assert_array_equal(probabilities(again), first)
    assert (folder / ".runtimes" / place).is_dir()
    add_one(folder)
    changed = probabilities(bert_tf.load(folder, runtime="openvino"))
    assert np.abs(changed - first).max() > 0.1
    assert [name.split("/")[1:] for name, _ in kept(folder)] == [
        name.split("/")[1:] for name, _ in files
    ]
    assert kept(folder)[0][0] != place


def signal_stack():
    """Where this thread handles signals: address, flags, size."""
    stack = (ctypes.c_size_t * 3)()
    assert ctypes.CDLL(None).sigaltstack(None, stack) == 0
    return [*stack]


def test_signals_are_handled_where_they_were(tmp_path):
    """OpenVINO would free that stack with the model, and the next one kill."""
    before = signal_stack()
    model = bert_tf.load(write_folder(tmp_path, CLASSIFIER), runtime="openvino")
    assert signal_stack() == before
    del model
    openvino_file.has_bfloat16()
    assert signal_stack() == before


def test_vectors(tmp_path):
    """A file holds the layers that are asked for."""
    folder = write_folder(tmp_path, MASKED_LM)
    first = {"layer": 0, "pooling": "cls"}
    for settings, names in (
        ({}, ["openvino"]),
        (first, ["openvino", "onnx", "litert"]),
    ):
        wanted = bert_tf.embed(folder, TEXTS, **settings)
        for name in names:
            found = bert_tf.embed(folder, TEXTS, runtime=name, **settings)
            assert_near(found, wanted)


def test_bfloat16_rounds_products_or_is_refused(tmp_path):
    folder = write_folder(tmp_path, CLASSIFIER)
    given = {"precision": "mixed_bfloat16", "runtime": "openvino"}
    if not openvino_file.has_bfloat16():
        line = error_of(bert_tf.load, folder, **given)
        assert "OpenVINO computes in float32 on" in line
        return
    found = probabilities(bert_tf.load(folder, **given))
    assert_near(found, of_keras(), atol=0.1)
    assert np.abs(found - of_keras()).max() > 1e-4


class Wrong(openvino_file.Runner):
    def _infer(self, inputs):
        return {name: 1.1 * v for name, v in super()._infer(inputs).items()}


def test_other_outputs_are_refused(tmp_path, monkeypatch, capfd):
    folder = write_folder(tmp_path, CLASSIFIER)
    monkeypatch.setattr(openvino_file, "Runner", Wrong)
    line = error_of(bert_tf.load, folder, runtime="openvino")
    assert f"another logits of {folder} than Keras (by 10.00%)" in line
    capfd.readouterr()
    found = probabilities(bert_tf.load(folder, runtime="auto"))
    np.testing.assert_array_equal(found, of_keras())
    told = capfd.readouterr().err
    assert "computed by Keras: `runtime`=openvino" in told


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, capfd):
    folder = write_folder(tmp_path, CLASSIFIER)
    # Root may write anywhere, so a file stands in the way.
    (folder / ".runtimes").write_text("")
    found = probabilities(bert_tf.load(folder, runtime="openvino"))
    told = capfd.readouterr().err
    assert "converted to openvino at every start." in told
    assert_near(found, of_keras())


def test_a_file_for_programs_that_use_openvino(tmp_path):
    folder = write_folder(tmp_path / "model", CLASSIFIER)
    path = export_file(folder, tmp_path / "out", "openvino")
    assert {file.name for file in path.parent.iterdir()} >= {
        *("model.xml", "model.bin", "model.json", "tokenizer.json")
    }
    rows = {
        "input_ids": np.array([[2, 41, 42, 3]], np.int32),
        "input_mask": np.ones((1, 4), np.int32),
        "segment_ids": np.zeros((1, 4), np.int32),
    }
    (found,) = openvino_file.Runner(path)(rows).values()
    wanted = bert_tf.load(folder).served.row_outputs(rows)["logits"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)
    int8 = Quantization(None, None)
    line = error_of(export_file, folder, tmp_path / "int8", "openvino", int8)
    assert line.startswith("`file_format`=openvino: is not quantized")
    assert not (tmp_path / "int8").exists()


def test_what_auto_leaves_to_keras(tmp_path, monkeypatch):
    def opened():
        return runtime.open_runtime("auto", tmp_path, "mixed_bfloat16", 0)

    monkeypatch.setattr(openvino_file, "has_bfloat16", lambda: True)
    found, of_keras = opened()
    assert (str(found), of_keras) == ("OpenVINO in bfloat16", "float32")
    monkeypatch.setattr(openvino_file, "has_bfloat16", lambda: False)
    assert opened() == (None, "mixed_bfloat16")
    given = "openvino", tmp_path, "mixed_bfloat16", 0
    line = error_of(runtime.open_runtime, *given)
    assert line.endswith("leave it out, or give `runtime`=keras.")
    monkeypatch.setattr(openvino_file, "has_bfloat16", lambda: True)
    monkeypatch.setattr(runtime, "has_accelerator", lambda: True)
    assert opened() == (None, "mixed_bfloat16")


def test_mistakes(tmp_path, monkeypatch):
    folder = write_folder(tmp_path, CLASSIFIER)
    line = error_of(bert_tf.load, folder, runtime="tvm")
    assert "`runtime`=tvm: is neither one of keras, " in line
    line = error_of(bert_tf.load, folder, 32, "mixed_bfloat16", runtime="onnx")
    assert "`runtime`=onnx computes in float32" in line
    line = error_of(bert_tf.load, folder, 32, "mixed_float16", runtime="auto")
    assert "`precision`=mixed_float16: `runtime`=auto " in line
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, package=None: None
    )
    line = error_of(bert_tf.load, folder, runtime="openvino")
    assert line.endswith('run pip install "bert_tf[openvino]"')
    assert runtime.open_runtime("auto", folder, "float32", 0)[0] is None


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder, and beside it the folders of its exports."""
    root = tmp_path_factory.mktemp("exported")
    folder = write_folder(root / "model", CLASSIFIER)
    for name in ("onnx", "litert"):
        options = UsageOptions(max_seq_length=LENGTH)
        export_file(folder, root / name, name, options=options)
    return root


def test_the_folder_of_an_export_is_a_runtime(exported):
    folder = exported / "model"
    for name in ("onnx", "litert"):
        place = exported / name
        model = bert_tf.load(folder, runtime=place, max_seq_length=LENGTH)
        assert_near(probabilities(model), of_keras(LENGTH))
        assert f"in float32, {place}>" in repr(model)
    assert not (folder / ".runtimes").exists()


def test_folders_of_other_exports(exported, tmp_path):
    folder, onnx = exported / "model", tmp_path / "onnx"
    shutil.copytree(exported / "onnx", onnx)

    def line(model=folder, load=bert_tf.load, **settings):
        settings = {"runtime": str(onnx), **settings}
        found = error_of(load, model, **settings)
        assert found.startswith("`")
        return found

    assert "nor the folder of an export" in line(runtime=str(folder))
    assert "has its own" in line(precision="mixed_bfloat16")
    (tmp_path / "model.json").write_text('{"format": "openvino"}')
    assert "whose model.json states its format" in line(runtime=str(tmp_path))
    other = write_folder(tmp_path / "other", CLASSIFIER)
    add_one(other)
    assert f"is not of the weights in {other}" in line(other)
    assert "vectors of" in line(load=bert_tf.embed, texts=["a"])
    (onnx / "model.onnx").write_bytes(b"no model")
    changed = error_of(bert_tf.load, folder, runtime=str(onnx))
    assert "model.onnx: is not the file" in changed
    # Earlier versions did not state the digests of files.
    description = json.loads((onnx / "model.json").read_text())
    del description["files"]
    (onnx / "model.json").write_text(json.dumps(description))
    damaged = error_of(bert_tf.load, folder, runtime=str(onnx))
    assert "model.onnx: cannot be opened (" in damaged
    (onnx / "model.onnx").unlink()
    assert "has no model.onnx; export it again" in line()
    found = line(runtime=str(exported / "litert"))
    assert f"takes rows of {LENGTH} tokens, and the model" in found
