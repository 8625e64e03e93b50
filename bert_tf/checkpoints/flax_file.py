"""Flax' weights files (msgpack): named arrays, read one by one.

A file is a MessagePack map of maps whose leaves are arrays, each an extension
of type 1 that holds, packed again, its shape, the name of its type and its
bytes. Sources: the MessagePack specification; flax 0.8, serialization.py,
_ndarray_to_bytes. A path of keys is a name, joined by "/".
"""

import math
import mmap
import pathlib
from typing import Any

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays

_ARRAY = 1
_NUMPY_TYPES = (
    *("float16", "float32", "float64", "bool", "int8", "int16", "int32"),
    *("int64", "uint8", "uint16", "uint32", "uint64"),
)
_DEEPEST = 32
# Bytes of the length that stands behind a first byte, by that byte.
_STRINGS = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
_ARRAYS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_NUMBERS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}


class _Unread(Exception):
    """The file holds something else than maps of arrays."""


class _Reader:
    """Reads values of a MessagePack buffer, arrays as their places in it.

    Args:
      data: the buffer.
      at: where to begin.
    """

    def __init__(self, data: Any, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        found = bytes(self.data[self.at : self.at + size])
        if len(found) < size:
            raise _Unread("it is truncated")
        self.at += size
        return found

    def size(self, width: int) -> int:
        """The next number."""
        return int.from_bytes(self.take(width))

    def count(self, first: int, widths: dict[int, int], mask: int) -> int:
        """How much follows a first byte: a number behind it, or in its bits."""
        width = widths.get(first)
        return self.size(width) if width else first & mask

    def value(self, depth: int = 0) -> Any:
        """The next value: text, numbers, lists, maps, places of arrays."""
        if depth > _DEEPEST:
            raise _Unread("maps lie too deep in each other")
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
        raise _Unread(f"it has a value of type {first:#x}")

    def array(self, size: int) -> tuple[tuple[int, ...], np.dtype, int]:
        """The shape, type and place of an array of so many packed bytes."""
        kind, end = self.take(1)[0], self.at + size
        if kind != _ARRAY or end > len(self.data):
            raise _Unread("it is truncated or holds more than arrays")
        # Of a list of three, whose last is read where it lies.
        if self.take(1)[0] != 0x93:
            raise _Unread("an array has no shape, type and values")
        shape, name = tuple(self.value()), self.value()
        width = _STRINGS.get(self.take(1)[0])
        if width is None:
            raise _Unread("an array has no values")
        length, place = self.size(width), self.at
        dtype = _dtype(name)
        if math.prod(shape) * dtype.itemsize != length or place + length != end:
            raise _Unread("an array's values do not fill its shape")
        self.at = end
        return shape, dtype, place


def _dtype(name: Any) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name not in _NUMPY_TYPES:
        raise _Unread(f"an array is of type {excerpt(name)}")
    return np.dtype(name)


def open_flax(path: pathlib.Path) -> LazyArrays:
    """Opens a flax_model.msgpack whose arrays are read when asked for.

    Raises:
      UserError: the file is missing, torn, or holds more than named arrays.
    """
    demand_regular(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file.")
    try:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            places = dict(_leaves(_Reader(data).value()))
    # ValueError: an empty file cannot be mapped, or text is not UTF-8.
    except (_Unread, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: damaged weights file ({reason}).") from None

    def read(name: str) -> np.ndarray:
        shape, dtype, place = places[name]
        with open(path, "rb") as file:
            file.seek(place)
            values = np.fromfile(file, dtype, math.prod(shape))
        if values.size < math.prod(shape):
            raise UserError(f"{path}: truncated within {name}.")
        return values.reshape(shape)

    return LazyArrays({name: place[0] for name, place in places.items()}, read)


def _leaves(tree: Any, path: str = "") -> Any:
    """The arrays of nested maps, by the keys that lead to them."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}/{key}" if path else key)
    elif isinstance(tree, tuple):
        yield path, tree
    else:
        raise _Unread(f"{path or 'it'} is no array")
