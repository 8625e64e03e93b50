"""Masks drawn while records are read: the rule of `masking` in TensorFlow."""

import tensorflow as tf

from bert_tf.records.masking import KEEP_SHARE, MASK_SHARE, MaskingRule


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
      True where a token is to be predicted, bool [B, S].
    """
    rows, width = tf.unstack(tf.shape(input_ids))
    candidate = tf.sequence_mask(lengths, width) & ~tf.gather(
        tf.constant(rule.is_special), input_ids
    )
    counted = tf.cast(candidate, tf.int32)
    first = candidate & (tf.cumsum(counted, axis=1) == 1)
    joins = tf.gather(tf.constant(rule.joins_previous), input_ids)
    starts = candidate & (first | ~joins)
    group = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    sizes = tf.math.unsorted_segment_sum(
        tf.reshape(counted, [-1]),
        tf.reshape(tf.range(rows)[:, None] * width + group, [-1]),
        rows * width,
    )
    sizes = tf.reshape(sizes, [rows, width])
    order = tf.argsort(
        tf.where(sizes > 0, order_noise, 2.0), axis=1, stable=True
    )
    sizes = tf.gather(sizes, order, batch_dims=1)

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

    taken, _ = tf.while_loop(
        lambda taken, remaining: tf.reduce_any(open_groups(taken, remaining)),
        take,
        (
            tf.zeros_like(candidate),
            tf.gather(tf.constant(rule.num_to_predict), lengths),
        ),
    )
    visited_at = tf.argsort(order, axis=1)
    taken_group = tf.gather(taken, visited_at, batch_dims=1)
    return candidate & tf.gather(taken_group, group, batch_dims=1)


def replace_tokens(
    input_ids: tf.Tensor,
    chosen: tf.Tensor,
    action_noise: tf.Tensor,
    random_ids: tf.Tensor,
    rule: MaskingRule,
) -> dict[str, tf.Tensor]:
    """Replaces the chosen tokens; see `masking.replace_tokens`.

    Args:
      input_ids: int32 [B, S].
      chosen: tokens to predict, bool [B, S].
      action_noise: float32 [B, P] in [0, 1); decides mask, keep or random.
      random_ids: int32 [B, P] in [0, V).
      rule: the masking rule.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights.
    """
    predictions = rule.max_predictions_per_seq
    rows, width = tf.unstack(tf.shape(input_ids))
    places = tf.where(chosen, tf.range(width), width)
    positions = tf.sort(places, axis=1)[:, :predictions]
    used = positions < width
    positions = tf.where(used, positions, 0)
    labels = tf.gather(input_ids, positions, batch_dims=1)
    replaced = tf.where(
        action_noise < MASK_SHARE,
        rule.mask_id,
        tf.where(action_noise < MASK_SHARE + KEEP_SHARE, labels, random_ids),
    )
    row_numbers = tf.broadcast_to(tf.range(rows)[:, None], tf.shape(positions))
    return {
        "input_ids": tf.tensor_scatter_nd_update(
            input_ids,
            tf.stack([row_numbers, positions], axis=-1),
            tf.where(used, replaced, labels),
        ),
        "masked_lm_positions": positions,
        "masked_lm_ids": tf.where(used, labels, 0),
        "masked_lm_weights": tf.cast(used, tf.float32),
    }


def mask_batch(
    input_ids: tf.Tensor, lengths: tf.Tensor, seed: tf.Tensor, rule: MaskingRule
) -> dict[str, tf.Tensor]:
    """Draws masks for a batch: the same seed gives the same masks.

    Args:
      input_ids: int32 [B, S], zero after the sequence's end.
      lengths: sequence lengths with specials, int32 [B].
      seed: int64 [2].
      rule: the masking rule.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights, as
      `bert_tf.features` has them.
    """
    # Philox by name: "auto_select" gives other numbers on other devices.
    seeds = tf.random.split(seed, 3, alg="philox")
    predictions = [tf.shape(input_ids)[0], rule.max_predictions_per_seq]
    chosen = choose_tokens(
        input_ids,
        lengths,
        tf.random.stateless_uniform(
            tf.shape(input_ids), seeds[0], alg="philox"
        ),
        rule,
    )
    return replace_tokens(
        input_ids,
        chosen,
        tf.random.stateless_uniform(predictions, seeds[1], alg="philox"),
        tf.random.stateless_uniform(
            predictions,
            seeds[2],
            maxval=rule.vocab_size,
            dtype=tf.int32,
            alg="philox",
        ),
        rule,
    )
