"""The losses of BERT's pre-training and how they are averaged."""

from collections.abc import Mapping
from typing import Any

from keras import ops

# Google's masked-LM mean divides by the sum of the weights plus this
# (google-research/bert, run_pretraining.py, get_masked_lm_output).
MASKED_LM_EPSILON = 1e-5


class PretrainingObjective:
    """Masked LM and next sentence (Devlin et al. 2019, section 3.1).

    Calling it gives sums, and `loss_weights` the weights that belong to them,
    so that a batch may be cut over replicas and accumulation steps: add the
    sums and the weights of all pieces, then `normalise`. The result is the
    loss of the whole batch.
    """

    def loss_weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """What each loss sum is divided by, from the batch alone.

        Args:
          batch: masked_lm_weights float32 [B, P] and next_sentence_labels
            int32 [B], of packed rows [B, K], -1 for what counts for nothing.

        Returns:
          Scalars float32: the number of masked tokens and of sequences.
        """
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        return {
            "masked_lm_loss": ops.sum(weights),
            "next_sentence_loss": ops.sum(_sequence_weights(batch)),
        }

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
        """Sums the negative log likelihoods and the right answers.

        Args:
          outputs: masked_lm_logits [B, P, V], next_sentence_logits [B, 2],
            of packed rows [B, K, 2].
          batch: masked_lm_ids int32 [B, P], masked_lm_weights float32
            [B, P], next_sentence_labels int32 [B], of packed rows [B, K], -1
            for what counts for nothing.

        Returns:
          losses: name to a scalar float32, the weighted sum.
          metrics: name to (weighted sum, weight), scalars float32.
        """
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        sequences = _sequence_weights(batch)
        labels = ops.maximum(batch["next_sentence_labels"], 0)
        denominators = self.loss_weights(batch)
        word_nll, word_right = _score(
            outputs["masked_lm_logits"], batch["masked_lm_ids"]
        )
        next_nll, next_right = _score(outputs["next_sentence_logits"], labels)
        losses = {
            "masked_lm_loss": ops.sum(weights * word_nll),
            "next_sentence_loss": ops.sum(sequences * next_nll),
        }
        metrics = {
            "masked_lm_accuracy": (
                ops.sum(weights * word_right),
                denominators["masked_lm_loss"],
            ),
            "next_sentence_accuracy": (
                ops.sum(sequences * next_right),
                denominators["next_sentence_loss"],
            ),
        }
        return losses, metrics

    def normalise(
        self, losses: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Divides summed losses by their summed weights.

        Args:
          losses: name to a scalar, the sum over the whole batch.
          weights: name to a scalar, `loss_weights` over the whole batch.

        Returns:
          Name to the mean loss; the loss to minimise is their plain sum.
        """
        return {
            "masked_lm_loss": losses["masked_lm_loss"]
            / (weights["masked_lm_loss"] + MASKED_LM_EPSILON),
            "next_sentence_loss": losses["next_sentence_loss"]
            / weights["next_sentence_loss"],
        }


def _sequence_weights(batch: Mapping[str, Any]) -> Any:
    """1 for each sequence with a label, 0 for the others, as the labels."""
    return ops.cast(batch["next_sentence_labels"] >= 0, "float32")


def _score(logits: Any, labels: Any) -> tuple[Any, Any]:
    logits = ops.cast(logits, "float32")
    nll = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    guesses = ops.argmax(logits, axis=-1)
    right = ops.equal(guesses, ops.cast(labels, guesses.dtype))
    return nll, ops.cast(right, "float32")
