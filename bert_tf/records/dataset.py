"""Batches of pre-training records, read by tf.data.

The order of training records is a function of the seed (`reading_order.py`), so
reading can begin at any batch. Batches may span two epochs. Records without
masks get masks drawn from (seed, batch number, stream), new ones in each epoch.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.features import PRETRAINING_FEATURES
from bert_tf.records.dynamic_masking import (
    MaskingNoise,
    draw_noise,
    mask_packed_rows,
    mask_rows,
)
from bert_tf.records.folder import RecordFolder
from bert_tf.records.masking import MaskingRule
from bert_tf.records.reading_order import (
    as_written,
    mask_seed,
    shuffled_records,
)
from bert_tf.records.record_file import read_records
from bert_tf.sharding import WHOLE, Shard

__all__ = [
    "RecordFolder",
    "held_out_batches",
    "reading_errors",
    "training_batches",
]

# Number of parallel calls that parse and mask records.
_PARALLEL_CALLS = 4

# Batches are made several at a time, of about this many rows: the overhead of
# an operation on a small batch exceeds its arithmetic.
_ROWS_AT_ONCE = 1024

# Held-out masks are drawn for this many records at a time for every batch size,
# so that all evaluations of the same records are comparable.
_HELD_OUT_ROWS = 64
_HELD_OUT_SEED = 20_181_011
_LABELS = "next_sentence_labels"

Rows = dict[str, tf.Tensor]


def _parse_static(records: tf.Tensor, folder: RecordFolder) -> Rows:
    """Parses records with masks."""
    sizes = {
        "BS": [folder.max_seq_length],
        "BP": [folder.max_predictions_per_seq],
        "B": [],
    }
    rows = tf.io.parse_example(
        records,
        {
            feature.name: tf.io.FixedLenFeature(
                sizes[feature.axes],
                tf.float32 if feature.dtype == "float32" else tf.int64,
            )
            for feature in PRETRAINING_FEATURES
        },
    )
    return {
        feature.name: tf.cast(rows[feature.name], feature.dtype)
        for feature in PRETRAINING_FEATURES
    }


def _parse_plain(records: tf.Tensor, folder: RecordFolder) -> Rows:
    """Parses records of one sequence, without masks."""
    ragged = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int32)
    parsed = tf.io.parse_example(
        records,
        {
            "input_ids": ragged,
            "segment_ids": ragged,
            "next_sentence_labels": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    parsed = {name: tf.cast(v, tf.int32) for name, v in parsed.items()}
    tokens, width = parsed["input_ids"], folder.max_seq_length
    pad_id = folder.vocabulary.packing.pad_id
    return {
        "input_ids": tokens.to_tensor(pad_id, shape=[None, width]),
        "input_mask": tf.sequence_mask(tokens.row_lengths(), width, tf.int32),
        "segment_ids": parsed["segment_ids"].to_tensor(shape=[None, width]),
        "next_sentence_labels": parsed["next_sentence_labels"],
    }


def parse_packed(records: tf.Tensor, folder: RecordFolder) -> Rows:
    """Parses packed records, string [B].

    Returns:
      `bert_tf.features.PACKED_PRETRAINING_FEATURES` without the masks.
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

    def in_rows(values: tf.Tensor, padding: int = 0) -> tf.Tensor:
        """Converts values of all tokens to padded rows, [B, S]."""
        return tokens.with_values(values).to_tensor(
            padding, shape=[None, width]
        )

    def of_sequences(values: tf.RaggedTensor, unused: int = 0) -> tf.Tensor:
        """Pads values of the sequences of each row, [B, K]."""
        return values.to_tensor(default_value=unused, shape=[None, most])

    numbers = tf.ragged.range(1, lengths.row_lengths() + 1).values
    position_ids = tf.ragged.range(lengths.values).values
    starts = tf.cumsum(of_sequences(lengths), axis=1, exclusive=True)
    used = of_sequences(lengths) > 0
    return {
        "input_ids": in_rows(tokens.values, folder.vocabulary.packing.pad_id),
        "input_mask": in_rows(tf.ones_like(tokens.values)),
        "segment_ids": in_rows(parsed["segment_ids"].values),
        "position_ids": in_rows(position_ids),
        "sequence_ids": in_rows(tf.repeat(numbers, lengths.values)),
        "cls_positions": tf.where(used, starts, 0),
        "next_sentence_labels": of_sequences(
            parsed["next_sentence_labels"], unused=-1
        ),
    }


def _next_tokens(rows: Rows) -> Rows:
    """Returns the labels of left-to-right language modelling.

    They are masked_lm_positions, masked_lm_ids and masked_lm_weights,
    [B, S - 1]; the p-th is for position p, or padding.
    """
    sequences = rows.get("sequence_ids", rows["input_mask"])
    used = (sequences[:, 1:] > 0) & (sequences[:, 1:] == sequences[:, :-1])
    return {
        "masked_lm_positions": tf.where(used, tf.range(tf.shape(used)[1]), 0),
        "masked_lm_ids": tf.where(used, rows["input_ids"][:, 1:], 0),
        "masked_lm_weights": tf.cast(used, tf.float32),
    }


# Traced once for all datasets of a folder.
@functools.lru_cache(maxsize=8)
def _row_function(
    folder: RecordFolder, batches: int
) -> Callable[[tf.Tensor, tf.Tensor], Rows]:
    """Returns the function from records to rows of several batches.

    Its arguments are serialised records, the same number for each batch, and
    the seed of the masks of each batch, int64 [batches, 2].
    """

    def to_rows(records: tf.Tensor, seeds: tf.Tensor) -> Rows:
        if folder.static:
            return _parse_static(records, folder)
        parse = _parse_plain if folder.packing is None else parse_packed
        rows = parse(records, folder)
        if folder.next_tokens:
            return rows | _next_tokens(rows)
        assert folder.recipe is not None
        rule = MaskingRule.from_recipe(folder.recipe, folder.vocabulary)
        size, width = tf.size(records) // batches, folder.max_seq_length
        predictions = folder.max_predictions_per_seq
        row_rule = dataclasses.replace(
            rule, max_predictions_per_seq=predictions
        )
        noise = tf.map_fn(
            lambda seed: draw_noise(size, width, seed, row_rule),
            seeds,
            fn_output_signature=MaskingNoise(
                tf.TensorSpec([None, width], tf.float32),
                tf.TensorSpec([None, width], tf.float32),
                tf.TensorSpec([None, predictions], tf.float32),
                tf.TensorSpec([None, predictions], tf.int32),
            ),
        )
        noise = MaskingNoise(*(tf.reshape(x, [-1, x.shape[-1]]) for x in noise))
        if folder.packing is not None:
            return mask_packed_rows(rows, noise, rule)
        lengths = tf.reduce_sum(rows["input_mask"], axis=1)
        return rows | mask_rows(rows["input_ids"], lengths, noise, rule)

    return tf.function(
        to_rows,
        input_signature=[
            tf.TensorSpec([None], tf.string),
            tf.TensorSpec([batches, 2], tf.int64),
        ],
        autograph=False,
    )


def _with_static_shapes(
    batch: Rows, folder: RecordFolder, rows: int | None
) -> Rows:
    sizes = {
        "B": rows,
        "S": folder.max_seq_length,
        "P": folder.max_predictions_per_seq,
        "K": folder.packing and folder.packing.most_sequences,
    }
    return {
        feature.name: tf.ensure_shape(
            batch[feature.name], [sizes[axis] for axis in feature.axes]
        )
        for feature in folder.features
    }


def _finished(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Prefetches batches, and sets the cardinality of the dataset.

    Autotuning is disabled: it competes with the training step for the
    processors of a small machine, and can delay the end of a run for most of a
    minute (TensorFlow 2.21).
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = batches.prefetch(2 * _PARALLEL_CALLS).with_options(options)
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def training_batches(
    folder: RecordFolder,
    batch_size: int,
    seed: int,
    start_batch: int = 0,
    streams: int = 1,
    shard: Shard = WHOLE,
) -> tf.data.Dataset:
    """Returns infinite training batches; batch k is the same from any start.

    Args:
      folder: the records.
      batch_size: B, over all workers.
      seed: determines the order of the records and the masks.
      start_batch: the number of the first batch, counted from 0.
      streams: equal parts of an epoch that are read in parallel; each
        contributes the same number of rows to every batch.
      shard: index and number of workers; a worker reads only its own streams.

    Returns:
      A dataset of dicts with the names, axes and dtypes of
      `bert_tf.features.PRETRAINING_FEATURES`, or
      `PACKED_PRETRAINING_FEATURES` if packed, with static shapes; B is the
      worker's part. The batches of all workers, concatenated, are the batches
      of a single worker.

    Raises:
      UserError: there are fewer training records than streams, the batch size
        is not a multiple of the streams, or these are not one of the workers.
    """
    check_streams(folder, batch_size, streams, shard)
    size = batch_size // streams
    together = max(_ROWS_AT_ONCE // size, 1)
    to_rows = _row_function(folder, together)
    own = range(streams)[shard.part(streams)]
    calls = max(_PARALLEL_CALLS // len(own), 1)

    def batches_of(stream: int) -> tf.data.Dataset:
        @as_written
        def masked(number: tf.Tensor, records: tf.Tensor) -> Rows:
            first = start_batch + number * together
            seeds = tf.map_fn(
                lambda batch: mask_seed(seed, batch, stream),
                first + tf.range(together, dtype=tf.int64),
                fn_output_signature=tf.TensorSpec([2], tf.int64),
            )
            rows = to_rows(records, seeds)
            return _with_static_shapes(rows, folder, size * together)

        records = shuffled_records(
            folder, seed, Shard(stream, streams), start_batch * size
        )
        records = records.rebatch(size * together, drop_remainder=True)
        rows = records.enumerate().map(
            masked, num_parallel_calls=calls, deterministic=True
        )
        return rows.rebatch(size, drop_remainder=True)

    @as_written
    def join(*parts: Rows) -> Rows:
        return tf.nest.map_structure(
            lambda *values: tf.concat(values, axis=0), *parts
        )

    parts = [batches_of(stream) for stream in own]
    batches = parts[0]
    if len(parts) > 1:
        batches = tf.data.Dataset.zip(tuple(parts)).map(join)
    return _finished(batches, tf.data.INFINITE_CARDINALITY)


def check_streams(
    folder: RecordFolder, batch_size: int, streams: int, shard: Shard
) -> None:
    """Raises the `UserError` of `training_batches`."""
    if streams % shard.count:
        raise UserError(
            f"data_streams={streams}: is not a multiple of the {shard.count} "
            "workers, which read equal numbers of streams."
        )
    if batch_size % streams:
        raise UserError(
            f"a batch of {batch_size} sequences is not a multiple of "
            f"data_streams={streams}, which give equal parts."
        )
    if folder.num_records < streams:
        raise UserError(
            f"{folder.path}: holds no training records."
            if streams == 1
            else f"{folder.path}: holds {folder.num_records} training "
            f"records, fewer than data_streams={streams}."
        )


def held_out_batches(
    folder: RecordFolder, batch_size: int, shard: Shard = WHOLE
) -> tf.data.Dataset:
    """Returns all held-out records once, in order, with fixed masks.

    Args:
      folder: the records.
      batch_size: B, over all workers.
      shard: index and number of workers; each gets its part of every batch.

    Returns:
      A dataset like that of `training_batches`. The last batch is padded with
      rows whose masked_lm_weights are 0 and next_sentence_labels -1.
    """
    to_rows = _row_function(folder, batches=1)
    part = shard.part(batch_size)

    @as_written
    def to_batch(number: tf.Tensor, records: tf.Tensor) -> Rows:
        seed = mask_seed(_HELD_OUT_SEED, number)
        return _with_static_shapes(to_rows(records, seed[None]), folder, None)

    @as_written
    def own_rows(batch: Rows) -> Rows:
        missing = batch_size - tf.shape(batch[_LABELS])[0]
        full = {
            name: tf.pad(
                value,
                [[0, missing]] + [[0, 0]] * (value.shape.rank - 1),
                constant_values=-1 if name == _LABELS else 0,
            )
            for name, value in batch.items()
        }
        own = {name: value[part] for name, value in full.items()}
        return _with_static_shapes(own, folder, part.stop - part.start)

    paths = [str(file.path) for file in folder.held_out_files]
    records = tf.data.TFRecordDataset(tf.constant(paths, tf.string))
    batches = records.batch(_HELD_OUT_ROWS).enumerate()
    batches = batches.map(
        to_batch, num_parallel_calls=_PARALLEL_CALLS, deterministic=True
    )
    return _finished(
        batches.rebatch(batch_size).map(own_rows),
        -(-folder.num_held_out // batch_size),
    )


@contextlib.contextmanager
def reading_errors(*folders: RecordFolder) -> Iterator[None]:
    """Converts errors of damaged record files while iterating to UserErrors.

    Args:
      *folders: the folders being read, searched for the damaged record.
    """
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        for folder in folders:
            for file in folder.training_files + folder.held_out_files:
                file.check()
                for _ in read_records(file.path):
                    pass
        reason = (error.message or str(error)).splitlines()[0]
        raise UserError(
            f"a record file is damaged or was changed while it was read "
            f"({reason}); make the records again, by "
            "bert-tf create-pretraining-data --overwrite."
        ) from error
