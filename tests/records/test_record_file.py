import pathlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.records.record_file import (
    FLOAT_LIST,
    INT64_LIST,
    FixedExamples,
    FixedFeature,
    RecordFile,
    count_records,
    encode_example,
    encode_varints,
    example_lengths,
    read_records,
    write_records,
)

NUMBERS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=300)
FLOATS = st.lists(st.floats(width=32, allow_nan=False), min_size=1)


def tf_example(ints: list[int], floats: list[float]) -> tf.train.Example:
    example = tf.train.Example()
    example.features.feature["an_int"].int64_list.value.extend(ints)
    example.features.feature["some_float"].float_list.value.extend(floats)
    return example


@given(ints=NUMBERS, floats=FLOATS)
def test_example_bytes_are_those_of_tensorflow(ints, floats) -> None:
    ours = encode_example(
        {
            "an_int": (INT64_LIST, encode_varints(np.array(ints))[0]),
            "some_float": (FLOAT_LIST, np.array(floats, "<f4").tobytes()),
        }
    )
    theirs = tf_example(ints, floats)
    assert ours == theirs.SerializeToString(deterministic=True)
    assert tf.train.Example.FromString(ours) == theirs
    sizes = {"an_int": len(ints), "some_float": len(floats)}
    assert example_lengths(ours) == sizes


def test_varint_offsets_cut_the_bytes_into_the_numbers() -> None:
    numbers = np.array([0, 127, 128, 16383, 16384, 2**21, 2**31 - 1, 2**33])
    encoded, offsets = encode_varints(np.tile(numbers, 20_000))
    assert len(offsets) == 160_001
    for index in (*range(8), *range(159_992, 160_000)):
        one = encoded[offsets[index] : offsets[index + 1]]
        assert one == encode_varints(numbers[index % 8 : index % 8 + 1])[0]
    assert offsets[-1] == len(encoded)
    assert encode_varints(np.zeros(0, int))[0] == b""


def test_tensorflow_reads_what_we_write_and_we_what_it_writes(tmp_path) -> None:
    records = [b"a", b"", b"x" * 70_000, bytes(range(256))]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    count, size = write_records(ours, records)
    assert (count, size) == (4, ours.stat().st_size)
    with tf.io.TFRecordWriter(str(theirs)) as writer:
        for record in records:
            writer.write(record)
    assert ours.read_bytes() == theirs.read_bytes()
    read = tf.data.TFRecordDataset(str(ours)).as_numpy_iterator()
    assert list(read) == records
    assert list(read_records(theirs)) == records
    assert count_records(theirs) == 4


@pytest.mark.parametrize("lost", [1, 4, 5, 11, 20, 25])
def test_truncated_file_is_named(tmp_path: pathlib.Path, lost: int) -> None:
    path = tmp_path / "some.tfrecord"
    write_records(path, [b"first record", b"second"])
    whole = RecordFile(path, 2, path.stat().st_size)
    whole.check()
    path.write_bytes(path.read_bytes()[:-lost])
    for read in (lambda: list(read_records(path)), lambda: count_records(path)):
        with pytest.raises(
            UserError, match=r"some.tfrecord: truncated in record [12]"
        ):
            read()
    with pytest.raises(UserError, match="truncated, .* bytes of"):
        whole.check()


@pytest.mark.parametrize("place", [0, 9, 14, 25])
def test_damaged_byte_is_noticed(tmp_path: pathlib.Path, place: int) -> None:
    path = tmp_path / "some.tfrecord"
    write_records(path, [b"first record", b"second"])
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"some.tfrecord: .*record 1"):
        list(read_records(path))


def test_missing_and_foreign_files(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UserError, match="missing"):
        RecordFile(tmp_path / "none", 1, 1).check()
    text = tmp_path / "text"
    text.write_text("this is no record file at all, only text")
    with pytest.raises(UserError, match="no TFRecord file"):
        count_records(text)
    assert example_lengths(b"this is no example") == {}


LIMITS = [1, 2, 128, 129, 1 << 14, 30522, 1 << 16, 119547, 1 << 21, 1 << 31]


@given(
    rows=st.integers(1, 5),
    values=st.integers(1, 70),
    limit=st.sampled_from(LIMITS),
    seed=st.integers(0, 2**20),
)
def test_tensorflow_reads_the_values_in_both_ways(rows, values, limit, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(limit, size=(rows, values))
    ids[0, 0] = limit - 1
    columns = {
        "ids": ids,
        "shares": rng.normal(size=(rows, 2)).astype(np.float32),
        "yes": rng.random((rows, 1)) < 0.5,
    }
    sizes = {"ids": values, "shares": 2, "yes": 1}
    limits = {"ids": limit, "shares": None, "yes": 2}
    fields = [FixedFeature(name, sizes[name], limits[name]) for name in sizes]
    records = FixedExamples(fields).encode(columns)
    integers, floats = (
        {n: tf.io.FixedLenFeature([size], dtype) for n, size in sizes.items()}
        for dtype in (tf.int64, tf.float32)
    )
    specification = integers | {"shares": floats["shares"]}
    parsed = tf.io.parse_example(records, specification)
    for name, column in columns.items():
        assert (parsed[name].numpy() == column).all()
    for row, record in enumerate(records):
        features = tf.train.Example.FromString(record).features.feature
        assert features["ids"].int64_list.value == ids[row].tolist()
        floats = list(features["shares"].float_list.value)
        assert floats == columns["shares"][row].tolist()
        assert features["yes"].int64_list.value == [int(columns["yes"][row, 0])]
        assert example_lengths(record) == sizes
    assert len(set(map(len, records))) == 1
