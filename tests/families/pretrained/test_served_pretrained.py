"""Served pre-trained models against the model itself and `embed`."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import Settings
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


def test_the_best_tokens_at_each_mask():
    functions = signatures()
    assert functions["serving_default"] is functions["fill_mask"]
    names = "serving_default fill_mask embed tokens".split()
    assert functions.keys() == set(names)
    found = models.ask(functions["fill_mask"], text=MASKED)
    assert found["tokens"].shape == found["scores"].shape == (5, 3, 4)
    model, tokenizer = models.pretrainer(), models.tokenizer()
    known, packing = tokenizer.vocabulary.tokens, tokenizer.packing
    for row, text in enumerate(MASKED):
        ids, places = [*packing.begin], []
        for part in text.split("[MASK]"):
            ids += tokenizer.tokenize(part).numpy().tolist()
            places.append(len(ids))
            ids.append(tokenizer.vocabulary.mask_id)
        # No mask follows the last part.
        ids, places = np.array([ids[:-1] + [*packing.end]]), places[:-1]
        inputs = {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.zeros_like(ids),
            "masked_lm_positions": np.array([places]),
        }
        logits = model(inputs)["masked_lm_logits"][0, :, : len(known)]
        for mask, shares in enumerate(tf.nn.softmax(logits).numpy()):
            best = np.argsort(-shares)[:4]
            tokens = models.strings(found["tokens"][row, mask])
            assert tokens == [known[number] for number in best]
            np.testing.assert_allclose(
                found["scores"][row, mask], shares[best], atol=1e-4
            )
        assert (found["tokens"][row, len(places) :] == b"").all()
        assert (found["scores"][row, len(places) :] == 0).all()
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
    settings = Settings(max_seq_length=16)
    functions = PretrainedModel(
        encoder, models.tokenizer(), settings
    ).signatures()
    assert set(functions) == {"embed", "serving_default", "tokens"}
    assert functions["serving_default"] is functions["embed"]
    texts = models.texts(10, 20, 6)
    found = models.ask(functions["embed"], text=texts)
    wanted = bert_tf.embed(
        (encoder, models.tokenizer()), texts, max_seq_length=16
    )
    np.testing.assert_allclose(found["mean"], wanted, atol=2e-4)


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
