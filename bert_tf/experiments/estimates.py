"""Estimates the work, disk space and time of runs.

The work of a training is its parameters times its tokens, to which its time is
about proportional (Kaplan et al. 2020, section 2.1). Trial steps measure the
seconds per unit of work.
"""

import math
from collections.abc import Iterable, Sequence

from bert_tf.config import BertConfig
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.memory.measurement import measure
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.recipe import PretrainingRecipe

_FLOAT = 4
# The weights and two moments of the optimizer.
_STATE = 3
# Tokens of a trial step: representative, and small enough for any memory.
_TRIAL_TOKENS = 4096


def pretraining_work(
    recipe: PretrainingRecipe, config: BertConfig, lengths: Sequence[int]
) -> float:
    """The work of all phases of a pre-training."""
    final = recipe.final_phase_batch_size or recipe.train_batch_size
    tokens = sum(
        steps * rows * length
        for steps, rows, length in zip(
            recipe.phase_steps(),
            (recipe.train_batch_size, final),
            lengths,
            strict=False,
        )
    )
    return float(num_parameters(config) * tokens)


def num_parameters(config: BertConfig) -> int:
    """Parameters of the encoder and the pre-training heads."""
    return Workload(config, 1, max_predictions_per_seq=1).num_parameters


def pretraining_bytes(recipe: PretrainingRecipe, config: BertConfig) -> float:
    """Disk space of a pre-training: its states and models."""
    models = 1 + recipe.num_train_steps // recipe.keep_model_steps
    # Plus the state with the lowest held-out loss.
    states = recipe.keep_checkpoint_max + 1
    return _FLOAT * num_parameters(config) * (models + _STATE * states)


def finetuning_work(
    recipe: FinetuningRecipe, config: BertConfig, train: float, *devs: float
) -> float:
    """The work of a fine-tuning with all seeds, from tokens of its splits."""
    # 0 leaves them to the run; more than 3 are for rows too few to matter.
    epochs = recipe.num_train_epochs or FinetuningRecipe.num_train_epochs
    # An evaluation is a forward pass, a third of a step; there is one per epoch
    # and one of the best model.
    evaluations = (math.ceil(epochs) + 1) / 3
    tokens = epochs * train + evaluations * sum(devs)
    return recipe.seeds * num_parameters(config) * tokens


def finetuning_bytes(recipe: FinetuningRecipe, config: BertConfig) -> float:
    """Disk space of a fine-tuning: for each seed two models and its states."""
    # A state also contains the best weights.
    state = (_STATE + 1) * (recipe.keep_checkpoint_max + 1)
    models = recipe.seeds * (2 + state) + 1
    return _FLOAT * num_parameters(config) * models


def measured_rates(
    trials: Iterable[Workload], limit: float
) -> dict[BertConfig, float]:
    """Measures trial steps of each architecture, each in a new process.

    Args:
      trials: one step per architecture.
      limit: the maximum memory of a trial in bytes.

    Returns:
      Seconds per unit of work of the architectures that fit into the memory.
    """
    rates: dict[BertConfig, float] = {}
    for trial in trials:
        length = trial.max_seq_length
        rows = max(1, min(trial.batch_size, _TRIAL_TOKENS // length))
        measured = measure(trial.with_batch(rows), limit)
        if measured is not None:
            work = num_parameters(trial.config) * rows * length
            rates[trial.config] = measured.step_seconds / work
    return rates
