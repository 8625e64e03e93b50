"""Batches of packed records: places of the sequences, and masks."""

import tensorflow as tf

from bert_tf.records.dynamic_masking import mask_batch
from bert_tf.records.folder import RecordFolder
from bert_tf.records.masking import MaskingRule


def parse_packed(
    records: tf.Tensor,
    seed: tf.Tensor,
    folder: RecordFolder,
    rule: MaskingRule,
) -> dict[str, tf.Tensor]:
    """Reads packed records and masks each sequence as if it were alone.

    Args:
      records: serialised tf.train.Examples, string [B].
      seed: of the masks, int64 [2].
      folder: what the records are of.
      rule: the masking rule of a sequence.

    Returns:
      A batch, as `bert_tf.features.PACKED_PRETRAINING_FEATURES` has it.
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
    width, most = folder.max_seq_length, folder.packing.most_sequences

    def in_rows(values: tf.Tensor) -> tf.Tensor:
        """Values of all tokens, in padded rows [B, S]."""
        return tokens.with_values(values).to_tensor(shape=[None, width])

    def of_sequences(values: tf.RaggedTensor, unused: int = 0) -> tf.Tensor:
        """Values of the sequences of each row, padded, [B, K]."""
        return values.to_tensor(default_value=unused, shape=[None, most])

    starts = _starts(lengths)
    numbers = tf.ragged.range(1, lengths.row_lengths() + 1).values
    places = tf.ragged.range(lengths.values).values
    return {
        "input_mask": in_rows(tf.ones_like(tokens.values)),
        "segment_ids": in_rows(parsed["segment_ids"].values),
        "position_ids": in_rows(places),
        "sequence_ids": in_rows(tf.repeat(numbers, lengths.values)),
        "cls_positions": of_sequences(starts),
        "next_sentence_labels": of_sequences(
            parsed["next_sentence_labels"], unused=-1
        ),
        **_mask_sequences(tokens, lengths, starts, seed, folder, rule),
    }


def _starts(lengths: tf.RaggedTensor) -> tf.RaggedTensor:
    """Where each sequence begins in its row, int32 [B, (k)]."""
    before = tf.cumsum(lengths.values, exclusive=True)
    row_begins = tf.gather(
        tf.concat([before, [0]], axis=0), lengths.row_starts()
    )
    return lengths.with_values(
        before - tf.repeat(row_begins, lengths.row_lengths())
    )


def _mask_sequences(
    tokens: tf.RaggedTensor,
    lengths: tf.RaggedTensor,
    starts: tf.RaggedTensor,
    seed: tf.Tensor,
    folder: RecordFolder,
    rule: MaskingRule,
) -> dict[str, tf.Tensor]:
    """Masks the sequences one a row, and puts them back into their rows.

    Args:
      tokens: int32 [B, (t)].
      lengths: of the sequences, int32 [B, (k)].
      starts: where they begin, int32 [B, (k)].
      seed: int64 [2].
      folder: gives S and P.
      rule: the masking rule of a sequence.

    Returns:
      input_ids, masked_lm_positions, masked_lm_ids and masked_lm_weights.
    """
    alone = tf.RaggedTensor.from_row_lengths(
        tokens.values, lengths.values, validate=False
    )
    masked = mask_batch(alone.to_tensor(), lengths.values, seed, rule)
    used = masked["masked_lm_weights"] > 0
    counts = tf.reduce_sum(tf.cast(used, tf.int32), axis=1)
    counts = tf.reduce_sum(lengths.with_values(counts), axis=1)
    shape = [None, folder.max_predictions_per_seq]

    def of_rows(values: tf.Tensor) -> tf.Tensor:
        """The used ones of [n, p] in rows [B, P]; their order stays."""
        return tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(values, used), counts, validate=False
        ).to_tensor(shape=shape)

    positions = masked["masked_lm_positions"] + starts.values[:, None]
    ids = tf.RaggedTensor.from_tensor(
        masked["input_ids"], lengths=lengths.values
    )
    return {
        "input_ids": tokens.with_values(ids.values).to_tensor(
            shape=[None, folder.max_seq_length]
        ),
        "masked_lm_positions": of_rows(positions),
        "masked_lm_ids": of_rows(masked["masked_lm_ids"]),
        "masked_lm_weights": of_rows(masked["masked_lm_weights"]),
    }
