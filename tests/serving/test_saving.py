"""The folder of a version: what is in it, and the check before it appears."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.errors import UserError
from bert_tf.serving import saving
from bert_tf.serving.requests import Request, string_array
from bert_tf.serving.saving import (
    describe_model,
    scripts_of,
    write_saved_model,
)
from tests.serving import serving_models as models


def logs_of(folder):
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(r) for r in records]


def in_memory(served, request):
    function = served.signatures()[request.signature]
    return models.ask(
        function, **{n: list(v) for n, v in request.inputs.items()}
    )


@pytest.mark.slow
def test_a_version_is_whole_and_proven(tmp_path):
    served = models.KINDS["classes"]()
    recipe = '{"seed": 3}'
    folder = write_saved_model(
        served, tmp_path / "sst", recipe=recipe, training={"main_metric": "f1"}
    )
    assert folder == tmp_path / "sst" / "1"
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    vocabulary = (folder / "assets" / "vocab.txt").read_text().split("\n")
    assert vocabulary[:-1] == list(models.TOKENS)
    extra = folder / "assets.extra"
    labels = json.loads((extra / "labels.json").read_text())
    assert labels == ["bad", "fair", "gut ü"]
    assert (extra / "recipe.json").read_text() == recipe
    described = json.loads((extra / "model.json").read_text())
    assert described["task"] == "text pair classification"
    assert described["main_metric"] == "f1"
    logs = logs_of(folder)
    assert {log.WhichOneof("log_type") for log in logs} == {
        *("predict_log", "classify_log"),
    }
    assert {
        log.classify_log.request.model_spec.name
        for log in logs
        if log.HasField("classify_log")
    } == {"sst"}
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.loader.load(
            session, ["serve"], str(folder)
        )
        methods = {
            name: definition.method_name
            for name, definition in loaded.signature_def.items()
            if not name.startswith("__")
        }
    assert methods == {
        "serving_default": "tensorflow/serving/predict",
        "classify": "tensorflow/serving/classify",
        "tokens": "tensorflow/serving/predict",
    }
    # Versions count up, and none is written over.
    assert saving._version(folder.parent, None) == 2
    with pytest.raises(UserError, match="`version`=1: .* exists already; 2 w"):
        write_saved_model(served, folder.parent, version=1)


def test_versions_count_up(tmp_path):
    for name in ("3", "10", "x7", ".11.99.partial"):
        (tmp_path / name).mkdir()
    assert saving._version(tmp_path, None) == 11
    assert saving._version(tmp_path, 5) == 5
    assert saving._version(tmp_path / "new", None) == 1
    with pytest.raises(UserError, match="`version`=-1"):
        saving._version(tmp_path, -1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        saving._version(tmp_path / "file", None)


def _of_other_weights(answers):
    answers[0]["score"] = answers[0]["score"] + 1e-3


def _of_nothing(answers):
    answers[0].clear()


def _not_finite(answers):
    answers[0]["score"][:] = np.nan


def _of_another_shape(answers):
    answers[0]["score"] = answers[0]["score"][None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_of_other_weights, "score of the signature serving_default .*0.001"),
        (_of_nothing, "serving_default gives , and in memory score"),
        (_not_finite, "score of the signature"),
        (_of_another_shape, r"float32 \[1, 1\], not float32 \[1\]"),
    ],
)
def test_another_answer_leaves_nothing(tmp_path, monkeypatch, change, message):
    served = models.KINDS["regression"]()
    request = Request("serving_default", {"text": string_array(["the ferry"])})

    def answers(folder, requests, name):
        assert (folder / "saved_model.pb").exists()
        found = [in_memory(served, request) for request in requests]
        change(found)
        return found

    monkeypatch.setattr(saving, "_fresh_answers", answers)
    monkeypatch.setattr(saving, "save", _stand_in)
    with pytest.raises(UserError, match=message):
        write_saved_model(served, tmp_path / "new", requests=[request])
    assert list(tmp_path.iterdir()) == []


def _stand_in(served, folder):
    (folder / "saved_model.pb").write_bytes(b"")
    return served.signatures()


def test_text_must_be_equal():
    differ = saving._difference
    words = np.array([b"a", b"b"], object)
    assert differ(words, words.copy(), 0.1) is None
    assert "b'c' in place of b'b'" in differ(
        words, np.array([b"a", b"c"], object), 0.1
    )
    numbers = np.array([1.0, 1000.0], np.float32)
    assert differ(numbers, numbers * np.float32(1 + 5e-6), 1e-5) is None
    assert differ(numbers, numbers * np.float32(1 + 5e-5), 1e-5)


def test_a_folder_that_does_not_load_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "save", _stand_in)
    with pytest.raises(UserError, match="a fresh process cannot load"):
        write_saved_model(models.KINDS["regression"](), tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", models.KINDS)
def test_every_kind_is_written_and_proven(tmp_path, kind):
    served = models.KINDS[kind]()
    folder = write_saved_model(served, tmp_path, 7)
    assert folder == tmp_path / "7"
    assert len(logs_of(folder)) == len(served.requests())
    assert (folder / "assets.extra" / "labels.json").exists() == bool(
        served.labels
    )
    # The graph has no Python function in it.
    graph = pathlib.Path(folder / "saved_model.pb").read_bytes()
    assert b"PyFunc" not in graph


@pytest.mark.slow
def test_mixed_bfloat16_is_written_and_proven(tmp_path):
    served = models.of_policy("mixed_bfloat16")
    assert served.compute_dtype == "bfloat16"
    write_saved_model(served, tmp_path)
    logits = in_memory(served, served.requests()[-2])["logits"]
    plain = models.of_policy("float32")
    wanted = in_memory(plain, served.requests()[-2])["logits"]
    # It computes in another precision than the same weights in float32.
    assert 1e-5 < np.abs(logits - wanted).max() < 0.5


@pytest.mark.parametrize(
    ("kind", "task", "threshold", "labels"),
    [
        ("classes", "text pair classification", None, 3),
        ("regression", "text regression", None, None),
        ("several_labels", "text multi-label classification", 0.5, 3),
        ("span", "question answering", -0.5, None),
        ("tags", "token classification", None, 5),
        ("choice", "multiple choice", None, None),
        ("pretrained", "fill-mask and embeddings", None, None),
        ("encoder", "embeddings", None, None),
    ],
)
def test_every_kind_of_model(kind, task, threshold, labels):
    served = models.KINDS[kind]()
    found = json.loads(json.dumps(describe_model(served)))
    assert found["task"] == task
    assert found.get("threshold") == threshold
    assert len(found.get("labels", [])) == (labels or 0)
    assert ("labels" in found) == (labels is not None)
    config = dataclasses.asdict(models.config())
    for name in ("num_hidden_layers", "hidden_size"):
        assert found[name] == config[name]
    assert found["vocab_size"] == len(models.TOKENS)
    assert found["lower_case"] is True
    assert found["num_parameters"] > found["vocab_size"] * found["hidden_size"]
    assert found["scripts"][0] == "Latin"


def test_scripts_are_of_letters():
    tokens = ["[PAD]", "[CLS]", "1", "##2", "?", "##ing", "the", "##же", "α"]
    assert scripts_of(tokens) == ["Latin", "Cyrillic"]
    assert scripts_of(["東", "##京", "an"]) == ["Chinese", "Latin"]
    assert scripts_of(["[PAD]", "1"]) == []


@pytest.mark.parametrize(
    ("name", "scripts"),
    [
        ("bert-base-uncased", ["Latin"]),
        ("bert-base-cased", ["Latin"]),
        (
            "bert-base-multilingual-cased",
            "Latin Chinese Cyrillic Arabic Hebrew Greek Devanagari".split(),
        ),
    ],
)
def test_scripts_of_released_vocabularies(name, scripts, shared_data):
    path = shared_data / "vocab" / name / "vocab.txt"
    found = scripts_of(path.read_text(encoding="utf-8").split("\n"))
    assert found[: len(scripts)] == scripts
    assert (len(found) > 15) == ("multilingual" in name)
