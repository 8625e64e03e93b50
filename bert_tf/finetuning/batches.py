"""Batches for training, in random order, and for prediction, by length.

The order is a function of the seed alone, so that a run can begin at any
batch. Epoch e visits the examples in an order drawn from (seed, e). What an
epoch leaves over beyond whole batches goes first into the next one, so that
every example is seen once an epoch and none is dropped. Training batches are
not made of rows of like length, since small tasks score worse by it, but where
a task asks for that: a network that computes padding too may be several times
as fast with them.

Where shapes have to be static, batches have the widths of `few_widths`, and
those of one width have as many rows.
"""

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from bert_tf.families.rows import (
    Rows,
    batches_by_length,
    few_widths,
    rows_that_fit,
)
from bert_tf.sharding import WHOLE, Shard

# Batches whose rows are sorted by length together, where a task asks for it.
_POOL = 32


def num_steps(rows: int, batch_size: int, epochs: float) -> int:
    """Steps of a training, as in google-research/bert, run_classifier.py."""
    return int(rows / batch_size * epochs)


def epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int
) -> np.ndarray:
    """The batches of one epoch, in order.

    Args:
      count: R, how many rows there are.
      batch_size: B.
      seed: decides all orders.
      epoch: counted from 0.

    Returns:
      int64 [batches, B], rows by number.
    """
    first, last = (
        (epoch + k) * count // batch_size * batch_size for k in (0, 1)
    )
    # With fewer rows than a batch holds, it takes several passes over them.
    passes = range(first // count, -(-last // count))
    rows = [np.zeros(0, np.int64)]
    for number in passes:
        generator = np.random.Generator(np.random.PCG64((seed, number)))
        rows.append(generator.permutation(count))
    offset = passes.start * count
    chosen = np.concatenate(rows)[first - offset : last - offset]
    return chosen.reshape(-1, batch_size)


def bucketed_by_length(
    batches: np.ndarray, lengths: np.ndarray, seed: int, epoch: int
) -> np.ndarray:
    """The same rows in batches of similar length, in a newly drawn order.

    Args:
      batches: int64 [batches, B], those of an epoch.
      lengths: int64 [R], tokens of each row.
      seed: decides all orders.
      epoch: counted from 0.

    Returns:
      int64 [batches, B]: of each 32 batches after one another, the rows sorted
      by length, cut into batches, and these in random order.
    """
    generator = np.random.Generator(np.random.PCG64((seed, epoch, 1)))
    found = np.empty_like(batches)
    for begin in range(0, len(batches), _POOL):
        pool = batches[begin : begin + _POOL]
        rows = pool.ravel()
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        order = generator.permutation(len(pool))
        found[begin : begin + _POOL] = rows.reshape(pool.shape)[order]
    return found


def _orders(
    data: Rows, batch_size: int, seed: int, start: int, bucket_by_length: bool
) -> Iterator[np.ndarray]:
    """Row numbers of endless batches from `start` on, int64 [batches, B]."""
    count, lengths = len(data), np.asarray(data.lengths)
    # The last epoch that begins at this batch or before it.
    epoch = ((start + 1) * batch_size - 1) // count
    while epoch * count // batch_size > start:
        epoch -= 1
    start -= epoch * count // batch_size
    while True:
        batches = epoch_batches(count, batch_size, seed, epoch)
        if bucket_by_length:
            batches = bucketed_by_length(batches, lengths, seed, epoch)
        yield batches[start:]
        epoch, start = epoch + 1, 0


def training_batches(
    data: Rows,
    batch_size: int,
    seed: int,
    start_batch: int = 0,
    shard: Shard = WHOLE,
    bucket_by_length: bool = False,
    static_shapes: bool = False,
) -> tf.data.Dataset:
    """Endless training batches; batch k is the same wherever one starts.

    Args:
      data: rows with answers.
      batch_size: B, over all workers.
      seed: decides the order.
      start_batch: the number of the first batch, counted from 0.
      shard: which of the workers this is; it gets its part of each batch.
      bucket_by_length: whether batches are of rows of similar length; see
        `bucketed_by_length`.
      static_shapes: whether batches have one of a few widths.

    Returns:
      A data set of what `data.batch` returns.
    """
    part = shard.part(batch_size)
    widths = np.zeros(len(data), np.int32)
    if static_shapes:
        widths = few_widths(np.asarray(data.lengths)).astype(np.int32)

    def epochs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        orders = _orders(data, batch_size, seed, start_batch, bucket_by_length)
        for batches in orders:
            yield batches[:, part], widths[batches].max(axis=1)

    size = part.stop - part.start

    def batch(chosen: tf.Tensor, width: tf.Tensor) -> dict[str, tf.Tensor]:
        # Replicas have to know how many rows they get.
        return {
            name: tf.ensure_shape(values, [size, *values.shape[1:]])
            for name, values in data.batch(chosen, width).items()
        }

    chosen = tf.data.Dataset.from_generator(
        epochs,
        output_signature=(
            tf.TensorSpec([None, size], tf.int64),
            tf.TensorSpec([None], tf.int32),
        ),
    ).unbatch()
    return _dataset(chosen, batch)


def prediction_batches(
    rows: Rows,
    batch_size: int,
    num_devices: int = 1,
    shard: Shard = WHOLE,
    static_shapes: bool = False,
) -> tuple[tf.data.Dataset, list[np.ndarray]]:
    """Every row once, in batches of like length; see `batches_by_length`.

    Args:
      rows: what to predict.
      batch_size: the size of a batch, over all workers.
      num_devices: how many devices share a batch, over all workers.
      shard: which of the workers this is; it gets its part of each batch.
      static_shapes: whether batches have one of a few shapes.

    Returns:
      A data set of what `rows.batch` returns, and for each batch the rows of
      all workers, int64 [B]. Behind those, the last batch repeats its last
      row for devices that would have none, or to have its shape.
    """
    lengths = np.asarray(rows.lengths)
    if static_shapes:
        lengths = few_widths(lengths)
    chosen = list(batches_by_length(lengths, batch_size, num_devices))

    widths, filled = np.zeros(len(chosen), np.int32), chosen
    if static_shapes:
        widths = np.array([lengths[own[0]] for own in chosen], np.int32)
    if static_shapes or num_devices > 1:
        filled = []
        for own, width in zip(chosen, widths.tolist(), strict=True):
            full = num_devices
            if static_shapes:
                full = rows_that_fit(width, batch_size, num_devices)
            filled.append(np.pad(own, (0, -len(own) % full), "edge"))
    every = tf.constant(np.concatenate([*filled, np.zeros(0, np.int64)]))
    ends = np.cumsum([len(own) for own in filled], dtype=np.int64)

    def part(
        begin: tf.Tensor, end: tf.Tensor, width: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        # As long as those of the other workers, since outputs are joined.
        batch = rows.batch(every[begin:end], width)
        if shard == WHOLE:
            return batch
        own = shard.part(end - begin)
        return {name: values[own] for name, values in batch.items()}

    begins = np.append(0, ends)[:-1]
    dataset = tf.data.Dataset.from_tensor_slices((begins, ends, widths))
    return _dataset(dataset, part), chosen


def _dataset(
    chosen: tf.data.Dataset,
    batch: Callable[..., dict[str, tf.Tensor]],
) -> tf.data.Dataset:
    """The batches of chosen rows, of which some are made in advance."""
    options = tf.data.Options()
    # Its own tuning competes with training for a small machine's processors.
    options.autotune.enabled = False
    made = chosen.map(tf.autograph.experimental.do_not_convert(batch))
    return made.prefetch(4).with_options(options)
