"""The order in which training records are read, from any row on.

The order is a function of the seed: epoch e reads the files in an order drawn
from (seed, e), and shuffles the records of a file within windows by (seed, e,
file, window). A stream is an equal part of that order, the same part in every
epoch, so all streams together read every record once per epoch, whatever the
number of files.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.records.folder import RecordFolder
from bert_tf.sharding import Shard

# Number of records shuffled together: with the default number of shards, a
# whole file of create_pretraining_data.
WINDOW = 16_384

# AutoGraph takes seconds, and these functions have no control flow.
as_written = tf.autograph.experimental.do_not_convert

# Independent uses of one seed.
_FILE_ORDER, _ROW_ORDER, _MASKS = range(3)


class Span(NamedTuple):
    """A range of the shuffled records of one file.

    Attributes:
      epoch: counted from 0.
      file: index of the file in the folder.
      begin, end: positions in the file's order of that epoch.
    """

    epoch: int
    file: int
    begin: int
    end: int


def _seed_for(seed: int | tf.Tensor, *uses: int | tf.Tensor) -> tf.Tensor:
    """Derives an independent seed for each tuple of uses, int64 [2]."""
    # Other devices draw different numbers.
    with tf.device("CPU"):
        result = tf.stack([tf.cast(seed, tf.int64), tf.constant(0, tf.int64)])
        for use in uses:
            result = tf.random.fold_in(result, tf.cast(use, tf.int64))
        return result


def mask_seed(seed: int, *uses: int | tf.Tensor) -> tf.Tensor:
    """Derives the seed of the masks of a batch, int64 [2]."""
    return _seed_for(seed, _MASKS, *uses)


def _shuffled_range(size: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns the integers below `size` in a random order, int32."""
    with tf.device("CPU"):
        noise = tf.random.stateless_uniform(
            [size], seed, minval=None, maxval=None, dtype=tf.int64
        )
    return tf.argsort(noise, stable=True)


def spans(
    folder: RecordFolder, seed: int, stream: Shard, start_row: int
) -> Iterator[Span]:
    """Yields the ranges of files that a stream reads, infinitely.

    Args:
      folder: the records, at least as many as there are streams.
      seed: determines the order.
      stream: index and number of streams.
      start_row: the first row, counted over all epochs.
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
    """Returns the serialised records of a stream, infinitely; see `spans`.

    Returns:
      A dataset of batches of any size, string [B].
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
            first_row = tf.maximum(begin - window * WINDOW, 0)
            return tf.gather(records, order[first_row : end - window * WINDOW])

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
