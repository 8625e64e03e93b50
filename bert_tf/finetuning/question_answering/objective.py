"""What a model of spans is trained for: the first and the last token."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.features import INPUT_MASK
from bert_tf.finetuning.objective import LOSS, MeanOverRows, Sums, weighted
from bert_tf.finetuning.rows import EXAMPLE_WEIGHTS

START_POSITIONS, END_POSITIONS = "start_positions", "end_positions"
# Far below any logit, and exp of it is 0.
_HIDDEN = -1e9


class SpanObjective(MeanOverRows):
    """The mean of two cross-entropies over the tokens of a window.

    Devlin et al. 2019, section 4.2; google-research/bert, run_squad.py. Unlike
    there, padding takes no part in the softmax.
    """

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss and the windows answered exactly.

        Args:
          outputs: start_logits and end_logits [B, S].
          batch: start_positions and end_positions int32 [B], input_mask int32
            [B, S], example_weights float32 [B].

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: exact_span, as (weighted sum, weight).
        """
        weights = batch[EXAMPLE_WEIGHTS]
        total, right = 0.0, 1.0
        for logits, positions in (
            (outputs["start_logits"], batch[START_POSITIONS]),
            (outputs["end_logits"], batch[END_POSITIONS]),
        ):
            logits = ops.cast(logits, "float32")
            logits = ops.where(batch[INPUT_MASK.name] > 0, logits, _HIDDEN)
            scores = ops.log_softmax(logits, axis=-1)
            wanted = ops.one_hot(positions, ops.shape(logits)[1])
            # A product with 0 where the mask hides: no -1e9 comes through.
            total = total - 0.5 * ops.sum(scores * wanted, axis=-1)
            guesses = ops.argmax(logits, axis=-1)
            same = ops.equal(guesses, ops.cast(positions, guesses.dtype))
            right = right * ops.cast(same, "float32")
        losses = {LOSS: ops.sum(total * weights)}
        return losses, {"exact_span": weighted(right, weights)}
