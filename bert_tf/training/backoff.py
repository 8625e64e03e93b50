"""Going on after steps that were not finite, at a lower learning rate."""

import tensorflow as tf

# After this many steps in a row the run stops all the same.
_MOST_IN_A_ROW = 10
_RECOVERY_STEPS = 100


class Backoff(tf.Module):
    """Halves the learning rate at a skipped step, until 100 good ones."""

    def __init__(self):
        super().__init__()
        self.value = tf.Variable(1.0, trainable=False, name="rate_factor")
        self.good_steps = tf.Variable(
            0, trainable=False, dtype=tf.int64, name="steps_since_skip"
        )
        self.skipped = tf.Variable(
            0, trainable=False, dtype=tf.int64, name="skipped_in_a_row"
        )

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the factor to whether this step was applied."""
        none = tf.zeros((), tf.int64)
        recovered = self.good_steps + 1 >= _RECOVERY_STEPS
        up = tf.where(recovered, tf.minimum(self.value * 2.0, 1.0), self.value)
        steps = tf.where(recovered, none, self.good_steps + 1)
        self.value.assign(tf.where(finite, up, self.value / 2.0))
        self.good_steps.assign(tf.where(finite, steps, none))
        self.skipped.assign(tf.where(finite, none, self.skipped + 1))

    def exhausted(self) -> bool:
        """Whether too many steps in a row were not finite."""
        return bool(self.skipped >= _MOST_IN_A_ROW)

    def __str__(self) -> str:
        return (
            f"step skipped; the learning rate is {float(self.value):g} times "
            f"the schedule's until {_RECOVERY_STEPS} steps were good"
        )
