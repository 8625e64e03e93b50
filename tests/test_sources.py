"""Folders and names of hubs; the hubs' own functions stand in for a network."""

import fnmatch
import importlib
import os
import threading

import huggingface_hub
import kagglehub
import pytest
import requests
from huggingface_hub import errors
from kagglehub import exceptions

from bert_tf import sources
from bert_tf.errors import UserError
from bert_tf.sources import MODEL_FILES, local_folder
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer_config import read_tokenizer_config
from bert_tf.text.vocabulary import Vocabulary
from tests.contracts.architecture_cases import CASES
from tests.user_errors import error_of

# The library that huggingface_hub is built on: httpx, or httpx2 since its 2.0.
httpx = importlib.import_module(errors.HTTPError.__module__.split(".")[0])


def refused(source):
    line = error_of(local_folder, source)
    assert line.startswith(os.fspath(source))
    return line


class Hub:
    """Behaves as snapshot_download: copies matching files, or raises."""

    def __init__(self, folder, files=(), error=None):
        self.folder, self.files, self.error = folder, files, error
        self.calls = []

    def __call__(self, repo_id, *, revision, allow_patterns, local_files_only):
        self.calls.append((repo_id, revision))
        self.local_files_only = local_files_only
        if self.error is not None:
            raise self.error
        for name in self.files:
            if any(fnmatch.fnmatch(name, p) for p in allow_patterns):
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("x")
        return str(self.folder)

    @property
    def downloaded(self):
        return sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        )


@pytest.fixture
def hugging_face(monkeypatch, tmp_path):
    def ask(name, timeout):
        assert 0 < timeout <= 30

    def make(files=(), error=None):
        hub = Hub(tmp_path, files, error)
        monkeypatch.setattr(huggingface_hub, "model_info", ask)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
        return hub

    return make


def answer(kind, status=404):
    request = httpx.Request("GET", "https://huggingface.co/api/models/a/b")
    response = httpx.Response(status, request=request)
    return kind("404 Client Error.\n\nNot found", response=response)


def test_a_folder(tmp_path):
    assert local_folder(tmp_path) == local_folder(str(tmp_path)) == tmp_path


def test_what_is_no_folder(tmp_path):
    line = refused("bert-base-uncased")
    assert "write hf://" in line
    assert "or keras_hub://preset." in refused(tmp_path / "none")
    for source in ("gs://bert_models/x", "https://huggingface.co/a/b"):
        assert "unknown kind of source; for a model of" in refused(source)
    (tmp_path / "vocab.txt").write_text("x")
    line = refused(tmp_path / "vocab.txt")
    assert line.endswith(f"is a file; give its folder, {tmp_path}")
    (tmp_path / "m.keras").write_bytes(b"PK")
    line = refused(tmp_path / "m.keras")
    assert "`keras.models.load" in line
    (tmp_path / "model.ckpt-100.index").write_text("x")
    line = refused(tmp_path / "model.ckpt-100")
    assert line.endswith(f"prefix of a checkpoint; give its folder, {tmp_path}")


FILES = [
    [
        "config.json",
        "vocab.txt",
        "tokenizer.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
    ],
    ["bert_config.json", "bert_model.ckpt.index", "vocab.txt"],
    ["bert_config.json", "bert_model.safetensors", "labels.json"],
    [
        *("config.json", "model.weights.h5", "task.json", "task.weights.h5"),
        "assets/tokenizer/vocabulary.txt",
    ],
    ["model.weights.json", "model_00000.weights.h5"],
]
OTHERS = [
    *("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "README.md"),
    *("onnx/model.onnx", "events.out"),
]


@pytest.mark.parametrize("files", FILES)
def test_only_what_is_needed_is_downloaded(hugging_face, files):
    hub = hugging_face([*files, *OTHERS])
    assert local_folder("hf://google-bert/bert-base-uncased") == hub.folder
    assert hub.calls == [("google-bert/bert-base-uncased", None)]
    assert hub.downloaded == sorted(files)


def test_a_pickle_comes_only_where_there_is_nothing_else(hugging_face):
    hub = hugging_face(["config.json", "pytorch_model.bin", "training.bin"])
    local_folder("hf://a/b@v1.0")
    assert hub.downloaded == ["config.json", "pytorch_model.bin"]
    assert hub.calls == [("a/b", "v1.0"), ("a/b", "v1.0")]


def test_other_frameworks_weights_come_last(hugging_face):
    hub = hugging_face(["config.json", "tf_model.h5", "flax_model.msgpack"])
    local_folder("hf://a/b")
    assert hub.downloaded == ["config.json", "tf_model.h5"]


def test_names_and_revisions(hugging_face):
    hub = hugging_face(["model.safetensors"])
    for name in (
        *("", "a/", "/a", "a/b/c", "../b", "a/..", "a/b@", "a/b@../x"),
        *("a/b@-x", "~/b", "a b/c", "a/b@x y", "a/b\n"),
    ):
        with pytest.raises(UserError, match="is no name of a model; write hf"):
            local_folder(f"hf://{name}")
    assert hub.calls == []
    for revision in ("main", "refs/pr/3", "0a1b2c", "v1.0"):
        local_folder(f"hf://a/b@{revision}")
        assert hub.calls.pop() == ("a/b", revision)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.LocalEntryNotFoundError("Got: ConnectError:\nno route"),
            "huggingface.co cannot be reached and the model is not in the ",
        ),
        (errors.OfflineModeIsEnabled("1"), "huggingface.co cannot be reached"),
        (answer(errors.RepositoryNotFoundError, 401), "no such model on huggi"),
        (answer(errors.GatedRepoError, 403), "access requires the owners' per"),
        (answer(errors.RevisionNotFoundError), "has no revision 'v2'"),
        (
            errors.HFValidationError("Repo id must use\nalphanumeric chars."),
            "Repo id must use alphanumeric chars.",
        ),
        (
            answer(errors.HfHubHTTPError, 503),
            "the download failed (404 Client Error. Not found)",
        ),
        (httpx.ConnectTimeout("timed out"), "the download failed (timed out)"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_hub_that_refuses(hugging_face, error, message):
    hugging_face(error=error)
    assert message in refused("hf://a/b@v2")


@pytest.mark.parametrize(
    ("error", "local"),
    [
        (httpx.ConnectTimeout("timed out"), True),
        (httpx.ConnectError("no route"), True),
        (errors.OfflineModeIsEnabled("offline"), True),
        (answer(errors.RepositoryNotFoundError, 401), False),
    ],
)
def test_a_hub_that_does_not_answer(hugging_face, monkeypatch, error, local):
    hub = hugging_face(["model.safetensors"])

    def fail(name, timeout):
        raise error

    monkeypatch.setattr(huggingface_hub, "model_info", fail)
    assert local_folder("hf://a/b") == hub.folder
    assert hub.local_files_only is local


def test_the_cache_of_the_hub_is_used_offline(tmp_path, monkeypatch):
    """With huggingface_hub's own code, which then asks for no connection."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "huggingface.co cannot be reached" in refused("hf://a/bert-cased")
    model, commit = tmp_path / "models--a--bert-cased", "0123456789" * 4
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    folder = model / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text("x")
    assert local_folder("hf://a/bert-cased") == folder
    assert local_folder(f"hf://a/bert-cased@{commit}") == folder
    assert "cannot be reached" in refused("hf://a/bert-cased@other")
    # The model's own name, not the commit, says how it is cased.
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a"])
    assert read_tokenizer_config(folder, vocabulary).lower_case is False


@pytest.fixture
def kaggle(monkeypatch, tmp_path):
    handles = []

    def head(url, timeout):
        assert 0 < timeout <= 30

    monkeypatch.setattr(requests, "head", head)

    def make(error=None):
        def download(handle):
            handles.append(handle)
            if error is not None:
                raise error
            return str(tmp_path)

        monkeypatch.setattr(kagglehub, "model_download", download)
        return handles

    return make


def test_a_preset(kaggle, tmp_path):
    handles = kaggle()
    names = (
        "bert_base_en_uncased",
        "roberta_base_en",
        "albert_base_en_uncased",
    )
    for name in names:
        assert local_folder(f"keras_hub://{name}") == tmp_path
        kind = name.partition("_")[0]
        assert handles.pop().startswith(f"keras/{kind}/keras/{name}/")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_files_of_a_tokenizer_are_shared(case, tmp_path):
    case.tokenizer.save_hugging_face(tmp_path, 9)
    written = {path.name for path in tmp_path.iterdir()}
    assert case.tokenizer.FILES[0] in written
    shared = (set(fnmatch.filter(written, name)) for name in MODEL_FILES)
    assert written == set().union(*shared)


def test_a_preset_that_is_none(kaggle):
    handles = kaggle()
    for name in ("bert_huge", "roberta_huge", "", "../x"):
        line = refused(f"keras_hub://{name}")
        assert "no such preset" in line
        assert "bert_base_zh" in line
    assert handles == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (requests.ConnectionError("Max retries\nexceeded"), "kaggle.com canno"),
        (
            requests.ReadTimeout("read timed out"),
            "the download failed (read timed out)",
        ),
        (
            exceptions.KaggleApiHTTPError("403 Client Error.\n\nNo permission"),
            "the download failed (403 Client Error. No permission)",
        ),
        (exceptions.DataCorruptionError("checksum"), "failed (checksum)"),
        (exceptions.UnauthenticatedError(), "(User is not authenticated)"),
    ],
)
def test_a_preset_that_does_not_come(kaggle, error, message):
    kaggle(error)
    assert message in refused("keras_hub://bert_tiny_en_uncased")


def test_kaggle_that_does_not_answer(kaggle, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise requests.ConnectTimeout("timed out")

    monkeypatch.setattr(requests, "head", fail)
    kaggle()
    assert local_folder("keras_hub://bert_base_en") == tmp_path
    for error in (requests.ConnectionError("none"), KeyError("x")):
        kaggle(error)
        line = refused("keras_hub://bert_base_en")
        assert "kaggle.com cannot be reached" in line

    def hang(handle):
        threading.Event().wait(5)

    monkeypatch.setattr(kagglehub, "model_download", hang)
    monkeypatch.setattr(sources, "_TIMEOUT", 0.05)
    assert "kaggle.com cannot be reached" in refused("keras_hub://bert_base_en")
