"""Training on packed rows: what their sequences give one a row."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import (
    encoder_inputs,
    fill,
    numpy,
    pretraining_batch,
    small_config,
)
from packed_batches import alone, packed
from records_corpus import text, write_vocabulary

from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.records.build import create_records
from bert_tf.records.dataset import RecordFolder, training_batches
from bert_tf.records.recipe import RecordsRecipe

Batch = dict[str, np.ndarray]
ROWS = [[4, 1], [0], [5, 2, 3]]
WIDTH = 20
OBJECTIVE = PretrainingObjective()


def sequences(config) -> Batch:
    """Six sequences of 3 to 6 tokens, the first of them longer."""
    random = np.random.default_rng(3)
    sizes = np.array([12, 5, 4, 6, 3, 5])
    batch = pretraining_batch(config, rows=6, length=WIDTH)
    mask = np.arange(WIDTH) < sizes[:, None]
    positions = [random.permutation(size)[:3] for size in sizes]
    return {
        **batch,
        **{n: batch[n] * mask for n in ("input_ids", "segment_ids")},
        "input_mask": mask.astype("int32"),
        "masked_lm_positions": np.stack(positions).astype("int32"),
        "masked_lm_ids": batch["masked_lm_ids"][:, :3],
        "masked_lm_weights": batch["masked_lm_weights"][:, :3],
    }


def outputs_and_gradients(model, batch: Batch):
    """Outputs, mean losses and gradients of their sum."""
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True)
        sums, _ = OBJECTIVE(outputs, batch)
        means = OBJECTIVE.normalise(sums, OBJECTIVE.loss_weights(batch))
        loss = sum(means.values())
    values = [w.value for w in model.trainable_weights]
    found = map(tf.convert_to_tensor, tape.gradient(loss, values))
    return outputs, means, list(found)


def compare(model, together: Batch, single: Batch, atol: float = 1e-5) -> None:
    """Everything that a packed batch gives, and its sequences one a row."""
    run = tf.function(outputs_and_gradients)
    outputs, means, gradients = run(model, together)
    expected, expected_means, expected_gradients = run(model, single)
    labelled = together["next_sentence_labels"] >= 0
    for name in ("next_sentence_logits", "pooled_output"):
        found = numpy(outputs[name])[labelled]
        np.testing.assert_allclose(
            found, numpy(expected[name]), atol=atol, err_msg=name
        )
        # Distinct rows, or an exchange would not be seen.
        assert len(np.unique(found.round(4), axis=0)) == len(found)
    np.testing.assert_allclose(
        numpy(outputs["sequence_output"])[together["input_mask"] > 0],
        numpy(expected["sequence_output"])[single["input_mask"] > 0],
        atol=atol,
    )
    np.testing.assert_allclose(
        numpy(outputs["masked_lm_logits"])[together["masked_lm_weights"] > 0],
        numpy(expected["masked_lm_logits"])[single["masked_lm_weights"] > 0],
        atol=atol,
    )
    for name, value in means.items():
        np.testing.assert_allclose(value, expected_means[name], rtol=1e-5)
    for weight, gradient, expected_gradient in zip(
        model.trainable_weights, gradients, expected_gradients, strict=True
    ):
        limits = {"atol": atol, "rtol": 1e-4, "err_msg": weight.path}
        np.testing.assert_allclose(gradient, expected_gradient, **limits)
        if not weight.path.endswith("qkv_bias"):
            assert np.abs(expected_gradient).max() > 1e-4, weight.path


@pytest.mark.parametrize("changes", [{}, {"causal": True}])
def test_a_packed_row_gives_what_its_sequences_give_alone(changes) -> None:
    config = small_config(**changes)
    model = fill(BertPretrainer(config), scale=0.15)
    single = sequences(config)
    together = packed(single, ROWS, WIDTH)
    order = [number for row in ROWS for number in row]
    in_order = {name: value[order] for name, value in single.items()}
    for name, value in alone(together).items():
        size = in_order[name].shape[-1] if value.ndim > 1 else None
        if not name.startswith("masked_lm"):
            np.testing.assert_array_equal(value[..., :size], in_order[name])
    compare(model, together, alone(together))
    outputs = model(together)
    assert outputs["next_sentence_logits"].shape == (3, 3, 2)
    assert outputs["pooled_output"].shape == (3, 3, 24)


def test_what_the_loader_packs_gives_what_its_sequences_give(packed_records):
    """Dynamic masks and all, from the records to the gradients."""
    folder = RecordFolder.open(packed_records)
    size = len(folder.vocabulary)
    config = small_config(vocab_size=size, max_position_embeddings=64)
    model = fill(BertPretrainer(config), scale=0.1)
    (batch,) = training_batches(folder, 12, 1).take(1).as_numpy_iterator()
    assert len(alone(batch)["input_ids"]) > 15
    compare(model, batch, alone(batch))


def test_each_input_of_packing_matters() -> None:
    config = small_config()
    model = fill(BertPretrainer(config), scale=0.3)
    batch = packed(sequences(config), ROWS, WIDTH)
    outputs = numpy(model(batch)["next_sentence_logits"])[2, :3]
    for name in ("sequence_ids", "position_ids", "cls_positions"):
        without = {n: value for n, value in batch.items() if n != name}
        others = numpy(model(without)["next_sentence_logits"])
        others = others[2, :3] if others.ndim == 3 else others[2]
        assert np.abs(others - outputs).max() > 1e-3, name


def test_symbols_are_as_the_outputs() -> None:
    config = small_config()
    model = fill(BertPretrainer(config))
    batch = packed(sequences(config), ROWS, WIDTH)
    inputs = {
        name: keras.Input(value.shape[1:], dtype=value.dtype.name, name=name)
        for name, value in batch.items()
    }
    symbols = model(inputs)
    for name, value in model(batch).items():
        assert symbols[name].shape == (None, *value.shape[1:])
        dtype = keras.backend.standardize_dtype(value.dtype)
        assert symbols[name].dtype == dtype


def test_keras_evaluates_packed_rows_as_their_sequences() -> None:
    config = small_config()
    model = fill(BertPretrainer(config))
    model.compile(run_eagerly=True)
    single = sequences(config)
    scores, expected = (
        model.evaluate(
            tf.data.Dataset.from_tensors(batch), return_dict=True, verbose=0
        )
        for batch in (packed(single, ROWS, WIDTH), single)
    )
    for name, value in scores.items():
        assert value == pytest.approx(expected[name], abs=1e-5), name


def test_options_that_do_not_go_with_packed_rows() -> None:
    config = small_config()
    encoder = BertEncoder(config)
    inputs = encoder_inputs(config, rows=3)
    starts = {"cls_positions": np.zeros((3, 2), "int32")}
    with pytest.raises(UserError, match="pooled_only does not .* cls_pos"):
        encoder({**inputs, **starts}, pooled_only=True)
    with pytest.raises(UserError, match=r"cls_positions is of .*\[B, K\]"):
        encoder({**inputs, "cls_positions": np.zeros(3, "int32")})


@pytest.fixture(scope="module")
def packed_records(tmp_path_factory) -> pathlib.Path:
    """Of short sentences, several sequences to a row."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "text.txt").write_text(text(120))
    sizes = {"max_seq_length": 64, "max_predictions_per_seq": 6}
    recipe = RecordsRecipe(short_seq_prob=0.7, packing=True, **sizes)
    words, rows = write_vocabulary(folder / "vocab"), folder / "rows"
    text_file = folder / "text.txt"
    create_records([text_file], words, rows, recipe, 1, log=lambda _: None)
    return rows
