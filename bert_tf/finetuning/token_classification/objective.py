"""What a tagger is trained for: the tag of each word."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.finetuning.objective import LOSS, Sums, weighted
from bert_tf.finetuning.token_classification.windows import TAG_IDS, TAG_WEIGHTS


class TagObjective:
    """Cross-entropy of the first sub-token of every word.

    Devlin et al. 2019, section 5.3: a softmax over the tags, no CRF. Every
    word counts as much as any other, whatever the length of its sentence.
    """

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """How many words there are."""
        return {LOSS: ops.sum(batch[TAG_WEIGHTS])}

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The mean loss of a word."""
        return {LOSS: losses[LOSS] / weights[LOSS]}

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss and the right tags.

        Args:
          outputs: logits [B, S, C].
          batch: tag_ids int32 [B, S], tag_weights float32 [B, S].

        Returns:
          losses: the weighted sum, scalar float32.
          metrics: accuracy, as (weighted sum, weight).
        """
        tags, weights = batch[TAG_IDS], batch[TAG_WEIGHTS]
        logits = ops.cast(outputs["logits"], "float32")
        nll = ops.sparse_categorical_crossentropy(
            tags, logits, from_logits=True
        )
        guesses = ops.argmax(logits, axis=-1)
        right = ops.equal(guesses, ops.cast(tags, guesses.dtype))
        accuracy = weighted(ops.cast(right, "float32"), weights)
        return {LOSS: ops.sum(nll * weights)}, {"accuracy": accuracy}
