"""The settings of every training: values that cannot be, defaults, resuming."""

import dataclasses

import pytest

from bert_tf.errors import UserError
from bert_tf.families.recipe import FinetuningRecipe, TableRecipe
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.training.recipe import TrainingRecipe

KINDS = (TrainingRecipe, PretrainingRecipe, FinetuningRecipe)


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("train_batch_size", 0, "1 or more"),
        ("gradient_accumulation_steps", 0, "1 or more"),
        ("eval_batch_size", -1, "1 or more"),
        ("save_checkpoints_steps", 0, "1 or more"),
        ("keep_checkpoint_max", 0, "1 or more"),
        ("log_steps", 0, "1 or more"),
        ("learning_rate", 0.0, "more than 0"),
        ("learning_rate", float("inf"), "more than 0"),
        ("learning_rate", float("nan"), "more than 0"),
        ("adam_epsilon", 0.0, "more than 0"),
        ("weight_decay_rate", -0.1, "0 or more"),
        ("max_grad_norm", float("nan"), "0 or more"),
        ("warmup_proportion", 1.0, "0 up to below 1"),
        ("adam_beta_1", -0.1, "0 up to below 1"),
        ("adam_beta_2", 1.0, "0 up to below 1"),
        ("seed", -1, "0 to 4294967295"),
        ("seed", 2**32, "0 to 4294967295"),
        ("optimizer", "sgd", "one of adamw, adamw_no_bias_correction, lamb"),
        ("precision", "int8", "one of float32, mixed_bfloat16, mixed_float16"),
        ("on_non_finite", "ignore", "one of stop, skip"),
        ("loss_normalisation", "mean", "one of global, per_replica"),
    ],
)
def test_values_that_cannot_be(name, value, takes):
    for kind in KINDS:
        with pytest.raises(UserError) as caught:
            kind(**{name: value})
        assert str(caught.value) == f"{name} is {value!r}; it takes {takes}."


@pytest.mark.parametrize(
    ("kind", "name", "value", "takes"),
    [
        (PretrainingRecipe, "num_train_steps", 0, "1 or more"),
        (PretrainingRecipe, "eval_steps", 0, "1 or more"),
        (PretrainingRecipe, "final_phase_batch_size", -1, "0 or more"),
        (PretrainingRecipe, "final_phase_proportion", 1.0, "above 0, below 1"),
        (FinetuningRecipe, "num_train_epochs", 0.0, "more than 0"),
        (FinetuningRecipe, "num_train_epochs", float("inf"), "more than 0"),
        (FinetuningRecipe, "max_seq_length", 3, "4 or more"),
        (FinetuningRecipe, "seeds", 0, "1 or more"),
        (FinetuningRecipe, "eval_steps", -1, "0 or more"),
        (FinetuningRecipe, "early_stopping", -1, "0 or more"),
        (FinetuningRecipe, "layer_decay", 1.1, "above 0 and up to 1"),
        (FinetuningRecipe, "freeze_layers", -2, "-1 or more"),
        (FinetuningRecipe, "encoding_errors", "no", "one of strict, replace"),
        (TableRecipe, "bad_rows", "drop", "one of error, skip"),
        (TableRecipe, "empty_text", "skip", "one of error, keep, drop"),
    ],
)
def test_values_of_a_kind_that_cannot_be(kind, name, value, takes):
    with pytest.raises(UserError) as caught:
        kind(**{name: value})
    assert str(caught.value) == f"{name} is {value!r}; it takes {takes}."


def test_every_seed_of_several_trainings_is_a_seed():
    FinetuningRecipe(seed=2**32 - 3, seeds=3)
    with pytest.raises(UserError, match=f"it takes 0 to {2**32 - 3}"):
        FinetuningRecipe(seed=2**32 - 2, seeds=3)


def test_defaults_are_the_papers():
    pretraining, finetuning = PretrainingRecipe(), FinetuningRecipe()
    assert (pretraining.learning_rate, finetuning.learning_rate) == (1e-4, 5e-5)
    for recipe in (pretraining, finetuning):
        assert recipe.warmup_proportion == 0.1
        assert recipe.weight_decay_rate == 0.01
        assert (recipe.adam_beta_1, recipe.adam_beta_2) == (0.9, 0.999)
        assert recipe.adam_epsilon == 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_change_are_settings(kind):
    assert kind.MAY_CHANGE <= set(kind.kinds())
    assert kind.MAY_CHANGE >= TrainingRecipe.MAY_CHANGE
    assert ("eval_steps" in kind.MAY_CHANGE) == (kind is PretrainingRecipe)


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_help(kind):
    for field in dataclasses.fields(kind):
        assert field.metadata["help"], field.name
