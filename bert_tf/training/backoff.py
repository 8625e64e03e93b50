"""Going on after steps that were not finite, at a lower learning rate."""

import tensorflow as tf

from bert_tf.training.recovery import Recovery

# After this many steps in a row the run stops all the same.
_MOST_IN_A_ROW = 10
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
        return bool(self.skipped >= _MOST_IN_A_ROW)

    def __str__(self) -> str:
        return (
            f"step skipped; the learning rate is {float(self.value):g} times "
            f"the schedule's until {_RECOVERY_STEPS} steps were good"
        )
