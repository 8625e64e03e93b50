"""The learning-rate schedule and the optimizers of BERT.

AdamW (Loshchilov and Hutter 2019) with the bias correction of Kingma and Ba, or
without it as in google-research/bert, optimization.py; and LAMB (You et al.
2020, "Large batch optimization for deep learning", algorithm 2).
"""

import contextlib
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf import compat
from bert_tf.errors import UserError
from bert_tf.recipe import Limits


@keras.saving.register_keras_serializable(package="bert_tf")
class LinearWarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then linear decay to 0 at the last step.

    As in google-research/bert, optimization.py, the first step has rate 0 and
    the decay counts from step 0, so that the rate drops to
    learning_rate * (1 - warmup_steps / total_steps) after the warm-up. In
    google-research/electra, model/optimization.py, the rate is the product of
    warm-up and decay, which is continuous and stays below the peak.

    Args:
      learning_rate: the peak rate.
      total_steps: number of steps until the rate is 0.
      warmup_steps: number of warm-up steps.
      multiplied: whether to multiply warm-up and decay, as ELECTRA does.
    """

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        warmup_steps: int,
        multiplied: bool = False,
    ) -> None:
        Limits(at_least=0).check("learning_rate", learning_rate)
        Limits(at_least=1).check("total_steps", total_steps)
        Limits(at_least=0, at_most=total_steps).check(
            "warmup_steps", warmup_steps, " (total_steps)"
        )
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.multiplied = multiplied

    def __call__(self, step: Any) -> Any:
        """Returns the rate of a step, counted from 0: scalar float32."""
        step = ops.cast(step, "float32")
        remaining = ops.maximum(self.total_steps - step, 0.0)
        rate = self.learning_rate * remaining / self.total_steps
        if self.warmup_steps == 0:
            return rate
        if self.multiplied:
            return rate * ops.minimum(step / self.warmup_steps, 1.0)
        warming = self.learning_rate * step / self.warmup_steps
        return ops.where(step < self.warmup_steps, warming, rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            # Files without `multiplied` stay byte-identical.
            **({"multiplied": True} if self.multiplied else {}),
        }


def is_excluded(path: str) -> bool:
    """Returns whether a variable has neither weight decay nor a trust ratio.

    These are the variables that google-research/bert excludes by the pattern
    LayerNorm|layer_norm|bias. "bias" is searched for in the variable's name
    only and the other two in its layer's name only, so that a model named
    "unbiased" still decays.

    Args:
      path: a Keras variable's path, such as "bert/layer_0/output/bias".
    """
    *_, layer, name = ("", *path.split("/"))
    return "bias" in name or bool(re.search("LayerNorm|layer_norm", layer))


class BertOptimizer(compat.Optimizer):
    """Adam with decoupled weight decay; the base of `AdamW` and `Lamb`.

    Gradients are clipped by their global norm after the sum over replicas.
    Keras' `global_clipnorm` clips the gradients of each replica before the
    sum, so that n replicas exceed the threshold up to n times.

    Args:
      learning_rate: a float or a Keras schedule.
      weight_decay: rate of the decoupled weight decay.
      beta_1: decay rate of the first moment.
      beta_2: decay rate of the second moment.
      epsilon: added to the square root of the second moment.
      clip_norm: largest global norm of the gradients; None for no clipping.
      bias_correction: whether to correct the moments for starting at 0.
      name: name of the optimizer.
    """

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate, weight_decay=weight_decay, name=name
        )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.clip_norm = clip_norm
        self.bias_correction = bias_correction
        # A namespace, since Keras would track the tensors of an attribute.
        self._shared = types.SimpleNamespace(corrections=None)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the moments of the variables."""
        if self.built:
            return
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(
            variables, ["first_moment", "second_moment"]
        )
        paths = [getattr(v, "path", v.name) for v in variables]
        self._excluded = [is_excluded(path) for path in paths]
        self._blocks = [3 if p.endswith("/qkv_kernel") else 1 for p in paths]

    def clip(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Clips the summed gradients by their global norm."""
        if self.clip_norm is None:
            return grads
        scale = self.clip_norm / ops.maximum(global_norm(grads), self.clip_norm)
        return [gradient * scale for gradient in grads]

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        """Computes the bias corrections once for all updates in its scope."""
        if self.bias_correction:
            self._shared.corrections = self._bias_corrections()
        try:
            yield
        finally:
            self._shared.corrections = None

    def _bias_corrections(self) -> tuple[Any, Any]:
        """Returns the divisors of both moments in the next step."""
        step = ops.cast(self.iterations + 1, "float32")
        return (
            1.0 - ops.power(self.beta_1, step),
            1.0 - ops.power(self.beta_2, step),
        )

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Updates one variable and its moments."""
        index = self.index_of(variable)
        gradient = _dense(gradient, tuple(variable.shape))
        gradient = ops.cast(gradient, "float32")
        weight = ops.cast(variable, "float32")
        first, second = self._first[index], self._second[index]
        m = self.beta_1 * first + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * second + (1.0 - self.beta_2) * ops.square(gradient)
        self.assign(first, m)
        self.assign(second, v)
        if self.bias_correction:
            scales = self._shared.corrections or self._bias_corrections()
            m, v = m / scales[0], v / scales[1]
        update = m / (ops.sqrt(v) + self.epsilon)
        if not self._excluded[index]:
            update = update + self.weight_decay * weight
            update = self._scale(update, weight, self._blocks[index])
        self.assign_sub(variable, ops.cast(learning_rate, "float32") * update)

    def _scale(self, update: Any, weight: Any, blocks: int) -> Any:
        return update

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments as plain data."""
        names = (
            *("weight_decay", "beta_1", "beta_2", "epsilon", "clip_norm"),
            *("bias_correction", "name"),
        )
        return {
            "learning_rate": super().get_config()["learning_rate"],
            **{name: getattr(self, name) for name in names},
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamW(BertOptimizer):
    """Adam with decoupled weight decay: w -= lr * (adam(g) + decay * w)."""


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(BertOptimizer):
    """LAMB: each layer's update is scaled by ||w|| / ||update||.

    The trust ratio scales the weight decay too, as in algorithm 2. Biases and
    layer normalisation have neither. A fused query, key and value kernel counts
    as three layers.
    """

    def _scale(self, update: Any, weight: Any, blocks: int) -> Any:
        return update * trust_ratio(weight, update, blocks)


def trust_ratio(weight: Any, update: Any, blocks: int) -> Any:
    """Returns ||weight|| / ||update|| of each block, 1 where either is 0.

    Args:
      weight: float32 [..., K].
      update: float32 [..., K].
      blocks: number of equal blocks that the last axis consists of.

    Returns:
      float32 scalar for one block, [K] for more.
    """

    def norms(x: Any) -> Any:
        if blocks == 1:
            return ops.sqrt(ops.sum(ops.square(x)))
        x = ops.reshape(x, (-1, blocks, x.shape[-1] // blocks))
        return ops.sqrt(ops.sum(ops.square(x), axis=(0, 2)))

    weight_norm, update_norm = norms(weight), norms(update)
    usable = ops.logical_and(weight_norm > 0, update_norm > 0)
    ratio = ops.where(
        usable, weight_norm / ops.where(usable, update_norm, 1.0), 1.0
    )
    return (
        ratio if blocks == 1 else ops.repeat(ratio, weight.shape[-1] // blocks)
    )


def global_norm(gradients: Sequence[Any]) -> Any:
    """Returns the Euclidean norm of all gradients together: scalar float32."""
    squares = [
        ops.sum(ops.square(ops.cast(_dense(g, (-1,)), "float32")))
        for g in gradients
    ]
    return ops.sqrt(sum(squares))


def _dense(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Converts TensorFlow's IndexedSlices to a tensor; repeated rows add up.

    Keras' operations square repeated rows separately, a^2 + b^2 in place of
    (a + b)^2. The reshape converts them, and is free for a dense gradient.
    """
    return ops.reshape(gradient, shape)


def adamw(
    learning_rate: float,
    total_steps: int,
    warmup: float | int = 0.1,
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    clip_norm: float | None = 1.0,
    bias_correction: bool = True,
    warmup_times_decay: bool = False,
) -> AdamW:
    """AdamW with linear warm-up and decay.

    Args:
      learning_rate: the peak rate.
      total_steps: number of steps until the rate is 0.
      warmup: share of the steps if below 1, otherwise their number.
      weight_decay: rate of the decoupled weight decay.
      beta_1: decay rate of the first moment.
      beta_2: decay rate of the second moment.
      epsilon: added to the square root of the second moment.
      clip_norm: largest global norm of the gradients; None for no clipping.
      bias_correction: False is the rule of google-research/bert.
      warmup_times_decay: True is the schedule of google-research/electra; see
        `LinearWarmupDecay`.

    Raises:
      UserError: a value is out of range.
    """
    return AdamW(
        _schedule(learning_rate, total_steps, warmup, warmup_times_decay),
        weight_decay,
        beta_1,
        beta_2,
        epsilon,
        clip_norm,
        bias_correction,
    )


def lamb(
    learning_rate: float,
    total_steps: int,
    warmup: float | int = 0.1,
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    clip_norm: float | None = 1.0,
    warmup_times_decay: bool = False,
) -> Lamb:
    """LAMB with linear warm-up and decay; arguments as `adamw`."""
    return Lamb(
        _schedule(learning_rate, total_steps, warmup, warmup_times_decay),
        weight_decay,
        beta_1,
        beta_2,
        epsilon,
        clip_norm,
    )


def _schedule(
    learning_rate: float,
    total_steps: int,
    warmup: float | int,
    warmup_times_decay: bool,
) -> LinearWarmupDecay:
    steps = warmup_steps(warmup, total_steps)
    return LinearWarmupDecay(
        learning_rate, total_steps, steps, warmup_times_decay
    )


def warmup_steps(warmup: float | int, total_steps: int) -> int:
    """Returns the number of warm-up steps of a share (below 1) or a number.

    Raises:
      UserError: warmup is negative, or neither a share nor a whole number.
    """
    if isinstance(warmup, float) and 0 <= warmup < 1:
        return int(total_steps * warmup)
    if warmup < 0 or warmup != int(warmup):
        raise UserError(
            f"warmup is {warmup}; it takes a share of the steps in [0, 1) or "
            "a whole number of steps."
        )
    return int(warmup)
