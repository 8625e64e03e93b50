"""What may help at steps that are not finite: a smaller loss, a lower rate."""

import tensorflow as tf


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
