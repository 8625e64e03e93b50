"""Training batches in random order, and prediction batches by length.

The order depends only on the seed, so a run can resume at any batch: epoch e
visits the rows in a permutation drawn from (seed, e). Rows that do not fill a
batch at the end of an epoch begin the next one, so each row is seen once per
epoch and none is dropped. Training batches are bucketed by length only where a
task requests it: it hurts the scores of small tasks, but a network that
computes on padding can be several times faster.

With static shapes, batches are padded to the widths of `few_widths`, and all
batches of a width have the same number of rows.
"""

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.rows import (
    Rows,
    batches_by_length,
    few_widths,
    rows_that_fit,
)
from bert_tf.sharding import WHOLE, Shard

# Number of consecutive batches whose rows are sorted by length together.
_POOL = 32


def num_steps(rows: int, batch_size: int, epochs: float) -> int:
    """Returns the steps of a run, as google-research/bert run_classifier.py."""
    return int(rows / batch_size * epochs)


def epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int
) -> np.ndarray:
    """Returns the row indices of one epoch's batches, int64 [batches, B].

    Args:
      count: number of rows.
      batch_size: B.
      seed: determines the order of all epochs.
      epoch: counted from 0.
    """
    first, last = (
        (epoch + k) * count // batch_size * batch_size for k in (0, 1)
    )
    # With fewer rows than a batch holds, an epoch takes several passes.
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
    """Returns an epoch's rows in batches of similar length.

    The rows of each 32 consecutive batches are sorted by length and cut into
    batches, which are shuffled.

    Args:
      batches: int64 [batches, B], the result of `epoch_batches`.
      lengths: int64 [R], tokens of each row.
      seed: determines the order of all epochs.
      epoch: counted from 0.
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


def without_repeats(batches: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns an epoch's rows in batches that hold no value twice.

    A row whose value is in the batch already waits for the next one. Where the
    rows that are left share too many values, rows of earlier batches are
    repeated.

    Args:
      batches: int64 [batches, B], the result of `epoch_batches`.
      values: int64 [R, K], the numbers of K values of each row.

    Raises:
      UserError: there are not enough rows of different values for a batch.
    """
    order, size = batches.ravel(), batches.shape[1]
    found = np.empty_like(batches)
    waiting = order[:0]
    begin = 0
    for batch in found:
        # Most batches need no more candidates.
        window = 2 * size - len(waiting)
        while True:
            candidates = np.append(waiting, order[begin : begin + window])
            chosen = _distinct(candidates, values, size)
            if len(chosen) == size or begin + window >= len(order):
                break
            window *= 2
        begin = min(begin + window, len(order))
        waiting = candidates[~np.isin(candidates, chosen)]
        if len(chosen) < size:
            chosen = _distinct(np.append(chosen, order), values, size)
        if len(chosen) < size:
            raise UserError(
                f"`train_batch_size`={size}: a batch may hold no text twice, "
                f"and only {len(chosen)} rows have different ones; choose a "
                "smaller batch."
            )
        batch[:] = chosen
    return found


def _distinct(rows: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Chooses the first rows that share no value, at most `size`."""
    chosen = rows[:0]
    while len(rows) and len(chosen) < size:
        own = values[rows]
        # The first row of each value; a row may have one twice.
        _, first, inverse = np.unique(
            own, return_index=True, return_inverse=True
        )
        row = np.arange(len(rows))[:, np.newaxis]
        is_first = first[inverse.reshape(own.shape)] // own.shape[1] == row
        accepted = is_first.all(axis=1)
        chosen = np.append(chosen, rows[accepted])
        taken = np.isin(own, own[accepted]).any(axis=1)
        rows = rows[~taken]
    return chosen[:size]


def _orders(
    data: Rows,
    batch_size: int,
    seed: int,
    start: int,
    bucket_by_length: bool,
    values: np.ndarray | None,
) -> Iterator[np.ndarray]:
    """Yields each epoch's batches from batch `start` on, int64 [batches, B]."""
    count, lengths = len(data), np.asarray(data.lengths)
    # The last epoch that begins at or before this batch.
    epoch = ((start + 1) * batch_size - 1) // count
    while epoch * count // batch_size > start:
        epoch -= 1
    start -= epoch * count // batch_size
    while True:
        batches = epoch_batches(count, batch_size, seed, epoch)
        if bucket_by_length:
            batches = bucketed_by_length(batches, lengths, seed, epoch)
        if values is not None:
            batches = without_repeats(batches, values)
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
    values: np.ndarray | None = None,
) -> tf.data.Dataset:
    """Returns an infinite dataset of training batches.

    Batch k is the same wherever the dataset starts.

    Args:
      data: rows with targets.
      batch_size: B, over all workers.
      seed: determines the order.
      start_batch: index of the first batch.
      shard: this worker's part of each batch.
      bucket_by_length: whether to batch rows of similar length; see
        `bucketed_by_length`.
      static_shapes: whether to pad batches to a few widths.
      values: int64 [R, K], values of rows that a batch holds once; see
        `without_repeats`.

    Returns:
      A dataset of the results of `data.batch`.
    """
    part = shard.part(batch_size)
    widths = np.zeros(len(data), np.int32)
    if static_shapes:
        widths = few_widths(np.asarray(data.lengths)).astype(np.int32)

    def epochs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        orders = _orders(
            data, batch_size, seed, start_batch, bucket_by_length, values
        )
        for batches in orders:
            yield batches[:, part], widths[batches].max(axis=1)

    size = part.stop - part.start

    def batch(chosen: tf.Tensor, width: tf.Tensor) -> dict[str, tf.Tensor]:
        # Replicas need a static number of rows.
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
    """Returns all rows in batches of similar length; see `batches_by_length`.

    Args:
      rows: the rows to predict.
      batch_size: over all workers.
      num_devices: devices that share a batch, over all workers.
      shard: this worker's part of each batch.
      static_shapes: whether to pad batches to a few shapes.

    Returns:
      A dataset of the results of `rows.batch`, and the row indices of each
      batch over all workers, int64 [B]. In the dataset, a batch repeats its
      last row to be divisible by the devices or to have a static shape.
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
        # All workers pad to the same length, since outputs are concatenated.
        batch = rows.batch(every[begin:end], width)
        if shard == WHOLE:
            return batch
        own = shard.part(end - begin)
        return {name: values[own] for name, values in batch.items()}

    begins = np.append(0, ends)[:-1]
    dataset = tf.data.Dataset.from_tensor_slices((begins, ends, widths))
    return _dataset(dataset, part), chosen


def _dataset(
    chosen: tf.data.Dataset, batch: Callable[..., dict[str, tf.Tensor]]
) -> tf.data.Dataset:
    """Maps chosen rows to batches, and prefetches them."""
    options = tf.data.Options()
    # Autotuning competes with training for the cores of small machines.
    options.autotune.enabled = False
    batches = chosen.map(tf.autograph.experimental.do_not_convert(batch))
    return batches.prefetch(4).with_options(options)
