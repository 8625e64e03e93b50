"""Training on packed rows: what their sequences give one a row."""

import dataclasses
import pathlib
from collections.abc import Callable

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
from records_corpus import VOCABULARY, text, write_vocabulary

from bert_tf.checkpoints import load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from bert_tf.records.build import create_records
from bert_tf.records.dataset import RecordFolder, training_batches
from bert_tf.records.recipe import RecordsRecipe
from tests.run_folders import history as rows
from tests.run_folders import stop_at, weights

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
    places = [random.permutation(size)[:3] for size in sizes]
    return {
        **batch,
        **{n: batch[n] * mask for n in ("input_ids", "segment_ids")},
        "input_mask": mask.astype("int32"),
        "masked_lm_positions": np.stack(places).astype("int32"),
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
    mine = together["next_sentence_labels"] >= 0
    for name in ("next_sentence_logits", "pooled_output"):
        found = numpy(outputs[name])[mine]
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
    for weight, ours, theirs in zip(
        model.trainable_weights, gradients, expected_gradients, strict=True
    ):
        np.testing.assert_allclose(
            ours, theirs, atol=atol, rtol=1e-4, err_msg=weight.path
        )
        if not weight.path.endswith("qkv_bias"):
            assert np.abs(theirs).max() > 1e-4, weight.path


@pytest.mark.parametrize(
    "changes", [{}, {"causal": True}, {"num_hidden_layers": 1}]
)
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


def test_rematerialised_blocks_give_the_same() -> None:
    config = small_config()
    encoder = BertEncoder(config, rematerialize=True)
    model = fill(BertPretrainer(encoder), scale=0.15)
    together = packed(sequences(config), ROWS, WIDTH)
    compare(model, together, alone(together))


def test_what_the_loader_packs_gives_what_its_sequences_give(
    packed_records,
) -> None:
    """Dynamic masks and all, from the records to the gradients."""
    folder = RecordFolder.open(packed_records)
    config = small_config(
        vocab_size=len(folder.vocabulary), max_position_embeddings=64
    )
    model = fill(BertPretrainer(config), scale=0.1)
    (batch,) = training_batches(folder, 12, 1).take(1).as_numpy_iterator()
    assert len(alone(batch)["input_ids"]) > 15
    compare(model, batch, alone(batch))


def test_sequences_of_a_row_do_not_see_each_other() -> None:
    config = small_config()
    model = fill(BertPretrainer(config), scale=0.3)
    before = packed(sequences(config), ROWS, WIDTH)
    after = {name: value.copy() for name, value in before.items()}
    changed = before["sequence_ids"][2] == 2
    for name, size in (("input_ids", 41), ("segment_ids", 2)):
        values = after[name][2]
        values[changed] = (values[changed] + 1) % size
    one, two = model(before), model(after)
    difference = np.abs(
        numpy(one["sequence_output"]) - numpy(two["sequence_output"])
    ).max(-1)
    assert difference[2][changed].min() > 1e-3
    others = before["input_mask"].astype(bool)
    others[2] &= ~changed
    assert not difference[others].any()
    logits = np.abs(
        numpy(one["next_sentence_logits"]) - numpy(two["next_sentence_logits"])
    ).max(-1)
    assert logits[2, 1] > 1e-3
    logits[2, 1] = 0
    assert not logits[before["next_sentence_labels"] >= 0].any()


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


def test_mixed_precision() -> None:
    config = small_config()
    exact = fill(BertPretrainer(config), scale=0.1)
    model = BertPretrainer(config, dtype="mixed_bfloat16")
    model.load_arrays(exact.to_arrays())
    batch = packed(sequences(config), ROWS, WIDTH)
    logits = model(batch)["next_sentence_logits"]
    assert logits.dtype == "float32"
    np.testing.assert_allclose(
        logits, exact(batch)["next_sentence_logits"], atol=0.1
    )


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
        assert symbols[name].dtype == keras.backend.standardize_dtype(
            value.dtype
        )


def test_stock_fit_trains_on_packed_rows() -> None:
    config = small_config()
    model = BertPretrainer(config)
    model.compile(optimizer=keras.optimizers.Adam(1e-2))
    single = sequences(config)
    batch = packed(single, ROWS, WIDTH)
    data = tf.data.Dataset.from_tensors(batch)
    losses = model.fit(data.repeat(20), epochs=2, shuffle=False, verbose=0)
    losses = losses.history["loss"]
    assert losses[1] < losses[0] - 0.5
    scores = model.evaluate(data, return_dict=True, verbose=0)
    theirs = model.evaluate(
        tf.data.Dataset.from_tensors(single), return_dict=True, verbose=0
    )
    for name, value in scores.items():
        assert value == pytest.approx(theirs[name], abs=1e-5), name


def test_options_that_do_not_go_with_packed_rows() -> None:
    config = small_config()
    encoder = BertEncoder(config)
    inputs = encoder_inputs(config, rows=3)
    starts = {"cls_positions": np.zeros((3, 2), "int32")}
    for option, given in (
        ("pooled_only", starts),
        ("unpadded", starts),
        ("unpadded", {"sequence_ids": inputs["input_mask"]}),
    ):
        (name,) = given
        with pytest.raises(UserError, match=f"{option} does not .* {name};"):
            encoder({**inputs, **given}, **{option: True})
    with pytest.raises(UserError, match=r"cls_positions is of .*\[B, K\]"):
        encoder({**inputs, "cls_positions": np.zeros(3, "int32")})


@pytest.fixture(scope="module")
def make(tmp_path_factory) -> Callable[..., pathlib.Path]:
    """Makes records of short documents."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "text.txt").write_text(text(120))
    vocab_file = write_vocabulary(folder / "vocab")

    def make(name: str, **settings: object) -> pathlib.Path:
        recipe = RecordsRecipe(
            max_predictions_per_seq=6,
            held_out=0.1,
            short_seq_prob=0.7,
            **settings,
        )
        inputs = [folder / "text.txt"]
        create_records(
            inputs, vocab_file, folder / name, recipe, 1, log=lambda _: None
        )
        return folder / name

    return make


@pytest.fixture(scope="module")
def packed_records(make) -> pathlib.Path:
    return make("rows", max_seq_length=64, packing=True)


@pytest.fixture(scope="module")
def config_file(tmp_path_factory) -> pathlib.Path:
    config = small_config(
        vocab_size=len(VOCABULARY),
        max_position_embeddings=64,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    path = tmp_path_factory.mktemp("config") / "bert_config.json"
    config.save(path)
    return path


@pytest.fixture(scope="module")
def recipe(packed_records, config_file) -> PretrainingRecipe:
    return PretrainingRecipe(
        data_dir=str(packed_records),
        config_file=str(config_file),
        train_batch_size=8,
        num_train_steps=12,
        learning_rate=1e-2,
        log_steps=5,
        eval_steps=6,
        save_checkpoints_steps=4,
        eval_batch_size=16,
    )


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("packed_runs") / "whole"
    run_pretraining(recipe, folder)
    return folder


def test_a_run_learns(finished) -> None:
    losses = [r["masked_lm_loss"] for r in rows(finished) if "loss" in r]
    assert losses[-1] < losses[0] - 0.3
    assert load_checkpoint(finished).config.hidden_size == 24


def test_an_interrupted_run_goes_on_exactly_and_counts_sequences(
    finished, recipe, packed_records, tmp_path, monkeypatch, capsys
) -> None:
    stop_at(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        run_pretraining(recipe, tmp_path)
    monkeypatch.undo()
    run_pretraining(recipe, tmp_path)
    assert rows(tmp_path) == rows(finished)
    theirs = weights(finished)
    for name, array in weights(tmp_path).items():
        np.testing.assert_array_equal(array, theirs[name])
    folder = RecordFolder.open(packed_records)
    mean = 8 * folder.packing.sequences / folder.num_records
    shown = f"12 steps of 8 rows ({mean:.0f} sequences) of 64 tokens"
    assert shown in capsys.readouterr().out


@pytest.mark.slow
def test_replicas_slices_and_streams_give_the_numbers_of_one_device(
    recipe, config_file, tmp_path
) -> None:
    """The loss is that of all sequences, wherever the rows are cut."""
    config = without_dropout(config_file, tmp_path)
    recipe = recipe.override(
        [f"config_file={config}", "num_train_steps=4", "data_streams=2"]
    )
    run_pretraining(recipe, tmp_path / "one")
    cut = ["strategy=mirrored", "gradient_accumulation_steps=2"]
    run_pretraining(recipe.override(cut), tmp_path / "two")
    for ours, theirs in zip(
        rows(tmp_path / "two"), rows(tmp_path / "one"), strict=True
    ):
        for name, value in ours.items():
            assert value == pytest.approx(theirs[name], rel=1e-3), name


def without_dropout(
    config_file: pathlib.Path, folder: pathlib.Path
) -> pathlib.Path:
    """The same architecture without dropout, as a file."""
    config = dataclasses.replace(
        BertConfig.from_json(config_file),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    config.save(folder / "bert_config.json")
    return folder / "bert_config.json"


@pytest.mark.slow
def test_short_rows_then_packed_ones(
    recipe, make, packed_records, tmp_path
) -> None:
    records = make("short", max_seq_length=32)
    recipe = recipe.override(
        [
            f"data_dir={records},{packed_records}",
            "num_train_steps=4",
            "final_phase_proportion=0.5",
            "rematerialize=true",
        ]
    )
    run_pretraining(recipe, tmp_path)
    assert np.isfinite(rows(tmp_path)[-1]["eval_loss"])
