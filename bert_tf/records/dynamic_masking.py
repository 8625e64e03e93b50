"""Masks drawn while records are read: the rule of `masking` in TensorFlow.

Where no whole words are masked, every group is one token, and the groups taken
are those with the smallest noise: a partial sort finds them. Whole words take
the general way; it too looks at the groups with the smallest noise alone, and
at all of them only where those do not suffice.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.records.masking import KEEP_SHARE, MASK_SHARE, MaskingRule


class MaskingNoise(NamedTuple):
    """All that chance decides of the masks of some rows.

    Attributes:
      order: float32 [B, S] in [0, 1); groups are visited in its order.
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
    """Draws what the masks of a batch hang on; the same seed gives the same.

    Args:
      rows: B.
      width: S.
      seed: int64 [2].
      rule: the masking rule.
    """
    # Philox by name: "auto_select" gives other numbers on other devices.
    seeds = tf.random.split(seed, 3, alg="philox")
    predictions = [rows, rule.max_predictions_per_seq]
    return MaskingNoise(
        tf.random.stateless_uniform([rows, width], seeds[0], alg="philox"),
        tf.random.stateless_uniform(predictions, seeds[1], alg="philox"),
        tf.random.stateless_uniform(
            predictions,
            seeds[2],
            maxval=rule.vocab_size,
            dtype=tf.int32,
            alg="philox",
        ),
    )


def choose_tokens(
    input_ids: tf.Tensor,
    lengths: tf.Tensor,
    order_noise: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """Chooses the tokens to predict; see `masking.choose_tokens`.

    Args:
      input_ids: int32 [B, S], zero after the sequence's end.
      lengths: sequence lengths with specials, int32 [B].
      order_noise: float32 [B, S] in [0, 1); groups are visited in its order.
      rule: the masking rule.

    Returns:
      The positions of the tokens to be predicted in increasing order, then S;
      int32 [B, P].
    """
    candidate = tf.sequence_mask(lengths, tf.shape(input_ids)[1])
    for special in np.flatnonzero(rule.is_special):
        candidate &= input_ids != int(special)
    wanted = tf.gather(tf.constant(rule.num_to_predict), lengths)
    if rule.joins_previous.any():
        return _choose_words(input_ids, candidate, wanted, order_noise, rule)
    return _choose_single_tokens(candidate, wanted, order_noise, rule)


def _first(
    keys: tf.Tensor, count: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The smallest keys of each row in order, and their places."""
    # Of equal keys the one on the left comes first.
    found = tf.math.top_k(-keys, tf.minimum(count, tf.shape(keys)[1]))
    return -found.values, found.indices


def _choose_single_tokens(
    candidate: tf.Tensor,
    wanted: tf.Tensor,
    order_noise: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """`choose_tokens` where every candidate is a group."""
    predictions, width = rule.max_predictions_per_seq, tf.shape(candidate)[1]
    counts = tf.reduce_sum(tf.cast(candidate, tf.int32), axis=1, keepdims=True)
    is_group = tf.range(width) < counts
    _, groups = _first(tf.where(is_group, order_noise, 2.0), predictions)
    rank = tf.range(tf.shape(groups)[1])
    taken = rank < tf.minimum(wanted[:, None], counts)
    # The places of all candidates, row after row; one more for what is none.
    places = tf.cast(tf.where(candidate)[:, 1], tf.int32)
    places = tf.concat([places, [0]], axis=0)
    begins = tf.cumsum(counts, exclusive=True)
    places = tf.gather(places, tf.where(taken, begins + groups, 0))
    places = tf.sort(tf.where(taken, places, width), axis=1)
    missing = predictions - tf.shape(places)[1]
    return tf.pad(places, [[0, 0], [0, missing]], constant_values=width)


def _choose_words(
    input_ids: tf.Tensor,
    candidate: tf.Tensor,
    wanted: tf.Tensor,
    order_noise: tf.Tensor,
    rule: MaskingRule,
) -> tf.Tensor:
    """`choose_tokens` where groups may have several tokens."""
    rows, width = tf.unstack(tf.shape(input_ids))
    counted = tf.cast(candidate, tf.int32)
    first = tf.argmax(counted, axis=1, output_type=tf.int32)
    begins_row = tf.range(width) == first[:, None]
    joins = tf.gather(tf.constant(rule.joins_previous), input_ids)
    starts = candidate & (begins_row | ~joins)
    group = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    group += tf.range(rows)[:, None] * width
    sizes = tf.math.unsorted_segment_sum(
        tf.reshape(counted, [-1]), tf.reshape(group, [-1]), rows * width
    )
    sizes = tf.reshape(sizes, [rows, width])
    keys = tf.where(sizes > 0, order_noise, 2.0)

    def visit(count: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Takes among the first `count` groups; False if more may fit."""
        last, order = _first(keys, count)
        visited = tf.gather(sizes, order, batch_dims=1)
        taken, remaining = _take_groups(visited, wanted)
        # The flat numbers of the groups taken; those behind the end are none.
        numbers = order + tf.range(rows)[:, None] * width
        numbers = tf.where(taken, numbers, rows * width)
        all_visited = (remaining == 0) | (last[:, -1] >= 2.0)
        return tf.reshape(numbers, [-1, 1]), tf.reduce_all(all_visited)

    numbers, enough = visit(2 * rule.max_predictions_per_seq)
    numbers = tf.cond(enough, lambda: numbers, lambda: visit(width)[0])
    is_taken = tf.tensor_scatter_nd_update(
        tf.zeros([rows * width + 1], tf.bool),
        numbers,
        tf.ones(tf.shape(numbers)[:1], tf.bool),
    )
    chosen = candidate & tf.gather(is_taken, group)
    # The chosen places from left to right are the largest of these numbers.
    from_right = tf.where(chosen, width - tf.range(width), 0)
    predictions = rule.max_predictions_per_seq
    found = tf.math.top_k(from_right, tf.minimum(predictions, width))
    missing = predictions - tf.shape(found.values)[1]
    return width - tf.pad(found.values, [[0, 0], [0, missing]])


def _take_groups(
    sizes: tf.Tensor, wanted: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes groups from left to right; what exceeds the rest is passed over.

    Args:
      sizes: int32 [B, G]; 0 is no group.
      wanted: how many tokens to take, int32 [B].

    Returns:
      Which groups are taken, bool [B, G], and how many tokens are still
      wanted, int32 [B].
    """

    def open_groups(taken: tf.Tensor, remaining: tf.Tensor) -> tf.Tensor:
        return (sizes > 0) & (sizes <= remaining[:, None]) & ~taken

    def take(
        taken: tf.Tensor, remaining: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        still_open = open_groups(taken, remaining)
        total = tf.cumsum(tf.where(still_open, sizes, 0), axis=1)
        fits = still_open & (total <= remaining[:, None])
        used = tf.reduce_sum(tf.where(fits, sizes, 0), axis=1)
        return taken | fits, remaining - used

    return tf.while_loop(
        lambda taken, remaining: tf.reduce_any(open_groups(taken, remaining)),
        take,
        (tf.zeros_like(sizes, tf.bool), wanted),
    )


def replace_tokens(
    input_ids: tf.Tensor,
    positions: tf.Tensor,
    action_noise: tf.Tensor,
    random_ids: tf.Tensor,
    rule: MaskingRule,
) -> dict[str, tf.Tensor]:
    """Replaces the chosen tokens; see `masking.replace_tokens`.

    Args:
      input_ids: int32 [B, S].
      positions: what `choose_tokens` gives, int32 [B, P].
      action_noise: float32 [B, P] in [0, 1); decides mask, keep or random.
      random_ids: int32 [B, P] in [0, V).
      rule: the masking rule.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights.
    """
    rows, width = tf.unstack(tf.shape(input_ids))
    used = positions < width
    # Unused predictions point at position 0, which is never chosen.
    positions = tf.where(used, positions, 0)
    labels = tf.gather(input_ids, positions, batch_dims=1)
    replaced = tf.where(
        action_noise < MASK_SHARE,
        rule.mask_id,
        tf.where(action_noise < MASK_SHARE + KEEP_SHARE, labels, random_ids),
    )
    places = positions + tf.range(rows)[:, None] * width
    masked = tf.tensor_scatter_nd_update(
        tf.reshape(input_ids, [-1]),
        tf.reshape(places, [-1, 1]),
        tf.reshape(tf.where(used, replaced, labels), [-1]),
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
      input_ids: int32 [B, S], zero after the sequence's end.
      lengths: sequence lengths with specials, int32 [B].
      noise: what `draw_noise` gives, for one batch or several end to end.
      rule: the masking rule.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights, as
      `bert_tf.features` has them.
    """
    positions = choose_tokens(input_ids, lengths, noise.order, rule)
    return replace_tokens(
        input_ids, positions, noise.action, noise.random_ids, rule
    )
