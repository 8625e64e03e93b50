"""The folder of a version: what is in it, and the check before it appears."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.errors import UserError
from bert_tf.families.requests import Request, string_array
from bert_tf.inference import saving
from bert_tf.inference.saving import write_saved_model
from bert_tf.inference.served_folder import describe_model, scripts_of
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from tests.inference import serving_models as models


def test_versions_count_up(tmp_path):
    for name in ("3", "10", "x7", ".11.99.partial"):
        (tmp_path / name).mkdir()
    assert saving._version(tmp_path, None) == 11
    assert saving._version(tmp_path, 5) == 5
    assert saving._version(tmp_path / "new", None) == 1
    with pytest.raises(UserError, match="`version`=3: .*; 11 would be the n"):
        saving._version(tmp_path, 3)
    with pytest.raises(UserError, match="`version`=-1"):
        saving._version(tmp_path, -1)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        saving._version(tmp_path / "file", None)


def test_recipes_are_given_without_places():
    recipe = {
        "seed": 3,
        "init_from": "../models/base/",
        "teacher": "hf://google/bert",
        "data_dir": "/a/short,/a/long",
        "size": "3/768/12",
        "task": "mine/task.py",
        "own_setting": "/home/anna/list.txt",
        "text_columns": "either/or,b",
    }
    assert saving._without_places(recipe) == {
        **recipe,
        "init_from": "base",
        "data_dir": "short,long",
        "task": "task.py",
        "own_setting": "list.txt",
    }


def _stand_in(served, folder):
    (folder / "saved_model.pb").write_bytes(b"")
    return served.signatures()


class FreshStandIn:
    """Answers one request with what it was given."""

    def ask(self, folder, requests):
        assert (folder / "saved_model.pb").exists()
        assert [signature for signature, _ in requests] == ["serving_default"]

    def answers(self, name):
        return [self.given]


def test_another_answer_leaves_nothing(tmp_path, monkeypatch):
    served = models.KINDS["regression"]()
    functions = served.signatures()
    served.signatures = lambda: functions
    request = Request("serving_default", {"text": string_array(["the ferry"])})
    score = functions["serving_default"](**request.inputs)["score"].numpy()
    served.requests = lambda: [request]
    fresh = FreshStandIn()
    monkeypatch.setattr(saving, "save", _stand_in)
    for answer, message in (
        ({"score": score + 1e-3}, "score of the signature serving_.*0.001"),
        ({}, "serving_default gives , and in memory score"),
        ({"score": score * np.nan}, "score of the signature"),
        ({"score": score[None]}, r"float32 \[1, 1\], not float32 \[1\]"),
    ):
        fresh.given = {name: saving.pack(v) for name, v in answer.items()}
        with pytest.raises(UserError, match=message):
            write_saved_model(served, tmp_path / "new", fresh=fresh)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("written", ["the graph", "the warm-up"])
def test_a_full_disk_leaves_nothing(written, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        line = f"{tmp_path}/new/.1.partial/x.tmp; No space left on device"
        raise tf.errors.ResourceExhaustedError(None, None, line)

    served, path = models.KINDS["regression"](), tmp_path / "new" / "1"
    monkeypatch.setattr(tf.saved_model, "save", full)
    monkeypatch.setattr(tf.io, "TFRecordWriter", full)
    if written == "the warm-up":
        monkeypatch.setattr(saving, "save", _stand_in)
    with pytest.raises(OSError, match="No space left") as caught:
        write_saved_model(served, path.parent, fresh=FreshStandIn())
    assert str(caught.value) == f"[Errno 28] No space left on device: '{path}'"
    assert list(tmp_path.iterdir()) == []


def test_text_must_be_equal():
    differ = saving._difference
    words = np.array([b"a", b"b"], object)
    assert differ(words, words.copy(), 0.1) is None
    others = np.array([b"a", b"c"], object)
    assert "b'c' in place of b'b'" in differ(words, others, 0.1)
    numbers = np.array([1.0, 1000.0], np.float32)
    assert differ(numbers, numbers * np.float32(1 + 5e-6), 1e-5) is None
    assert differ(numbers, numbers * np.float32(1 + 5e-5), 1e-5)


def test_a_folder_that_does_not_load_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "save", _stand_in)
    served = models.KINDS["regression"]()
    with pytest.raises(UserError, match="a fresh process cannot load"):
        write_saved_model(served, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


# The others are written by the commands of docs/serving.md.
@pytest.mark.parametrize("kind", ["regression", "bfloat16"])
def test_a_version_is_whole_and_proven(tmp_path, kind):
    served = models.KINDS[kind]()
    recipe = {"seed": 3, "init_from": "/home/anna/base"}
    training = {"main_metric": "f1"}
    folder = write_saved_model(served, tmp_path / "m", 7, recipe, training)
    assert folder == tmp_path / "m" / "7"
    assert [path.name for path in folder.parent.iterdir()] == ["7"]
    vocabulary = (folder / "assets" / "vocab.txt").read_text().split("\n")
    assert vocabulary[:-1] == list(models.TOKENS)
    extra = folder / "assets.extra"
    labels = extra / "labels.json"
    assert labels.exists() == bool(served.labels)
    if served.labels:
        assert json.loads(labels.read_text()) == list(served.labels)
    stored = json.loads((extra / "recipe.json").read_text())
    assert stored == {"seed": 3, "init_from": "base"}
    # No file says where it was made.
    for file in filter(pathlib.Path.is_file, (tmp_path / "m").rglob("*")):
        assert str(tmp_path).encode() not in file.read_bytes()
    described = json.loads((extra / "model.json").read_text())
    assert described == describe_model(served) | {"main_metric": "f1"}
    records = tf.data.TFRecordDataset(str(extra / saving.WARM_UP_FILE))
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record)
        for record in records.as_numpy_iterator()
    ]
    assert len(logs) == len(served.requests())
    own = f"{served.method}_log" if served.method else "predict_log"
    assert {log.WhichOneof("log_type") for log in logs} == {"predict_log", own}
    for log in logs:
        one = getattr(log, log.WhichOneof("log_type"))
        assert one.request.model_spec.name == "m"
    graph = (folder / "saved_model.pb").read_bytes()
    (meta,) = saved_model_pb2.SavedModel.FromString(graph).meta_graphs
    for name in served.signatures():
        method = name if name == served.method else "predict"
        expected = f"tensorflow/serving/{method}"
        assert meta.signature_def[name].method_name == expected
    assert b"PyFunc" not in graph


def test_mixed_bfloat16_computes_in_another_precision():
    served = models.KINDS["bfloat16"]()
    assert served.compute_dtype == "bfloat16"
    inputs = {"text": tf.constant(["the ferry is"])}
    logits = served.answers(**inputs)["logits"]
    plain = models.of_policy("float32").answers(**inputs)["logits"]
    assert 1e-5 < np.abs(logits - plain).max() < 0.5


TASKS = {
    "classes": ("text pair classification", None, 3),
    "regression": ("text regression", None, None),
    "several_labels": ("text multi-label classification", 0.5, 3),
    "span": ("question answering", -0.5, None),
    "tags": ("token classification", None, 5),
    "choice": ("multiple choice", None, None),
    "pretrained": ("fill-mask and embeddings", None, None),
    "encoder": ("embeddings", None, None),
}


@pytest.mark.parametrize("kind", TASKS)
def test_what_is_stated_of_every_kind(kind):
    task, threshold, labels = TASKS[kind]
    found = json.loads(json.dumps(describe_model(models.loaded(kind).served)))
    assert (found["task"], found.get("threshold")) == (task, threshold)
    assert (len(found["labels"]) if "labels" in found else None) == labels
    config = models.config()
    assert found["num_hidden_layers"] == config.num_hidden_layers
    assert found["hidden_size"] == config.hidden_size
    assert found["tokenizer"] == "WordPiece"
    assert found["vocab_size"] == len(models.TOKENS)
    assert found["lower_case"] is True
    assert found["num_parameters"] > found["vocab_size"] * found["hidden_size"]
    assert found["scripts"][0] == "Latin"


@pytest.mark.parametrize(
    ("tokens", "scripts"),
    [
        ("1 ##2 ? ##ing the ##же α", ["Latin", "Cyrillic"]),
        ("東 ##京 an", ["Chinese", "Latin"]),
        ("1", []),
    ],
)
def test_scripts_are_of_letters(tokens, scripts):
    vocabulary = Vocabulary([*SPECIAL_TOKENS, *tokens.split()])
    assert scripts_of(vocabulary.texts) == scripts


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
    found = scripts_of(Vocabulary.from_file(path).texts)
    assert found[: len(scripts)] == scripts
    assert (len(found) > 15) == ("multilingual" in name)
