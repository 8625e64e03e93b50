"""Batches of rows of like length, so that little is padded.

The order is a function of the seed alone, so that a run can begin at any
batch. Epoch e visits the examples in an order drawn from (seed, e). What an
epoch leaves over beyond whole batches goes first into the next one, so that
every example is seen once an epoch and none is dropped. The rows of a stretch
of batches are sorted by length before they are cut into batches, and the
batches of an epoch are shuffled.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert_tf.features import ENCODER_INPUTS
from bert_tf.text.rows import EncodedRows, padded_inputs

EXAMPLE_WEIGHTS = "example_weights"
# Batches whose rows are sorted together. More of them pad less; with all of an
# epoch in one, rows of a length would always meet the same others.
_SORTED_BATCHES = 100
# Names for the independent uses of one seed.
_EXAMPLE_ORDER, _BATCH_ORDER = range(2)


@dataclasses.dataclass(frozen=True)
class LabelledRows:
    """Rows and the answers to them.

    Attributes:
      rows: the token ids.
      label_name: name of the answers in a batch.
      labels: [N] or [N, C], an answer for each example.
    """

    rows: EncodedRows
    label_name: str
    labels: np.ndarray


def num_steps(rows: int, batch_size: int, epochs: float) -> int:
    """Steps of a training, as in google-research/bert, run_classifier.py."""
    return int(rows / batch_size * epochs)


def epoch_batches(
    lengths: np.ndarray, batch_size: int, seed: int, epoch: int
) -> np.ndarray:
    """The batches of one epoch, in order.

    Args:
      lengths: int64 [R], tokens of each row.
      batch_size: B.
      seed: decides all orders.
      epoch: counted from 0.

    Returns:
      int64 [batches, B], rows by number.
    """
    count = len(lengths)
    first, last = (
        (epoch + k) * count // batch_size * batch_size for k in (0, 1)
    )
    # With fewer rows than a batch holds, it takes several passes over them.
    passes = range(first // count, -(-last // count))
    visits = np.concatenate(
        [np.zeros(0, np.int64)]
        + [
            _random(seed, _EXAMPLE_ORDER, number).permutation(count)
            for number in passes
        ]
    )
    offset = passes.start * count
    visits = visits[first - offset : last - offset]
    stretch = _SORTED_BATCHES * batch_size
    parts = [
        part[np.argsort(lengths[part], kind="stable")]
        for part in np.split(visits, range(stretch, len(visits), stretch))
    ]
    batches = np.concatenate(parts).reshape(-1, batch_size)
    return _random(seed, _BATCH_ORDER, epoch).permutation(batches)


def _random(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _orders(
    lengths: np.ndarray, batch_size: int, seed: int, start: int
) -> Iterator[np.ndarray]:
    """Endless batches of row numbers, int64 [B], from batch `start` on."""
    count = len(lengths)
    # The last epoch that begins at this batch or before it.
    epoch = ((start + 1) * batch_size - 1) // count
    while epoch * count // batch_size > start:
        epoch -= 1
    start -= epoch * count // batch_size
    while True:
        yield from epoch_batches(lengths, batch_size, seed, epoch)[start:]
        epoch, start = epoch + 1, 0


def padding_share(rows: EncodedRows, batch_size: int, seed: int) -> float:
    """How much of an epoch's batches is padding, from 0 to 1."""
    batches = epoch_batches(rows.lengths, batch_size, seed, 0)
    lengths = rows.lengths[batches]
    return float(1 - lengths.sum() / (lengths.max(axis=1).sum() * batch_size))


def padded(rows: EncodedRows, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """A batch of some rows, padded to the longest of them.

    Args:
      rows: all rows.
      chosen: int64 [B], rows by number.

    Returns:
      The encoder's inputs, int32 [B, S], and example_weights, float32 [B].
    """
    return {
        **padded_inputs(rows, chosen),
        EXAMPLE_WEIGHTS: rows.weights[chosen],
    }


def training_batches(
    data: LabelledRows,
    batch_size: int,
    seed: int,
    start_batch: int = 0,
) -> tf.data.Dataset:
    """Endless training batches; batch k is the same wherever one starts.

    Args:
      data: what to train on.
      batch_size: B.
      seed: decides the order.
      start_batch: the number of the first batch wanted, counted from 0.

    Returns:
      A data set of dicts: the encoder's inputs int32 [B, S], example_weights
      float32 [B] and the labels.
    """

    def batches() -> Iterator[dict[str, np.ndarray]]:
        lengths = data.rows.lengths
        for chosen in _orders(lengths, batch_size, seed, start_batch):
            batch = padded(data.rows, chosen)
            batch[data.label_name] = data.labels[data.rows.example[chosen]]
            yield batch

    shape = [batch_size, *data.labels.shape[1:]]
    specification = _specification(batch_size)
    specification[data.label_name] = tf.TensorSpec(shape, data.labels.dtype)
    return _dataset(batches, specification)


def prediction_batches(
    rows: EncodedRows, batch_size: int
) -> tuple[tf.data.Dataset, np.ndarray]:
    """Every row once, the shortest first, in batches that are all full.

    Args:
      rows: what to predict.
      batch_size: B.

    Returns:
      A data set of the encoder's inputs, int32 [B, S], and the rows that its
      batches hold, int64, end to end. Behind those, the last batch repeats
      the longest row.
    """
    order = np.argsort(rows.lengths, kind="stable")
    missing = -len(order) % batch_size
    filled = np.concatenate([order, np.repeat(order[-1:], missing)])

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for chosen in filled.reshape(-1, batch_size):
            yield padded(rows, chosen)

    return _dataset(batches, _specification(batch_size)), order


def _specification(batch_size: int) -> dict[str, tf.TensorSpec]:
    inputs = {
        feature.name: tf.TensorSpec([batch_size, None], tf.int32)
        for feature in ENCODER_INPUTS
    }
    return {**inputs, EXAMPLE_WEIGHTS: tf.TensorSpec([batch_size], tf.float32)}


def _dataset(batches: object, specification: dict) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=specification
    )
    options = tf.data.Options()
    # Its own tuning competes with training for a small machine's processors.
    options.autotune.enabled = False
    return dataset.prefetch(4).with_options(options)
