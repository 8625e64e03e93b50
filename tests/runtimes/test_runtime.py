"""Networks that another runtime computes, and the files that are kept."""

import json

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


def probabilities(model):
    return [row["probabilities"] for row in model(TEXTS)]


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
    assert probabilities(again) == first
    assert (folder / ".runtimes" / place).is_dir()
    file = folder / "model.safetensors"
    arrays = safetensors.numpy.load_file(file)
    arrays["classifier.bias"] += 1
    arrays["classifier.weight"] *= 2
    safetensors.numpy.save_file(arrays, file, {"format": "pt"})
    assert probabilities(bert_tf.load(folder, runtime="openvino")) != first
    assert [name.split("/")[1:] for name, _ in kept(folder)] == [
        name.split("/")[1:] for name, _ in files
    ]
    assert kept(folder)[0][0] != place


@pytest.mark.parametrize("name", ["openvino", "onnx", "litert"])
def test_vectors(name, tmp_path):
    folder = write_folder(tmp_path, MASKED_LM)
    for settings in (
        {},
        {"layer": 1, "pooling": "max"},
        {"layer": 0, "pooling": "cls"},
    ):
        wanted = bert_tf.embed(folder, TEXTS, **settings)
        found = bert_tf.embed(folder, TEXTS, runtime=name, **settings)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


def test_bfloat16_rounds_products_or_is_refused(tmp_path):
    folder = write_folder(tmp_path, CLASSIFIER)
    wanted = np.array(
        [[*row.values()] for row in probabilities(bert_tf.load(folder))]
    )
    given = {"precision": "mixed_bfloat16", "runtime": "openvino"}
    if not openvino_file.has_bfloat16():
        line = error_of(bert_tf.load, folder, **given)
        assert "OpenVINO computes in float32 on this processor" in line
        return
    model = bert_tf.load(folder, **given)
    found = np.array([[*row.values()] for row in probabilities(model)])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.1)
    assert np.abs(found - wanted).max() > 1e-4


class Wrong(openvino_file.Runner):
    def _infer(self, inputs):
        return {name: 1.1 * v for name, v in super()._infer(inputs).items()}


def test_other_outputs_are_refused(tmp_path, monkeypatch, capfd):
    folder = write_folder(tmp_path, CLASSIFIER)
    wanted = probabilities(bert_tf.load(folder))
    monkeypatch.setattr(openvino_file, "Runner", Wrong)
    line = error_of(bert_tf.load, folder, runtime="openvino")
    assert line == (
        f"`runtime`=openvino: computes another logits of {folder} than Keras "
        "(by 10.00%); give keras."
    )
    capfd.readouterr()
    assert probabilities(bert_tf.load(folder, runtime="auto")) == wanted
    told = capfd.readouterr().err
    assert "answers are computed by Keras: `runtime`=openvino" in told


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, capfd):
    folder = write_folder(tmp_path, CLASSIFIER)
    # Root may write anywhere, so a file stands in the way.
    (folder / ".runtimes").write_text("")
    found = probabilities(bert_tf.load(folder, runtime="openvino"))
    told = capfd.readouterr().err
    assert "the model is converted to openvino at every start." in told
    assert found[0] == pytest.approx(
        probabilities(bert_tf.load(folder))[0], abs=2e-5
    )


def test_a_file_for_programs_that_use_openvino(tmp_path):
    folder = write_folder(tmp_path / "model", CLASSIFIER)
    path = export_file(folder, tmp_path / "out", "openvino")
    assert {file.name for file in path.parent.iterdir()} >= {
        *("model.xml", "model.bin", "model.json", "tokenizer.json"),
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
    line = error_of(
        runtime.open_runtime, "openvino", tmp_path, "mixed_bfloat16", 0
    )
    assert line.endswith("leave it out, or give `runtime`=keras.")
    monkeypatch.setattr(openvino_file, "has_bfloat16", lambda: True)
    monkeypatch.setattr(runtime, "has_accelerator", lambda: True)
    assert opened() == (None, "mixed_bfloat16")


def test_mistakes(tmp_path, monkeypatch):
    folder = write_folder(tmp_path, CLASSIFIER)
    line = error_of(bert_tf.load, folder, runtime="tvm")
    assert "`runtime`=tvm: is neither one of keras, auto, openvino, on" in line
    line = error_of(bert_tf.load, folder, 32, "mixed_bfloat16", runtime="onnx")
    assert "`runtime`=onnx computes in float32" in line
    line = error_of(bert_tf.load, folder, 32, "mixed_float16", runtime="auto")
    assert "`precision`=mixed_float16: `runtime`=auto computes on a CPU" in line
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, package=None: None
    )
    line = error_of(bert_tf.load, folder, runtime="openvino")
    assert line.endswith('run pip install "bert_tf[openvino]"')
    assert runtime.open_runtime("auto", folder, "float32", 0)[0] is None


def test_the_folder_of_an_export_is_a_runtime(tmp_path):
    folder = write_folder(tmp_path / "model", CLASSIFIER)
    wanted = probabilities(bert_tf.load(folder))
    for name in ("onnx", "litert"):
        export_file(folder, tmp_path / name, name)
        model = bert_tf.load(folder, runtime=str(tmp_path / name))
        for row, right in zip(probabilities(model), wanted, strict=True):
            assert row == pytest.approx(right, abs=2e-5)
        assert f"in float32, {tmp_path / name}>" in repr(model)
    assert not (folder / ".runtimes").exists()


def test_folders_of_other_exports(tmp_path):
    folder = write_folder(tmp_path / "model", CLASSIFIER)
    exported = export_file(folder, tmp_path / "onnx", "onnx").parent

    def line(model=folder, load=bert_tf.load, **settings):
        settings = {"runtime": str(exported), **settings}
        found = error_of(load, model, **settings)
        assert found.startswith("`")
        return found

    assert "nor the folder of an export" in line(runtime=str(folder))
    assert "has its own" in line(precision="mixed_bfloat16")
    (tmp_path / "model.json").write_text('{"format": "openvino"}')
    assert "whose model.json states its format" in line(runtime=str(tmp_path))
    other = write_folder(tmp_path / "other", CLASSIFIER)
    arrays = safetensors.numpy.load_file(other / "model.safetensors")
    arrays["classifier.bias"] += 1
    safetensors.numpy.save_file(
        arrays, other / "model.safetensors", {"format": "pt"}
    )
    assert f"is not of the weights in {other}" in line(other)
    assert "vectors of" in line(load=bert_tf.embed, texts=["a"])
    (exported / "model.onnx").write_bytes(b"no model")
    assert "model.onnx: is not the file that was exported" in error_of(
        bert_tf.load, folder, runtime=str(exported)
    )
    # Earlier versions did not state the digests of files.
    description = json.loads((exported / "model.json").read_text())
    del description["files"]
    (exported / "model.json").write_text(json.dumps(description))
    assert "model.onnx: cannot be opened (" in error_of(
        bert_tf.load, folder, runtime=str(exported)
    )
    (exported / "model.onnx").unlink()
    assert "has no model.onnx; export it again" in line()
    litert = export_file(
        folder, tmp_path / "s", "litert", options=UsageOptions(None, None, 8)
    )
    assert "takes rows of 8 tokens, and the model" in line(
        runtime=str(litert.parent)
    )
