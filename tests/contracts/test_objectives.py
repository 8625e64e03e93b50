"""What every pre-training objective promises.

Losses over replicas and slices are in `tests/conformance/`; a whole run of the
default objective is in `tests/pretraining/test_run.py`.
"""

import dataclasses
import functools
import json
import math
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import (
    fill,
    numpy,
    predictions_of_tokens,
    pretraining_batch,
    small_config,
)
from reference_bert import ReferenceBert, softmax

import bert_tf
from bert_tf.architectures.electra import ElectraConfig
from bert_tf.checkpoints import load_checkpoint, read_arrays
from bert_tf.conversion import convert_checkpoint
from bert_tf.inference.served_folder import served_model
from bert_tf.models import replaced_token_detector, restore
from bert_tf.optimization import adamw
from bert_tf.pretraining.electra import ElectraPretrainer
from bert_tf.pretraining.objective import OBJECTIVES, PretrainingObjective
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from bert_tf.records.dataset import RecordFolder, held_out_batches
from tests.packed_batches import packed
from tests.run_folders import history, weights
from tests.user_errors import error_of

# Eagerly run, tf.data's functions stay graphs, of which TensorFlow warns.
pytestmark = pytest.mark.filterwarnings("ignore:Even though")
DEFAULT, ORDER = "masked_lm_next_sentence", "masked_lm_sentence_order"
# Those that learn the labels of pairs.
OF_PAIRS = (DEFAULT, ORDER)
# The loss terms of each, the first one that of tokens.
TERMS = {
    DEFAULT: ["masked_lm", "next_sentence"],
    "masked_lm": ["masked_lm"],
    ORDER: ["masked_lm", "sentence_order"],
    "left_to_right": ["next_token"],
    "replaced_tokens": ["masked_lm", "replaced_token"],
}
every_objective = pytest.mark.parametrize("name", OBJECTIVES)
every_other = pytest.mark.parametrize(
    "name", [name for name in OBJECTIVES if name != DEFAULT]
)


def make_model(name: str, unpadded: bool = False, **sizes) -> BertPretrainer:
    """The small model that an objective trains, with distinct weights."""
    objective = OBJECTIVES[name]
    config = small_config(
        causal=objective.reads_next_tokens, num_hidden_layers=1, **sizes
    )
    if not objective.detects_replaced_tokens:
        model = BertPretrainer(config, objective=objective, unpadded=unpadded)
        return fill(model, scale=0.15)
    config = ElectraConfig(**{**vars(config), "embedding_size": 8})
    model = ElectraPretrainer(
        config, unpadded=unpadded, generator=config.generator(0.5)
    )
    fill(model, scale=0.15)
    # The generator always draws this token, whatever the shape of a batch.
    bias = 100.0 * (np.arange(config.vocab_size) == 9)
    model.masked_lm.output_bias.assign(bias.astype("float32"))
    return model


def make_batch(**sizes) -> dict[str, np.ndarray]:
    return predictions_of_tokens(pretraining_batch(small_config(), **sizes))


def random_outputs(batch, seed=0, dtype="float32") -> dict:
    random = np.random.default_rng(seed)
    rows, predictions = batch["masked_lm_ids"].shape
    tokens = batch["input_ids"].shape
    outputs = {
        "masked_lm_logits": random.normal(0, 3, (rows, predictions, 41)),
        "next_sentence_logits": random.normal(0, 3, (rows, 2)),
        "replaced_token_logits": random.normal(0, 3, tokens),
        "replaced_tokens": random.integers(0, 2, tokens),
    }
    return {k: keras.ops.cast(v, dtype) for k, v in outputs.items()}


def mean_losses(name, outputs, batch) -> dict[str, float]:
    objective = OBJECTIVES[name]
    losses, _ = objective(outputs, batch)
    means = objective.normalise(losses, objective.loss_weights(batch))
    return {name: float(value) for name, value in means.items()}


def reference(name, outputs, batch) -> tuple[dict, dict]:
    """Mean losses and metrics in float64.

    Devlin et al. 2019, appendix A.2; Clark et al. 2020, section 2; the
    denominators of google-research/bert and google-research/electra.
    """
    outputs = {n: numpy(v).astype("float64") for n, v in outputs.items()}
    losses, metrics = {}, {}
    ids, used = batch["masked_lm_ids"], batch["masked_lm_weights"]
    logits = outputs["masked_lm_logits"]
    nll = -np.log(np.take_along_axis(softmax(logits), ids[..., None], -1))
    epsilon = 1e-6 if name == "replaced_tokens" else 1e-5
    token, *others = TERMS[name]
    losses[f"{token}_loss"] = (nll[..., 0] * used).sum() / (
        used.sum() + epsilon
    )
    correct = (used * (logits.argmax(-1) == ids)).sum()
    metrics[f"{token}_accuracy"] = correct, used.sum()
    if name in OF_PAIRS:
        logits, labels = (
            outputs["next_sentence_logits"],
            batch["next_sentence_labels"],
        )
        rows = np.arange(len(labels))
        losses[f"{others[0]}_loss"] = -np.log(
            softmax(logits)[rows, labels]
        ).mean()
        correct = (logits.argmax(-1) == labels).sum()
        metrics[f"{others[0]}_accuracy"] = correct, len(labels)
    if "replaced_token" in others:
        z, mask = outputs["replaced_token_logits"], batch["input_mask"]
        y, p = outputs["replaced_tokens"], 1 / (1 + np.exp(-z))
        cross = -(y * np.log(p) + (1 - y) * np.log(1 - p)) * mask
        losses["replaced_token_loss"] = 50 * cross.sum() / mask.sum()
        found, replaced = (z > 0) * mask, y * mask
        correct = (found * replaced).sum()
        metrics["replaced_token_precision"] = correct, found.sum()
        metrics["replaced_token_recall"] = correct, replaced.sum()
    return losses, metrics


@pytest.mark.parametrize("seed", range(2))
@every_objective
def test_losses_and_metrics_are_the_reference(name, seed) -> None:
    batch = pretraining_batch(small_config(), rows=5, seed=seed)
    outputs = random_outputs(batch, seed)
    # Half of the predictions are correct, so that no accuracy is 0.
    guesses = numpy(outputs["masked_lm_logits"]).argmax(-1)
    batch["masked_lm_ids"][:, ::2] = guesses[:, ::2]
    losses, metrics = reference(name, outputs, batch)
    found = mean_losses(name, outputs, batch)
    assert list(found) == [f"{term}_loss" for term in TERMS[name]]
    assert found == pytest.approx(losses, rel=1e-5)
    _, sums = OBJECTIVES[name](outputs, batch)
    assert tuple(sums) == OBJECTIVES[name].metrics == tuple(metrics)
    for metric, expected in metrics.items():
        assert tuple(map(float, sums[metric])) == expected
        assert expected[0] > 0


def test_by_hand() -> None:
    batch = {
        "masked_lm_ids": np.int32([[2, 0], [1, 3]]),
        "masked_lm_weights": np.float32([[1, 0], [1, 1]]),
        "next_sentence_labels": np.int32([1, 0]),
    }
    outputs = {
        "masked_lm_logits": np.zeros((2, 2, 4), "float32"),
        "next_sentence_logits": np.float32([[0, np.log(3)], [0, np.log(3)]]),
    }
    outputs["masked_lm_logits"][1, 0, 1] = np.log(5)
    _, metrics = PretrainingObjective()(outputs, batch)
    assert mean_losses(DEFAULT, outputs, batch) == pytest.approx(
        {
            "masked_lm_loss": (2 * np.log(4) + np.log(8 / 5)) / 3.00001,
            "next_sentence_loss": (np.log(4 / 3) + np.log(4)) / 2,
        },
        rel=1e-6,
    )
    # Of the three that count, one guess is right; ties go to the first id.
    assert [float(v) for v in metrics["masked_lm_accuracy"]] == [1.0, 3.0]
    assert [float(v) for v in metrics["next_sentence_accuracy"]] == [1.0, 2.0]


@settings(max_examples=30)
@given(
    name=st.sampled_from(list(OBJECTIVES)),
    seed=st.integers(0, 1000),
    cut=st.integers(1, 5),
)
def test_parts_add_up_to_the_batch(name, seed, cut) -> None:
    """Of packed rows, where sequences without a label do not count."""
    objective = OBJECTIVES[name]
    batch = pretraining_batch(small_config(), rows=6, seed=seed)
    outputs = random_outputs(batch, seed)
    random = np.random.default_rng(seed)
    labels = random.integers(-1, 2, (6, 3), "int32")
    labels[:, 0] = 1
    batch["next_sentence_labels"] = labels
    outputs["next_sentence_logits"] = random.normal(0, 3, (6, 3, 2))
    losses, weights = {}, {}
    for part in (np.s_[:cut], np.s_[cut:]):
        rows = {name: value[part] for name, value in batch.items()}
        some, _ = objective({k: v[part] for k, v in outputs.items()}, rows)
        for sums, more in (
            (losses, some),
            (weights, objective.loss_weights(rows)),
        ):
            for key, value in more.items():
                sums[key] = sums.get(key, 0.0) + float(value)
    whole = mean_losses(name, outputs, batch)
    for key, value in objective.normalise(losses, weights).items():
        np.testing.assert_allclose(value, whole[key], rtol=1e-5)


@every_objective
def test_unused_predictions_empty_batches_and_half_precision(name) -> None:
    batch = pretraining_batch(small_config())
    outputs = random_outputs(batch)
    unused = batch["masked_lm_weights"] == 0
    assert unused.any()
    ids = np.where(unused, 0, batch["masked_lm_ids"])
    assert (ids != batch["masked_lm_ids"]).any()
    found = mean_losses(name, outputs, batch)
    assert mean_losses(name, outputs, {**batch, "masked_lm_ids": ids}) == found
    none = {**batch, "masked_lm_weights": 0 * batch["masked_lm_weights"]}
    losses = mean_losses(name, outputs, none)
    assert losses[f"{TERMS[name][0]}_loss"] == 0.0
    half = OBJECTIVES[name](random_outputs(batch, dtype="bfloat16"), batch)
    for value in keras.tree.flatten(half):
        assert keras.backend.standardize_dtype(value.dtype) == "float32"


@every_objective
def test_the_loss_at_the_start_is_chance(name) -> None:
    model = make_model(name, vocab_size=3000, max_position_embeddings=32)
    batch = make_batch(rows=16, length=30, predictions=10)
    # As they are initialised.
    keras.utils.set_random_seed(0)
    fresh = model.from_config(model.get_config())
    chance = {"replaced_token": 50 * np.log(2)}
    chance |= dict.fromkeys(("next_sentence", "sentence_order"), np.log(2))
    for key, loss in mean_losses(name, fresh(batch), batch).items():
        expected = chance.get(key.removesuffix("_loss"), np.log(3000))
        assert loss == pytest.approx(expected, rel=0.03), key


@every_objective
def test_each_input_and_label_matters(name) -> None:
    batch, model = make_batch(rows=4), make_model(name)
    if name == "replaced_tokens":
        # Else the generator ignores its inputs.
        fill(model.masked_lm)
    before = mean_losses(name, model(batch), batch)
    mask = batch["input_mask"]
    used = batch["masked_lm_weights"]
    changes = {
        "input_ids": (batch["input_ids"] + 1) % 41,
        "input_mask": mask * (np.arange(mask.shape[1]) != mask.sum(1).min()),
        "segment_ids": 1 - batch["segment_ids"],
        "masked_lm_positions": batch["masked_lm_positions"][::-1],
        "masked_lm_ids": (batch["masked_lm_ids"] + 1) % 41,
        "masked_lm_weights": used * (np.cumsum(used) > 1).reshape(used.shape),
        "next_sentence_labels": 1 - batch["next_sentence_labels"],
    }
    for feature, value in changes.items():
        changed = {**batch, feature: value.astype(batch[feature].dtype)}
        after = mean_losses(name, model(changed), changed)
        reads = feature != "next_sentence_labels" or name in OF_PAIRS
        assert (after != before) == reads, feature


@every_objective
def test_packed_and_unpadded_rows_have_the_losses_of_their_sequences(
    name,
) -> None:
    batch = make_batch(rows=5, length=8)
    together = packed(batch, [[0, 1], [2], [3, 4]], 20)
    losses = mean_losses(name, make_model(name)(batch), batch)
    for unpadded in (False, True):
        outputs = make_model(name, unpadded)(together)
        found = mean_losses(name, outputs, together)
        assert found == pytest.approx(losses, rel=1e-5)


@every_objective
def test_fit_trains_what_the_objective_trains(name) -> None:
    """Every weight that it trains and no other; metrics are weighted means."""
    objective, model = OBJECTIVES[name], make_model(name)
    heads = {"pooler": model.encoder.pooler, **model.head_layers()}
    untrained = [
        weight.path
        for head, layer in heads.items()
        if head not in objective.heads
        for weight in layer.weights
    ]
    if name == "replaced_tokens":
        untrained += [w.path for w in model.generator.pooler.weights]
    assert [w.path for w in model.non_trainable_weights] == untrained
    # It may become part of a model that trains all of it.
    assert model.encoder.non_trainable_weights == []
    batch = make_batch(rows=6)
    if name not in OF_PAIRS:
        del batch["next_sentence_labels"]
    data = tf.data.Dataset.from_tensors(batch)
    optimizer = adamw(1e-2, total_steps=3, warmup=0.0)
    model.compile(optimizer=optimizer, run_eagerly=True)
    before = {w.path: numpy(w).copy() for w in model.weights}
    numbers = model.fit(data.repeat(2), shuffle=False, verbose=0).history
    assert set(numbers) == {"loss", *objective.metrics}
    for weight in model.weights:
        changed = np.abs(numpy(weight) - before[weight.path]).max()
        assert (changed == 0) == (weight.path in untrained), weight.path
    scores = model.evaluate(data, verbose=0, return_dict=True)
    _, metrics = objective(model(batch), batch)
    for metric, (total, weight) in metrics.items():
        mean = float(total) / max(float(weight), 1e-9)
        assert scores[metric] == pytest.approx(mean, rel=1e-6)
    # Files of models of before there were objectives name none.
    assert ("objective" in model.get_config()) == (name != DEFAULT)


@pytest.fixture(scope="module")
def recipes(make_records, config_file, tmp_path_factory):
    """The recipe of each objective, on records whose second texts follow."""
    folder = tmp_path_factory.mktemp("configs")
    following = make_records(
        "following",
        max_seq_length=32,
        max_predictions_per_seq=5,
        random_next_prob=0.0,
    )
    config = bert_tf.BertConfig.from_json(config_file)
    order = make_records(
        "order",
        max_seq_length=32,
        max_predictions_per_seq=5,
        sequences="sentence_order",
    )
    configs = {
        "masked_lm": config,
        ORDER: config,
        "left_to_right": dataclasses.replace(config, causal=True),
        "replaced_tokens": ElectraConfig(
            **{**vars(config), "embedding_size": 8}
        ),
    }
    for name, each in configs.items():
        each.save(folder / f"{name}.json")
    return {
        name: PretrainingRecipe(
            data_dir=str(order if name == ORDER else following),
            config_file=str(folder / f"{name}.json"),
            objective=name,
            generator_size=0.5,
            train_batch_size=8,
            num_train_steps=4,
            learning_rate=3e-2,
            log_steps=1,
            eval_steps=4,
            save_checkpoints_steps=2,
            eval_batch_size=16,
        )
        for name in configs
    }


@pytest.fixture(scope="module")
def finished(recipes, tmp_path_factory):
    """The folder of a finished run of an objective, by its name.

    Eager, as a few steps take less time than graphs; each objective's graph is
    in tests/conformance/.
    """
    folder = tmp_path_factory.mktemp("runs")

    @functools.cache
    def finish(name: str) -> pathlib.Path:
        run_pretraining(recipes[name], folder / name)
        return folder / name

    return finish


def scores_of(folder: pathlib.Path) -> dict[str, float]:
    return json.loads((folder / "results.json").read_text())


@every_other
def test_a_run_learns_and_stores_what_it_trained(
    name, finished, eagerly
) -> None:
    folder, (task, *_) = finished(name), TERMS[name]
    losses = [r[f"{task}_loss"] for r in history(folder) if "loss" in r]
    assert losses[-1] < losses[0] - 0.1
    found = scores_of(folder)
    terms = {f"{term}_loss" for term in TERMS[name]}
    measured = terms | set(OBJECTIVES[name].metrics)
    assert found.keys() == measured | {
        *(f"training_{each}" for each in measured),
        *("loss", f"{task}_perplexity", "unigram_perplexity"),
        *("most_frequent_token_accuracy", "sequences_per_second"),
    }
    assert found[f"{task}_perplexity"] == math.exp(found[f"{task}_loss"])
    checkpoint = load_checkpoint(folder)
    electra = name == "replaced_tokens"
    heads = ("replaced_tokens",) if electra else OBJECTIVES[name].heads
    assert set(checkpoint.heads) == set(heads)
    assert checkpoint.config.causal == (name == "left_to_right")
    # The optimizer has moments of what is trained.
    state = read_arrays(
        max((folder / "checkpoints").iterdir()) / "state.safetensors"
    )
    kinds = [key.partition("/")[0] for key in state]
    assert kinds.count("optimizer") == 2 * kinds.count("weights") + 1
    kind = ElectraPretrainer if electra else BertPretrainer
    model = kind.from_checkpoint(folder, objective=OBJECTIVES[name])
    assert kinds.count("weights") == len(model.trainable_variables)
    card = (folder / "README.md").read_text()
    assert ("fill-mask" in card) == (name in ("masked_lm", ORDER))


def test_a_resumed_electra_is_the_uninterrupted_one(
    recipes, finished, tmp_path, capsys, eagerly
) -> None:
    """Of two models; others are in tests/pretraining/test_run.py."""
    whole, run = finished("replaced_tokens"), tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    (run / "bert_model.safetensors").unlink()
    run_pretraining(recipes["replaced_tokens"], run)
    assert "resuming from step 2 of 4" in capsys.readouterr().out
    assert history(run) == history(whole)
    for part in (".", "generator"):
        expected = weights(whole / part)
        found = weights(run / part)
        assert found.keys() == expected.keys()
        for key, array in found.items():
            np.testing.assert_array_equal(array, expected[key])


def test_the_loss_from_left_to_right_is_that_of_the_text(
    finished, recipes, eagerly
) -> None:
    """The mean over all held-out tokens, by the reference, from the ids."""
    folder = finished("left_to_right")
    model = bert_tf.BertPretrainer.from_checkpoint(folder)
    bert = ReferenceBert(model.config, model.to_arrays())
    total = correct = count = 0
    records = RecordFolder.open(recipes["left_to_right"].data_dir)
    for batch in held_out_batches(records, 16):
        # Without padding rows, and with the original tokens.
        rows = batch["next_sentence_labels"].numpy() >= 0
        batch = {n: v.numpy()[rows] for n, v in batch.items()}
        ids = batch["input_ids"].copy()
        for row, positions in enumerate(batch["masked_lm_positions"]):
            used = batch["masked_lm_weights"][row] > 0
            ids[row, positions[used]] = batch["masked_lm_ids"][row, used]
        width = ids.shape[1]
        logits = bert(
            {
                "input_ids": ids,
                "input_mask": batch["input_mask"],
                "segment_ids": batch["segment_ids"],
                "masked_lm_positions": np.tile(np.arange(width), (len(ids), 1)),
            }
        )["masked_lm_logits"][:, :-1]
        real, targets = batch["input_mask"][:, 1:] == 1, ids[:, 1:]
        likely = np.take_along_axis(softmax(logits), targets[..., None], -1)
        total -= np.log(likely[..., 0][real]).sum()
        correct += (logits.argmax(-1) == targets)[real].sum()
        count += real.sum()
    found = scores_of(folder)
    assert found["next_token_loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["next_token_accuracy"] == pytest.approx(
        correct / count, abs=1e-3
    )


def test_uses_of_the_models(finished, tmp_path, capfd, eagerly) -> None:
    """A masked LM without a pooler fills masks; one from the left does not."""
    masked, left = finished("masked_lm"), finished("left_to_right")
    assert len(bert_tf.fill_mask(masked, "a [MASK] of [MASK]", 3)) == 2
    line = error_of(bert_tf.fill_mask, left, "a [MASK]")
    assert line.startswith(f"{left}: reads from left to right")
    assert bert_tf.embed(left, ["a function"]).shape == (1, 16)
    assert "fill_mask" in served_model(masked).signatures()
    served = served_model(left)
    assert served.task == "embeddings"
    assert "fill_mask" not in served.signatures()
    for folder in (masked, left):
        capfd.readouterr()
        bert_tf.BertEncoder.from_checkpoint(folder)
        printed = capfd.readouterr().err
        assert printed.startswith(f"{folder}: has no pooler")
        assert printed.count("\n") == 1
        converted = tmp_path / folder.name
        convert_checkpoint(folder, "hugging_face", converted)
        assert load_checkpoint(converted).heads == ("masked_lm",)
    convert_checkpoint(masked, "google_tf1", tmp_path / "google")
    assert load_checkpoint(tmp_path / "google").heads == ("masked_lm",)
    line = error_of(convert_checkpoint, left, "google_tf1", tmp_path / "no")
    assert "causal is true" in line


def test_an_electra_is_two_models_which_train_further(
    finished, recipes, tmp_path, eagerly
) -> None:
    folder = finished("replaced_tokens")
    discriminator = load_checkpoint(folder)
    generator = load_checkpoint(folder / "generator")
    assert generator.heads == ("masked_lm",)
    assert generator.config.hidden_size == 8
    shared = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(
        discriminator.arrays[shared], generator.arrays[shared]
    )
    model = ElectraPretrainer.from_checkpoint(folder)
    batch = pretraining_batch(model.config)
    alone = BertPretrainer.from_checkpoint(folder / "generator")
    np.testing.assert_allclose(
        model(batch)["masked_lm_logits"],
        alone(batch)["masked_lm_logits"],
        atol=1e-5,
    )
    detector = replaced_token_detector(type(model.encoder)(model.config))
    restore(detector, folder, ["pooler"])
    inputs = {n: batch[n] for n in ("input_ids", "input_mask", "segment_ids")}
    np.testing.assert_allclose(
        detector(inputs),
        model.replaced_tokens(model.encoder(inputs)["sequence_output"]),
        atol=1e-5,
    )
    further = recipes["replaced_tokens"].override(
        [
            *(f"init_from={folder}", "config_file=", "learning_rate=1e-9"),
            *("num_train_steps=1", "log_steps=1"),
        ]
    )
    run_pretraining(further, tmp_path / "run")
    for part in (".", "generator"):
        expected = weights(folder / part)
        for name, array in weights(tmp_path / "run" / part).items():
            np.testing.assert_allclose(array, expected[name], atol=1e-6)
