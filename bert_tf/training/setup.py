"""The step of a recipe, and what may help where a step is not finite."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.optimization import adamw, lamb
from bert_tf.training.recipe import TrainingRecipe
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
    """The step of a recipe, with its optimizer; see `TrainingStep`.

    Args:
      recipe: says the optimizer and how gradients are computed.
      model: built under `strategy`.
      objective: what the model is trained for.
      strategy: the distribution strategy.
      total_steps: steps until the learning rate is 0.
      frozen: weights that stay as they are.
      lr_multipliers: for each trainable variable; None for 1 everywhere.
      limits: feature name to the number that its ids must stay below.
      warmup_times_decay: see `bert_tf.optimization.adamw`.
    """
    arguments: dict[str, Any] = {
        "learning_rate": recipe.learning_rate,
        "total_steps": total_steps,
        "warmup": recipe.warmup_proportion,
        "warmup_times_decay": warmup_times_decay,
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
        limits=limits,
    )


def check_batch_size(
    name: str, size: int, strategy: tf.distribute.Strategy, slices: int = 1
) -> None:
    """Refuses a batch that devices and slices cannot share evenly."""
    devices = strategy.num_replicas_in_sync
    if size % (devices * slices):
        parts = f"{devices} devices"
        if slices > 1:
            parts += f" x gradient_accumulation_steps {slices}"
        raise UserError(
            f"{name} {size} is not a multiple of {devices * slices}: {parts}."
        )


class Recovery(tf.Module):
    """A factor that bad steps halve and many good ones in a row double.

    Args:
      initial: its first value.
      largest: what it never passes.
      good_steps: in a row, after which it doubles.
      name: of its variable in a training state.
    """

    def __init__(
        self, initial: float, largest: float, good_steps: int, name: str
    ):
        super().__init__()
        self.value = tf.Variable(initial, trainable=False, name=name)
        self.good_steps = tf.Variable(
            0, trainable=False, dtype=tf.int64, name="good_steps"
        )
        self._largest = largest
        self._enough = good_steps

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the factor to whether a step was finite."""
        none = tf.zeros((), tf.int64)
        enough = self.good_steps + 1 >= self._enough
        doubled = tf.minimum(self.value * 2.0, self._largest)
        up = tf.where(enough, doubled, self.value)
        steps = tf.where(enough, none, self.good_steps + 1)
        self.good_steps.assign(tf.where(finite, steps, none))
        self.value.assign(tf.where(finite, up, self.value / 2.0))


_INITIAL, _GROWTH_STEPS, _LARGEST = 2.0**15, 2000, 2.0**24


class LossScale(Recovery):
    """Halves on a step that overflowed, doubles after 2,000 that did not."""

    def __init__(self):
        super().__init__(_INITIAL, _LARGEST, _GROWTH_STEPS, "loss_scale")

    def exhausted(self) -> tf.Tensor:
        """Whether even the unscaled loss overflows: no scale can help."""
        return self.value < 1.0

    def __str__(self) -> str:
        return f"float16 overflow; the loss scale is now {float(self.value):g}"


# After this many steps in a row the run stops all the same.
_MAX_CONSECUTIVE = 10
_RECOVERY_STEPS = 100


class Backoff(Recovery):
    """Halves the learning rate at a skipped step, until 100 good ones."""

    def __init__(self):
        super().__init__(1.0, 1.0, _RECOVERY_STEPS, "rate_factor")
        self.skipped = tf.Variable(
            0, trainable=False, dtype=tf.int64, name="skipped_in_a_row"
        )

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the factor to whether this step was applied."""
        super().update(finite)
        none = tf.zeros((), tf.int64)
        self.skipped.assign(tf.where(finite, none, self.skipped + 1))

    def exhausted(self) -> bool:
        """Whether too many steps in a row were not finite."""
        return bool(self.skipped >= _MAX_CONSECUTIVE)

    def __str__(self) -> str:
        return (
            f"step skipped; the learning rate is {float(self.value):g} times "
            f"the schedule's until {_RECOVERY_STEPS} steps were good"
        )
