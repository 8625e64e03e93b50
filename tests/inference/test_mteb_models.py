"""What MTEB calls, as its protocols have it.

A run of mteb 2.26 itself is described in docs/embeddings.md.
"""

import sys
import types

import numpy as np
import pytest

import bert_tf
from tests.families.pretrained.sentence_folders import (
    PAIRS,
    TEXTS,
    scores_of,
    vectors_of,
    write_cross_encoder,
    write_folder,
)

pytestmark = pytest.mark.usefixtures("eagerly")
# What MTEB says of a task.
GIVEN = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}


class Meta(dict):
    create_empty = classmethod(lambda cls, values: cls(values))


@pytest.fixture(autouse=True)
def mteb(monkeypatch):
    module = types.ModuleType("mteb.models")
    module.ModelMeta = Meta
    monkeypatch.setitem(sys.modules, "mteb", types.ModuleType("mteb"))
    monkeypatch.setitem(sys.modules, "mteb.models", module)


def batches(texts):
    return [{"text": texts[begin : begin + 2]} for begin in range(0, 9, 2)]


def test_encoder(tmp_path):
    folder = write_folder("default_prompt", tmp_path / "model")
    model = bert_tf.mteb_model(folder)
    expected = vectors_of("default_prompt")
    query = types.SimpleNamespace(value="query")
    document = types.SimpleNamespace(value="document")
    unprompted = vectors_of("mean")[None]
    for kind, vectors in (
        (None, expected[None]),
        (query, expected["query"]),
        (document, unprompted),
    ):
        found = model.encode(
            batches(TEXTS), **GIVEN, prompt_type=kind, batch_size=3
        )
        np.testing.assert_allclose(found, vectors, rtol=0, atol=1e-5)
    pairwise = model.similarity_pairwise(found, expected[None])
    every = model.similarity(found, expected[None])
    assert every.shape == (len(TEXTS), len(TEXTS))
    np.testing.assert_allclose(pairwise, np.diag(every), atol=1e-6)
    meta = model.mteb_model_meta
    assert meta["name"] == "local/model"
    assert meta["model_type"] == ["dense"]
    assert meta["similarity_fn_name"] == "cosine"
    assert model.mteb_model_meta["revision"] == meta["revision"]
    (folder / "vocab.txt").touch()
    assert model.mteb_model_meta["revision"] != meta["revision"]


def test_cross_encoder(tmp_path):
    model = bert_tf.mteb_model(write_cross_encoder("plain", tmp_path / "model"))
    # A query may occur in several pairs.
    queries, documents = map(list, zip(*PAIRS, *PAIRS, strict=True))
    found = model.predict(batches(queries), batches(documents), **GIVEN)
    expected = np.tile(scores_of("plain"), 2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert model.mteb_model_meta["model_type"] == ["cross-encoder"]
