"""Runs with a user's objective, heads of init_from, and what does not fit."""

import json
import pathlib

import numpy as np
import pytest
from model_helpers import fill

import bert_tf
from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.pretraining import report
from bert_tf.pretraining.objective import OBJECTIVES, ObjectiveTraits
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from bert_tf.pretraining.setup import (
    choose_configuration,
    fingerprint,
    open_records,
)
from bert_tf.records.dataset import (
    RecordFolder,
    held_out_batches,
    training_batches,
)
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.record_file import RecordFile
from tests import commands
from tests.pretraining.conftest import draw_curves
from tests.run_folders import weights
from tests.user_errors import error_of

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
def recipe(make_records, config_file) -> PretrainingRecipe:
    """Of masked LM, on records whose second texts follow the first."""
    data = make_records(
        "following",
        max_seq_length=32,
        max_predictions_per_seq=5,
        random_next_prob=0.0,
    )
    return PretrainingRecipe(
        data_dir=str(data),
        config_file=str(config_file),
        objective="masked_lm",
        train_batch_size=8,
        num_train_steps=6,
        learning_rate=1e-2,
        eval_batch_size=128,
    )


@pytest.mark.usefixtures("eagerly")
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
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
    recipe = recipe.override([start, "config_file=", "num_train_steps=1"])
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


@pytest.mark.usefixtures("eagerly")
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_an_objective_of_ones_own(recipe, tmp_path, monkeypatch):
    """By the command, whose numbers show it; another file is another run."""
    monkeypatch.setattr(report, "_draw", draw_curves)
    own = tmp_path / "own.py"
    own.write_text(OWN)
    recipe = recipe.override([f"objective={own}", "num_train_steps=1"])
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
    found = json.loads((tmp_path / "run" / "results.json").read_text())
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
        ("masked_lm_sentence_order", [], "following: holds sentence_pairs, a"),
        ("replaced_tokens", [], "model_type is bert, and `objective`=replac"),
        ("replaced_tokens", ["config_file=", "size=tiny"], "`size`=tiny: unk"),
    ],
)
def test_what_does_not_fit(objective, settings, line, recipe, tmp_path):
    def run() -> None:
        changed = recipe.override([f"objective={objective}", *settings])
        run_pretraining(changed, tmp_path / "new")

    assert line in error_of(run)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("kind", "objective", "line"),
    [
        ("full_sentences", "masked_lm_next_sentence", "holds full_sentences, "),
        ("full_sentences", "masked_lm_sentence_order", "choose masked_lm, or"),
        ("sentence_order", "masked_lm_next_sentence", "masked_lm_sentence_or"),
        (
            "sentence_order",
            "masked_lm_sentence_order",
            "roberta.json: roberta has no pooler, which `objective`=masked",
        ),
        ("full_sentences", "masked_lm", "32 is above the longest input of"),
    ],
)
def test_objectives_records_and_architectures_that_do_not_fit(
    kind, objective, line, recipe, make_records, tmp_path
):
    """The RoBERTa has 32 positions, of which 30 are used."""
    data = make_records(
        kind, max_seq_length=32, max_predictions_per_seq=5, sequences=kind
    )
    config = json.loads(pathlib.Path(recipe.config_file).read_text())
    rows = 32 if objective == "masked_lm" else 64
    config |= {"model_type": "roberta", "max_position_embeddings": rows}
    config |= {"type_vocab_size": 1}
    (tmp_path / "roberta.json").write_text(json.dumps(config))
    wrong = recipe.override(
        [
            f"data_dir={data}",
            f"objective={objective}",
            f"config_file={tmp_path / 'roberta.json'}",
        ]
    )
    assert line in error_of(run_pretraining, wrong, tmp_path / "new")
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


def test_a_size_becomes_causal_and_random_texts_are_logged(
    recipe, records, capfd
):
    recipe = recipe.override(
        [f"data_dir={records}", "config_file=", "size=tiny"]
    )
    recipe = recipe.override(["objective=left_to_right"])
    traits = ObjectiveTraits.of(OBJECTIVES["left_to_right"])
    folders = open_records(recipe, traits)
    words = folders[0].vocabulary
    assert choose_configuration(recipe, folders, words, None, traits).causal
    traits = ObjectiveTraits.of(OBJECTIVES["masked_lm"])
    recipe = recipe.override(["size=1/8/2", "architecture=roberta"])
    found = choose_configuration(recipe, folders, words, None, traits)
    assert (found.model_type, found.hidden_size) == ("roberta", 8)
    assert "made with random_next_prob=0.5" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("objective", "settings", "rates"),
    [
        ("masked_lm", [], (0.8, 0.1)),
        # 85 % masked and 15 % as they are, as google-research/electra.
        ("replaced_tokens", [], (0.85, 0.0)),
        ("replaced_tokens", ["mask_token_rate=0.7"], (0.7, 0.0)),
        ("masked_lm", ["mask_token_rate=0", "random_token_rate=1"], (0, 1)),
    ],
)
def test_masks_of_another_rate_and_mix(objective, settings, rates, recipe):
    """In training and in evaluation."""
    recipe = recipe.override(["masked_lm_prob=0.4", *settings])
    (folder,) = open_records(recipe, ObjectiveTraits.of(OBJECTIVES[objective]))
    made = folder.recipe
    assert (made.mask_token_rate, made.random_token_rate) == rates
    # What becomes of the rates is seen best of extreme ones.
    if rates not in ((0.85, 0.0), (0, 1)):
        return
    batches = (training_batches(folder, 64, 1), held_out_batches(folder, 64))
    for batch in (next(each.as_numpy_iterator()) for each in batches):
        used = batch["masked_lm_weights"] > 0
        assert 0.36 < used.sum() / batch["input_mask"].sum() < 0.42
        # A random token is [MASK] once in a vocabulary.
        as_mask = (batch["input_ids"] == 4).sum() / used.sum()
        assert as_mask == pytest.approx(rates[0], abs=0.1)


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
        recipe=RecordsRecipe(lower_case=True),
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
