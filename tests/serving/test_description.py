"""What exports say of models."""

import dataclasses
import json

import pytest

from bert_tf.errors import UserError
from bert_tf.serving.model_folder import describe_training
from bert_tf.serving.saving import describe_model, scripts_of
from tests.serving import serving_models as models


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


def test_a_training(tmp_path):
    assert describe_training(tmp_path) == {}
    (tmp_path / "task.json").write_text('{"task": "squad_v2"}')
    assert describe_training(tmp_path) == {"fine_tuned_for": "squad_v2"}
    results = {
        "model": "/home/someone/uncased_L-4",
        "main_metric": "f1",
        "dev": {"dev": {"f1": 0.75, "exact": None}},
        "examples": {"train": 9, "dev": 3},
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert describe_training(tmp_path) == {
        "fine_tuned_for": "squad_v2",
        "init_from": "uncased_L-4",
        "main_metric": "f1",
        "scores": {"dev": {"f1": 0.75, "exact": None}},
        "num_examples": {"train": 9, "dev": 3},
    }
    (tmp_path / "results.json").write_text("[")
    with pytest.raises(UserError, match="results.json: not valid JSON"):
        describe_training(tmp_path)
