"""What a recipe makes of a training: its step, its loop, its explanations."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.features import ENCODER_INPUTS
from bert_tf.optimization import adamw, lamb
from bert_tf.training.loop import LoopSettings
from bert_tf.training.recipe import TrainingRecipe
from bert_tf.training.recovery import Backoff, LossScale
from bert_tf.training.step import Batch, Objective, TrainingStep


def make_step(
    recipe: TrainingRecipe,
    model: keras.Model,
    objective: Objective,
    strategy: tf.distribute.Strategy,
    total_steps: int,
    frozen: Sequence[keras.Variable] = (),
    lr_multipliers: Sequence[float] | None = None,
) -> TrainingStep:
    """The training step with its optimizer, as a recipe says.

    Args:
      recipe: what to do.
      model: what to train, built under `strategy`.
      objective: what to train it for.
      strategy: the distribution strategy.
      total_steps: steps until the learning rate is 0.
      frozen: see `TrainingStep`.
      lr_multipliers: see `TrainingStep`.
    """
    arguments: dict[str, Any] = {
        "learning_rate": recipe.learning_rate,
        "total_steps": total_steps,
        "warmup": recipe.warmup_proportion,
        "weight_decay": recipe.weight_decay_rate,
        "beta_1": recipe.adam_beta_1,
        "beta_2": recipe.adam_beta_2,
        "epsilon": recipe.adam_epsilon,
        # The step clips, after the reduction over devices.
        "clip_norm": None,
    }
    if recipe.optimizer == "lamb":
        optimizer = lamb(**arguments)
    else:
        correction = recipe.optimizer == "adamw"
        optimizer = adamw(**arguments, bias_correction=correction)
    return TrainingStep(
        model,
        objective,
        optimizer,
        strategy,
        max_grad_norm=recipe.max_grad_norm,
        accumulation=recipe.gradient_accumulation_steps,
        seed=recipe.seed,
        loss_scale=LossScale() if recipe.precision == "mixed_float16" else None,
        backoff=Backoff() if recipe.on_non_finite == "skip" else None,
        per_replica_means=recipe.loss_normalisation == "per_replica",
        frozen=frozen,
        lr_multipliers=lr_multipliers,
    )


def loop_settings(recipe: TrainingRecipe, eval_steps: int) -> LoopSettings:
    """How often the loop does what.

    Args:
      recipe: says the rest.
      eval_steps: steps between two evaluations.
    """
    return LoopSettings(
        log_steps=recipe.log_steps,
        eval_steps=eval_steps,
        save_checkpoints_steps=recipe.save_checkpoints_steps,
        keep_checkpoint_max=recipe.keep_checkpoint_max,
    )


def check_batch_size(
    name: str, size: int, strategy: tf.distribute.Strategy, slices: int = 1
) -> None:
    """Refuses a batch that devices and slices cannot share evenly.

    Args:
      name: of the setting.
      size: rows of the batch.
      strategy: says how many devices there are.
      slices: gradient_accumulation_steps.

    Raises:
      UserError: it does not divide.
    """
    devices = strategy.num_replicas_in_sync
    if size % (devices * slices):
        parts = f"{devices} devices"
        if slices > 1:
            parts += f" x gradient_accumulation_steps {slices}"
        raise UserError(
            f"{name} {size} is not a multiple of {devices * slices}: {parts}."
        )


def forward_tensors(
    model: keras.Model, objective: Objective, batch: Batch
) -> list[tuple[str, object]]:
    """Every tensor of the forward pass that has a name, in order.

    Args:
      model: a model with an `encoder`.
      objective: what it is trained for.
      batch: arrays or tensors by name.
    """
    batch = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
    named, encoded = [], {}
    # A batch may hold what the encoder gave, instead of what it takes.
    if all(feature.name in batch for feature in ENCODER_INPUTS):
        encoded = model.encoder(batch, training=False, return_all_layers=True)
        named.append(("embedding_output", encoded["embedding_output"]))
        named += [
            (f"the output of layer {index}", layer)
            for index, layer in enumerate(encoded["all_encoder_layers"])
        ]
        named.append(("pooled_output", encoded["pooled_output"]))
    outputs = model(batch, training=False)
    # Those of the encoder, which come again, are computed before the heads'.
    named += [item for item in outputs.items() if item[0] not in encoded]
    losses, _ = objective(outputs, batch)
    return [*named, *losses.items()]
