"""bfloat16 is chosen where it keeps the first answers, and stays chosen."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.families.pretrained.settings import Settings
from bert_tf.families.requests import Refusal
from bert_tf.inference import precision
from bert_tf.inference import predict as module
from bert_tf.inference.features import extract_features
from bert_tf.inference.precision import difference_of_answers
from bert_tf.inference.predict import predict_file
from bert_tf.inference.rows import PredictSettings
from bert_tf.runtimes import openvino_file
from tests.fine_tuned_models import TEXTS, write_folder

CLASSIFIER, MASKED_LM = "BertForSequenceClassification", "BertForMaskedLM"
FLOAT32, BFLOAT16 = "float32", "mixed_bfloat16"


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Compares three rows, on any processor."""
    monkeypatch.setattr(precision, "COMPARED_ROWS", 3)
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    monkeypatch.setattr(precision, "has_accelerator", lambda: False)


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS * 2))
    return path


def predict(folder, texts, name, **settings):
    output = texts.parent / f"{name}.jsonl"
    predict_file(folder, texts, output, PredictSettings(**settings))
    return output.read_bytes()


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("runtime", ["keras", "openvino"])
def test_predictions(runtime, tmp_path, texts, monkeypatch, capfd):
    folder = write_folder(tmp_path / "model", CLASSIFIER)
    name = {"keras": "Keras", "openvino": "OpenVINO"}[runtime]
    rounds = runtime == "keras" or openvino_file.has_bfloat16()
    monkeypatch.setattr(openvino_file, "has_bfloat16", lambda: True)
    right = {
        kind: predict(folder, texts, kind, precision=kind, runtime=runtime)
        for kind in (FLOAT32, BFLOAT16)
    }
    assert (right[FLOAT32] != right[BFLOAT16]) == rounds
    monkeypatch.setattr(precision, "_CHANGED", 1)
    monkeypatch.setattr(precision, "_MOVED", 1)
    capfd.readouterr()
    assert predict(folder, texts, "a", runtime=runtime) == right[BFLOAT16]
    printed = capfd.readouterr().err
    assert f"{folder}: computed by {name} in bfloat16" in printed
    assert "first 3 rows; `precision`=float32 refuses it." in printed
    # A killed run goes on in its precision, on a processor without it too.
    answers, calls = module._answers, []

    def killed(*arguments, **named):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return answers(*arguments, **named)

    monkeypatch.setattr(module, "_ROWS", 2)
    right = predict(folder, texts, "b", runtime=runtime, precision=BFLOAT16)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_answers", killed)
        with pytest.raises(KeyboardInterrupt, match="4 rows are done"):
            predict(folder, texts, "c", runtime=runtime)
    monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
    assert predict(folder, texts, "c", runtime=runtime) == right
    assert "resumes after 4 rows" in capfd.readouterr().err


@pytest.mark.usefixtures("eagerly")
def test_what_differs_stays_in_float32(tmp_path, texts, monkeypatch, capfd):
    folder = write_folder(tmp_path / "model", CLASSIFIER)
    right = predict(folder, texts, "a", precision=FLOAT32, runtime="keras")
    monkeypatch.setattr(precision, "_MOVED", 0)
    assert predict(folder, texts, "b", runtime="keras") == right
    line = "float32, because in bfloat16 a number of the first 3 answers"
    assert line in capfd.readouterr().err
    # Few rows, and processors without bfloat16, are not compared.
    monkeypatch.setattr(precision, "_MOVED", 1)
    for name, value in (("COMPARED_ROWS", 8), ("has_bfloat16", lambda: False)):
        with monkeypatch.context() as patch:
            patch.setattr(precision, name, value)
            assert predict(folder, texts, name, runtime="keras") == right
    # Nor are runtimes that have only float32.
    right = predict(folder, texts, "c", precision=FLOAT32, runtime="onnx")
    assert predict(folder, texts, "d", runtime="onnx") == right


@pytest.mark.usefixtures("eagerly")
def test_vectors(tmp_path, texts, monkeypatch, capfd):
    folder = write_folder(tmp_path / "model", MASKED_LM)
    given = TEXTS * 2
    kinds = (FLOAT32, BFLOAT16)
    right = {k: bert_tf.embed(folder, given, precision=k) for k in kinds}
    assert np.abs(right[FLOAT32] - right[BFLOAT16]).max() > 1e-4

    def found(output):
        mean = Settings((-1,), "mean")
        extract_features(folder, [texts], output, mean, runtime="keras")
        with np.load(output) as file:
            return file["vectors"][:, 0]

    for lowest, kind in ((-1, BFLOAT16), (2, FLOAT32)):
        monkeypatch.setattr(precision, "_COSINE", lowest)
        vectors = bert_tf.embed(folder, iter(given))
        np.testing.assert_array_equal(vectors, right[kind])
        line = capfd.readouterr().err
        assert f"computed by Keras in {kind.removeprefix('mixed_')}, " in line
        assert ("a vector has the cosine" in line) == (kind == FLOAT32)
        vectors = found(tmp_path / f"{kind}.npz")
        np.testing.assert_array_equal(vectors, right[kind])
    # A text alone is always computed in float32.
    alone = bert_tf.embed(folder, given[0])
    np.testing.assert_allclose(alone, right[FLOAT32][0], atol=1e-5)


def classes(label, share):
    shares = {"good": share, "bad": 1 - share}
    return {"label": label, "probability": share, "probabilities": shares}


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (classes("good", 0.6), classes("good", 0.63), ""),
        (classes("good", 0.6), classes("good", 0.66), "moves by 0.06"),
        # A near tie is one of 100 answers.
        (classes("good", 0.51), classes("bad", 0.49), ""),
        (classes("good", 0.6), classes("bad", 0.3), "moves by 0.3"),
        ({"score": 4.0}, {"score": 4.19}, ""),
        ({"score": 4.0}, {"score": 4.3}, "moves by 0.3"),
        ({"answer": "a", "start": 3}, {"answer": "b", "start": 5}, ""),
        ({"entities": [{"text": "a", "score": 0.9}]}, {"entities": []}, ""),
        (
            {"masks": [[{"token": "a"}, {"token": "b"}]]},
            {"masks": [[{"token": "a"}, {"token": "c"}]]},
            "",
        ),
        ({"embedding": [1.0, 0.0]}, {"embedding": [2.0, 0.01]}, ""),
        ({"embedding": [1.0, 0.0]}, {"embedding": [1.0, 0.1]}, "cosine 0.995"),
        (Refusal("text", "is empty"), Refusal("text", "is empty"), ""),
    ],
)
def test_differences(before, after, line):
    kept = before if "embedding" in before else classes("good", 0.9)
    found = difference_of_answers([before, *[kept] * 99], [after, *[kept] * 99])
    assert (line in found) if line else not found
    # Where it is more than one of 100, the same change of an answer counts.
    if not isinstance(before, Refusal) and precision._decided(
        before
    ) != precision._decided(after):
        found = difference_of_answers([before] * 2, [after] * 2)
        assert found == "2 of the first 2 answers change"


def test_a_processor(tmp_path, monkeypatch):
    monkeypatch.undo()
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(precision, "_CPU", path)
    for text, has in (
        ("processor\t: 0\nflags\t\t: fpu avx512_bf16 avx2\n", True),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("flags\t\t: fpu avx512f amx_int8\n", False),
        ("Features\t: fp asimd bf16\n", False),
    ):
        path.write_text(text)
        assert precision.has_bfloat16() == has
    path.unlink()
    assert not precision.has_bfloat16()


def test_the_choice_is_recorded(tmp_path, texts, monkeypatch, eagerly):
    folder = write_folder(tmp_path / "model", CLASSIFIER)
    monkeypatch.setattr(module, "_ROWS", 2)
    stored = []
    write = module.write_text
    monkeypatch.setattr(
        module,
        "write_text",
        lambda path, text: stored.append(json.loads(text)) or write(path, text),
    )
    predict(folder, texts, "a", runtime="keras", precision=FLOAT32)
    assert {"precision": FLOAT32, "runtime": "keras"}.items() <= (
        stored[0]["fingerprint"].items()
    )
