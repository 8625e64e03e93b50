"""Safetensors files, whole and damaged."""

import errno
import json
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from bert_tf.checkpoints import open_arrays, read_arrays, write_arrays
from tests.checkpoints.arrays import assert_same_arrays
from tests.user_errors import error_of

FOUR = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def file_of(header, data: bytes, length: int | None = None) -> bytes:
    """A safetensors file: the header's length, the header, the data."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    length = len(header) if length is None else length
    return struct.pack("<Q", length) + header + data


def lies(**changes) -> bytes:
    return file_of({"a": FOUR | changes}, bytes(4))


DAMAGED = {
    "empty": b"",
    "truncated header": file_of({"a": FOUR}, b"", length=500),
    "a header longer than any disk": file_of(b"{}", b"", length=2**63),
    "truncated data": file_of({"a": FOUR}, bytes(3)),
    "data that nobody owns": file_of({"a": FOUR}, bytes(9)),
    "no JSON": file_of(b"{{{{", bytes(4)),
    "no UTF-8": file_of(b"\xff\xfe{}", bytes(4)),
    "a shorter shape": lies(shape=[0]),
    "a shape that overflows": lies(shape=[2**62, 8]),
    "offsets behind the end": lies(data_offsets=[4, 8]),
    "an unknown type": lies(dtype="F99"),
    "overlapping arrays": file_of(
        {"a": FOUR, "b": FOUR | {"data_offsets": [2, 6]}}, bytes(6)
    ),
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os",
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\n",
    "a name with a line feed": file_of(
        {"a\nb": FOUR | {"shape": [3]}}, bytes(4)
    ),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file(data, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    line = error_of(open_arrays, path)
    assert line.startswith(f"{path}: damaged weights file (")
    assert len(line) < 300


def test_files_that_are_not_damaged(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(file_of({"a": FOUR}, struct.pack("<f", 2.5)))
    assert read_arrays(path) == {"a": np.array([2.5], np.float32)}
    path.write_bytes(lies(dtype="F8_E4M3", shape=[4]))
    assert "a is of type F8_E4M3" in error_of(open_arrays, path)
    halves = np.array([1.5, -3.25], ml_dtypes.bfloat16)
    safetensors.numpy.save_file({"a": halves}, path)
    read = read_arrays(path)["a"]
    np.testing.assert_array_equal(read.astype(np.float32), [1.5, -3.25])
    assert "no such file" in error_of(open_arrays, tmp_path / "absent")
    assert "no such file" in error_of(open_arrays, tmp_path)


def test_a_file_that_is_replaced_is_read_again(tmp_path):
    path = tmp_path / "w.safetensors"
    write_arrays(path, {"a": np.arange(3.0)})
    arrays = open_arrays(path)
    first = arrays["a"]
    write_arrays(path, {"a": np.arange(3.0) + 5})
    np.testing.assert_array_equal(first, [0, 1, 2])
    np.testing.assert_array_equal(arrays["a"], [5, 6, 7])
    path.write_bytes(path.read_bytes()[:-1])
    assert "damaged" in error_of(lambda: arrays["a"])


def test_round_trip_of_any_order_and_shape(tmp_path):
    path = tmp_path / "w.safetensors"
    arrays = {
        "turned": np.arange(6, dtype=np.float32).reshape(3, 2).T,
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "strided": np.arange(10, dtype=np.int64)[::3],
    }
    write_arrays(path, arrays, {"format": "pt"})
    assert_same_arrays(read_arrays(path), arrays)
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt"}
    # Others may read what a user trains.
    assert path.stat().st_mode & 0o444 == 0o444


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_arrays(tmp_path / "w.safetensors", {"a": np.arange(3.0)})
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
