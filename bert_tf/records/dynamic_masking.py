"""Masks drawn while records are read: the rule of `masking` in TensorFlow.

Where no whole words are masked, every group is one token, and the groups taken
are those with the smallest noise: a partial sort finds them. Whole words take
the general way; it too looks at the groups with the smallest noise alone, and
at all of them only where these do not suffice. `masking.noise_keys` says how
noise and place become one number, all different, so that a bound parts the
smallest from the others.
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
    """All that chance decides of the masks of some rows.

    Attributes:
      order: float32 [B, S] in [0, 1); groups are tried in its order.
      action: float32 [B, P] in [0, 1); decides mask, keep or random.
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
    """Draws what the masks of a batch depend on, by a seed, int64 [2]."""
    predictions = [rows, rule.max_predictions_per_seq]
    # Other devices have other numbers.
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
    """Chooses the tokens to predict, int32 [B, P].

    See `masking.choose_tokens`.
    """
    candidate = tf.sequence_mask(lengths, tf.shape(input_ids)[1])
    for special in np.flatnonzero(rule.is_special):
        candidate &= input_ids != int(special)
    num_to_take = tf.gather(tf.constant(rule.num_to_predict), lengths)
    keys = _noise_keys(order_noise, rule)
    if rule.joins_previous.any():
        return _choose_words(input_ids, candidate, num_to_take, keys, rule)
    return _choose_single_tokens(candidate, num_to_take, keys, rule)


def _noise_keys(order_noise: tf.Tensor, rule: MaskingRule) -> tf.Tensor:
    """See `masking.noise_keys`."""
    noise = tf.cast(order_noise * float(1 << rule.noise_bits), tf.int32)
    place = tf.range(tf.shape(order_noise)[1])
    return tf.bitwise.left_shift(noise, KEY_BITS - rule.noise_bits) + place


def _smallest(keys: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Which of different keys, int32 [B, n], are the smallest of each row."""
    bound = tf.raw_ops.NthElement(input=keys, n=count - 1)
    return keys <= bound[:, None]


def _choose_single_tokens(
    candidate: tf.Tensor,
    num_to_take: tf.Tensor,
    keys: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """`choose_tokens` where every candidate is a group."""
    counts = tf.reduce_sum(tf.cast(candidate, tf.int32), axis=1)
    keys = tf.where(candidate, keys, keys + NO_GROUP)
    # One bound finds equally many keys in each row: where fewer are needed, the
    # others are smaller keys that stand for nothing, to the right of all.
    rows, width = tf.unstack(tf.shape(keys))
    predictions = rule.max_predictions_per_seq
    number = tf.range(predictions)
    others = predictions - tf.minimum(num_to_take, counts)
    fillers = tf.where(number < others[:, None], -1 - number, NO_GROUP)
    chosen = _smallest(tf.concat([keys, fillers], axis=1), predictions)
    places = tf.cast(tf.where(chosen)[:, 1], tf.int32)
    return tf.minimum(tf.reshape(places, [rows, predictions]), width)


def _choose_words(
    input_ids: tf.Tensor,
    candidate: tf.Tensor,
    num_to_take: tf.Tensor,
    keys: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """`choose_tokens` where groups may have several tokens.

    Candidates, and words, are numbered through all rows: a word is a range of
    candidates.
    """
    rows, width = tf.unstack(tf.shape(input_ids))
    places = tf.cast(tf.where(tf.reshape(candidate, [-1]))[:, 0], tf.int32)
    first_candidates = tf.cumsum(
        tf.reduce_sum(tf.cast(candidate, tf.int32), axis=1), exclusive=True
    )
    ids = tf.gather(tf.reshape(input_ids, [-1]), places)
    begins = ~tf.gather(tf.constant(rule.joins_previous), ids)
    # The first token of a row begins a word, whatever it looks like; one more
    # ends the last word.
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

    def take_among(count: int | tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Takes among the first `count` words.

        Returns:
          The candidates taken, how many of each row, and False if more of them
          may fit.
        """
        first_keys = tf.boolean_mask(keys, _smallest(keys, count))
        first_keys = tf.sort(tf.reshape(first_keys, [rows, count]))
        exists = first_keys < NO_GROUP
        word = tf.bitwise.bitwise_and(first_keys, numbers)
        word = tf.minimum(word + first_words[:, None], last)
        starts, ends = tf.gather(begins, word), tf.gather(begins, word + 1)
        taken, remaining = _take_groups(
            tf.cast(tf.where(exists, ends - starts, 0), tf.float32),
            tf.cast(num_to_take, tf.float32),
        )
        candidates = tf.ragged.range(
            tf.boolean_mask(starts, taken), tf.boolean_mask(ends, taken)
        )
        all_tried = (remaining == 0) | ~exists[:, -1]
        return (
            candidates.values,
            num_to_take - tf.cast(remaining, tf.int32),
            tf.reduce_all(all_tried),
        )

    # Of few words many are skipped.
    few = tf.minimum(rule.max_predictions_per_seq * 5 // 4, width)
    *taken, enough = take_among(few)
    candidates, counts = tf.cond(
        enough, lambda: taken, lambda: list(take_among(width)[:2])
    )
    chosen = tf.RaggedTensor.from_row_lengths(
        tf.gather(places, candidates), counts, validate=False
    ).to_tensor(rows * width, shape=[None, rule.max_predictions_per_seq])
    row_begins = tf.range(rows)[:, None] * width
    return tf.minimum(tf.sort(chosen) - row_begins, width)


def _running_sums(values: tf.Tensor) -> tf.Tensor:
    """Sums of whole numbers, float32 [B, n], up to each place.

    A product with ones, which is faster than tf.cumsum for few numbers.
    """
    size = tf.shape(values)[1]
    return tf.matmul(values, tf.linalg.band_part(tf.ones([size, size]), 0, -1))


def _take_groups(
    sizes: tf.Tensor, num_to_take: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes groups from left to right; what exceeds the rest is skipped.

    Args:
      sizes: whole numbers, float32 [B, G]; 0 is no group.
      num_to_take: tokens to take of each row, float32 [B].

    Returns:
      Which groups are taken, bool [B, G], and how many tokens are still
      to be taken, float32 [B].
    """

    def still_fit(sizes: tf.Tensor, remaining: tf.Tensor) -> tf.Tensor:
        return tf.where(sizes <= remaining[:, None], sizes, 0)

    def take(
        untried: tf.Tensor, taken: tf.Tensor, remaining: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        fits = _running_sums(untried) <= remaining[:, None]
        used = tf.where(fits, untried, 0)
        remaining -= tf.reduce_sum(used, axis=1)
        return still_fit(untried - used, remaining), taken + used, remaining

    start = still_fit(sizes, num_to_take)
    _, taken, remaining = tf.while_loop(
        lambda untried, *_: tf.reduce_any(untried > 0),
        take,
        (start, tf.zeros_like(sizes), num_to_take),
    )
    return taken > 0, remaining


def replace_tokens(
    input_ids: tf.Tensor,
    positions: tf.Tensor,
    action_noise: tf.Tensor,
    random_ids: tf.Tensor,
    rule: MaskingRule,
) -> dict[str, tf.Tensor]:
    """Replaces the chosen tokens; see `masking.replace_tokens`."""
    rows, width = tf.unstack(tf.shape(input_ids))
    used = positions < width
    # Unused predictions point at position 0 and change nothing there.
    positions = tf.where(used, positions, 0)
    labels = tf.gather(input_ids, positions, batch_dims=1)
    replaced = tf.where(
        action_noise < rule.mask_token_rate,
        rule.mask_id,
        tf.where(action_noise < 1 - rule.random_token_rate, labels, random_ids),
    )
    places = positions + tf.range(rows)[:, None] * width
    masked = tf.tensor_scatter_nd_add(
        tf.reshape(input_ids, [-1]),
        tf.reshape(places, [-1, 1]),
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
    """Masks rows by noise that was drawn for them.

    Args:
      input_ids: int32 [B, S], any ids after the sequence's end.
      lengths: sequence lengths with specials, int32 [B].
      noise: what `draw_noise` gives, for one batch or several concatenated.
      rule: the masking rule.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights, as
      `bert_tf.features` has them.
    """
    positions = choose_tokens(input_ids, lengths, noise.order, rule)
    return replace_tokens(
        input_ids, positions, noise.action, noise.random_ids, rule
    )


def mask_packed_rows(
    rows: dict[str, tf.Tensor], noise: MaskingNoise, rule: MaskingRule
) -> dict[str, tf.Tensor]:
    """Masks each sequence of packed rows as if it were alone.

    Args:
      rows: what `parse_packed` gives.
      noise: of the rows; of each token the noise of its place in the row.
      rule: the masking rule of a sequence.

    Returns:
      A batch, as `bert_tf.features.PACKED_PRETRAINING_FEATURES` has it.
    """
    is_token = rows["input_mask"] > 0
    used = rows["next_sentence_labels"] >= 0
    starts = tf.boolean_mask(rows["cls_positions"], used)
    row = tf.cast(tf.where(used)[:, 0], tf.int32)
    # Every sequence begins where a token is the first of its own positions.
    begins = tf.boolean_mask(rows["position_ids"], is_token) == 0
    begins = tf.cast(tf.where(begins)[:, 0], tf.int32)

    def alone(values: tf.Tensor) -> tf.Tensor:
        """Values [B, S] of the tokens, one sequence a row."""
        values = tf.boolean_mask(values, is_token)
        return tf.RaggedTensor.from_row_starts(
            values, begins, validate=False
        ).to_tensor()

    mask = alone(rows["input_mask"])
    chosen = choose_tokens(
        alone(rows["input_ids"]),
        tf.reduce_sum(mask, axis=1),
        alone(noise.order),
        rule,
    )
    is_chosen = chosen < tf.shape(mask)[1]
    counts = tf.math.segment_sum(
        tf.reduce_sum(tf.cast(is_chosen, tf.int32), axis=1), row
    )
    width = tf.shape(rows["input_ids"])[1]
    # Sequences follow each other in a row, and so do their predictions.
    positions = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(chosen + starts[:, None], is_chosen),
        counts,
        validate=False,
    ).to_tensor(default_value=width, shape=[None, noise.action.shape[1]])
    return rows | replace_tokens(
        rows["input_ids"], positions, noise.action, noise.random_ids, rule
    )
