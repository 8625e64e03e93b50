"""int8 is measured on the task's dev split, and refused where it costs much."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.inference.export_file import Quantization, export_file
from bert_tf.inference.quantization import Comparison, DevSplit, check_drop
from bert_tf.inference.served_folder import served_model
from bert_tf.runtimes import litert_file, onnx_file
from bert_tf.runtimes.runtime import of_tokens
from tests.user_errors import error_of


@pytest.fixture(scope="module")
def trained(request, finish_case):
    """A case's task and recipe, its model and scores."""
    run = finish_case(request.param)
    return run.task, run.recipe, run.folder, run.done["eval"]["dev"]


@pytest.mark.parametrize(
    ("trained", "module"),
    [
        ("classes", onnx_file),
        ("classes", litert_file),
        pytest.param("choices", litert_file, marks=pytest.mark.slow),
        pytest.param("questions", onnx_file, marks=pytest.mark.slow),
    ],
    indirect=["trained"],
)
def test_int8_is_scored_beside_float32(module, trained, tmp_path, capsys):
    task, recipe, folder, scores = trained
    file_format = module.__name__.rpartition(".")[2].removesuffix("_file")
    path = export_file(
        folder, tmp_path / "int8", file_format, Quantization(task, recipe, 1.0)
    )
    line = capsys.readouterr().out
    measured = json.loads((tmp_path / "int8" / "model.json").read_text())
    measured = measured["int8"]
    metric = task.resolve(recipe).main_metric
    assert measured["metric"] == metric
    # float32 is what the task itself scores of the Keras model.
    assert measured["scores"][0] == pytest.approx(scores[metric], abs=1e-5)
    assert f"{metric} on dev: {measured['scores'][0]:.4f} in float32" in line
    # And int8 is another model, near to it.
    dev = DevSplit(str(folder), task, recipe, served_model(folder).tokenizer)
    assert dev.score(module.Runner(path)) == measured["scores"][1]
    export_file(folder, tmp_path / "float32", file_format)
    inputs = {
        "input_ids": np.array([[2, 5, 14, 3]], np.int32),
        "input_mask": np.ones((1, 4), np.int32),
        "segment_ids": np.zeros((1, 4), np.int32),
    }
    exact = module.Runner(tmp_path / "float32" / module.FILE)(inputs)
    found = module.Runner(path)(inputs)
    # Padding does not change the scales.
    wider = {k: np.pad(v, ((0, 0), (0, 3))) for k, v in inputs.items()}
    for name, values in module.Runner(path)(wider).items():
        kept = of_tokens(name, values, wider)
        np.testing.assert_allclose(
            kept, of_tokens(name, found[name], inputs), atol=1e-5
        )
    # A model that the folder computes answers as the file does.
    model = bert_tf.load(folder, runtime=str(path.parent))
    score = f"{metric} on dev is {measured['scores'][1]:.4f} ("
    assert f" in int8, {path.parent}, whose {score}" in repr(model)
    given = inputs
    if model.served.token_axes == 3:
        given = {name: values[:, np.newaxis] for name, values in inputs.items()}
    answered = model.served.answer_tokens(given)
    for name, values in found.items():
        np.testing.assert_allclose(
            np.reshape(answered[name], values.shape), values, atol=1e-6
        )
        # LiteRT leaves kernels below 1,024 numbers as they are; larger ones
        # are in test_litert_export.py.
        if module is onnx_file:
            assert np.abs(values - exact[name]).max() > 1e-5
        np.testing.assert_allclose(
            values, exact[name], atol=0.1 * (1 + np.abs(exact[name]).max())
        )


@pytest.mark.parametrize("trained", ["classes"], indirect=True)
def test_too_large_a_drop_writes_nothing(trained, tmp_path, capsys):
    task, recipe, folder, _ = trained
    line = error_of(
        export_file,
        folder,
        tmp_path / "int8",
        "onnx",
        # Less than nothing.
        Quantization(task, recipe, -2.0),
    )
    assert line.startswith("`max_score_drop`=-2: ")
    assert "nothing is written" in line
    assert not (tmp_path / "int8").exists()
    assert "in int8" in capsys.readouterr().out


def test_what_is_no_number_is_refused():
    nothing = Comparison("f1", "dev", (0.5, np.nan), np.nan, (1.0, 1.0))
    assert "f1 on dev" in error_of(check_drop, nothing, 0.5)
    check_drop(Comparison("f1", "dev", (0.5, 0.4), 0.1, (1.0, 1.0)), 0.1)
