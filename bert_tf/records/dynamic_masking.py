"""Masks tokens while records are read: `masking` in TensorFlow.

Unless whole words are masked, every group is one token, and a partial sort
selects those with the smallest noise. For whole words it selects the groups
with the smallest noise first, and considers all groups only if these are not
enough. Noise and position form one distinct integer (see
`masking.noise_keys`), so that a threshold separates the smallest from the rest.
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
      action: float32 [B, P] in [0, 1): mask, keep or random.
      random_ids: int32 [B, P] in [0, V).
    """

    order: tf.Tensor
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
        return MaskingNoise(
            tf.random.stateless_uniform([rows, width], seeds[0]),
            tf.random.stateless_uniform(predictions, seeds[1]),
            tf.random.stateless_uniform(
                predictions, seeds[2], maxval=rule.vocab_size, dtype=tf.int32
            ),
        )


def choose_tokens(
    input_ids: tf.Tensor,
    lengths: tf.Tensor,
    order_noise: tf.Tensor,
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
    if rule.joins_previous.any():
        return _choose_words(input_ids, candidate, num_to_select, keys, rule)
    return _choose_single_tokens(candidate, num_to_select, keys, rule)


def _smallest(keys: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Returns which of distinct keys are the smallest of a row, bool [B, n]."""
    bound = tf.raw_ops.NthElement(input=keys, n=count - 1)
    return keys <= bound[:, None]


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
    chosen = _smallest(tf.concat([keys, fillers], axis=1), predictions)
    positions = tf.cast(tf.where(chosen)[:, 1], tf.int32)
    return tf.minimum(tf.reshape(positions, [rows, predictions]), width)


def _choose_words(
    input_ids: tf.Tensor,
    candidate: tf.Tensor,
    num_to_select: tf.Tensor,
    keys: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """`choose_tokens` if groups are words.

    Candidates and words are numbered across all rows; a word is a range of
    candidates.
    """
    rows, width = tf.unstack(tf.shape(input_ids))
    flat_positions = tf.where(tf.reshape(candidate, [-1]))[:, 0]
    flat_positions = tf.cast(flat_positions, tf.int32)
    first_candidates = tf.cumsum(
        tf.reduce_sum(tf.cast(candidate, tf.int32), axis=1), exclusive=True
    )
    ids = tf.gather(tf.reshape(input_ids, [-1]), flat_positions)
    begins = ~tf.gather(tf.constant(rule.joins_previous), ids)
    # The first candidate of a row always begins a word; one more entry ends the
    # last word.
    begins = tf.tensor_scatter_nd_update(
        tf.concat([begins, [True]], axis=0),
        first_candidates[:, None],
        tf.ones_like(first_candidates, tf.bool),
    )
    begins = tf.cast(tf.where(begins)[:, 0], tf.int32)
    last = tf.size(begins) - 2
    first_words = tf.searchsorted(begins, first_candidates)
    words = tf.concat([first_words[1:], [last + 1]], axis=0) - first_words
    exists = tf.sequence_mask(words, width)
    keys = tf.where(exists, keys, keys + NO_GROUP)
    numbers = (1 << KEY_BITS - rule.noise_bits) - 1

    def select_from(count: int | tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Selects from the first `count` words.

        Returns:
          The selected candidates, their number by row, and whether no further
          word fits.
        """
        first_keys = tf.boolean_mask(keys, _smallest(keys, count))
        first_keys = tf.sort(tf.reshape(first_keys, [rows, count]))
        exists = first_keys < NO_GROUP
        word = tf.bitwise.bitwise_and(first_keys, numbers)
        word = tf.minimum(word + first_words[:, None], last)
        starts, ends = tf.gather(begins, word), tf.gather(begins, word + 1)
        selected, remaining = _select_groups(
            tf.cast(tf.where(exists, ends - starts, 0), tf.float32),
            tf.cast(num_to_select, tf.float32),
        )
        candidates = tf.ragged.range(
            tf.boolean_mask(starts, selected), tf.boolean_mask(ends, selected)
        )
        all_tried = (remaining == 0) | ~exists[:, -1]
        return (
            candidates.values,
            num_to_select - tf.cast(remaining, tf.int32),
            tf.reduce_all(all_tried),
        )

    # Enough for most batches: only few words are skipped.
    few = tf.minimum(rule.max_predictions_per_seq * 5 // 4, width)
    *selected, enough = select_from(few)
    candidates, counts = tf.cond(
        enough, lambda: selected, lambda: list(select_from(width)[:2])
    )
    chosen = tf.RaggedTensor.from_row_lengths(
        tf.gather(flat_positions, candidates), counts, validate=False
    ).to_tensor(rows * width, shape=[None, rule.max_predictions_per_seq])
    row_begins = tf.range(rows)[:, None] * width
    return tf.minimum(tf.sort(chosen) - row_begins, width)


def _running_sums(values: tf.Tensor) -> tf.Tensor:
    """Computes cumulative sums of integers, float32 [B, n].

    A matrix product is faster than tf.cumsum for small n.
    """
    size = tf.shape(values)[1]
    return tf.matmul(values, tf.linalg.band_part(tf.ones([size, size]), 0, -1))


def _select_groups(
    sizes: tf.Tensor, num_to_select: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Selects groups from left to right; skips those that exceed the rest.

    Args:
      sizes: tokens of each group, float32 [B, G]; 0 is no group.
      num_to_select: tokens to select in each row, float32 [B].

    Returns:
      Whether each group is selected, bool [B, G], and the number of tokens
      that remain to be selected, float32 [B].
    """

    def still_fit(sizes: tf.Tensor, remaining: tf.Tensor) -> tf.Tensor:
        return tf.where(sizes <= remaining[:, None], sizes, 0)

    def select(
        untried: tf.Tensor, selected: tf.Tensor, remaining: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        fits = _running_sums(untried) <= remaining[:, None]
        used = tf.where(fits, untried, 0)
        remaining -= tf.reduce_sum(used, axis=1)
        return still_fit(untried - used, remaining), selected + used, remaining

    start = still_fit(sizes, num_to_select)
    _, selected, remaining = tf.while_loop(
        lambda untried, *_: tf.reduce_any(untried > 0),
        select,
        (start, tf.zeros_like(sizes), num_to_select),
    )
    return selected > 0, remaining


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
    positions = choose_tokens(input_ids, lengths, noise.order, rule)
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
