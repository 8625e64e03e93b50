"""The clients and the files of docs/serving.md work with the local server."""

import json
import pathlib
import re
import urllib.request

import pytest

from bert_tf.server.config import (
    read_batching,
    read_metrics_path,
    read_models,
)
from bert_tf.serving.saving import write_saved_model
from bert_tf.serving.sentences import SentenceModel
from tests.server.served_models import served
from tests.serving.serving_models import classifier, tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
PRODUCTION = ROOT / "production"


def test_the_configuration_files_are_read():
    (model,) = read_models(PRODUCTION / "models.config")
    assert model.name == "bert"
    batching = read_batching(PRODUCTION / "batching.config")
    assert batching.max_batch_size == 32
    path = read_metrics_path(PRODUCTION / "monitoring.config")
    assert path == "/monitoring/prometheus/metrics"


def test_what_curl_sends_is_json():
    bodies = re.findall(r"curl -d '([^']*)'", DOCS)
    assert len(bodies) >= 6
    for body in bodies:
        assert set(json.loads(body)) & {"instances", "examples"}


@pytest.mark.parametrize("file", ["compose.yaml", "kubernetes.yaml"])
def test_all_files_that_are_mounted_exist(file):
    text = (PRODUCTION / file).read_text()
    named = re.findall(r"/config/([\w.]+)", text)
    assert len(named) == 3
    for name in named:
        assert (PRODUCTION / name).is_file()
    assert "/v1/models/bert" in text


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """A server of a small sentence model called bert."""
    folder = tmp_path_factory.mktemp("served")
    labels = ("bad", "good", "so")
    model = SentenceModel(classifier(), tokenizer(), 32, labels)
    write_saved_model(model, folder)
    with served(folder, name="bert") as background:
        yield background


def client(number: int, old: str, new: str) -> dict:
    """The names that a Python block of the page defines when it is run."""
    block = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)[number]
    names: dict = {}
    assert old in block
    # As a user would paste it, with the address of a server there is.
    exec(block.replace(old, new), names)
    return names


@pytest.mark.slow
def test_the_clients_give_the_same_answers(addresses, capsys):
    rest = client(0, "http://localhost:8501", addresses.rest)["predict"]
    grpc = client(1, "localhost:8500", addresses.grpc)["predict"]
    texts = ["a good film", "dull!", ""]
    rows = rest(texts)
    arrays = grpc(text=texts)
    assert [row["label"] for row in rows] == [
        label.decode() for label in arrays["label"].tolist()
    ]
    for row, shares in zip(rows, arrays["probabilities"], strict=True):
        assert row["probabilities"] == pytest.approx(shares.tolist(), abs=1e-6)
    assert "label" in capsys.readouterr().out


@pytest.mark.slow
def test_curl_of_classes_is_answered(addresses):
    body = re.search(r"curl -d '(\{\"signature_name\": \"classify.*?)'", DOCS)
    url = f"{addresses.rest}/v1/models/bert:classify"
    with urllib.request.urlopen(url, body[1].encode(), timeout=60) as answer:
        (row,) = json.load(answer)["results"]
    assert {name for name, _ in row} == {"bad", "good", "so"}
    assert sum(score for _, score in row) == pytest.approx(1, abs=1e-5)
