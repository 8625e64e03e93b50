"""In which order training records are read, from any row on.

The order is a function of the seed alone: epoch e reads the files in an order
drawn from (seed, e), and shuffles the records of a file, in windows, by (seed,
e, file, window). A stream is an even part of that order, the same part in
every epoch, so that several streams together read every record once an
epoch, however many files there are.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.records.folder import RecordFolder
from bert_tf.sharding import Shard

# Records shuffled together: the whole of a file that create_pretraining_data
# made with its own number of shards.
WINDOW = 16_384

# Rewriting functions for control flow that they do not have takes seconds.
as_written = tf.autograph.experimental.do_not_convert

# Names for the independent uses of one seed.
_FILE_ORDER, _ROW_ORDER, _MASKS = range(3)


class Span(NamedTuple):
    """A range of the shuffled records of one file.

    Attributes:
      epoch: counted from 0.
      file: the file's number in the folder.
      begin, end: places in the file's order of that epoch.
    """

    epoch: int
    file: int
    begin: int
    end: int


def _seed_for(seed: int | tf.Tensor, *uses: int | tf.Tensor) -> tf.Tensor:
    """An independent seed, int64 [2], for each combination of uses."""
    # Other devices have other numbers.
    with tf.device("CPU"):
        result = tf.stack([tf.cast(seed, tf.int64), tf.constant(0, tf.int64)])
        for use in uses:
            result = tf.random.fold_in(result, tf.cast(use, tf.int64))
        return result


def mask_seed(seed: int, *uses: int | tf.Tensor) -> tf.Tensor:
    """The seed of the masks of the batch with these `uses`, int64 [2]."""
    return _seed_for(seed, _MASKS, *uses)


def _shuffled_range(size: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The numbers below `size` in an order drawn from the seed, int32."""
    with tf.device("CPU"):
        noise = tf.random.stateless_uniform(
            [size], seed, minval=None, maxval=None, dtype=tf.int64
        )
    return tf.argsort(noise, stable=True)


def spans(
    folder: RecordFolder, seed: int, stream: Shard, start_row: int
) -> Iterator[Span]:
    """A stream's ranges of files, without end.

    Args:
      folder: the records; at least as many as there are streams.
      seed: decides the order.
      stream: which stream, of how many.
      start_row: the first row, counted through all epochs.
    """
    counts = np.array([file.records for file in folder.training_files])
    part = stream.part(folder.num_records)
    epoch, done = divmod(start_row, part.stop - part.start)
    while True:
        seed_now = _seed_for(seed, _FILE_ORDER, epoch)
        order = _shuffled_range(len(counts), seed_now).numpy()
        ends = np.cumsum(counts[order])
        for file, start, end in zip(
            order, ends - counts[order], ends, strict=True
        ):
            begin = max(start, part.start + done)
            end = min(end, part.stop)
            if begin < end:
                yield Span(epoch, int(file), begin - start, end - start)
        epoch, done = epoch + 1, 0


def shuffled_records(
    folder: RecordFolder, seed: int, stream: Shard, start_row: int
) -> tf.data.Dataset:
    """A stream's serialised records from a row on, without end; see `spans`.

    Returns:
      A data set of strings [any number].
    """
    paths = tf.constant([str(file.path) for file in folder.training_files])

    @as_written
    def windows_of_span(
        epoch: tf.Tensor, file: tf.Tensor, begin: tf.Tensor, end: tf.Tensor
    ) -> tf.data.Dataset:
        first = begin // WINDOW

        @as_written
        def shuffled(window: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
            order = _shuffled_range(
                tf.size(records),
                _seed_for(seed, _ROW_ORDER, epoch, file, window),
            )
            here = tf.maximum(begin - window * WINDOW, 0)
            return tf.gather(records, order[here : end - window * WINDOW])

        records = tf.data.TFRecordDataset(paths[file], buffer_size=1 << 20)
        windows = records.skip(first * WINDOW).batch(WINDOW)
        windows = windows.take((end - 1) // WINDOW - first + 1)
        return windows.enumerate(first).map(shuffled)

    signature = Span(*[tf.TensorSpec([], tf.int64)] * len(Span._fields))
    ranges = tf.data.Dataset.from_generator(
        lambda: spans(folder, seed, stream, start_row),
        output_signature=tuple(signature),
    )
    return ranges.flat_map(windows_of_span).prefetch(1)
