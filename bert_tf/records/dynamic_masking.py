"""Masks tokens while records are read: `masking` in TensorFlow.

If every group is one token, a partial sort selects those with the smallest
noise. Noise and position form one distinct integer (see `masking.noise_keys`),
so that a threshold separates the smallest from the rest.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.records.masking import (
    KEY_BITS,
    NO_GROUP,
    MaskingRule,
)


class MaskingNoise(NamedTuple):
    """The random numbers that mask a batch.

    Attributes:
      order: float32 [B, S] in [0, 1), the order in which groups are selected.
      ngram: float32 [B, S] in [0, 1), the lengths of n-grams; `order` if these
        are not needed.
      action: float32 [B, P] in [0, 1): mask, keep or random.
      random_ids: int32 [B, P] in [0, V).
    """

    order: tf.Tensor
    ngram: tf.Tensor
    action: tf.Tensor
    random_ids: tf.Tensor


def draw_noise(
    rows: int | tf.Tensor,
    width: int | tf.Tensor,
    seed: tf.Tensor,
    rule: MaskingRule,
) -> MaskingNoise:
    """Draws the random numbers of a batch from a seed, int64 [2]."""
    predictions = [rows, rule.max_predictions_per_seq]
    # Other devices draw different numbers.
    with tf.device("CPU"):
        seeds = tf.random.split(seed, 3)
        order = ngram = tf.random.stateless_uniform([rows, width], seeds[0])
        if rule.masked_ngram_length > 1:
            ngram_seed = tf.random.fold_in(seed, 3)
            ngram = tf.random.stateless_uniform([rows, width], ngram_seed)
        return MaskingNoise(
            order,
            ngram,
            tf.random.stateless_uniform(predictions, seeds[1]),
            tf.random.stateless_uniform(
                predictions, seeds[2], maxval=rule.vocab_size, dtype=tf.int32
            ),
        )


def choose_tokens(
    input_ids: tf.Tensor,
    lengths: tf.Tensor,
    order_noise: tf.Tensor,
    ngram_noise: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """Selects the tokens to predict, int32 [B, P]; see `masking`."""
    candidate = tf.sequence_mask(lengths, tf.shape(input_ids)[1])
    for special in np.flatnonzero(rule.is_special):
        candidate &= input_ids != int(special)
    num_to_select = tf.gather(tf.constant(rule.num_to_predict), lengths)
    # See `masking.noise_keys`.
    keys = tf.cast(order_noise * float(1 << rule.noise_bits), tf.int32)
    keys = tf.bitwise.left_shift(keys, KEY_BITS - rule.noise_bits)
    keys += tf.range(tf.shape(order_noise)[1])
    if not rule.has_groups:
        return _choose_single_tokens(candidate, num_to_select, keys, rule)
    starts = ~tf.gather(tf.constant(rule.joins_previous), input_ids)
    ngrams = tf.ones_like(keys)
    for bound in rule.ngram_bounds:
        ngrams += tf.cast(ngram_noise >= bound, tf.int32)
    return _choose_groups(starts, candidate, num_to_select, keys, ngrams, rule)


def _choose_single_tokens(
    candidate: tf.Tensor,
    num_to_select: tf.Tensor,
    keys: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """`choose_tokens` if every candidate is a group."""
    counts = tf.reduce_sum(tf.cast(candidate, tf.int32), axis=1)
    keys = tf.where(candidate, keys, keys + NO_GROUP)
    # The threshold selects the same number of keys in each row; rows that need
    # fewer get fillers, smaller keys to the right of all positions.
    rows, width = tf.unstack(tf.shape(keys))
    predictions = rule.max_predictions_per_seq
    number = tf.range(predictions)
    num_fillers = predictions - tf.minimum(num_to_select, counts)
    fillers = tf.where(number < num_fillers[:, None], -1 - number, NO_GROUP)
    keys = tf.concat([keys, fillers], axis=1)
    bound = tf.raw_ops.NthElement(input=keys, n=predictions - 1)
    positions = tf.cast(tf.where(keys <= bound[:, None])[:, 1], tf.int32)
    return tf.minimum(tf.reshape(positions, [rows, predictions]), width)


def _choose_groups(
    starts: tf.Tensor,
    candidate: tf.Tensor,
    num_to_select: tf.Tensor,
    keys: tf.Tensor,
    ngrams: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """`choose_tokens` if groups are words, or n-grams of groups.

    Candidates and words are numbered across all rows; a word is a range of
    candidates. In each step every row tries its next word.
    """
    rows, width = tf.unstack(tf.shape(candidate))
    flat_positions = tf.where(tf.reshape(candidate, [-1]))[:, 0]
    flat_positions = tf.cast(flat_positions, tf.int32)
    first_candidates = tf.cumsum(
        tf.reduce_sum(tf.cast(candidate, tf.int32), axis=1), exclusive=True
    )
    begins = tf.gather(tf.reshape(starts, [-1]), flat_positions)
    # The first candidate of a row always begins a word; one more entry ends the
    # last word.
    begins = tf.tensor_scatter_nd_update(
        tf.concat([begins, [True]], axis=0),
        first_candidates[:, None],
        tf.ones_like(first_candidates, tf.bool),
    )
    begins = tf.cast(tf.where(begins)[:, 0], tf.int32)
    total = tf.size(begins) - 1
    first_words = tf.searchsorted(begins, first_candidates)
    row_ends = tf.concat([first_words[1:], [total]], axis=0)
    words = row_ends - first_words
    most = tf.reduce_max(words)
    exists = tf.sequence_mask(words, width)
    keys = tf.sort(tf.where(exists, keys, keys + NO_GROUP), axis=1)[:, :most]
    numbers = (1 << KEY_BITS - rule.noise_bits) - 1
    order = tf.bitwise.bitwise_and(keys, numbers)
    # By step.
    ngrams = tf.transpose(tf.gather(ngrams, order, batch_dims=1))
    order = tf.transpose(tf.minimum(order + first_words[:, None], total))
    sizes = tf.range(1, rule.masked_ngram_length + 1)

    def is_left(
        step: tf.Tensor, remaining: tf.Tensor, selected: tf.Tensor
    ) -> tf.Tensor:
        del selected
        return tf.reduce_any((remaining > 0) & (step < words))

    def select(
        step: tf.Tensor, remaining: tf.Tensor, selected: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        word = order[step][:, None]
        ends = tf.minimum(word + sizes, row_ends[:, None])
        tokens = tf.gather(begins, ends) - tf.gather(begins, word)
        fits = (tokens <= remaining[:, None]) & (step < words)[:, None]
        fits &= sizes <= ngrams[step][:, None]
        # The last entry stands for no word.
        inside = tf.where(fits, ends - 1, total)
        taken = tf.reduce_any(tf.gather(selected, inside), 1, keepdims=True)
        inside = tf.reshape(tf.where(taken, total, inside), [-1, 1])
        used = tf.where(fits & ~taken, tokens, 0)
        selected = tf.tensor_scatter_nd_update(
            selected, inside, inside[:, 0] < total
        )
        return step + 1, remaining - tf.reduce_max(used, axis=1), selected

    start = 0, num_to_select, tf.zeros_like(begins, tf.bool)
    _, remaining, selected = tf.while_loop(is_left, select, start)
    chosen_words = tf.where(selected)[:, 0]
    candidates = tf.ragged.range(
        tf.gather(begins, chosen_words), tf.gather(begins, chosen_words + 1)
    )
    chosen = tf.RaggedTensor.from_row_lengths(
        tf.gather(flat_positions, candidates.values),
        num_to_select - remaining,
        validate=False,
    ).to_tensor(rows * width, shape=[None, rule.max_predictions_per_seq])
    return tf.minimum(chosen - tf.range(rows)[:, None] * width, width)


def replace_tokens(
    input_ids: tf.Tensor,
    positions: tf.Tensor,
    action_noise: tf.Tensor,
    random_ids: tf.Tensor,
    rule: MaskingRule,
) -> dict[str, tf.Tensor]:
    """Replaces the selected tokens; see `masking.replace_tokens`."""
    rows, width = tf.unstack(tf.shape(input_ids))
    used = positions < width
    # Padding predicts position 0 with weight 0 and changes nothing there.
    positions = tf.where(used, positions, 0)
    labels = tf.gather(input_ids, positions, batch_dims=1)
    replaced = tf.where(
        action_noise < rule.mask_token_rate,
        rule.mask_id,
        tf.where(action_noise < 1 - rule.random_token_rate, labels, random_ids),
    )
    flat_positions = positions + tf.range(rows)[:, None] * width
    masked = tf.tensor_scatter_nd_add(
        tf.reshape(input_ids, [-1]),
        tf.reshape(flat_positions, [-1, 1]),
        tf.reshape(tf.where(used, replaced - labels, 0), [-1]),
    )
    return {
        "input_ids": tf.reshape(masked, [rows, width]),
        "masked_lm_positions": positions,
        "masked_lm_ids": tf.where(used, labels, 0),
        "masked_lm_weights": tf.cast(used, tf.float32),
    }


def mask_rows(
    input_ids: tf.Tensor,
    lengths: tf.Tensor,
    noise: MaskingNoise,
    rule: MaskingRule,
) -> dict[str, tf.Tensor]:
    """Masks sequences.

    Args:
      input_ids: int32 [B, S], any ids after the end of a sequence.
      lengths: sequence lengths with special tokens, int32 [B].
      noise: the result of `draw_noise`, for one batch or several concatenated.
      rule: the masking rule.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights; see
      `bert_tf.features`.
    """
    positions = choose_tokens(
        input_ids, lengths, noise.order, noise.ngram, rule
    )
    return replace_tokens(
        input_ids, positions, noise.action, noise.random_ids, rule
    )


def mask_packed_rows(
    rows: dict[str, tf.Tensor], noise: MaskingNoise, rule: MaskingRule
) -> dict[str, tf.Tensor]:
    """Masks each sequence of packed rows independently.

    Args:
      rows: the result of `parse_packed`.
      noise: random numbers of the rows, by position in the row.
      rule: the masking rule of a sequence.

    Returns:
      A batch; see `bert_tf.features.PACKED_PRETRAINING_FEATURES`.
    """
    is_token = rows["input_mask"] > 0
    # A sequence begins at each token with position id 0.
    is_first = rows["position_ids"] == 0
    row, starts = tf.unstack(
        tf.cast(tf.where(is_token & is_first), tf.int32), axis=1
    )
    begins = tf.where(tf.boolean_mask(is_first, is_token))[:, 0]
    begins = tf.cast(begins, tf.int32)

    def unpacked(values: tf.Tensor) -> tf.Tensor:
        """Converts values of tokens, [B, S], to one sequence a row."""
        values = tf.boolean_mask(values, is_token)
        return tf.RaggedTensor.from_row_starts(
            values, begins, validate=False
        ).to_tensor()

    mask = unpacked(rows["input_mask"])
    chosen = choose_tokens(
        unpacked(rows["input_ids"]),
        tf.reduce_sum(mask, axis=1),
        unpacked(noise.order),
        unpacked(noise.ngram),
        rule,
    )
    is_chosen = chosen < tf.shape(mask)[1]
    counts = tf.math.segment_sum(
        tf.reduce_sum(tf.cast(is_chosen, tf.int32), axis=1), row
    )
    width = tf.shape(rows["input_ids"])[1]
    # Predictions are in the order of the sequences of a row.
    positions = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(chosen + starts[:, None], is_chosen),
        counts,
        validate=False,
    ).to_tensor(default_value=width, shape=[None, noise.action.shape[1]])
    return rows | replace_tokens(
        rows["input_ids"], positions, noise.action, noise.random_ids, rule
    )
