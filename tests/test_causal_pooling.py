"""A causal encoder pools the last token of a sequence, which alone sees all."""

import numpy as np
import pytest
from model_helpers import encoder_inputs, fill, numpy, small_config

from bert_tf.checkpoints import (
    CLASSIFIER,
    MASKED_LM,
    POOLER,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.encoders import BertEncoder, bert
from bert_tf.errors import UserError
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.inference.embed import embed
from tests.families.pretrained.extraction_models import (
    alone,
    small_encoder,
    small_tokenizer,
    some_texts,
)
from tests.hugging_face_models import random_arrays, tiny_config
from tests.inference.serving_models import ask

# Rows of two sequences, and padding; the second begins here.
IDS = np.int32([[1] * 4 + [2] * 5 + [0], [1] * 3 + [2] * 3 + [0] * 4])
STARTS = np.int32([[0, 4, 0], [0, 3, 0]])


def inputs_of(config) -> dict[str, np.ndarray]:
    return encoder_inputs(config, rows=2, length=10, seed=4)


def packed(config) -> dict[str, np.ndarray]:
    return {
        **inputs_of(config),
        "input_mask": (IDS > 0).astype("int32"),
        "sequence_ids": IDS,
        "cls_positions": STARTS,
    }


@pytest.mark.parametrize("how", [{}, {"pooled_only": True}])
def test_every_token_reaches_the_pooler_and_padding_does_not(how) -> None:
    config = small_config(causal=True, num_hidden_layers=1)
    encoder, inputs = fill(BertEncoder(config)), inputs_of(config)
    inputs["input_mask"][0, 7:] = 0

    def pooled(ids):
        given = {**inputs, "input_ids": ids}
        return numpy(encoder(given, **how)["pooled_output"])

    before = pooled(inputs["input_ids"])
    for place in range(10):
        ids = inputs["input_ids"].copy()
        ids[0, place] = (ids[0, place] + 5) % config.vocab_size
        change = np.abs(pooled(ids) - before)
        assert change[1].max() == 0
        assert change[0].max() > 1e-4 if place < 7 else change[0].max() < 1e-6


def test_each_sequence_of_a_row_has_its_own_last_token() -> None:
    config = small_config(causal=True)
    encoder, inputs = fill(BertEncoder(config)), packed(config)
    outputs = encoder(inputs)
    hidden = numpy(outputs["sequence_output"])
    pooler = encoder.pooler
    # Unused places, whose number is 0, give what the first place gives.
    for row, ends in enumerate([(3, 8, 3), (2, 5, 2)]):
        states = hidden[row, ends]
        wanted = np.tanh(states @ numpy(pooler.kernel) + numpy(pooler.bias))
        np.testing.assert_allclose(
            numpy(outputs["pooled_output"])[row], wanted, atol=1e-6
        )
    first = {k: v for k, v in inputs.items() if k != "cls_positions"}
    for how in ({}, {"pooled_only": True}):
        np.testing.assert_allclose(
            numpy(encoder(first, **how)["pooled_output"]),
            numpy(outputs["pooled_output"])[:, 0],
            atol=1e-6,
        )
    del inputs["sequence_ids"]
    with pytest.raises(UserError, match="come without sequence_ids"):
        encoder(inputs)


def test_other_models_know_nothing_of_it(monkeypatch) -> None:
    def last_positions(*_):
        raise AssertionError

    monkeypatch.setattr(bert, "last_positions", last_positions)
    config = small_config()
    encoder, inputs = BertEncoder(config), packed(config)
    encoder(inputs)
    plain = inputs_of(config)
    whole = encoder(plain)
    first = encoder.pooler(whole["sequence_output"][:, :1])
    np.testing.assert_array_equal(numpy(whole["pooled_output"]), numpy(first))
    for option in ("pooled_only", "unpadded"):
        encoder(plain, **{option: True})
    monkeypatch.undo()
    assert BertEncoder(small_config(causal=True))(plain)


def test_pooled_vectors_of_texts() -> None:
    encoder, tokenizer = small_encoder(causal=True), small_tokenizer()
    texts = some_texts(12)
    each = [alone(encoder, tokenizer, text) for text in texts]
    # The row is the text alone, so its last vector is that of [SEP].
    lasts = np.stack([one["layers"][-1][-1] for one in each])
    pair = (encoder, tokenizer)
    np.testing.assert_allclose(
        embed(pair, texts, pooling="cls"), lasts, atol=1e-5
    )
    served = PretrainedModel(encoder, tokenizer).signatures()["embed"]
    np.testing.assert_allclose(ask(served, text=texts)["cls"], lasts, atol=1e-5)
    np.testing.assert_allclose(
        embed(pair, texts, pooling="pooled"),
        np.stack([one["pooled"] for one in each]),
        atol=1e-5,
    )


def test_transformers_pools_the_first_token(tmp_path, capfd) -> None:
    """So a pooler is not written and not read; all else is."""
    config = tiny_config(causal=True)
    arrays = random_arrays(config, (POOLER, CLASSIFIER))
    with pytest.raises(UserError, match="causal is true") as caught:
        save_checkpoint(
            tmp_path / "a", Checkpoint(config, arrays), "hugging_face"
        )
    assert "(`drop_heads`=pooler,classifier)" in str(caught.value)
    assert not (tmp_path / "a").exists()
    bidirectional = tiny_config()
    folder = tmp_path / "model"
    for heads in ((POOLER,), (POOLER, MASKED_LM), (POOLER, CLASSIFIER)):
        folder = tmp_path / "-".join(heads)
        arrays = random_arrays(bidirectional, heads)
        save_checkpoint(
            folder, Checkpoint(bidirectional, arrays), "hugging_face"
        )
        path = folder / "config.json"
        text = path.read_text()
        path.write_text(
            text.replace('"is_decoder": false', '"is_decoder": true')
        )
        if CLASSIFIER in heads:
            with pytest.raises(UserError, match="its classifier scores"):
                load_checkpoint(folder)
            continue
        read = load_checkpoint(folder)
        assert read.config.causal
        assert set(read.heads) == set(heads) - {POOLER}
        assert len(read.left_out) == 2
        assert "its pooler is left out" in capfd.readouterr().err
        # What is read can be written, and is the same.
        save_checkpoint(tmp_path / "again", read, "hugging_face")
        again = load_checkpoint(tmp_path / "again")
        assert set(again.arrays) == set(read.arrays)
        (tmp_path / "again").rename(tmp_path / f"again-{len(heads)}")
