"""What a model that knows nothing of context would score."""

import dataclasses
import math

import numpy as np
import tensorflow as tf

_MAX_BATCHES = 2000


@dataclasses.dataclass(frozen=True)
class Baseline:
    """Scores of guessing masked tokens by their frequency alone.

    Attributes:
      perplexity: of the unigram distribution of the training text, with one
        added to each count, over the held-out masked tokens.
      accuracy: share of the training text's most frequent token among them.
    """

    perplexity: float
    accuracy: float


def _counts(dataset: tf.data.Dataset, vocab_size: int) -> np.ndarray:
    counts = np.zeros(vocab_size, np.int64)
    for batch in dataset:
        ids = batch["masked_lm_ids"].numpy()
        used = ids[batch["masked_lm_weights"].numpy() > 0]
        counts += np.bincount(used, minlength=vocab_size)
    return counts


def unigram_baseline(
    training: tf.data.Dataset,
    num_batches: int,
    held_out: tf.data.Dataset,
    vocab_size: int,
) -> Baseline:
    """Scores the unigram model on held-out masked tokens.

    Masked positions are drawn uniformly, so the masked tokens of an epoch are
    a fair sample of the text.

    Args:
      training: endless batches with masked_lm_ids and masked_lm_weights.
      num_batches: batches of one epoch; at most 2,000 are read.
      held_out: the batches to score.
      vocab_size: number of tokens, V.
    """
    seen = _counts(training.take(min(num_batches, _MAX_BATCHES)), vocab_size)
    scored = _counts(held_out, vocab_size)
    probabilities = (seen + 1) / (seen.sum() + vocab_size)
    entropy = -(scored * np.log(probabilities)).sum() / scored.sum()
    return Baseline(
        perplexity=math.exp(entropy),
        accuracy=float(scored[seen.argmax()] / scored.sum()),
    )
