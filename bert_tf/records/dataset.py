"""Batches of pre-training records, read by tf.data.

The order of training records is a function of the seed alone, so a run can
begin at any batch: epoch e visits the files in an order drawn from (seed, e),
and shuffles the records of a file, in windows, by (seed, e, file, window).
Batches run over the ends of epochs. Masks of records without them are drawn
from (seed, number of the batch), so every epoch has new ones.
"""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.features import PRETRAINING_FEATURES
from bert_tf.records.dynamic_masking import mask_batch
from bert_tf.records.folder import RecordFolder
from bert_tf.records.masking import MaskingRule
from bert_tf.records.record_file import RecordFile, read_records

__all__ = [
    "RecordFolder",
    "held_out_batches",
    "reading_errors",
    "training_batches",
]

# Records shuffled together: the whole of a file that create_pretraining_data
# made with its own number of shards.
_WINDOW = 16_384

# Batches parsed and masked at a time; one makes about 40,000 sequences/s.
_PARALLEL_CALLS = 4

# Held-out masks are drawn for this many records at a time, whatever the batch
# size, so that all evaluations of the same records are comparable.
_HELD_OUT_ROWS = 64
_HELD_OUT_SEED = 20_181_011

# Names for the independent uses of one seed.
_FILE_ORDER, _ROW_ORDER, _MASKS = range(3)


def _seed_for(seed: int | tf.Tensor, *uses: int | tf.Tensor) -> tf.Tensor:
    """An independent seed, int64 [2], for each combination of uses."""
    result = tf.stack([tf.cast(seed, tf.int64), tf.constant(0, tf.int64)])
    for use in uses:
        result = tf.random.fold_in(result, tf.cast(use, tf.int64), alg="philox")
    return result


def _shuffled_range(size: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The numbers below `size` in an order drawn from the seed, int32."""
    noise = tf.random.stateless_uniform(
        [size], seed, minval=None, maxval=None, dtype=tf.int64, alg="philox"
    )
    return tf.argsort(noise, stable=True)


def _file_order(num_files: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    return _shuffled_range(num_files, _seed_for(seed, _FILE_ORDER, epoch))


def _start_of_row(folder: RecordFolder, seed: int, row: int) -> tuple[int, int]:
    """The file visit that holds a row, and the rows of it to skip.

    Args:
      folder: the records.
      seed: the seed of the order.
      row: counted through all epochs.
    """
    epoch, left = divmod(row, folder.num_records)
    num_files = len(folder.training_files)
    order = _file_order(num_files, seed, epoch).numpy()
    counts = np.array([f.records for f in folder.training_files])[order]
    visit = int(np.searchsorted(np.cumsum(counts), left, side="right"))
    return epoch * num_files + visit, left - int(counts[:visit].sum())


def _serialized_batches(
    folder: RecordFolder, batch_size: int, seed: int, start_batch: int
) -> tf.data.Dataset:
    """Endless batches of serialised records from a batch on."""
    paths = tf.constant([str(file.path) for file in folder.training_files])
    num_files = len(folder.training_files)
    first_visit, first_skip = _start_of_row(
        folder, seed, start_batch * batch_size
    )

    def windows_of_visit(visit: tf.Tensor) -> tf.data.Dataset:
        epoch = visit // num_files
        file = _file_order(num_files, seed, epoch)[visit % num_files]
        skip = tf.where(visit == first_visit, first_skip, 0)
        skip = tf.cast(skip, tf.int64)
        first_window = skip // _WINDOW

        def shuffled(window: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
            order = _shuffled_range(
                tf.size(records),
                _seed_for(seed, _ROW_ORDER, epoch, file, window),
            )
            done = tf.where(window == first_window, skip % _WINDOW, 0)
            return tf.gather(records, order[done:])

        records = tf.data.TFRecordDataset(paths[file], buffer_size=1 << 20)
        windows = records.skip(first_window * _WINDOW).batch(_WINDOW)
        return windows.enumerate(first_window).map(shuffled)

    visits = tf.data.Dataset.counter(first_visit, dtype=tf.int64)
    windows = visits.flat_map(windows_of_visit).prefetch(1)
    return windows.rebatch(batch_size, drop_remainder=True)


def _parser(
    folder: RecordFolder, rule: MaskingRule | None
) -> Callable[[tf.Tensor, tf.Tensor | None], dict[str, tf.Tensor]]:
    """Makes the function from serialised records and a seed to a batch."""
    length = folder.max_seq_length
    predictions = folder.max_predictions_per_seq

    def parse_static(
        records: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        del seed
        sizes = {"BS": [length], "BP": [predictions], "B": []}
        batch = tf.io.parse_example(
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
            feature.name: tf.cast(batch[feature.name], feature.dtype)
            for feature in PRETRAINING_FEATURES
        }

    def parse_and_mask(
        records: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        ragged = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int32)
        parsed = tf.io.parse_example(
            records,
            {
                "input_ids": ragged,
                "segment_ids": ragged,
                "next_sentence_labels": tf.io.FixedLenFeature([], tf.int64),
            },
        )
        lengths = parsed["input_ids"].row_lengths()
        shape = [None, length]
        input_ids = parsed["input_ids"].to_tensor(shape=shape)
        segment_ids = parsed["segment_ids"].to_tensor(shape=shape)
        label = parsed["next_sentence_labels"]
        return {
            "input_mask": tf.sequence_mask(lengths, length, tf.int32),
            "segment_ids": tf.cast(segment_ids, tf.int32),
            "next_sentence_labels": tf.cast(label, tf.int32),
            **mask_batch(tf.cast(input_ids, tf.int32), lengths, seed, rule),
        }

    return parse_static if rule is None else parse_and_mask


def _masking_rule(folder: RecordFolder) -> MaskingRule | None:
    if folder.static:
        return None
    return MaskingRule.from_recipe(folder.recipe, folder.vocabulary)


def _with_static_shapes(
    batch: dict[str, tf.Tensor], folder: RecordFolder, rows: int | None
) -> dict[str, tf.Tensor]:
    sizes = {
        "B": rows,
        "S": folder.max_seq_length,
        "P": folder.max_predictions_per_seq,
    }
    return {
        feature.name: tf.ensure_shape(
            batch[feature.name], [sizes[axis] for axis in feature.axes]
        )
        for feature in PRETRAINING_FEATURES
    }


def _finished(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Prefetches, and tells tf.data how many batches there are.

    Parallelism is fixed: tf.data's own tuning competes with the training
    step for the processors of a small machine, and can hold up the end of a
    run for most of a minute (TensorFlow 2.21).
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = batches.prefetch(2 * _PARALLEL_CALLS).with_options(options)
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def training_batches(
    folder: RecordFolder, batch_size: int, seed: int, start_batch: int = 0
) -> tf.data.Dataset:
    """Endless training batches; batch k is the same wherever one starts.

    Args:
      folder: the records.
      batch_size: B.
      seed: decides the order of the records and the masks.
      start_batch: the number of the first batch wanted, counted from 0.

    Returns:
      A data set of dicts: the names, axes and dtypes of
      `bert_tf.features.PRETRAINING_FEATURES`, with static shapes.

    Raises:
      UserError: the folder holds no training records.
    """
    if not folder.num_records:
        raise UserError(f"{folder.path}: holds no training records.")
    parse = _parser(folder, _masking_rule(folder))

    def to_batch(number: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parse(records, _seed_for(seed, _MASKS, number))
        return _with_static_shapes(batch, folder, batch_size)

    batches = _serialized_batches(folder, batch_size, seed, start_batch)
    batches = batches.enumerate(start_batch)
    batches = batches.map(
        to_batch, num_parallel_calls=_PARALLEL_CALLS, deterministic=True
    )
    return _finished(batches, tf.data.INFINITE_CARDINALITY)


def held_out_batches(folder: RecordFolder, batch_size: int) -> tf.data.Dataset:
    """Every held-out record once, in order, always with the same masks.

    Args:
      folder: the records.
      batch_size: B; the last batch may be smaller.

    Returns:
      A data set of dicts as `training_batches` gives; B is not static.
    """
    parse = _parser(folder, _masking_rule(folder))

    def to_batch(number: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = parse(records, _seed_for(_HELD_OUT_SEED, _MASKS, number))
        return _with_static_shapes(batch, folder, None)

    paths = [str(file.path) for file in folder.held_out_files]
    records = tf.data.TFRecordDataset(tf.constant(paths, tf.string))
    batches = records.batch(_HELD_OUT_ROWS).enumerate()
    batches = batches.map(
        to_batch, num_parallel_calls=_PARALLEL_CALLS, deterministic=True
    )
    return _finished(
        batches.rebatch(batch_size), -(-folder.num_held_out // batch_size)
    )


def _find_damage(file: RecordFile) -> None:
    """Reads a file with its checksums; raises UserError where it is bad."""
    file.check()
    for _ in read_records(file.path):
        pass


@contextlib.contextmanager
def reading_errors(*folders: RecordFolder) -> Iterator[None]:
    """Turns a damaged record file, met while iterating, into a UserError.

    Args:
      *folders: what is being read; searched to name the file and the record.

    Raises:
      UserError: a record could not be read.
    """
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        for folder in folders:
            for file in folder.training_files + folder.held_out_files:
                _find_damage(file)
        reason = (error.message or str(error)).splitlines()[0]
        raise UserError(
            f"a record file is damaged or was changed while it was read "
            f"({reason}); make the records again with --overwrite."
        ) from error
