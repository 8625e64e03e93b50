"""Dynamic loss scaling for float16 (Micikevicius et al. 2018)."""

from bert_tf.training.recovery import Recovery

_INITIAL, _GROWTH_STEPS, _LARGEST = 2.0**15, 2000, 2.0**24


class LossScale(Recovery):
    """Halves on a step that overflowed, doubles after 2,000 that did not."""

    def __init__(self):
        super().__init__(_INITIAL, _LARGEST, _GROWTH_STEPS, "loss_scale")

    def exhausted(self) -> bool:
        """Whether even the unscaled loss overflows: no scale can help."""
        return bool(self.value < 1.0)

    def __str__(self) -> str:
        return f"float16 overflow; the loss scale is now {float(self.value):g}"
