"""An ELECTRA's generator and discriminator, trained together."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import (
    fill,
    numpy,
    predictions_of_tokens,
    pretraining_batch,
    small_config,
)
from numpy.testing import assert_allclose, assert_array_equal

from bert_tf.architectures.electra import ElectraConfig
from bert_tf.optimization import adamw
from bert_tf.pretraining.electra import ElectraPretrainer
from bert_tf.pretraining.objective import ReplacedTokenDetection
from bert_tf.pretraining.pretrainer import BertPretrainer
from tests.user_errors import error_of

CONFIG = ElectraConfig(**{**vars(small_config()), "embedding_size": 8})
OBJECTIVE = ReplacedTokenDetection()


def pretrainer(**arguments) -> ElectraPretrainer:
    arguments = {"generator": CONFIG.generator(0.5), **arguments}
    return fill(ElectraPretrainer(CONFIG, **arguments), 2)


def text_batch(**arguments) -> dict[str, np.ndarray]:
    return predictions_of_tokens(pretraining_batch(CONFIG, **arguments))


def certain(model: ElectraPretrainer, token: int) -> ElectraPretrainer:
    """A model whose generator always draws one token."""
    bias = 100.0 * (np.arange(CONFIG.vocab_size) == token)
    model.masked_lm.output_bias.assign(bias.astype("float32"))
    return model


def put(batch, tokens) -> np.ndarray:
    """The ids with tokens at the predicted positions."""
    ids = batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = batch["masked_lm_positions"][rows, slots]
    ids[rows, positions] = np.broadcast_to(tokens, (len(ids), 4))[rows, slots]
    return ids


def test_the_discriminator_reads_the_text_with_what_was_drawn() -> None:
    """And a token that the generator guesses right is no replaced one."""
    batch = text_batch(rows=5)
    token = int(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0][0])
    model = certain(pretrainer(), token)
    found = model(batch)
    original, replaced = put(batch, batch["masked_lm_ids"]), put(batch, token)
    assert (replaced != original).any()
    assert_array_equal(found["replaced_tokens"], replaced != original)
    # Fewer than there are masks: the first one was guessed right.
    assert (replaced != original).sum() < (batch["masked_lm_weights"] > 0).sum()
    plain = model.encoder({**batch, "input_ids": replaced})
    assert_allclose(
        found["replaced_token_logits"],
        model.replaced_tokens(plain["sequence_output"]),
        atol=1e-6,
    )
    words = model.encoder.embeddings.word_table
    generated = model.generator(batch)["sequence_output"]
    assert_allclose(
        found["masked_lm_logits"],
        model.masked_lm(generated, batch["masked_lm_positions"], words),
        atol=1e-6,
    )


def test_draws_follow_the_generator() -> None:
    """Each token as often as it is likely, and only in training again."""
    batch = text_batch(rows=1, length=10, predictions=1)
    batch["masked_lm_positions"][:] = 3
    batch["masked_lm_weights"][:] = 1.0
    many = {name: np.repeat(value, 4000, 0) for name, value in batch.items()}
    model = pretrainer()
    logits = numpy(model(batch)["masked_lm_logits"])[0, 0]
    likely = np.exp(logits - logits.max())
    likely /= likely.sum()
    draws = []
    for _ in range(2):
        original, replaced = model._replace(
            many, np.repeat(logits[None, None], 4000, 0), training=True
        )
        assert_array_equal(original[:, 3], many["masked_lm_ids"][:, 0])
        draws.append(numpy(replaced)[:, 3].astype(int))
    assert (draws[0] != draws[1]).any()
    share = np.bincount(np.concatenate(draws), minlength=41) / 8000
    error = np.sqrt(likely * (1 - likely) / 8000)
    assert (np.abs(share - likely) < 5 * error + 1e-4).all()
    # Evaluations of the same weights are the same.
    one, other = (model(batch)["replaced_token_logits"] for _ in range(2))
    assert_array_equal(one, other)


def gradients(model, batch, terms) -> list:
    with tf.GradientTape() as tape:
        losses, _ = OBJECTIVE(model(batch), batch)
        means = OBJECTIVE.normalise(losses, OBJECTIVE.loss_weights(batch))
        total = tf.add_n([means[f"{term}_loss"] for term in terms])
    return tape.gradient(total, [v.value for v in model.trainable_variables])


def test_what_each_loss_trains() -> None:
    """Nothing goes back through the draw; the tables learn of both."""
    batch, model = text_batch(), pretrainer()
    words = gradients(model, batch, ["masked_lm"])
    found = gradients(model, batch, ["replaced_token"])
    both = gradients(model, batch, ["masked_lm", "replaced_token"])
    tables = model.encoder.embeddings
    shared = {id(v) for v in tables.layer_norm.variables}
    for table in (tables.word_table, tables.type_table, tables.position_table):
        shared.add(id(table))
    generator = {id(v) for v in model.generator.variables}
    generator |= {id(v) for v in model.masked_lm.variables}
    for variable, one, other, whole in zip(
        model.trainable_variables, words, found, both, strict=True
    ):
        is_shared = id(variable) in shared
        assert (one is not None) == (is_shared or id(variable) in generator)
        assert (other is not None) == (
            is_shared or id(variable) not in generator
        )
        assert whole is not None
    assert len(shared) == 5
    # Each of the two has a projection of its original.
    projections = {
        id(each.embeddings.project_to_hidden.kernel)
        for each in (model.encoder, model.generator)
    }
    assert len(projections) == 2
    assert projections.isdisjoint(shared)


def test_the_discriminator_finds_what_cannot_be() -> None:
    """Of 64 tokens the text has 32; a generator that knows nothing draws all.

    Half of what it draws is never in the text, the other half could be.
    """
    keras.utils.set_random_seed(0)
    changes = {"vocab_size": 64, "hidden_size": 48, "intermediate_size": 96}
    config = ElectraConfig(
        **{**vars(small_config(**changes)), "embedding_size": 48}
    )
    model = ElectraPretrainer(config, generator=config.generator(0.5))
    model.generator.trainable = model.masked_lm.trainable = False
    random = np.random.default_rng(0)
    rows, length, predictions = 1600, 16, 3
    original = random.integers(32, 64, (rows, length))
    positions = random.permuted(np.tile(np.arange(length), (rows, 1)), axis=1)
    positions = np.sort(positions[:, :predictions], axis=1)
    masked = original.copy()
    np.put_along_axis(masked, positions, 3, axis=1)
    batch = {
        "input_ids": masked,
        "input_mask": np.ones_like(original),
        "segment_ids": np.zeros_like(original),
        "masked_lm_positions": positions,
        "masked_lm_ids": np.take_along_axis(original, positions, axis=1),
    }
    data = {name: values.astype("int32") for name, values in batch.items()}
    data["masked_lm_weights"] = np.ones((rows, predictions), np.float32)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(32)
    model.compile(optimizer=adamw(1e-2, total_steps=100, warmup=0.1))
    model.fit(batches.repeat(2), shuffle=False, verbose=0)
    scores = model.evaluate(batches, verbose=0, return_dict=True)
    assert scores["replaced_token_precision"] > 0.95
    assert scores["replaced_token_recall"] == pytest.approx(0.5, abs=0.05)


def test_the_generator_is_that_of_the_paper() -> None:
    for size, share, width, heads in (
        ("small", 0.25, 64, 1),
        ("base", 1 / 3, 256, 4),
        ("large", 0.25, 256, 4),
    ):
        whole = ElectraConfig.from_size(size, 30522)
        config = whole.generator(share)
        assert config.hidden_size == width
        assert config.num_attention_heads == heads
        assert config.intermediate_size == 4 * width
        assert config.num_hidden_layers == whole.num_hidden_layers
        assert config.embedding_size == whole.embedding_size
    assert CONFIG.generator(1.0).hidden_size == CONFIG.hidden_size
    line = error_of(ElectraConfig.from_size("3/200/4", 30).generator, 1.0)
    assert line.startswith("`generator_size`=1.0: ")
    assert "hidden_size of 200" in line


def test_mistakes() -> None:
    line = error_of(ElectraPretrainer, small_config())
    assert "ElectraConfig" in line
    assert "not a BertConfig" in line
    wide = dataclasses.replace(CONFIG, embedding_size=6)
    line = error_of(ElectraPretrainer, CONFIG, generator=wide)
    assert "embedding_size is 6 in the generator" in line
    line = error_of(BertPretrainer, CONFIG, objective=OBJECTIVE)
    for word in ("ReplacedTokenDetection", "replaced_tokens", "BertPretrainer"):
        assert word in line
    batch = text_batch()
    del batch["masked_lm_ids"]
    line = error_of(pretrainer(), batch)
    assert "missing input masked_lm_ids" in line
