"""Taggers on features of a frozen encoder: which ones, cached, trained."""

import dataclasses
import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint, read_arrays
from bert_tf.encoders import BertEncoder
from bert_tf.families.model_folder import load_model
from bert_tf.families.task import RunSplit
from bert_tf.families.token_classification.config import (
    FeatureTaggingConfig,
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.features import (
    FeatureRows,
    FeatureTagger,
    bilstm_tagger,
    layers_of,
)
from bert_tf.families.token_classification.recipe import (
    FEATURES,
    FeatureRecipe,
)
from bert_tf.families.token_classification.windows import (
    TagObjective,
    encode_words,
)
from bert_tf.training.sentinel import (
    first_non_finite,
    forward_tensors,
    ids_outside,
)
from tests.as_numpy import as_numpy
from tests.checkpoints.arrays import assert_same_arrays
from tests.contracts.task_cases import CASES, model_folder
from tests.finetuning.sentence_runs import tokenizer
from tests.model_helpers import fill, numpy
from tests.user_errors import error_of


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "model"
    return model_folder(folder, num_hidden_layers=4)


@pytest.fixture(scope="module")
def made(start, tmp_path_factory):
    return CASES["features"].make(tmp_path_factory.mktemp("files"), start)


def encoded(words, length):
    config = TokenClassificationConfig("names", (), length, "document", 0)
    return encode_words(words, tokenizer(), config)


def rows_of(start, tmp_path, layers, words):
    recipe = FeatureRecipe(eval_batch_size=3)
    run = RunSplit("dev", load_checkpoint(start), recipe, tmp_path)
    return FeatureRows(encoded(words, 32), run, layers)


def test_layers():
    assert [layers_of(features, 12) for features in FEATURES] == [
        (0,),
        (11,),
        (12,),
        (9, 10, 11, 12),
        (9, 10, 11, 12),
        tuple(range(1, 13)),
    ]
    for features, count in (
        ("concat_last_four", 3),
        ("weighted_sum_last_four", 3),
        ("second_to_last", 1),
    ):
        line = error_of(layers_of, features, count)
        assert line.startswith(f"features={features}: the encoder has {count}")
    assert layers_of("weighted_sum_all", 1) == (1,)


def test_features_are_those_of_first_sub_tokens(start, made, tmp_path):
    task, recipe = made
    words = task.load("test", recipe)
    rows = rows_of(start, tmp_path, (0, 1, 2, 3, 4), words)
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
    """Rows of an encoder with one array scaled."""
    arrays = dict(rows.run.source.arrays)
    arrays[name] = arrays[name] * factor
    source = dataclasses.replace(rows.run.source, arrays=arrays)
    run = dataclasses.replace(rows.run, source=source)
    return dataclasses.replace(rows, run=run)


def test_features_are_computed_once(start, made, tmp_path, monkeypatch):
    task, recipe = made
    words = task.load("dev", recipe)
    rows = rows_of(start, tmp_path, (4,), words)
    stored = np.array(rows.vectors)
    assert stored.dtype == np.float16
    folder = tmp_path / "features"
    (path,) = folder.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(FeatureRows, "write", None)
        again = dataclasses.replace(rows)
        np.testing.assert_array_equal(again.vectors, stored)
        assert isinstance(again.vectors, np.memmap)
    keys = {
        part.key
        for part in (
            rows,
            dataclasses.replace(rows, layers=(3,)),
            dataclasses.replace(rows, windows=encoded(words, 16)),
            changed(rows, "bert/embeddings/word_embeddings", 0.9),
        )
    }
    assert len(keys) == 4
    assert path.name == f"dev-{rows.key[:16]}.npy"
    path.unlink()
    beta = "bert/encoder/layer_3/output/LayerNorm/beta"
    rows = changed(rows, beta, np.nan)
    assert "are not finite" in error_of(lambda: rows.vectors)
    assert not list(folder.iterdir())


@functools.cache
def tagger(weighted):
    features = "weighted_sum_all" if weighted else "concat_last_four"
    network = bilstm_tagger(3, 6, tagger_config("OABCD", features, 4, 0.0))
    return fill(network, seed=2, scale=0.5)


def tagger_config(labels, features, units, dropout):
    return FeatureTaggingConfig(
        "names", tuple(labels), 32, "document", 0, features, units, dropout
    )


def vectors():
    random = np.random.default_rng(6)
    features = random.normal(size=(2, 5, 3, 6)).astype("float32")
    mask = np.ones((2, 5), np.int32)
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
        # The first word affects the last, and the last the first.
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
    fresh = type(mix)()
    fresh.build((None, None, 3, 6))
    np.testing.assert_array_equal(numpy(fresh.scores), 0.0)


def test_the_tagger_has_the_papers_form():
    config = tagger_config("OABCDEFGH", "concat_last_four", 768, 0.5)
    network = bilstm_tagger(4, 768, config)
    shapes = {w.path: tuple(w.shape) for w in network.weights}
    part = "lstm_{}/{}_lstm/lstm_cell/kernel"
    for side in ("forward", "backward"):
        assert shapes[part.format(0, side)] == (4 * 768, 4 * 768)
        assert shapes[part.format(1, side)] == (2 * 768, 4 * 768)
    assert shapes["tags/kernel"] == (2 * 768, 9)
    layers = network.layers
    dropout = [x.rate for x in layers if isinstance(x, keras.layers.Dropout)]
    assert dropout == [0.5, 0.5, 0.5]
    from tasks.conll2003_features import TASK as PAPERS

    assert len(PAPERS.paper["f1"]) == len(FEATURES)
    recipe = PAPERS.recipe_type.from_dict(PAPERS.defaults, "test")
    assert (recipe.lstm_units, recipe.features) == (768, "concat_last_four")


def test_a_finished_run(finish_case, capsys):
    run = finish_case("features")
    folder, task, results = run.folder, run.task, run.done["train"]
    assert run.done["eval"]["test"] == pytest.approx(results["dev"]["test"])
    facts = json.loads((folder / "task.json").read_text())
    assert (facts["features"], facts["lstm_units"]) == ("last", 12)
    # The encoder is unchanged, and a separate file has the tagger.
    before = load_checkpoint(run.recipe.init_from).arrays
    after = read_arrays(folder / "bert_model.safetensors")
    assert_same_arrays(after, before)
    assert (folder / "last" / "tagger.safetensors").is_file()
    # Every split was computed once.
    names = [path.name.split("-")[0] for path in folder.glob("features/*")]
    assert sorted(names) == ["dev", "test", "train"]
    # A loaded tagger is the same, as is one from a Keras config.
    model, tokens, config = load_model(folder, task)
    assert isinstance(model, FeatureTagger)
    trained = read_arrays(folder / "tagger.safetensors")
    weights = {w.path: numpy(w) for w in model.network.weights}
    assert_same_arrays(weights, trained)
    again = FeatureTagger.from_config(model.get_config())
    again.set_weights(model.get_weights())
    batch = vectors()
    batch["word_features"] = np.resize(batch["word_features"], (2, 5, 1, 16))
    np.testing.assert_array_equal(
        numpy(again(batch)["logits"]), numpy(model(batch)["logits"])
    )
    assert len(model.trainable_variables) == 2 * 2 * 3 + 2
    wrong = task.build(model.encoder, dataclasses.replace(config, lstm_units=7))
    line = error_of(wrong.load_beside, folder)
    assert line.startswith(f"{folder / 'tagger.safetensors'}: ")
    assert line.endswith("it is of another model.")
    # A tagger to start from is not read, which a notice says.
    initial = load_checkpoint(folder)
    words = task.load("train", run.recipe)
    for init_from, labelled, logged in (
        (folder, True, True),
        (folder, False, False),
        (run.recipe.init_from, True, False),
    ):
        recipe = dataclasses.replace(run.recipe, init_from=str(init_from))
        split = RunSplit("x", initial, recipe, folder)
        task.encode(words, tokens, config, labelled, split)
        assert ("its tagger is not read" in capsys.readouterr().err) is logged


def test_the_search_for_a_bad_number_needs_no_token_ids(start, made):
    config = tagger_config("OABCD", "last", 3, 0)
    model = made[0].build(BertEncoder.from_checkpoint(start), config)
    batch = vectors()
    batch["word_features"] = np.resize(batch["word_features"], (2, 5, 1, 16))
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
