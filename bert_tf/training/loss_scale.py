"""Dynamic loss scaling for float16 (Micikevicius et al. 2018)."""

import tensorflow as tf

_INITIAL, _GROWTH_STEPS, _LARGEST = 2.0**15, 2000, 2.0**24


class LossScale(tf.Module):
    """Halves on a step that overflowed, doubles after 2,000 that did not."""

    def __init__(self):
        super().__init__()
        self.value = tf.Variable(_INITIAL, trainable=False, name="loss_scale")
        self.good_steps = tf.Variable(
            0, trainable=False, dtype=tf.int64, name="good_steps"
        )

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the scale to whether this step's gradients were finite."""
        grown = self.good_steps + 1 >= _GROWTH_STEPS
        up = tf.where(grown, tf.minimum(self.value * 2.0, _LARGEST), self.value)
        steps = tf.where(grown, tf.zeros((), tf.int64), self.good_steps + 1)
        self.good_steps.assign(tf.where(finite, steps, tf.zeros((), tf.int64)))
        self.value.assign(tf.where(finite, up, self.value / 2.0))

    def exhausted(self) -> bool:
        """Whether even the unscaled loss overflows: no scale can help."""
        return bool(self.value < 1.0)

    def __str__(self) -> str:
        return f"float16 overflow; the loss scale is now {float(self.value):g}"
