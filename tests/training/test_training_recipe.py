"""The settings of every training: the paper's values, and resuming."""

import dataclasses

import pytest

from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.pretraining.recipe import PretrainingRecipe


def test_defaults_are_the_papers():
    pretraining, finetuning = PretrainingRecipe(), FinetuningRecipe()
    assert (pretraining.learning_rate, finetuning.learning_rate) == (1e-4, 5e-5)
    for recipe in (pretraining, finetuning):
        assert recipe.warmup_proportion == 0.1
        assert recipe.weight_decay_rate == 0.01
        assert (recipe.adam_beta_1, recipe.adam_beta_2) == (0.9, 0.999)
        assert recipe.adam_epsilon == 1e-6


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (FinetuningRecipe, set()),
        (PretrainingRecipe, {"eval_steps", "keep_model_steps"}),
    ],
)
def test_what_may_change_when_a_run_is_resumed(kind, more):
    fields = dataclasses.fields(kind)
    assert {f.name for f in fields if f.metadata["may_change"]} == more | {
        "rematerialize",
        "eval_batch_size",
        "save_checkpoints_steps",
        "keep_checkpoint_max",
    }
