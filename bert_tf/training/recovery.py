"""Factors that adapt to non-finite steps: loss scale and learning rate."""

import tensorflow as tf


class Recovery(tf.Module):
    """A factor that halves at a non-finite step and doubles after good ones.

    Args:
      initial: its first value.
      largest: its maximum.
      good_steps: number of finite steps in a row after which it doubles.
      name: name of its variable in a training state.
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
        self._growth_steps = good_steps

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the factor to whether a step was finite."""
        zero = tf.zeros((), tf.int64)
        grows = self.good_steps + 1 >= self._growth_steps
        doubled = tf.minimum(self.value * 2.0, self._largest)
        value = tf.where(grows, doubled, self.value)
        steps = tf.where(grows, zero, self.good_steps + 1)
        self.good_steps.assign(tf.where(finite, steps, zero))
        self.value.assign(tf.where(finite, value, self.value / 2.0))


_INITIAL, _GROWTH_STEPS, _LARGEST = 2.0**15, 2000, 2.0**24


class LossScale(Recovery):
    """The loss scale of float16: halves at an overflow, doubles after 2,000."""

    def __init__(self):
        super().__init__(_INITIAL, _LARGEST, _GROWTH_STEPS, "loss_scale")

    def exhausted(self) -> tf.Tensor:
        """Returns whether the unscaled loss overflows, so no scale helps."""
        return self.value < 1.0

    def __str__(self) -> str:
        return f"float16 overflow; the loss scale is now {float(self.value):g}"


# Number of consecutive non-finite steps that ends a run.
_MAX_CONSECUTIVE = 10
_RECOVERY_STEPS = 100


class Backoff(Recovery):
    """A factor of the learning rate: halves at a skipped step, recovers later.

    It doubles after 100 finite steps, up to 1.
    """

    def __init__(self):
        super().__init__(1.0, 1.0, _RECOVERY_STEPS, "rate_factor")
        self.skipped = tf.Variable(
            0, trainable=False, dtype=tf.int64, name="skipped_in_a_row"
        )

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the factor to whether a step was applied."""
        super().update(finite)
        zero = tf.zeros((), tf.int64)
        self.skipped.assign(tf.where(finite, zero, self.skipped + 1))

    def exhausted(self) -> bool:
        """Returns whether too many steps in a row were not finite."""
        return bool(self.skipped >= _MAX_CONSECUTIVE)

    def __str__(self) -> str:
        return (
            f"step skipped; the learning rate is {float(self.value):g} times "
            f"the schedule's until {_RECOVERY_STEPS} steps were good"
        )
