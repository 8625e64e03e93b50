"""Flax' weights files (msgpack): reading named arrays.

A file is a MessagePack map of maps whose leaves are arrays. An array is an
extension of type 1: the packed list of its shape, the name of its dtype and its
bytes. Its name is the path of keys, joined by "/". Sources: the MessagePack
specification; flax 0.8, serialization.py, _ndarray_to_bytes.
"""

import math
import mmap
import pathlib
from typing import Any

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.foreign_files import demand_file, refuse_damage
from bert_tf.lazy_arrays import LazyArrays

_ARRAY = 1
_NUMPY_TYPES = (
    *("float16", "float32", "float64", "bool", "int8", "int16", "int32"),
    *("int64", "uint8", "uint16", "uint32", "uint64"),
)
_MAX_DEPTH = 32
# Width in bytes of the length that follows a first byte, by that byte.
_STRINGS = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
_ARRAYS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_NUMBERS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}


class _FormatError(Exception):
    """The file holds anything but maps of arrays."""


class _Reader:
    """Reads values of a MessagePack buffer, arrays as offsets into it."""

    def __init__(self, data: Any) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """Reads the next bytes."""
        found = bytes(self.data[self.at : self.at + size])
        if len(found) < size:
            raise _FormatError("it is truncated")
        self.at += size
        return found

    def size(self, width: int) -> int:
        """Reads a length of `width` bytes."""
        return int.from_bytes(self.take(width))

    def count(self, first: int, widths: dict[int, int], mask: int) -> int:
        """Returns the length after a first byte, or in its low bits."""
        width = widths.get(first)
        return self.size(width) if width else first & mask

    def value(self, depth: int = 0) -> Any:
        """Reads text, a number, list or map, or the offset of an array."""
        if depth > _MAX_DEPTH:
            raise _FormatError("maps lie too deep in each other")
        first = self.take(1)[0]
        if first < 0x80:
            return first
        if first < 0x90 or first in _MAPS:
            pairs = (
                (self.value(depth + 1), self.value(depth + 1))
                for _ in range(self.count(first, _MAPS, 15))
            )
            return {str(key): value for key, value in pairs}
        if first < 0xA0 or first in _ARRAYS:
            count = self.count(first, _ARRAYS, 15)
            return [self.value(depth + 1) for _ in range(count)]
        if first < 0xC0 or first in _STRINGS:
            return self.take(self.count(first, _STRINGS, 31)).decode()
        if first in _NUMBERS:
            return self.size(_NUMBERS[first])
        if first in _EXTENSIONS or first in _FIXED_EXTENSIONS:
            size = _FIXED_EXTENSIONS.get(first)
            size = self.size(_EXTENSIONS[first]) if size is None else size
            return self.array(size)
        raise _FormatError(f"it has a value of type {first:#x}")

    def array(self, size: int) -> tuple[tuple[int, ...], np.dtype, int]:
        """Returns shape, dtype and offset of an array of `size` bytes."""
        kind, end = self.take(1)[0], self.at + size
        if kind != _ARRAY or end > len(self.data):
            raise _FormatError("it is truncated or holds more than arrays")
        # A list of three, whose bytes are not copied.
        if self.take(1)[0] != 0x93:
            raise _FormatError("an array has no shape, type and values")
        shape, name = tuple(self.value()), self.value()
        width = _STRINGS.get(self.take(1)[0])
        if width is None:
            raise _FormatError("an array has no values")
        length, offset = self.size(width), self.at
        dtype = _dtype(name)
        size = math.prod(shape) * dtype.itemsize
        if size != length or offset + length != end:
            raise _FormatError("an array's values do not fill its shape")
        self.at = end
        return shape, dtype, offset


def _dtype(name: Any) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name not in _NUMPY_TYPES:
        raise _FormatError(f"an array is of type {excerpt(name)}")
    return np.dtype(name)


def open_flax(path: pathlib.Path) -> LazyArrays:
    """Opens a flax_model.msgpack; arrays are read at each access.

    Raises:
      UserError: the file is missing, damaged, or holds more than named arrays.
    """
    demand_file(path)
    with (
        # ValueError: an empty file cannot be mapped, or text is not UTF-8.
        refuse_damage(path, _FormatError, ValueError, TypeError),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        offsets = dict(_leaves(_Reader(data).value()))

    def read(name: str) -> np.ndarray:
        shape, dtype, offset = offsets[name]
        with open(path, "rb") as file:
            file.seek(offset)
            values = np.fromfile(file, dtype, math.prod(shape))
        if values.size < math.prod(shape):
            raise UserError(f"{path}: truncated within {name}.")
        return values.reshape(shape)

    shapes = {name: shape for name, (shape, _, _) in offsets.items()}
    return LazyArrays(shapes, read)


def _leaves(tree: Any, path: str = "") -> Any:
    """Yields the arrays of nested maps with their paths of keys."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}/{key}" if path else key)
    elif isinstance(tree, tuple):
        yield path, tree
    else:
        raise _FormatError(f"{path or 'it'} is no array")
