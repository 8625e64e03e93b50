"""The public function `embed`: its arguments and errors."""

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from tests.families.pretrained.extraction_models import (
    alone,
    save_model,
    small_encoder,
    small_tokenizer,
    some_texts,
)

MODEL = (small_encoder(), small_tokenizer())
TEXTS = [*some_texts(12), ("the cat", "a dog")]


def test_a_folder_is_what_its_parts_are(tmp_path):
    folder = save_model(tmp_path / "model")
    found = bert_tf.embed(folder, iter(TEXTS))
    assert found.shape == (13, 24)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, bert_tf.embed(MODEL, TEXTS), atol=1e-6)
    expected = [alone(*MODEL, text)["layers"][3].mean(0) for text in TEXTS]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_layer_pooling_and_normalisation():
    found = bert_tf.embed(MODEL, TEXTS, "max", layer=1, normalize=True)
    expected = np.stack([alone(*MODEL, t)["layers"][1].max(0) for t in TEXTS])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_no_texts_give_no_vectors_and_one_string_gives_one():
    assert bert_tf.embed(MODEL, []).shape == (0, 24)
    (expected,) = bert_tf.embed(MODEL, ["a dog"])
    np.testing.assert_array_equal(bert_tf.embed(MODEL, "a dog"), expected)


def test_texts_that_are_truncated_are_counted(capsys):
    found = bert_tf.embed(
        MODEL, ["the cat sat", "the cat sat on", "a"], max_seq_length=5
    )
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("1 of 3 texts have more than 5 tokens")
    assert "max_seq_length" in line


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (MODEL, {"texts": b"the cat"}, "`texts` is one string, b'the cat'"),
        (MODEL, {"pooling": "none"}, "`pooling`='none': takes one of auto,"),
        (MODEL, {"layer": 9}, "`layers`=9: the model has layers 1 to 3"),
        (MODEL, {"precision": "mixed_bfloat16"}, "encoder has float32 already"),
        (MODEL[::-1], {}, r"model: is \(BertTokenizer, BertEncoder\); give"),
        (MODEL[:1], {}, r"model: is \(BertEncoder\); give an encoder and"),
        ("nowhere", {}, "nowhere: no such model folder"),
        (MODEL, {"prompt_name": "query"}, "`prompt_name`=query: .* no modules"),
    ],
)
def test_bad_arguments(model, arguments, message):
    with pytest.raises(UserError, match=message):
        bert_tf.embed(model, **{"texts": ["a"], **arguments})
