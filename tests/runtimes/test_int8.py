"""int8 is measured on the task's dev split, and refused where it costs much."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.inference.export_file import Quantization, export_file
from bert_tf.inference.quantization import Comparison, DevSplit, check_drop
from bert_tf.inference.served_folder import served_model
from bert_tf.runtimes import litert_file, onnx_file
from tests.finished_runs import finished_run
from tests.user_errors import error_of

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def trained(request, tmp_path_factory):
    """A case's task and recipe, its model and scores."""
    run = finished_run(request.param, tmp_path_factory.mktemp("run"))
    return run.task, run.recipe, run.folder, run.done["eval"]["dev"]


@pytest.mark.parametrize(
    ("trained", "module"),
    [
        ("classes", onnx_file),
        ("choices", litert_file),
        ("questions", onnx_file),
    ],
    indirect=["trained"],
)
def test_int8_is_scored_beside_float32(module, trained, tmp_path, capsys):
    task, recipe, folder, scores = trained
    file_format = module.__name__.rpartition(".")[2].removesuffix("_file")
    int8 = Quantization(task, recipe, 1.0)
    path = export_file(folder, tmp_path / "int8", file_format, int8)
    line = capsys.readouterr().out
    measured = json.loads((tmp_path / "int8" / "model.json").read_text())
    measured = measured["int8"]
    metric = task.resolve(recipe).main_metric
    assert measured["metric"] == metric
    # float32 is what the task itself scores of the Keras model.
    assert measured["scores"][0] == pytest.approx(scores[metric], abs=1e-5)
    assert f"{metric} on dev: {measured['scores'][0]:.4f} in float32" in line
    # And int8 is another model, near to it.
    served = served_model(folder)
    dev = DevSplit(str(folder), task, recipe, served.tokenizer)
    assert dev.score(module.Runner(path)) == measured["scores"][1]
    inputs = {
        "input_ids": np.array([[2, 5, 14, 3]], np.int32),
        "input_mask": np.ones((1, 4), np.int32),
        "segment_ids": np.zeros((1, 4), np.int32),
    }
    exact = {n: np.asarray(v) for n, v in served.row_outputs(inputs).items()}
    found = module.Runner(path)(inputs)
    # Padding does not change the scales.
    wider = {k: np.pad(v, ((0, 0), (0, 3))) for k, v in inputs.items()}
    for name, values in module.Runner(path)(wider).items():
        kept = values if values.shape == found[name].shape else values[:, :4]
        np.testing.assert_allclose(kept, found[name], atol=1e-5)
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
    if module is litert_file:
        # Kernels below 1,024 numbers stay as they are.
        return
    # Where the file computes something else, it is refused.
    difference = measured["difference"]
    assert 0 < difference < 0.3
    description = path.with_name("model.json")
    text = description.read_text()
    description.write_text(text.replace(str(difference), str(-difference)))
    line = error_of(bert_tf.load, folder, runtime=str(path.parent))
    assert "computes another" in line


@pytest.mark.parametrize("trained", ["classes"], indirect=True)
def test_too_large_a_drop_writes_nothing(trained, tmp_path, capsys):
    task, recipe, folder, _ = trained
    less_than_nothing = Quantization(task, recipe, -2.0)
    given = folder, tmp_path / "int8", "onnx", less_than_nothing
    line = error_of(export_file, *given)
    assert line.startswith("`max_score_drop`=-2: ")
    assert "nothing is written" in line
    assert not (tmp_path / "int8").exists()
    assert "in int8" in capsys.readouterr().out


def test_what_is_no_number_is_refused():
    nothing = Comparison("f1", "dev", (0.5, np.nan), np.nan, (1.0, 1.0))
    assert "f1 on dev" in error_of(check_drop, nothing, 0.5)
    check_drop(Comparison("f1", "dev", (0.5, 0.4), 0.1, (1.0, 1.0)), 0.1)
