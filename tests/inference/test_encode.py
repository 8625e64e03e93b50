"""`encode`, `similarity` and precisions, as sentence-transformers has them."""

import pathlib

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bert_tf.checkpoints.sentence_modules import first_prompt
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.inference import encode as module
from bert_tf.inference.load import load
from tests.families.pretrained.extraction_models import save_model, some_texts
from tests.families.pretrained.sentence_folders import (
    TEXTS,
    vectors_of,
    write_folder,
)
from tests.user_errors import error_of

# make.py beside it says how it was made.
GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "quantized_vectors"
RECORDED = dict(np.load(GOLDEN / "vectors.npz"))
VECTORS, CALIBRATION = RECORDED["vectors"], RECORDED["calibration"]
pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def model(tmp_path):
    return load(write_folder("default_prompt", tmp_path / "model"))


def test_each_method_takes_its_prompt(model):
    # "document" has no text, and stands before "passage".
    unprompted = vectors_of("mean")[None]
    expected = vectors_of("default_prompt")
    for found, vectors in (
        (model.encode(TEXTS), expected[None]),
        (model.encode(TEXTS, prompt_name="passage"), expected["passage"]),
        (model.encode_query(TEXTS), expected["query"]),
        (model.encode_document(iter(TEXTS)), unprompted),
        (model.encode_query(TEXTS[0]), expected["query"][0]),
    ):
        assert_allclose(found, vectors, atol=1e-5, rtol=0)


def test_documents_take_the_first_prompt_that_is_there(model):
    names = ("nothing", "passage", "query")
    assert first_prompt(model.served.modules, names) == "passage"


def test_a_model_without_modules(tmp_path):
    model = load(save_model(tmp_path / "m"))
    texts = some_texts(3)
    assert_array_equal(model.encode_query(texts), model.encode(texts))
    assert model.similarity(*([[1, 0]], [0, 2])).tolist() == [[0]]


def test_truncated_and_normalized_before_they_are_quantized(model):
    whole = model.encode(TEXTS)
    short = whole[:, :11] / np.linalg.norm(whole[:, :11], axis=1)[:, None]
    found = model.encode(TEXTS, truncate_dim=11, normalize=True)
    assert_allclose(found, short, atol=1e-6)
    one = model.encode(TEXTS[0], truncate_dim=11, precision="ubinary")
    assert_array_equal(one, np.packbits(short[0] > 0))


@pytest.mark.parametrize("name", ["int8", "uint8", "binary", "ubinary"])
def test_precisions_are_those_of_sentence_transformers(
    name, model, monkeypatch
):
    monkeypatch.setattr(module, "embed", lambda *_, **__: VECTORS)
    for calibration, prefix in (
        (None, ""),
        (CALIBRATION, "calibrated "),
        # Ranges are their own calibration.
        ([CALIBRATION.min(0), CALIBRATION.max(0)], "calibrated "),
    ):
        found = model.encode([], precision=name, calibration=calibration)
        expected = RECORDED[prefix + name]
        assert found.dtype == expected.dtype
        assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_are_those_of_the_folder(name, tmp_path):
    folder = write_folder("mean", tmp_path / "model")
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(f'{{"similarity_fn_name": "{name}"}}')
    model = load(folder)
    found = model.similarity(VECTORS, CALIBRATION)
    assert_allclose(found, RECORDED[name], atol=1e-5)
    one = model.similarity(VECTORS[1], CALIBRATION.tolist())
    assert_allclose(one, RECORDED[name][1:2], atol=1e-5)
    assert isinstance(model.served, PretrainedModel)


def test_what_is_refused(model, tmp_path):
    for arguments, start in (
        ({"truncate_dim": 17}, "`truncate_dim`=17: give a whole number from 1"),
        ({"truncate_dim": 0}, "`truncate_dim`=0: give a whole number"),
        ({"precision": "int4"}, "`precision`='int4': takes one of float32"),
        ({"prompt_name": "no"}, "`prompt_name`=no: the model has the prompts"),
        ({"precision": "int8"}, "`calibration` is missing; give two vectors"),
        (
            {"precision": "int8", "calibration": CALIBRATION},
            "`calibration` is array(",
        ),
    ):
        error = error_of(model.encode, "the cat", **arguments)
        assert error.startswith(start)
    error = error_of(model.similarity, VECTORS, CALIBRATION[:, :5])
    assert error.startswith("`first` are 11 wide and `second` is 5; take")
    error = error_of(model.similarity, "the cat", VECTORS)
    assert error.startswith("`first` is 'the cat', text; give `model`")
    folder = write_folder("mean", tmp_path / "other")
    settings = folder / "config_sentence_transformers.json"
    settings.write_text('{"similarity_fn_name": "maxsim"}')
    error = error_of(load(folder).similarity, VECTORS, VECTORS)
    assert "similarity_fn_name='maxsim': takes one of cosine" in error
