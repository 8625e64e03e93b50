"""What models of choices are trained for."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.finetuning.multiple_choice.task import CHOICE_MASK
from bert_tf.finetuning.task_model import ClassesObjective, Sums

# Its exponential is 0 in float32, and so is its gradient; an infinity would
# make NaN of 0 times infinity.
_HIDDEN = -1e9


class ChoicesObjective(ClassesObjective):
    """Cross-entropy over the choices of each example.

    Devlin et al. 2019, section 4.4: a softmax over the scores of the choices.
    What pads examples with fewer choices is left out of it. An example
    counts the same, however many choices it has.
    """

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss and the right answers.

        Args:
          outputs: logits [B, C].
          batch: label_ids int32 [B], choice_mask and example_weights
            float32, [B, C] and [B].

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: accuracy, as (weighted sum, weight).
        """
        logits = ops.cast(outputs["logits"], "float32")
        visible = ops.where(batch[CHOICE_MASK] > 0, logits, _HIDDEN)
        return super().__call__({"logits": visible}, batch)
