"""Runs of every objective, and of one's own; what does not fit them."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from model_helpers import OF_BERT, fill
from reference_bert import ReferenceBert, softmax

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.inference.fill_mask import MaskFiller
from bert_tf.inference.served_folder import served_model
from bert_tf.pretraining.objective import OBJECTIVES
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from bert_tf.pretraining.setup import fingerprint
from bert_tf.records.dataset import RecordFolder, held_out_batches
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import RecordFile
from bert_tf.training.loop import TrainingLoop
from tests import commands
from tests.run_folders import history, stop_at, weights
from tests.user_errors import error_of

OTHERS = [name for name in OF_BERT if name != "masked_lm_next_sentence"]
OWN = """
from keras import ops
from bert_tf.pretraining.objective import MaskedLanguageModeling

class WithPenalty(MaskedLanguageModeling):
    "Masked LM, and a penalty on large logits."

    def loss_weights(self, batch):
        weights = super().loss_weights(batch)
        return weights | {"penalty": weights["masked_lm_loss"]}

    def __call__(self, outputs, batch):
        losses, metrics = super().__call__(outputs, batch)
        weights = batch["masked_lm_weights"]
        size = ops.mean(ops.square(outputs["masked_lm_logits"]), axis=-1)
        total = ops.sum(weights * size)
        metrics["logit_size"] = total, ops.sum(weights)
        return losses | {"penalty": 0.1 * total}, metrics

    def normalise(self, losses, weights):
        mean = losses["penalty"] / weights["penalty"]
        return super().normalise(losses, weights) | {"penalty": mean}

OBJECTIVE = WithPenalty()
"""


@pytest.fixture(scope="module")
def following(make_records) -> pathlib.Path:
    """Records whose second texts all follow the first."""
    return make_records(
        "following",
        max_seq_length=32,
        max_predictions_per_seq=5,
        random_next_prob=0.0,
    )


@pytest.fixture(scope="module")
def recipe(following, config_file) -> PretrainingRecipe:
    """Of masked LM alone; that of left to right has a causal architecture."""
    return PretrainingRecipe(
        data_dir=str(following),
        config_file=str(config_file),
        objective="masked_lm",
        train_batch_size=8,
        num_train_steps=6,
        learning_rate=1e-2,
        log_steps=2,
        eval_steps=3,
        save_checkpoints_steps=2,
        eval_batch_size=16,
    )


@pytest.fixture(scope="module")
def recipes(recipe, config_file, tmp_path_factory):
    """The recipe of each objective but the default one, by name."""
    causal = tmp_path_factory.mktemp("causal") / "bert_config.json"
    config = bert_tf.BertConfig.from_json(config_file)
    dataclasses.replace(config, causal=True).save(causal)
    changes = ["objective=left_to_right", f"config_file={causal}"]
    return {"masked_lm": recipe, "left_to_right": recipe.override(changes)}


@pytest.fixture(scope="module")
def finished(recipes, tmp_path_factory) -> dict[str, pathlib.Path]:
    """The folder of a run of each."""
    folder = tmp_path_factory.mktemp("runs")
    for name, recipe in recipes.items():
        run_pretraining(recipe, folder / name)
    return {name: folder / name for name in recipes}


def assert_same_run(first: pathlib.Path, second: pathlib.Path) -> None:
    assert history(first) == history(second)
    theirs = weights(second)
    assert weights(first).keys() == theirs.keys()
    for name, array in weights(first).items():
        np.testing.assert_array_equal(array, theirs[name])


def scores(folder: pathlib.Path) -> dict[str, float]:
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("name", OTHERS)
def test_the_folder_of_a_finished_run(name, finished):
    """It learns, says what it learnt, and holds no head that it did not."""
    folder, task = finished[name], OBJECTIVES[name].token_task
    losses = [r[f"{task}_loss"] for r in history(folder) if "loss" in r]
    assert losses[-1] < losses[0] - 0.1
    found = scores(folder)
    assert set(found) == {
        f"training_{task}_loss",
        f"training_{task}_accuracy",
        f"{task}_loss",
        "loss",
        f"{task}_accuracy",
        f"{task}_perplexity",
        "unigram_perplexity",
        "most_frequent_token_accuracy",
        "sequences_per_second",
    }
    assert found[f"{task}_perplexity"] == np.exp(found[f"{task}_loss"])
    checkpoint = load_checkpoint(folder)
    assert checkpoint.heads == ("masked_lm",)
    assert checkpoint.config.causal == (name == "left_to_right")
    state = max((folder / "checkpoints").iterdir())
    slots = [
        array.shape
        for key, array in bert_tf.checkpoints.read_arrays(
            state / "state.safetensors"
        ).items()
        if key.startswith("optimizer")
    ]
    # Of the square matrices of H, only the masked LM head's: no pooler's.
    assert slots.count((16, 16)) == 2 * (1 + 1)


def test_the_loss_from_left_to_right_is_that_of_the_text(finished, recipe):
    """The mean over all held-out tokens, by the reference, from the ids."""
    checkpoint = load_checkpoint(finished["left_to_right"])
    model = bert_tf.BertPretrainer.from_checkpoint(finished["left_to_right"])
    reference = ReferenceBert(checkpoint.config, model.to_arrays())
    total = correct = count = 0
    for batch in held_out_batches(RecordFolder.open(recipe.data_dir), 16):
        # Without the rows that fill the last batch, and before masks: what was
        # masked is put back.
        rows = batch["next_sentence_labels"].numpy() >= 0
        batch = {n: v.numpy()[rows] for n, v in batch.items()}
        ids = batch["input_ids"].copy()
        for row, places in enumerate(batch["masked_lm_positions"]):
            used = batch["masked_lm_weights"][row] > 0
            ids[row, places[used]] = batch["masked_lm_ids"][row, used]
        width = ids.shape[1]
        inputs = {
            "input_ids": ids,
            "input_mask": batch["input_mask"],
            "segment_ids": batch["segment_ids"],
            "masked_lm_positions": np.tile(np.arange(width), (len(ids), 1)),
        }
        logits = reference(inputs)["masked_lm_logits"]
        for row, length in enumerate(batch["input_mask"].sum(1)):
            for place in range(max(length - 1, 0)):
                true = ids[row, place + 1]
                total -= np.log(softmax(logits[row, place])[true])
                correct += logits[row, place].argmax() == true
                count += 1
    found = scores(finished["left_to_right"])
    assert found["next_token_loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["next_token_accuracy"] == pytest.approx(
        correct / count, abs=1e-3
    )


@pytest.mark.parametrize(
    "name",
    ["left_to_right", pytest.param("masked_lm", marks=pytest.mark.slow)],
)
def test_interrupted_it_goes_on_exactly(
    name, recipes, finished, tmp_path, monkeypatch
):
    stop_at(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        run_pretraining(recipes[name], tmp_path)
    monkeypatch.undo()
    run_pretraining(recipes[name], tmp_path)
    assert_same_run(tmp_path, finished[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_two_replicas_are_one(name, recipes, tmp_path, config_file):
    """Without dropout, which replicas draw apart."""
    config = bert_tf.BertConfig.from_json(recipes[name].config_file)
    config.override(
        ["hidden_dropout_prob=0", "attention_probs_dropout_prob=0"]
    ).save(tmp_path / "config.json")
    recipe = recipes[name].override([f"config_file={tmp_path / 'config.json'}"])
    rows = []
    for strategy in ("one_device", "mirrored"):
        run_pretraining(
            recipe.override([f"strategy={strategy}"]), tmp_path / strategy
        )
        rows.append(history(tmp_path / strategy))
    for one, two in zip(*rows, strict=True):
        for key, value in one.items():
            assert two[key] == pytest.approx(value, rel=1e-3, abs=1e-3), key


def test_what_the_models_of_a_run_are_good_for(finished, tmp_path, capfd):
    """A masked LM without a pooler fills masks; one from the left does not."""
    masked, left = finished["masked_lm"], finished["left_to_right"]
    assert len(bert_tf.fill_mask(masked, "a [MASK] of [MASK]", 3)) == 2
    line = error_of(bert_tf.fill_mask, left, "a [MASK]")
    assert line.startswith(f"{left}: reads from left to right")
    model = bert_tf.BertPretrainer.from_checkpoint(left)
    tokenizer = bert_tf.BertTokenizer.from_checkpoint(left)
    assert "from left to right" in error_of(MaskFiller, model, tokenizer)
    assert bert_tf.embed(left, ["a function"]).shape == (1, 16)
    assert "fill_mask" in served_model(masked).signatures()
    served = served_model(left)
    assert served.task == "embeddings"
    assert "fill_mask" not in served.signatures()
    for folder in finished.values():
        capfd.readouterr()
        bert_tf.BertEncoder.from_checkpoint(folder)
        told = capfd.readouterr().err
        assert told == f"{folder}: has no pooler; initialized randomly.\n"
        converted = tmp_path / folder.name
        convert_checkpoint(folder, "hugging_face", converted)
        assert load_checkpoint(converted).heads == ("masked_lm",)
    convert_checkpoint(masked, "google_tf1", tmp_path / "google")
    assert load_checkpoint(tmp_path / "google").heads == ("masked_lm",)
    line = error_of(convert_checkpoint, left, "google_tf1", tmp_path / "no")
    assert "causal is true" in line


def test_heads_that_came_stay_as_they_are(recipe, tmp_path, capfd):
    """Those of init_from; a run is not resumed on others."""
    config = bert_tf.BertConfig.from_json(recipe.config_file)
    model = fill(bert_tf.BertPretrainer(config), scale=0.1)
    tokenizer = bert_tf.BertTokenizer.from_checkpoint(recipe.data_dir)
    for folder, number in (("whole", 0), ("other", 1)):
        arrays = model.to_arrays()
        arrays["bert/pooler/dense/bias"] += number
        save_checkpoint(tmp_path / folder, Checkpoint(config, arrays))
        tokenizer.save(tmp_path / folder)
    start = f"init_from={tmp_path / 'start'}"
    recipe = recipe.override([start, "config_file=", "num_train_steps=2"])
    (tmp_path / "start").symlink_to(tmp_path / "whole")
    run_pretraining(recipe, tmp_path / "new")
    assert "initialized randomly" not in capfd.readouterr().err
    before, after = model.to_arrays(), weights(tmp_path / "new")
    assert before.keys() == after.keys()
    for name, array in after.items():
        kept = "pooler" in name or "seq_relationship" in name
        assert np.array_equal(array, before[name]) == kept, name
    (tmp_path / "start").unlink()
    (tmp_path / "start").symlink_to(tmp_path / "other")
    line = error_of(run_pretraining, recipe, tmp_path / "new")
    assert "had another set of frozen weights" in line


def test_an_objective_of_ones_own(recipe, tmp_path, capsys, monkeypatch):
    """By the command, whose numbers show it; another file is another run."""
    own = tmp_path / "own.py"
    own.write_text(OWN)
    recipe = recipe.override([f"objective={own}", "num_train_steps=3"])
    recipe.save(tmp_path / "recipe.json")
    done = commands.run(
        "tools.run_pretraining",
        f"--recipe={tmp_path / 'recipe.json'}",
        # A recipe alone runs no file.
        f"--set=objective={own}",
        f"--output_dir={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    assert "held-out masked LM: loss" in done.stdout
    assert "held-out penalty: 0." in done.stdout
    assert "held-out logit size: " in done.stdout
    found = scores(tmp_path / "run")
    assert found["loss"] == pytest.approx(
        found["masked_lm_loss"] + found["penalty"]
    )
    assert found["penalty"] == pytest.approx(0.1 * found["logit_size"])
    assert "training_logit_size" in found
    assert (tmp_path / "run" / "learning_curve.png").exists()
    own.write_text(OWN.replace("0.1", "0.2"))
    line = error_of(run_pretraining, recipe, tmp_path / "run")
    assert "had another objective file" in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\ny = (", "own.py, line 2: "),
        ("\nx = 1 / 0", "own.py, line 2: ZeroDivisionError"),
        ("x = 1", "own.py: the file defines no OBJECTIVE"),
        ("class OBJECTIVE: pass", "defines no OBJECTIVE; write"),
        ("OBJECTIVE = 3", "of type int, which has no loss_weights and no __c"),
        (
            OWN + "WithPenalty.heads = ('masked_lm')",
            "own.py: WithPenalty: heads is 'masked_lm'; it takes a tuple of",
        ),
        (
            OWN + "WithPenalty.heads = ('masked_lm', 'pooler')",
            "no gradient reaches bert/pooler/kernel, bert/pooler/bias, on",
        ),
    ],
)
def test_a_file_that_is_no_objective(text, line, recipe, tmp_path):
    (tmp_path / "own.py").write_text(text)
    wrong = recipe.override([f"objective={tmp_path / 'own.py'}"])
    assert line in error_of(run_pretraining, wrong, tmp_path / "new")


@pytest.mark.parametrize(
    ("objective", "settings", "line"),
    [
        ("left_to_rigth", [], "no such objective. Did you mean left_to_right"),
        ("x.py", [], "`objective`=x.py: no such file; give one of masked_lm_n"),
        ("left_to_right", [], "bert_config.json: causal is false, so each tok"),
        ("left_to_right", ["masked_lm_prob=0.4"], "`masked_lm_prob`=0.4: left"),
        ("masked_lm", ["mask_token_rate=-0.5"], "it takes 0 to 1, or -1"),
        ("masked_lm", ["mask_token_rate=0.95"], "`random_token_rate`=0.1 lea"),
        ("masked_lm", ["max_predictions_per_seq=33"], "takes 1 to 32 (`max_s"),
        ("masked_lm_next_sentence", [], "no next sentence to learn for `obje"),
    ],
)
def test_what_does_not_fit(objective, settings, line, recipe, tmp_path):
    def run() -> None:
        changed = recipe.override([f"objective={objective}", *settings])
        run_pretraining(changed, tmp_path / "new")

    assert line in error_of(run)
    assert not (tmp_path / "new").exists()


def test_records_that_hold_masks(recipe, make_records, tmp_path):
    static = make_records(
        "static",
        max_seq_length=32,
        max_predictions_per_seq=5,
        static_masking=True,
    )
    for change in ("objective=left_to_right", "masked_lm_prob=0.4"):
        wrong = recipe.override([f"data_dir={static}", change])
        line = error_of(run_pretraining, wrong, tmp_path / "new")
        assert "without static_masking" in line


def test_a_size_becomes_causal_and_random_texts_are_told_of(
    recipes, make_records, tmp_path, capfd
):
    packed = make_records("packed", max_seq_length=64, packing=True)
    recipe = recipes["left_to_right"].override(
        [f"data_dir={packed}", "config_file=", "size=tiny"]
    )
    recipe = recipe.override(["num_train_steps=1", "train_batch_size=2"])
    run_pretraining(recipe, tmp_path)
    assert load_checkpoint(tmp_path).config.causal
    assert "made with random_next_prob=0.5" in capfd.readouterr().err


def test_masks_of_another_rate_and_mix(recipe, finished, tmp_path, monkeypatch):
    """In training and in evaluation; but not in a run that had others."""
    seen = {"training": [], "held-out": []}
    train, held_out = TrainingLoop._train, TrainingLoop._held_out

    def note(kind: str, batch) -> None:
        batch = {n: v.numpy() for n, v in batch.items()}
        used = batch["masked_lm_weights"] > 0
        seen[kind].append(
            (used.sum(), (batch["input_ids"] == 4).sum(), batch["input_mask"])
        )

    def training(self, phase, batch, *rest):
        note("training", batch)
        train(self, phase, batch, *rest)

    def evaluated(self, phase):
        for batch in held_out(self, phase):
            note("held-out", batch)
            yield batch

    monkeypatch.setattr(TrainingLoop, "_train", training)
    monkeypatch.setattr(TrainingLoop, "_held_out", evaluated)
    settings = ["masked_lm_prob=0.4", "mask_token_rate=0", "num_train_steps=3"]
    changed = recipe.override([*settings, "random_token_rate=1"])
    run_pretraining(changed, tmp_path)
    for kind, batches in seen.items():
        masked, as_mask, tokens = map(np.sum, zip(*batches, strict=True))
        assert 0.36 < masked / tokens < 0.42, kind
        # A random token is [MASK] once in a vocabulary.
        assert as_mask < 0.05 * masked, kind
    line = error_of(run_pretraining, recipe.override(settings), tmp_path)
    assert "random_token_rate was 1.0 and is now -1.0" in line
    assert history(tmp_path)[0] != history(finished["masked_lm"])[0]


def test_states_of_before_objectives_are_resumed(tmp_path):
    """What was written when there was one objective and no masks to set."""
    file = tmp_path / "records-00000-of-00001.tfrecord"
    file.write_bytes(bytes(99))
    config = bert_tf.BertConfig(vocab_size=100)
    folder = RecordFolder(
        "records",
        (RecordFile(file, 7, 99),),
        (),
        128,
        20,
        static=False,
        recipe=RecordsRecipe(),
        tokenizer=None,
    )
    recipe = PretrainingRecipe()
    found = fingerprint(
        config,
        [folder.with_masks(**recipe.mask_settings())],
        recipe.objective,
        {},
        {},
    )
    assert found == {
        "architecture": "b8d697bd47a7b21c9ca238cdad56d99e"
        "215bd12f893a29cb822c8ffeb7fc0053",
        "records": "4bad3d065df133aeb31c63553bde49d7"
        "20bd13ed7cbb6f0e37f83cf2feef9879",
    }
