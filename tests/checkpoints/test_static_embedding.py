"""Folders of StaticEmbedding: vectors equal those of encode()."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.checkpoints.array_file import write_arrays
from bert_tf.conversion.convert import convert
from bert_tf.inference.embed import embed
from bert_tf.inference.load import load
from tests.user_errors import error_of

pytestmark = pytest.mark.usefixtures("eagerly")
GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "static_embedding"
TEXTS = json.loads((GOLDEN / "texts.json").read_text(encoding="utf-8"))
MODULES = "modules.json"


def expected(name: str) -> np.ndarray:
    with np.load(GOLDEN / "vectors.npz") as vectors:
        return vectors[name]


@pytest.mark.parametrize("name", ["bert", "model2vec", "byte_level"])
def test_vectors_are_those_of_encode(name):
    found = embed(GOLDEN / name, TEXTS)
    np.testing.assert_allclose(found, expected(name), atol=1e-5, rtol=0)


def test_a_loaded_model_answers_with_them():
    model = load(GOLDEN / "bert")
    vectors = [answer["embedding"] for answer in model(TEXTS)]
    np.testing.assert_allclose(vectors, expected("bert"), atol=1e-5, rtol=0)
    # The text of 700 tokens is not truncated.
    assert model.facts["max_seq_length"] == 1_000_000
    assert model.facts["num_hidden_layers"] == 0
    assert model.facts["num_parameters"] == 20 * 6


def test_the_table_may_be_in_a_subfolder(tmp_path):
    inner = tmp_path / "0_StaticEmbedding"
    shutil.copytree(GOLDEN / "model2vec", inner)
    modules = json.loads((inner / MODULES).read_text(encoding="utf-8"))
    modules[0]["path"] = inner.name
    (tmp_path / MODULES).write_text(json.dumps(modules), encoding="utf-8")
    (inner / MODULES).unlink()
    found = embed(tmp_path, TEXTS)
    np.testing.assert_allclose(found, expected("model2vec"), atol=1e-5, rtol=0)


def test_its_own_copy_computes_the_same(tmp_path):
    convert(GOLDEN / "bert", "bert_tf", tmp_path / "ours")
    assert not (tmp_path / "ours" / "model.safetensors").exists()
    found = embed(tmp_path / "ours", TEXTS)
    np.testing.assert_allclose(found, expected("bert"), atol=1e-5, rtol=0)
    checkpoint = load_checkpoint(GOLDEN / "bert")
    assert error_of(
        lambda: save_checkpoint(tmp_path / "other", checkpoint, "hugging_face")
    ).endswith(
        "hugging_face has no place for a model without layers; write bert_tf."
    )


def damaged(tmp_path, **arrays):
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "bert", folder)
    if arrays:
        write_arrays(folder / "model.safetensors", arrays)
    return folder


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        (
            {"table": np.zeros((20, 6), np.float32)},
            "{folder}: its weights are table [20, 6]; a StaticEmbedding has "
            "embedding.weight or embeddings [tokens, numbers].",
        ),
        (
            {"embedding.weight": np.full((20, 6), np.nan, np.float32)},
            "{folder}: embedding.weight holds values that are not finite (NaN "
            "or infinite); restore the file.",
        ),
        (
            {"embedding.weight": np.zeros((19, 6), np.float32)},
            "{folder}: the vocabulary has 20 tokens, but vocab_size is 19",
        ),
        (
            {"embedding.weight": np.zeros((20, 6), np.int8)},
            "{folder}: embedding.weight holds int8, not floating-point",
        ),
    ],
)
def test_damaged_weights(arrays, line, tmp_path):
    folder = damaged(tmp_path, **arrays)
    found = error_of(lambda: embed(folder, TEXTS))
    assert found.startswith(line.format(folder=folder))


def test_its_modules(tmp_path):
    folder = damaged(tmp_path)
    modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
    modules[1]["type"] = "sentence_transformers.models.Pooling"
    (folder / MODULES).write_text(json.dumps(modules), encoding="utf-8")
    assert error_of(lambda: embed(folder, TEXTS)) == (
        f"{folder / MODULES}: module 1 is a Pooling; a Transformer is followed "
        "by one Pooling, and then by the others; a StaticEmbedding has none."
    )


@pytest.mark.parametrize("file_format", ["onnx", "openvino"])
def test_files_pool_and_normalise(file_format, tmp_path):
    """The export compares `embedding` of the file with the model's."""
    bert_tf.export(GOLDEN / "bert", tmp_path / "file", file_format)
    text = (tmp_path / "file" / "model.json").read_text(encoding="utf-8")
    assert "embedding" in json.loads(text)["outputs"]


def test_litert_asks_for_a_length(tmp_path):
    line = error_of(
        lambda: bert_tf.export(GOLDEN / "bert", tmp_path / "file", "litert")
    )
    assert "of 1,000,000 tokens here; give `max_seq_length`" in line
