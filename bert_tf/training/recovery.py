"""What halves at a step that is not finite, and doubles after good ones."""

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
