"""Computing without padding gives what computing with it gives."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.layers.unpadding import TokenIndices
from tests.model_helpers import fill, small_config

MASK = np.array([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]], np.int32)


def config(causal: bool = False) -> BertConfig:
    return small_config(
        vocab_size=60,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=24,
        causal=causal,
    )


def batch(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 13, 11)
    mask = (np.arange(12) < lengths[:, None]).astype(np.int32)
    ids = random.integers(5, 60, mask.shape, np.int32) * mask
    segments = (random.random(mask.shape) < 0.5).astype(np.int32) * mask
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def many_rows(rows: int) -> np.ndarray:
    lengths = np.random.default_rng(rows).integers(1, 8, rows)
    return (np.arange(9) < lengths[:, None]).astype(np.int32)


@pytest.mark.parametrize("mask", [MASK, many_rows(8), many_rows(19)])
def test_tokens_are_grouped_and_taken_back(mask):
    random = np.random.default_rng(1)
    count = int(mask.sum())
    tokens = random.normal(size=(count, 4)).astype("float32")
    places = TokenIndices(tf.constant(mask))
    groups = places.group(tf.constant(tokens))
    assert len(groups) == min(4, max(1, len(mask) // 4))
    kept = [
        np.array(g)[np.array(m) == 1]
        for g, m in zip(groups, places.masks, strict=True)
    ]
    expected = {tuple(row) for row in tokens.tolist()}
    assert {tuple(row) for row in np.concatenate(kept).tolist()} == expected
    np.testing.assert_array_equal(places.ungroup(groups), tokens)
    padded = np.array(places.padded(tf.constant(tokens)))
    np.testing.assert_array_equal(padded[mask == 1], tokens)
    first = np.array(places.pooled(tf.constant(tokens)))
    np.testing.assert_array_equal(first, padded[:, :1])
    rows = places.group_rows(tf.constant(first))
    np.testing.assert_array_equal(places.ungroup_rows(rows), first)
    for row, group in zip(rows, groups, strict=True):
        np.testing.assert_array_equal(row, np.array(group)[:, :1])
    last = TokenIndices(tf.constant(mask), causal=True)
    ends = padded[np.arange(len(mask)), mask.sum(axis=1) - 1][:, None]
    np.testing.assert_array_equal(last.pooled(tf.constant(tokens)), ends)
    # Groups are padded to their own longest row.
    longest = [int(np.array(m).sum(axis=1).max()) for m in places.masks]
    assert [g.shape[1] for g in groups] == longest == sorted(longest)


def test_gradients_are_those_of_a_gather():
    """Compared with TensorFlow's own gradients, of a sum that reads tokens."""
    random = np.random.default_rng(2)
    mask = many_rows(19)
    places = TokenIndices(tf.constant(mask))
    tokens = tf.constant(random.normal(size=(int(mask.sum()), 4)), tf.float32)
    weights = tf.constant(random.normal(size=tokens.shape), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(tokens)
        squares = [group**2 for group in places.group(tokens)]
        result = tf.reduce_sum(places.ungroup(squares) * weights)
    np.testing.assert_allclose(
        tape.gradient(result, tokens), 2 * tokens * weights, rtol=1e-6
    )


def test_every_token_has_its_position_with_padding_and_without():
    """Of the usual positions, see test_encoder.py."""
    encoder = fill(BertEncoder(config()), seed=4, scale=0.3)
    positions = np.random.default_rng(3).integers(0, 20, (11, 12), np.int32)
    inputs = {**batch(), "position_ids": positions}
    real = inputs["input_mask"] == 1
    given = {"return_all_layers": True}
    padded = encoder(inputs, **given)
    unpadded = encoder(inputs, unpadded=True, **given)
    np.testing.assert_allclose(
        unpadded["pooled_output"], padded["pooled_output"], atol=2e-6
    )
    for name in ("all_encoder_layers", "embedding_output", "sequence_output"):
        theirs = padded[name]
        several = isinstance(theirs, tuple)
        for mine, other in zip(
            unpadded[name] if several else (unpadded[name],),
            theirs if several else (theirs,),
            strict=True,
        ):
            assert mine.shape == other.shape
            np.testing.assert_allclose(
                np.array(mine)[real], np.array(other)[real], atol=5e-6
            )


def packed_batch() -> dict[str, np.ndarray]:
    """Nine rows of up to four sequences, one of them of padding alone."""
    random = np.random.default_rng(6)
    names = ("input_ids", "input_mask", "segment_ids", "position_ids")
    rows = {n: np.zeros((9, 20), np.int32) for n in (*names, "sequence_ids")}
    starts = np.zeros((9, 4), np.int32)
    for row in range(8):
        place = 0
        for number, length in enumerate(random.integers(2, 6, 1 + row % 4)):
            here = slice(place, place + length)
            rows["input_ids"][row, here] = random.integers(5, 60, length)
            rows["segment_ids"][row, here] = random.integers(0, 2, length)
            rows["input_mask"][row, here] = 1
            rows["position_ids"][row, here] = np.arange(length)
            rows["sequence_ids"][row, here] = number + 1
            starts[row, number] = place
            place += length
    return {**rows, "cls_positions": starts}


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_of_a_row_get_what_they_get_under_a_mask(causal):
    # The gradients are sums, whose order depends on the processor.
    encoder = BertEncoder(config(causal=causal), dtype="float64")
    fill(encoder, seed=4, scale=0.3)
    inputs = packed_batch()
    real = inputs["input_mask"] == 1
    found = []
    for unpadded in (False, True):
        with tf.GradientTape() as tape:
            outputs = encoder(inputs, unpadded=unpadded, return_all_layers=True)
            read = tf.boolean_mask(outputs["sequence_output"], real)
            loss = tf.reduce_sum(read**2)
            loss += tf.reduce_sum(outputs["pooled_output"][:8] ** 3)
        gradients = tape.gradient(
            loss, [w.value for w in encoder.trainable_weights]
        )
        layers = [np.array(x)[real] for x in outputs["all_encoder_layers"]]
        pooled = np.array(outputs["pooled_output"])[:8]
        found.append((layers, pooled, gradients))
    for padded, alone in zip(*found, strict=True):
        for one, other in zip(padded, alone, strict=True):
            one, other = (
                np.array(tf.convert_to_tensor(x)) for x in (one, other)
            )
            np.testing.assert_allclose(one, other, atol=2e-5, rtol=2e-5)
    # Without cls_positions a row has one pooled output.
    del inputs["cls_positions"]
    for given in ({}, {"pooled_only": True}):
        padded, alone = (
            encoder(inputs, unpadded=unpadded, **given)["pooled_output"][:8]
            for unpadded in (False, True)
        )
        np.testing.assert_allclose(alone, padded, atol=2e-6)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_row_of_padding_spoils_no_other(rows):
    encoder = fill(BertEncoder(config()), seed=4, scale=0.3)
    # Keras warns of a softmax over one score.
    long = batch()["input_mask"].sum(axis=1) > 1
    inputs = {name: value[long][:rows] for name, value in batch().items()}
    with_empty = {
        name: np.concatenate([np.zeros_like(v[:1]), v, np.zeros_like(v[:1])])
        for name, v in inputs.items()
    }
    alone = encoder(inputs, unpadded=True, pooled_only=True)
    beside = encoder(with_empty, unpadded=True, pooled_only=True)
    np.testing.assert_allclose(
        beside["pooled_output"][1:-1], alone["pooled_output"], atol=2e-6
    )
