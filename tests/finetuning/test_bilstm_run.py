"""A fine-tuning with a BiLSTM on top."""

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.token_classification.recipe import FeatureRecipe
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import open_initial
from bert_tf.models import bert_classifier, restore
from tests.contracts.task_cases import CASES, model_folder
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import small_recipe
from tests.run_folders import weights
from tests.user_errors import error_of

KERNEL = "bert/bilstm/forward/kernel"


@pytest.mark.witness("a BiLSTM on top is trained and kept")
def test_it_is_part_of_the_model(start, tmp_path, capfd) -> None:
    """It is trained from the setting, and on from a model that has one."""
    task, recipe = CASES["classes"].make(tmp_path / "files", start)
    recipe = recipe.override(["num_train_epochs=0.12"])
    first, again = tmp_path / "first", tmp_path / "again"
    with quickly():
        run_finetuning(task, recipe.override(["bilstm=True"]), first, ["train"])
        capfd.readouterr()
        further = recipe.override([f"init_from={first}"])
        run_finetuning(task, further, again, ["train"])
    assert "bilstm" not in capfd.readouterr().err
    for folder in (first, again):
        trained = load_checkpoint(folder)
        assert trained.config.bilstm
        assert "bilstm" in trained.heads
    before, after = (weights(folder)[KERNEL] for folder in (first, again))
    assert 0 < np.abs(after - before).max() < 0.2


def test_a_new_one_starts_from_random_weights(start, capfd) -> None:
    initial, _ = open_initial(small_recipe(start, bilstm=True))
    restore(bert_classifier(BertEncoder(initial.config), 2), initial)
    assert "no bilstm; initialized randomly" in capfd.readouterr().err


def test_the_setting_is_in_the_configuration_alone(start, tmp_path) -> None:
    recipe = small_recipe(start, bilstm=True)
    initial, _ = open_initial(recipe)
    assert initial.config.bilstm
    assert initial.arrays.keys() == load_checkpoint(start).arrays.keys()
    plain, _ = open_initial(small_recipe(start))
    assert plain.config == load_checkpoint(start).config
    odd = model_folder(tmp_path / "odd", hidden_size=15, num_attention_heads=3)
    with pytest.raises(UserError, match="hidden_size is 15; it") as caught:
        open_initial(small_recipe(odd, bilstm=True))
    assert str(caught.value).startswith(f"`init_from`={odd}: ")
    assert "bilstm=True: does not apply" in error_of(FeatureRecipe, bilstm=True)
