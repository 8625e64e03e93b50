"""The learning-rate schedule and the optimizers of BERT.

AdamW (Loshchilov and Hutter 2019) with the bias correction of Kingma and Ba, or
without it as in google-research/bert, optimization.py; LAMB (You et al. 2020,
"Large batch optimization for deep learning", algorithm 2); and StableAdamW
(Wortsman et al. 2023, "Stable and low-precision training for large-scale
vision-language models", algorithm 2).
"""

import contextlib
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from bert_tf import compat
from bert_tf.config import DECAY_SHAPES, LINEAR
from bert_tf.errors import UserError
from bert_tf.recipe import Limits


@keras.saving.register_keras_serializable(package="bert_tf")
class LinearWarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then a decay to 0 at the last step.

    As in google-research/bert, optimization.py, the first step has rate 0 and
    the decay counts from step 0, so that the rate drops to
    learning_rate * (1 - warmup_steps / total_steps) after the warm-up. In
    google-research/electra, model/optimization.py, the rate is the product of
    warm-up and decay, which is continuous and stays below the peak.

    With fewer `decay_steps` the schedule is a trapezoid: the rate is constant
    between the warm-up and the decay, as in AnswerDotAI/ModernBERT,
    src/scheduler.py. Its decays are linear or, at a share x of the decay,
    learning_rate * (1 - sqrt(x)) (Hägele et al. 2024, "Scaling laws and
    compute-optimal training beyond fixed training durations", equation 1).

    Args:
      learning_rate: the peak rate.
      total_steps: number of steps until the rate is 0.
      warmup_steps: number of warm-up steps.
      multiplied: whether to multiply warm-up and decay, as ELECTRA does.
      decay_steps: number of last steps in which the rate decays, 0 for none;
        None for all.
      decay_shape: linear or one_minus_sqrt.
    """

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        warmup_steps: int,
        multiplied: bool = False,
        decay_steps: int | None = None,
        decay_shape: str = LINEAR,
    ) -> None:
        if decay_steps is None:
            decay_steps = total_steps
        Limits(at_least=0).check("learning_rate", learning_rate)
        Limits(at_least=1).check("total_steps", total_steps)
        within = Limits(at_least=0, at_most=total_steps)
        within.check("warmup_steps", warmup_steps, " (total_steps)")
        within.check("decay_steps", decay_steps, " (total_steps)")
        Limits(choices=DECAY_SHAPES).check("decay_shape", decay_shape)
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.multiplied = multiplied
        self.decay_steps = decay_steps
        self.decay_shape = decay_shape

    def __call__(self, step: Any) -> Any:
        """Returns the rate of a step, counted from 0: scalar float32."""
        step = ops.cast(step, "float32")
        rate = self.learning_rate * self._decay(step)
        if self.warmup_steps == 0:
            return rate
        if self.multiplied:
            return rate * ops.minimum(step / self.warmup_steps, 1.0)
        warming = self.learning_rate * step / self.warmup_steps
        return ops.where(step < self.warmup_steps, warming, rate)

    def _decay(self, step: Any) -> Any:
        """Returns the factor of the peak rate that the decay leaves."""
        if self.decay_steps == 0:
            return ops.ones_like(step)
        left = ops.maximum(self.total_steps - step, 0.0) / self.decay_steps
        left = ops.minimum(left, 1.0)
        if self.decay_shape == LINEAR:
            return left
        return 1.0 - ops.sqrt(1.0 - left)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        # Files without the later arguments stay byte-identical.
        later = {
            "multiplied": (self.multiplied, False),
            "decay_steps": (self.decay_steps, self.total_steps),
            "decay_shape": (self.decay_shape, LINEAR),
        }
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            **{
                name: value
                for name, (value, default) in later.items()
                if value != default
            },
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


class _Shared(NamedTuple):
    """What the updates of all variables share, scalars float32.

    Attributes:
      decay_1: beta_1, the decay rate of the first moment, and `rest_1` its
        difference from 1; likewise `decay_2` and `rest_2` of the second.
      epsilon: added to the square root of the second moment.
      weight_decay: rate of the decoupled weight decay.
      corrections: the divisors of both moments; None without bias correction.
    """

    decay_1: Any
    rest_1: Any
    decay_2: Any
    rest_2: Any
    epsilon: Any
    weight_decay: Any
    corrections: tuple[Any, Any] | None


class BertOptimizer(compat.Optimizer):
    """Adam with decoupled weight decay; the base of the optimizers.

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
        self._shared = types.SimpleNamespace(values=None)

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
        """Computes once what all updates in its scope share."""
        self._shared.values = self._shared_values()
        try:
            yield
        finally:
            self._shared.values = None

    def _shared_values(self) -> _Shared:
        """Returns what the updates of the next step share."""
        corrections = None
        if self.bias_correction:
            step = ops.cast(self.iterations + 1, "float32")
            corrections = (
                1.0 - ops.power(self.beta_1, step),
                1.0 - ops.power(self.beta_2, step),
            )

        def constant(number: float) -> Any:
            return ops.convert_to_tensor(number, "float32")

        return _Shared(
            constant(self.beta_1),
            constant(1.0 - self.beta_1),
            constant(self.beta_2),
            constant(1.0 - self.beta_2),
            constant(self.epsilon),
            constant(self.weight_decay),
            corrections,
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
        shared = self._shared.values or self._shared_values()
        m = shared.decay_1 * first + shared.rest_1 * gradient
        v = shared.decay_2 * second + shared.rest_2 * ops.square(gradient)
        self.assign(first, m)
        self.assign(second, v)
        if shared.corrections is not None:
            m, v = m / shared.corrections[0], v / shared.corrections[1]
        update = m / (ops.sqrt(v) + shared.epsilon)
        if not self._excluded[index]:
            update = update + shared.weight_decay * weight
        update = self._scale(index, update, weight, gradient, v)
        self.assign_sub(variable, ops.cast(learning_rate, "float32") * update)

    def _scale(
        self, index: int, update: Any, weight: Any, gradient: Any, v: Any
    ) -> Any:
        """Scales an update.

        Args:
          index: the number of the variable.
          update: float32 in the variable's shape, weight decay included.
          weight: the value of the variable, float32.
          gradient: its gradient, float32.
          v: its second moment, corrected if `bias_correction`, float32.
        """
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

    def _scale(
        self, index: int, update: Any, weight: Any, gradient: Any, v: Any
    ) -> Any:
        if self._excluded[index]:
            return update
        return update * trust_ratio(weight, update, self._blocks[index])


@keras.saving.register_keras_serializable(package="bert_tf")
class StableAdamW(BertOptimizer):
    """AdamW whose updates are smaller where the second moment lags behind.

    The formula is in `stable_adamw`; v is the bias-corrected second moment that
    includes the gradient g. A fused query, key and value kernel is one
    variable, as it is in a ModernBERT. The weight decay has the divided rate,
    as in AdamW and in the paper. The variant that ModernBERT's authors call
    decoupled is `decouple_lr` of optimi 0.2.1.
    """

    def _scale(
        self, index: int, update: Any, weight: Any, gradient: Any, v: Any
    ) -> Any:
        ratio = ops.square(gradient) / ops.maximum(v, self.epsilon**2)
        return update / ops.maximum(ops.sqrt(ops.mean(ratio)), 1.0)


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
    decay_proportion: float = 1.0,
    decay_shape: str = LINEAR,
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
      decay_proportion: share of the steps, at the end, in which the rate
        decays; before, it is constant. 0 never decays.
      decay_shape: linear or one_minus_sqrt.

    Raises:
      UserError: a value is out of range.
    """
    decay = warmup, warmup_times_decay, decay_proportion, decay_shape
    rate = _schedule(learning_rate, total_steps, *decay)
    return AdamW(
        rate, weight_decay, beta_1, beta_2, epsilon, clip_norm, bias_correction
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
    decay_proportion: float = 1.0,
    decay_shape: str = LINEAR,
) -> Lamb:
    """LAMB with linear warm-up and decay; arguments as `adamw`."""
    decay = warmup, warmup_times_decay, decay_proportion, decay_shape
    rate = _schedule(learning_rate, total_steps, *decay)
    return Lamb(rate, weight_decay, beta_1, beta_2, epsilon, clip_norm)


def stable_adamw(
    learning_rate: float,
    total_steps: int,
    warmup: float | int = 0.1,
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.98,
    epsilon: float = 1e-6,
    clip_norm: float | None = None,
    warmup_times_decay: bool = False,
    decay_proportion: float = 1.0,
    decay_shape: str = LINEAR,
) -> StableAdamW:
    """StableAdamW with linear warm-up and decay; arguments as `adamw`.

    It divides the rate of a variable while its gradients grow, in place of
    clipping (Wortsman et al. 2023, algorithm 2):
    lr / max(1, sqrt(mean(g^2 / max(v, epsilon^2)))). The weight decay is
    lr * weight_decay * w; ModernBERT's 1e-5, which its authors multiply by
    lr / peak_lr instead, is weight_decay=1e-5 / peak_lr here: 0.0125 at 8e-4.
    """
    decay = warmup, warmup_times_decay, decay_proportion, decay_shape
    rate = _schedule(learning_rate, total_steps, *decay)
    return StableAdamW(rate, weight_decay, beta_1, beta_2, epsilon, clip_norm)


def _schedule(
    learning_rate: float,
    total_steps: int,
    warmup: float | int,
    warmup_times_decay: bool,
    decay_proportion: float,
    decay_shape: str,
) -> LinearWarmupDecay:
    Limits(at_least=0, at_most=1).check("decay_proportion", decay_proportion)
    return LinearWarmupDecay(
        learning_rate,
        total_steps,
        warmup_steps(warmup, total_steps),
        warmup_times_decay,
        int(total_steps * decay_proportion),
        decay_shape,
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
