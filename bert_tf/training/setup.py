"""Builds the training step of a recipe."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.optimization import adamw, lamb, stable_adamw
from bert_tf.training.recipe import TrainingRecipe
from bert_tf.training.recovery import Backoff, LossScale
from bert_tf.training.step import Objective, TrainingStep


def make_step(
    recipe: TrainingRecipe,
    model: keras.Model,
    objective: Objective,
    strategy: tf.distribute.Strategy,
    total_steps: int,
    frozen: Sequence[keras.Variable] = (),
    lr_multipliers: Sequence[float] | None = None,
    limits: Mapping[str, int] | None = None,
    warmup_times_decay: bool = False,
) -> TrainingStep:
    """Builds the step of a recipe with its optimizer.

    Args:
      recipe: the settings of the optimizer and the gradients.
      model: see `TrainingStep`.
      objective: see `TrainingStep`.
      strategy: see `TrainingStep`.
      total_steps: number of steps until the learning rate is 0.
      frozen: see `TrainingStep`.
      lr_multipliers: see `TrainingStep`.
      limits: see `TrainingStep`.
      warmup_times_decay: see `bert_tf.optimization.adamw`.
    """
    arguments: dict[str, Any] = {
        "learning_rate": recipe.learning_rate,
        "total_steps": total_steps,
        "warmup": recipe.warmup_proportion,
        "warmup_times_decay": warmup_times_decay,
        "decay_proportion": recipe.decay_proportion,
        "decay_shape": recipe.decay_shape,
        "weight_decay": recipe.weight_decay_rate,
        "beta_1": recipe.adam_beta_1,
        "beta_2": recipe.adam_beta_2,
        "epsilon": recipe.adam_epsilon,
        # The step clips after the sum over devices.
        "clip_norm": None,
    }
    if recipe.optimizer == "lamb":
        optimizer = lamb(**arguments)
    elif recipe.optimizer == "stable_adamw":
        optimizer = stable_adamw(**arguments)
    else:
        correction = recipe.optimizer == "adamw"
        optimizer = adamw(**arguments, bias_correction=correction)
    return TrainingStep(
        model,
        objective,
        optimizer,
        strategy,
        max_grad_norm=recipe.max_grad_norm,
        accumulation=recipe.num_slices,
        seed=recipe.seed,
        loss_scale=LossScale() if recipe.precision == "mixed_float16" else None,
        backoff=Backoff() if recipe.on_non_finite == "skip" else None,
        per_replica_means=recipe.loss_normalisation == "per_replica",
        frozen=frozen,
        lr_multipliers=lr_multipliers,
        limits=limits,
    )


def check_batch_size(
    name: str, size: int, strategy: tf.distribute.Strategy, slices: int = 1
) -> None:
    """Raises `UserError` unless a batch splits evenly over devices and slices.

    Args:
      name: name of the setting, for errors.
      size: number of rows.
      strategy: the distribution strategy.
      slices: gradient_accumulation_steps.
    """
    devices = strategy.num_replicas_in_sync
    if size % (devices * slices):
        parts = f"{devices} devices"
        if slices > 1:
            parts += f" x gradient_accumulation_steps {slices}"
        raise UserError(
            f"{name} {size} is not a multiple of {devices * slices}: {parts}."
        )
