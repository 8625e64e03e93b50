"""Reads and writes TFRecord files of tf.train.Example, without TensorFlow.

A TFRecord is uint64 length, uint32 masked CRC-32C of the length, the bytes,
uint32 masked CRC-32C of the bytes (tensorflow/core/lib/io/record_writer.h). An
Example maps feature names to lists of int64, float or bytes
(tensorflow/core/example/example.proto); features are encoded in alphabetical
order, so that equal values give equal bytes.
"""

import dataclasses
import functools
import itertools
import os
import pathlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from bert_tf.errors import UserError
from bert_tf.foreign_files import demand_regular

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")

# Field numbers of tf.train.Feature: float_list = 2, int64_list = 3.
FLOAT_LIST, INT64_LIST = 2, 3

# Limits the size of temporary arrays.
_VARINTS_AT_ONCE = 1 << 16
_MAX_VARINT_BYTES = 5

_CRC_MASK = np.uint32(0xA282EAD8)
_FRAMES_AT_ONCE = 256


def _length_delimited(field: int, length: int) -> bytes:
    """Returns the tag and length before a length-delimited field."""
    encoded = bytearray([field << 3 | 2])
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


def encode_varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Encodes non-negative integers as protobuf varints.

    Args:
      values: integers below 2**35, [n].

    Returns:
      The bytes, and the offset of each integer in them and of the end, [n + 1],
      int32 if that is large enough, else int64.
    """
    values = np.asarray(values).reshape(-1)
    small = values.size <= np.iinfo(np.int32).max // _MAX_VARINT_BYTES
    offsets = np.zeros(values.size + 1, np.int32 if small else np.int64)
    parts = []
    for start in range(0, values.size, _VARINTS_AT_ONCE):
        end = min(start + _VARINTS_AT_ONCE, values.size)
        encoded, sizes = _encode_chunk(values[start:end].astype(np.int64))
        offsets[start + 1 : end + 1] = offsets[start] + np.cumsum(sizes)
        parts.append(encoded)
    return b"".join(parts), offsets


def _encode_chunk(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Returns the bytes of the integers, and the size of each."""
    sizes = np.ones(values.shape, dtype=np.int64)
    if values.max(initial=0) < 128:
        return values.astype(np.uint8).tobytes(), sizes
    for threshold in (1 << 7, 1 << 14, 1 << 21, 1 << 28):
        sizes += values >= threshold
    starts = np.cumsum(sizes) - sizes
    encoded = np.empty(int(sizes.sum()), dtype=np.uint8)
    for k in range(int(sizes.max(initial=0))):
        has_byte = sizes > k
        digit = values[has_byte] >> 7 * k & 0x7F
        more = (sizes[has_byte] > k + 1).astype(np.int64) << 7
        encoded[starts[has_byte] + k] = digit | more
    return encoded.tobytes(), sizes


@functools.lru_cache(maxsize=1 << 16)
def _feature_header(name: str, kind: int, payload_bytes: int) -> bytes:
    """Encodes everything before the packed values of a feature."""
    values = _length_delimited(1, payload_bytes)
    feature = _length_delimited(kind, len(values) + payload_bytes) + values
    key = name.encode("utf-8")
    entry = (
        _length_delimited(1, len(key))
        + key
        + _length_delimited(2, len(feature) + payload_bytes)
        + feature
    )
    return _length_delimited(1, len(entry) + payload_bytes) + entry


@functools.lru_cache(maxsize=1 << 14)
def _example_header(size: int) -> bytes:
    """Encodes what precedes the features of an Example, `size` bytes."""
    return _length_delimited(1, size)


def encode_example(features: Mapping[str, tuple[int, bytes]]) -> bytes:
    """Encodes one tf.train.Example.

    Args:
      features: by name, in alphabetical order: INT64_LIST or FLOAT_LIST, and
        the packed values (varints, or little-endian float32), not empty.
    """
    parts = []
    for name, (kind, payload) in features.items():
        parts.append(_feature_header(name, kind, len(payload)))
        parts.append(payload)
    message = b"".join(parts)
    return _example_header(len(message)) + message


@dataclasses.dataclass(frozen=True)
class FixedFeature:
    """A feature with the same number of values in every record.

    Attributes:
      name: name of the feature.
      values: number of values, at least one.
      limit: upper bound of integers, exclusive; None for float32 values.
    """

    name: str
    values: int
    limit: int | None

    @property
    def value_bytes(self) -> int:
        """Bytes per value."""
        if self.limit is None:
            return 4
        return max(-(-(self.limit - 1).bit_length() // 7), 1)

    def header(self) -> bytes:
        """Encodes everything before the values."""
        kind = FLOAT_LIST if self.limit is None else INT64_LIST
        return _feature_header(self.name, kind, self.values * self.value_bytes)


class FixedExamples:
    """Encodes Examples of one layout as one array of bytes.

    Every feature has a fixed number of values and every value a fixed number of
    bytes, so records differ only in the values. Small integers are padded to
    the size of large ones: a varint may end in zero digits (protobuf's
    encoding, "Base 128 Varints"). Features are in alphabetical order.
    """

    def __init__(self, features: Sequence[FixedFeature]) -> None:
        headers = [feature.header() for feature in features]
        size = sum(map(len, headers)) + sum(
            feature.values * feature.value_bytes for feature in features
        )
        headers[0] = _example_header(size) + headers[0]
        self._features = tuple(features)
        fields: list[Any] = []
        for feature, header in zip(features, headers, strict=True):
            shape = (feature.values, feature.value_bytes)
            fields.append((f"before {feature.name}", f"V{len(header)}"))
            fields.append((feature.name, np.uint8, shape))
        self._template = np.zeros((), fields)
        for feature, header in zip(features, headers, strict=True):
            self._template[f"before {feature.name}"] = np.void(header)

    def encode(self, columns: Mapping[str, np.ndarray]) -> list[bytes]:
        """Encodes records.

        Args:
          columns: values by feature name, non-negative integers below the
            limit, or float32, [n, values].
        """
        rows = len(columns[self._features[0].name])
        block = np.full(rows, self._template)
        for feature in self._features:
            values, target = columns[feature.name], block[feature.name]
            if feature.limit is None:
                values = np.ascontiguousarray(values, "<f4")
                target[...] = values.view(np.uint8).reshape(target.shape)
                continue
            last = feature.value_bytes - 1
            for digit in range(last):
                target[..., digit] = (values >> 7 * digit).astype(np.uint8)
                target[..., digit] |= 0x80
            target[..., last] = values >> 7 * last if last else values
        size, encoded = block.itemsize, block.tobytes()
        return [
            encoded[start : start + size]
            for start in range(0, len(encoded), size)
        ]


def _masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + int(_CRC_MASK)) & 0xFFFFFFFF


@functools.lru_cache(maxsize=1 << 14)
def _frame_header(length: int) -> bytes:
    return _HEADER.pack(length, _masked_crc(struct.pack("<Q", length)))


def write_frames(file: BinaryIO, records: Iterable[bytes]) -> tuple[int, int]:
    """Writes records to an open file.

    Returns:
      The number of records and of bytes written.
    """
    count = size = 0
    records = iter(records)
    while chunk := list(itertools.islice(records, _FRAMES_AT_ONCE)):
        crc = np.fromiter(map(google_crc32c.value, chunk), "<u4", len(chunk))
        masked = (crc >> 15 | crc << 17) + _CRC_MASK
        footers = masked.astype("<u4").tobytes()
        frames = []
        for number, record in enumerate(chunk):
            frames.append(_frame_header(len(record)))
            frames.append(record)
            frames.append(footers[4 * number : 4 * number + 4])
        joined = b"".join(frames)
        file.write(joined)
        count += len(chunk)
        size += len(joined)
    return count, size


def write_records(
    path: str | pathlib.Path, records: Iterable[bytes]
) -> tuple[int, int]:
    """Writes a TFRecord file and flushes it to disk.

    Returns:
      The number of records and of bytes written.
    """
    with open(path, "wb", buffering=1 << 20) as file:
        written = write_frames(file, records)
        file.flush()
        os.fsync(file.fileno())
        return written


def _record_lengths(
    file: BinaryIO, path: str | pathlib.Path
) -> Iterator[tuple[int, int]]:
    """Yields number and length of each record, with the file at its start."""
    number = 0
    while header := file.read(_HEADER.size):
        number += 1
        if len(header) < _HEADER.size:
            raise _truncated(path, number)
        length, _ = _HEADER.unpack(header)
        if header != _frame_header(length):
            raise _damaged(path, number)
        yield number, length


def read_records(path: str | pathlib.Path) -> Iterator[bytes]:
    """Reads the records of a TFRecord file and verifies all checksums.

    Raises:
      UserError: the file is truncated or damaged.
    """
    demand_regular(path)
    with open(path, "rb", buffering=1 << 20) as file:
        for number, length in _record_lengths(file, path):
            record = file.read(length)
            footer = file.read(_FOOTER.size)
            if len(footer) < _FOOTER.size:
                raise _truncated(path, number)
            if footer != _FOOTER.pack(_masked_crc(record)):
                raise _damaged(path, number)
            yield record


def count_records(path: str | pathlib.Path) -> int:
    """Counts the records of a TFRecord file; reads only their lengths.

    Raises:
      UserError: the file is truncated, or is not a TFRecord file.
    """
    count = 0
    demand_regular(path)
    size = pathlib.Path(path).stat().st_size
    with open(path, "rb") as file:
        for count, length in _record_lengths(file, path):  # noqa: B007
            file.seek(length + _FOOTER.size, os.SEEK_CUR)
            if file.tell() > size:
                raise _truncated(path, count)
    return count


def _truncated(path: str | pathlib.Path, number: int) -> UserError:
    return UserError(
        f"{path}: truncated in record {number}; make the file again, or copy "
        "it again from where it is whole."
    )


def _damaged(path: str | pathlib.Path, number: int) -> UserError:
    return UserError(
        f"{path}: record {number} is damaged (wrong checksum) or the file is "
        "no TFRecord file; make it again, or copy it again from where it is "
        "whole."
    )


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A file of records, with its number of records and of bytes."""

    path: pathlib.Path
    records: int
    size: int

    def check(self) -> None:
        """Compares the size of the file with the size when it was written.

        Raises:
          UserError: the file is missing, or its size differs.
        """
        if not self.path.is_file():
            raise UserError(
                f"{self.path}: missing; run bert-tf create-pretraining-data "
                "--overwrite again."
            )
        size = self.path.stat().st_size
        if size != self.size:
            kind = "truncated" if size < self.size else "not as it was written"
            raise UserError(
                f"{self.path}: {kind}, {size} bytes of {self.size}; run "
                "bert-tf create-pretraining-data --overwrite again, or copy "
                "the file again from where it is whole."
            )


def example_lengths(record: bytes) -> dict[str, int]:
    """Returns the number of values of each numeric feature of an Example.

    It is empty if the record is not an Example.
    """
    # Workers that write records run without TensorFlow.
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return {}
    return {
        name: len(values.int64_list.value or values.float_list.value)
        for name, values in sorted(features.items())
    }
