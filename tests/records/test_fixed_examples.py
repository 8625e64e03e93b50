import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.records.record_file import (
    FixedExamples,
    FixedFeature,
    example_lengths,
)

LIMITS = [1, 2, 128, 129, 1 << 14, 30522, 1 << 16, 119547, 1 << 21, 1 << 31]


@given(
    rows=st.integers(1, 5),
    values=st.integers(1, 70),
    limit=st.sampled_from(LIMITS),
    seed=st.integers(0, 2**20),
)
def test_tensorflow_reads_the_values_in_both_ways(
    rows: int, values: int, limit: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(limit, size=(rows, values))
    ids[0, 0] = limit - 1
    columns = {
        "ids": ids,
        "shares": rng.normal(size=(rows, 2)).astype(np.float32),
        "yes": rng.random((rows, 1)) < 0.5,
    }
    layout = FixedExamples(
        [
            FixedFeature("ids", values, limit),
            FixedFeature("shares", 2, None),
            FixedFeature("yes", 1, 2),
        ]
    )
    records = layout.encode(columns)
    parsed = tf.io.parse_example(
        records,
        {
            "ids": tf.io.FixedLenFeature([values], tf.int64),
            "shares": tf.io.FixedLenFeature([2], tf.float32),
            "yes": tf.io.FixedLenFeature([1], tf.int64),
        },
    )
    for name, column in columns.items():
        assert (parsed[name].numpy() == column).all()
    for row, record in enumerate(records):
        features = tf.train.Example.FromString(record).features.feature
        assert features["ids"].int64_list.value == ids[row].tolist()
        floats = list(features["shares"].float_list.value)
        assert floats == columns["shares"][row].tolist()
        assert features["yes"].int64_list.value == [int(columns["yes"][row, 0])]
        assert example_lengths(record) == {"ids": values, "shares": 2, "yes": 1}
    assert len(set(map(len, records))) == 1


@pytest.mark.parametrize(
    ("limit", "size"), [(2, 1), (128, 1), (129, 2), (30522, 3), (None, 4)]
)
def test_bytes_of_a_value(limit: int | None, size: int) -> None:
    assert FixedFeature("x", 1, limit).value_bytes == size
