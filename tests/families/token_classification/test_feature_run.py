"""Taggers on features of a frozen encoder: which ones, cached, trained."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint, read_arrays
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.model_folder import load_model
from bert_tf.families.recipe import FEATURES
from bert_tf.families.task import RunSplit
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.features import (
    FeatureRows,
    FeatureTagger,
    bilstm_tagger,
    layers_of,
)
from bert_tf.families.token_classification.task import FeatureTaggingConfig
from bert_tf.families.token_classification.windows import (
    TagObjective,
    encode_words,
)
from bert_tf.finetuning.run import run_finetuning
from bert_tf.training.sentinel import (
    first_non_finite,
    forward_tensors,
    ids_outside,
)
from tests.as_numpy import as_numpy
from tests.contracts.task_cases import CASES, model_folder
from tests.finetuning.sentence_runs import tokenizer
from tests.model_helpers import fill, numpy

SETTINGS = {
    "learning_rate": 2e-2,
    "lstm_units": 12,
    "tagger_dropout": 0.1,
    "num_train_epochs": 6.0,
    "save_checkpoints_steps": 1000,
}
CASE = dataclasses.replace(CASES["features"], settings=SETTINGS)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "model"
    return model_folder(folder, num_hidden_layers=4)


@pytest.fixture(scope="module")
def made(start, tmp_path_factory):
    return CASE.make(tmp_path_factory.mktemp("files"), start)


@pytest.fixture(scope="module")
def finished(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    modes = ["train", "eval", "predict"]
    return folder, run_finetuning(*made, folder, modes)


def encoded(words, length):
    config = TokenClassificationConfig("names", (), length, "document", 0)
    return encode_words(words, tokenizer(), config)


def rows_of(start, tmp_path, features, words):
    checkpoint = load_checkpoint(start)
    layers = layers_of(features, checkpoint.config.num_hidden_layers)
    return FeatureRows(
        windows=encoded(words, 32),
        checkpoint=checkpoint,
        layers=layers,
        precision="float32",
        batch_size=3,
        folder=tmp_path / "features",
        split="dev",
    )


def error_of(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_layers():
    assert [layers_of(features, 12) for features in FEATURES] == [
        (0,),
        (11,),
        (12,),
        (9, 10, 11, 12),
        (9, 10, 11, 12),
        tuple(range(1, 13)),
    ]
    for features in ("concat_last_four", "weighted_sum_last_four"):
        line = error_of(layers_of, features, 3)
        assert line.startswith(f"features={features}: the encoder has 3 layers")
    assert "too few" in error_of(layers_of, "second_to_last", 1)
    assert layers_of("weighted_sum_all", 1) == (1,)


@pytest.mark.slow
def test_a_tagger_to_start_from_is_not_read(finished, made, tmp_path, capsys):
    (folder, _), (task, recipe) = finished, made
    initial = load_checkpoint(folder)
    words = task.load("train", recipe)
    config = task.configure(recipe, words)
    for init_from, labelled, logged in (
        (folder, True, True),
        (folder, False, False),
        (recipe.init_from, True, False),
    ):
        again = dataclasses.replace(recipe, init_from=str(init_from))
        run = RunSplit("x", initial, again, tmp_path)
        task.encode(words, tokenizer(), config, labelled, run)
        assert ("its tagger is not read" in capsys.readouterr().err) is logged


def test_vectors_are_those_of_first_sub_tokens(start, made, tmp_path):
    task, recipe = made
    words = task.load("test", recipe)
    rows = rows_of(start, tmp_path, "last", words)
    rows = dataclasses.replace(rows, layers=(0, 1, 2, 3, 4))
    encoder = BertEncoder.from_checkpoint(start)
    for chosen in ([2, 0, 7], [5]):
        batch = as_numpy(rows.batch(chosen))
        assert batch["word_features"].dtype == np.float32
        for place, sentence in enumerate(chosen):
            # Every sentence fits one row.
            inputs = rows.windows.batch([sentence])
            outputs = encoder(inputs, return_all_layers=True)
            layers = outputs["embedding_output"], *outputs["all_encoder_layers"]
            first, end = words.sentence_starts[sentence : sentence + 2]
            at = rows.windows.position[first:end]
            expected = np.stack([numpy(layer)[0, at] for layer in layers], 1)
            count = end - first
            found = batch["word_features"][place]
            np.testing.assert_allclose(found[:count], expected, atol=3e-3)
            assert not found[count:].any()
            mask = batch["input_mask"][place]
            assert mask[:count].all()
            assert not mask[count:].any()
    for layer in range(4):
        assert np.abs(expected[:, layer] - expected[:, layer + 1]).max() > 0.01


def changed(rows, name, factor):
    """Rows of an encoder of which one array is another."""
    arrays = dict(rows.checkpoint.arrays)
    arrays[name] = arrays[name] * factor
    checkpoint = dataclasses.replace(rows.checkpoint, arrays=arrays)
    return dataclasses.replace(rows, checkpoint=checkpoint)


def test_vectors_are_computed_once(start, made, tmp_path, monkeypatch):
    task, recipe = made
    words = task.load("dev", recipe)
    rows = rows_of(start, tmp_path, "last", words)
    kept = np.array(rows.vectors)
    assert kept.dtype == np.float16
    (path,) = rows.folder.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(FeatureRows, "write", None)
        again = dataclasses.replace(rows)
        np.testing.assert_array_equal(again.vectors, kept)
        assert isinstance(again.vectors, np.memmap)
    narrow = encoded(words, 16)
    keys = {
        part.key
        for part in (
            rows,
            rows_of(start, tmp_path, "second_to_last", words),
            dataclasses.replace(rows, windows=narrow),
            changed(rows, "bert/embeddings/word_embeddings", 0.9),
        )
    }
    assert len(keys) == 4
    assert path.name == f"dev-{rows.key[:16]}.npy"
    path.unlink()
    broken = "bert/encoder/layer_3/output/LayerNorm/beta"
    rows = changed(rows, broken, np.nan)
    assert "what the encoder gives is not finite" in error_of(
        lambda: rows.vectors
    )
    assert not list(rows.folder.iterdir())


def tagger(weighted=False, layers=3):
    network = bilstm_tagger(layers, 6, 5, weighted, 4, 0.0)
    return fill(network, seed=2, scale=0.5)


def vectors(rows=2, words=5, layers=3):
    random = np.random.default_rng(6)
    features = random.normal(size=(rows, words, layers, 6)).astype("float32")
    mask = np.ones((rows, words), np.int32)
    return {"word_features": features, "input_mask": mask}


@pytest.mark.parametrize("weighted", [False, True])
def test_padding_changes_nothing_and_both_sides_count(weighted):
    network, batch = tagger(weighted), vectors()
    plain = numpy(network(batch))
    longer = {
        "word_features": np.pad(
            batch["word_features"],
            ((0, 0), (0, 3), (0, 0), (0, 0)),
            constant_values=7.0,
        ),
        "input_mask": np.pad(batch["input_mask"], ((0, 0), (0, 3))),
    }
    np.testing.assert_allclose(numpy(network(longer))[:, :5], plain, atol=1e-5)
    for word in (0, 4):
        changed = {k: v.copy() for k, v in batch.items()}
        changed["word_features"][0, word] += 1.0
        moved = np.abs(numpy(network(changed)) - plain).max(axis=-1)
        # The first word tells of the last, and the last of the first.
        assert (moved[0] > 1e-6).all()
        assert not moved[1].any()


def test_a_weighted_sum_is_by_softmax():
    network, batch = tagger(weighted=True), vectors()
    mix = network.get_layer("layer_mix")
    scores = numpy(mix.scores)
    shares = np.exp(scores) / np.exp(scores).sum()
    expected = np.einsum("bskh,k->bsh", batch["word_features"], shares)
    np.testing.assert_allclose(
        numpy(mix(batch["word_features"])), expected, atol=1e-5
    )
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(batch)[..., 0])
    assert np.abs(numpy(tape.gradient(loss, mix.scores.value))).min() > 0
    fresh = bilstm_tagger(3, 6, 5, True, 4, 0.0).get_layer("layer_mix")
    np.testing.assert_array_equal(numpy(fresh.scores), 0.0)


def test_the_tagger_has_the_papers_form():
    network = bilstm_tagger(4, 768, 9, False, 768, 0.5)
    shapes = {w.path: tuple(w.shape) for w in network.weights}
    part = "lstm_{}/{}_lstm/lstm_cell/kernel"
    for side in ("forward", "backward"):
        assert shapes[part.format(0, side)] == (4 * 768, 4 * 768)
        assert shapes[part.format(1, side)] == (2 * 768, 4 * 768)
    assert shapes["tags/kernel"] == (2 * 768, 9)
    rates = [
        layer.rate
        for layer in network.layers
        if isinstance(layer, keras.layers.Dropout)
    ]
    assert rates == [0.5, 0.5, 0.5]


def test_a_finished_run(finished, start):
    folder, done = finished
    results = done["train"]
    assert results["dev"]["dev"]["f1"] > 0.8
    assert done["eval"]["test"] == pytest.approx(results["dev"]["test"])
    facts = json.loads((folder / "task.json").read_text())
    assert facts["features"] == "concat_last_four"
    assert facts["lstm_units"] == 12
    # The encoder is as it was, the tagger beside it.
    before = load_checkpoint(start).arrays
    after = read_arrays(folder / "bert_model.safetensors")
    assert after.keys() == before.keys()
    for name, array in after.items():
        np.testing.assert_array_equal(array, before[name])
    trained = read_arrays(folder / "tagger.safetensors")
    assert trained["tags/kernel"].shape == (24, 5)
    assert (folder / "last" / "tagger.safetensors").is_file()
    # It never computed anything twice.
    names = [path.name.split("-")[0] for path in folder.glob("features/*")]
    assert sorted(names) == ["dev", "test", "train"]


def test_a_loaded_tagger_is_the_same(finished, made):
    (folder, _), (task, _) = finished, made
    model, _, facts = load_model(folder, task)
    assert isinstance(model, FeatureTagger)
    random = np.random.default_rng(1)
    batch = {
        "word_features": random.normal(size=(2, 5, 4, 16)).astype("float32"),
        "input_mask": np.ones((2, 5), np.int32),
    }
    for name, array in read_arrays(folder / "tagger.safetensors").items():
        found = {w.path: w for w in model.network.weights}[name]
        np.testing.assert_array_equal(numpy(found), array)
    again = FeatureTagger.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(
        numpy(again(batch)["logits"]), numpy(model(batch)["logits"])
    )
    assert len(model.trainable_variables) == 2 * 2 * 3 + 2
    other = dataclasses.replace(facts, lstm_units=7)
    wrong = task.build(model.encoder, other)
    line = error_of(wrong.load_beside, folder)
    assert line.startswith(f"{folder / 'tagger.safetensors'}: ")
    assert line.endswith("it is of another model.")


def test_the_search_for_a_bad_number_needs_no_token_ids(start, made):
    model = made[0].build(
        BertEncoder.from_checkpoint(start),
        FeatureTaggingConfig(
            "names", tuple("OABCD"), 32, "document", 0, "last", 3, 0
        ),
    )
    batch = vectors(layers=1)
    batch["word_features"] = np.repeat(batch["word_features"], 3, axis=3)
    batch["word_features"] = batch["word_features"][..., :16]
    batch["tag_ids"] = batch["input_mask"] * 2
    batch["tag_weights"] = batch["input_mask"].astype("float32")
    assert ids_outside(batch, {"input_ids": 3}) is None
    assert ids_outside(batch, {"tag_ids": 2})
    named = forward_tensors(model, TagObjective(), batch)
    assert [name for name, _ in named] == ["logits", "loss"]
    assert first_non_finite(named) is None
    batch["word_features"][1, 2] = np.nan
    named = forward_tensors(model, TagObjective(), batch)
    assert first_non_finite(named).startswith("logits (")


def test_too_few_layers_are_refused_before_training(made, tmp_path):
    task, recipe = made
    shallow = model_folder(tmp_path / "model", num_hidden_layers=2)
    settings = [f"init_from={shallow}", "features=concat_last_four"]
    recipe, folder = recipe.override(settings), tmp_path / "out"
    line = error_of(run_finetuning, task, recipe, folder, ["train"])
    assert line.startswith("features=concat_last_four: the encoder has 2")
    assert not folder.exists()


def test_the_paper_names_all_choices():
    from tasks.conll2003_features import TASK as PAPERS

    assert len(PAPERS.paper["f1"]) == len(FEATURES)
    recipe = PAPERS.recipe_type.from_dict(PAPERS.defaults, "test")
    assert (recipe.lstm_units, recipe.features) == (768, "concat_last_four")
