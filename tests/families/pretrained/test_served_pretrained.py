"""Served pre-trained models against `fill_mask` and `embed`."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.inference.fill_mask import MaskFiller
from tests.inference import serving_models as models

MASKED = [
    "the [MASK] is [MASK]\n[MASK].",
    "[MASK]",
    "Café [MASK][MASK] [mask] \U0001f600",
    "the fer[MASK]ry " * 3,
    " [MASK]\u200b[MASK ]",
]


@functools.cache
def signatures():
    return PretrainedModel(
        models.pretrainer(), models.tokenizer(), top_k=4, max_masks=5
    ).signatures()


def test_masks_are_filled_as_by_fill_mask():
    found = models.ask(signatures()["fill_mask"], text=MASKED)
    assert found["tokens"].shape == found["scores"].shape == (5, 3, 4)
    fill = MaskFiller(models.pretrainer(), models.tokenizer())
    for row, text in enumerate(MASKED):
        wanted = fill(text, top_k=4)
        for mask, candidates in enumerate(wanted):
            tokens = models.strings(found["tokens"][row, mask])
            assert tokens == [c.token for c in candidates]
            np.testing.assert_allclose(
                found["scores"][row, mask],
                [c.probability for c in candidates],
                atol=1e-4,
            )
        assert (found["tokens"][row, len(wanted) :] == b"").all()
        assert (found["scores"][row, len(wanted) :] == 0).all()
    best = found["tokens"][:, :, 0]
    assert len(set(best.ravel().tolist())) > 2


def test_texts_are_embedded_as_by_embed():
    texts = [*models.texts(20, 12, 3), *models.texts(5, 70, 4), ""]
    found = models.ask(signatures()["embed"], text=texts)
    pair = (models.pretrainer().encoder, models.tokenizer())
    for pooling in ("cls", "mean"):
        wanted = bert_tf.embed(pair, texts, pooling=pooling)
        np.testing.assert_allclose(found[pooling], wanted, atol=2e-4)


def test_an_encoder_alone_embeds():
    encoder = models.encoder()
    functions = PretrainedModel(encoder, models.tokenizer(), 16).signatures()
    assert set(functions) == {"embed", "serving_default", "tokens"}
    assert functions["serving_default"] is functions["embed"]
    texts = models.texts(10, 20, 6)
    found = models.ask(functions["embed"], text=texts)
    wanted = bert_tf.embed(
        (encoder, models.tokenizer()), texts, max_seq_length=16
    )
    np.testing.assert_allclose(found["mean"], wanted, atol=2e-4)


def test_masks_are_filled_by_default():
    functions = signatures()
    assert functions["serving_default"] is functions["fill_mask"]
    assert set(functions) == {
        *("serving_default", "fill_mask", "embed", "tokens"),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["[MASK]", "a"], r"text: row 1 holds no \[MASK\]"),
        ([""], r"text: row 0 holds no \[MASK\]"),
        (["[MASK]" * 6], r"row 0 holds 6 times \[MASK\]; .* at most 5"),
        (["[MASK]", "[MASK]" + " a" * 90], "row 1 has 91 tokens"),
        (["[MASK] " + "the ferry " * 105_000], r"row 0 has \d+ tokens"),
    ],
)
def test_texts_that_cannot_be_filled(texts, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        models.ask(signatures()["fill_mask"], text=texts)


def test_odd_texts():
    texts = [b"", b"\xff\xfe[MASK]", b"\x00", b"x " * 500_000]
    found = models.ask(signatures()["embed"], text=texts)
    assert np.isfinite(found["mean"]).all()
    filled = models.ask(signatures()["fill_mask"], text=texts[1:2])
    plain = models.ask(signatures()["fill_mask"], text=["[MASK]"])
    np.testing.assert_array_equal(filled["tokens"], plain["tokens"])
