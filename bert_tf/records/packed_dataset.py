"""Rows of packed records: places of the sequences, and masks."""

import tensorflow as tf

from bert_tf.records.dynamic_masking import (
    MaskingNoise,
    choose_tokens,
    replace_tokens,
)
from bert_tf.records.folder import RecordFolder
from bert_tf.records.masking import MaskingRule


def parse_packed(
    records: tf.Tensor, folder: RecordFolder
) -> dict[str, tf.Tensor]:
    """Reads packed records.

    Args:
      records: serialised tf.train.Examples, string [B].
      folder: what the records are of.

    Returns:
      What `bert_tf.features.PACKED_PRETRAINING_FEATURES` has, but for the
      masks.
    """
    ragged = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int32)
    names = (
        "input_ids",
        "next_sentence_labels",
        "segment_ids",
        "sequence_lengths",
    )
    parsed = tf.io.parse_example(records, dict.fromkeys(names, ragged))
    parsed = {name: tf.cast(v, tf.int32) for name, v in parsed.items()}
    tokens, lengths = parsed["input_ids"], parsed["sequence_lengths"]
    assert folder.packing is not None
    width, most = folder.max_seq_length, folder.packing.most_sequences

    def in_rows(values: tf.Tensor) -> tf.Tensor:
        """Values of all tokens, in padded rows [B, S]."""
        return tokens.with_values(values).to_tensor(shape=[None, width])

    def of_sequences(values: tf.RaggedTensor, unused: int = 0) -> tf.Tensor:
        """Values of the sequences of each row, padded, [B, K]."""
        return values.to_tensor(default_value=unused, shape=[None, most])

    numbers = tf.ragged.range(1, lengths.row_lengths() + 1).values
    places = tf.ragged.range(lengths.values).values
    starts = tf.cumsum(of_sequences(lengths), axis=1, exclusive=True)
    labels = of_sequences(parsed["next_sentence_labels"], unused=-1)
    return {
        "input_ids": in_rows(tokens.values),
        "input_mask": in_rows(tf.ones_like(tokens.values)),
        "segment_ids": in_rows(parsed["segment_ids"].values),
        "position_ids": in_rows(places),
        "sequence_ids": in_rows(tf.repeat(numbers, lengths.values)),
        "cls_positions": tf.where(labels >= 0, starts, 0),
        "next_sentence_labels": labels,
    }


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
