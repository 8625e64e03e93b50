"""Every example once an epoch, the same from any start, little padding."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.families.rows import (
    EXAMPLE_WEIGHTS,
    LabelledRows,
    batches_by_length,
)
from bert_tf.families.text_classification.task import encode
from bert_tf.finetuning.batches import (
    bucketed_by_length,
    epoch_batches,
    num_steps,
    prediction_batches,
    training_batches,
    without_repeats,
)
from bert_tf.sharding import Shard
from tests.finetuning.sentence_runs import texts, tokenizer
from tests.inference.serving_models import text_config

CONFIG = text_config(max_seq_length=24)


@pytest.fixture(scope="module")
def data():
    examples = texts(83, 4)
    rows = encode(examples, tokenizer(), CONFIG)
    labels = np.arange(83, dtype=np.int32)
    return LabelledRows(
        rows, np.ones(len(rows), np.float32), {"label_ids": labels}
    )


def lengths_of(count, seed=0):
    return np.random.default_rng(seed).integers(3, 90, count)


@pytest.mark.parametrize(("rows", "size"), [(83, 8), (80, 8), (5, 8), (3, 8)])
def test_every_row_is_seen_once_an_epoch(rows, size):
    epochs = [epoch_batches(rows, size, 7, e) for e in range(24)]
    assert all(batch.shape[1] == size for batch in epochs if len(batch))
    seen = np.zeros(rows, int)
    done = 0
    for number, batches in enumerate(epochs):
        seen += np.bincount(batches.ravel(), minlength=rows)
        done += len(batches)
        # What is left over of an epoch comes first in the next one.
        assert done == (number + 1) * rows // size
        assert seen.min() >= number + 1 - (rows % size > 0) - size // rows
        assert seen.max() <= number + 1
    assert (seen == 24).all() == (24 * rows % size == 0)


def test_steps_are_those_of_the_original():
    assert num_steps(3668, 32, 3.0) == 343
    assert num_steps(10, 4, 0.5) == 1


def test_orders_differ_between_epochs_and_seeds():
    first = epoch_batches(200, 8, 7, 0)
    np.testing.assert_array_equal(first, epoch_batches(200, 8, 7, 0))
    assert (first != epoch_batches(200, 8, 8, 0)).any()
    assert (first != epoch_batches(200, 8, 7, 1)).any()


def test_rows_of_similar_length_come_together():
    """The same rows, with little padding, the short ones not first."""
    lengths = lengths_of(8 * 100)
    batches = epoch_batches(len(lengths), 8, 1, 0)
    together = bucketed_by_length(batches, lengths, 1, 0)
    assert together.shape == batches.shape
    for begin in range(0, len(batches), 32):
        mine, others = (b[begin : begin + 32] for b in (together, batches))
        np.testing.assert_array_equal(
            np.sort(mine, None), np.sort(others, None)
        )

    def filled(chosen):
        return lengths.sum() / (lengths[chosen].max(axis=1) * 8).sum()

    assert filled(together) > 0.95 > 0.65 > filled(batches)
    means = lengths[together].mean(axis=1)
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.3
    assert (together != bucketed_by_length(batches, lengths, 2, 0)).any()


def taken(data, start, count, seed=3, size=8, bucket_by_length=False):
    batches = training_batches(
        data, size, seed, start, bucket_by_length=bucket_by_length
    )
    return [
        {name: value.numpy() for name, value in batch.items()}
        for batch in itertools.islice(batches, count)
    ]


def test_how_many_rows_a_training_batch_has_is_known(data):
    """Replicas that cut their rows into slices need the number in advance."""
    for name, spec in training_batches(data, 8, 3).element_spec.items():
        assert spec.shape[0] == 8, name


@pytest.mark.parametrize(
    ("bucket_by_length", "count"), [(False, 83), (True, 83), (True, 3)]
)
def test_batch_k_is_the_same_wherever_one_starts(data, bucket_by_length, count):
    """Also with fewer rows than a batch."""
    rows = encode(texts(count, 4), tokenizer(), CONFIG)
    data = LabelledRows(rows, np.ones(count, np.float32), data.labels)
    whole = taken(data, 0, 49, bucket_by_length=bucket_by_length)
    # Within an epoch, and at the end of one.
    for start in (1, 10, 37):
        resumed = taken(data, start, 12, bucket_by_length=bucket_by_length)
        for mine, other in zip(resumed, whole[start : start + 12], strict=True):
            for name, value in mine.items():
                np.testing.assert_array_equal(value, other[name])


def test_a_batch_is_its_rows(data):
    all_ids, starts = data.rows.arrays
    for batch in taken(data, 0, 30):
        lengths = batch["input_mask"].sum(axis=1)
        width = batch["input_ids"].shape[1]
        assert width == lengths.max()
        for place, example in enumerate(batch["label_ids"]):
            begin, end = starts[example : example + 2]
            ids = all_ids[begin:end]
            row = batch["input_ids"][place]
            np.testing.assert_array_equal(row[: len(ids)], ids)
            assert (row[len(ids) :] == data.rows.packing.pad_id).all()
            assert lengths[place] == len(ids)
        assert (batch[EXAMPLE_WEIGHTS] == 1).all()


@pytest.mark.parametrize("num_devices", [1, 4])
def test_prediction_takes_every_row_once(data, num_devices):
    """Each batch as long as its longest row, the devices' parts alike."""
    batches, chosen = prediction_batches(data.rows, 2, num_devices)
    found = list(batches)
    assert len(found) == len(chosen) > 3
    assert sorted(np.concatenate(chosen)) == list(range(83))
    sizes = {len(rows) for rows in chosen}
    assert len(sizes) > 2
    for batch, rows in zip(found, chosen, strict=True):
        filled = batch["input_ids"].shape[0]
        assert len(rows) <= filled < len(rows) + num_devices
        assert filled % num_devices == 0
        rows = np.append(rows, np.repeat(rows[-1:], filled - len(rows)))
        for name, array in data.rows.batch(rows).items():
            np.testing.assert_array_equal(batch[name], array)


def test_workers_share_a_batch_of_one_length(data):
    whole, chosen = prediction_batches(data.rows, 2, 2)
    parts = [
        prediction_batches(data.rows, 2, 2, Shard(index, 2))
        for index in range(2)
    ]
    for _, rows in parts:
        assert [r.tolist() for r in rows] == [r.tolist() for r in chosen]
    together = zip(whole, *(batches for batches, _ in parts), strict=True)
    for batch, first, second in together:
        for name, array in batch.items():
            joined = np.concatenate([first[name], second[name]])
            np.testing.assert_array_equal(joined, array)


@given(
    st.lists(st.integers(1, 600), max_size=60),
    st.integers(1, 9),
    st.integers(1, 4),
)
def test_batches_by_length(lengths, batch_size, multiple) -> None:
    count = np.array(lengths, np.int64)
    batches = list(batches_by_length(count, batch_size, multiple))
    order = np.concatenate([np.zeros(0, np.int64), *batches])
    np.testing.assert_array_equal(np.sort(order), np.arange(len(count)))
    # The longest first, equal ones as they come.
    np.testing.assert_array_equal(order, np.argsort(-count, kind="stable"))
    for rows in batches[:-1]:
        assert len(rows) % multiple == 0
        padded, budget = count[rows].max(), batch_size * 128
        assert len(rows) * padded <= budget or len(rows) == multiple
        # No more would fit.
        assert (len(rows) + multiple) * padded > budget
    if batches:
        padded = len(batches[-1]) * count[batches[-1]].max()
        assert padded <= batch_size * 128 or len(batches[-1]) <= multiple


def texts_of(batch, values):
    """The values of the rows of a batch, without repeats within a row."""
    return [each for row in batch for each in {*values[row].tolist()}]


@pytest.mark.parametrize("seed", range(3))
def test_no_batch_holds_a_value_twice(seed):
    random = np.random.default_rng(seed)
    values = random.integers(0, 150, (200, 2))
    values[:3, 1] = values[:3, 0]
    for epoch in range(3):
        plain = epoch_batches(200, 16, seed, epoch)
        found = without_repeats(plain, values)
        assert found.shape == plain.shape
        for batch in found:
            texts = texts_of(batch, values)
            assert len({*texts}) == len(texts)
        # Few rows are repeated, in place of those that fit nowhere.
        assert len(np.unique(found)) >= 0.9 * plain.size


def test_a_row_waits_for_the_next_batch():
    values = np.array([[0, 1], [0, 2], [3, 4], [5, 6], [7, 3], [8, 9]])
    found = without_repeats(np.arange(6).reshape(3, 2), values)
    np.testing.assert_array_equal(found, [[0, 2], [1, 3], [4, 5]])
    values = np.arange(12).reshape(6, 2)
    plain = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(without_repeats(plain, values), plain)


def test_too_few_different_values_for_a_batch():
    values = np.array([[0], [1], [0], [1]])
    with pytest.raises(UserError, match="only 2 rows have different ones"):
        without_repeats(np.arange(4)[np.newaxis], values)
