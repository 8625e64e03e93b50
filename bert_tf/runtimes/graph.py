"""The graph of a model that files are written from.

Operations are named as ONNX names them. Sizes are computed here, in terms of
batch and length where these are known at run time only, so that files compute
no shapes.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError

BATCH, LENGTH = "batch", "length"
INPUT, CONSTANT, SIZES = "Input", "Constant", "Sizes"
LAYER_NORM, GELU = "LayerNormalization", "Gelu"
# Of which no format is told: a product with it becomes Gather.
ONE_HOT = "OneHotRows"


class UnknownError(Exception):
    """An operation in a form that is not known here."""


class Size(NamedTuple):
    """The size of an axis: a number times others, and a number added.

    The others, `symbols`, are known at run time only.
    """

    number: int
    symbols: tuple[str, ...] = ()
    added: int = 0

    def plus(self, number: int) -> "Size":
        """The sum with a number."""
        if not self.symbols:
            return Size(self.number + number)
        return self._replace(added=self.added + number)

    def times(self, other: "Size") -> "Size":
        """The product of two sizes."""
        if ONE in (self, other):
            return self if other == ONE else other
        if self.added or other.added:
            raise UnknownError
        symbols = tuple(sorted(self.symbols + other.symbols))
        return Size(self.number * other.number, symbols)

    def over(self, other: "Size") -> "Size":
        """What times `other` is this size."""
        symbols = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in symbols or self.added or other.added:
                raise UnknownError
            symbols.remove(symbol)
        return Size(self.number // other.number, tuple(symbols), self.added)


Shape = tuple[Size, ...]
ONE = Size(1)


class Value:
    """A tensor of the graph, and the operation that gives it.

    Attributes:
      operation: INPUT, CONSTANT, SIZES, LAYER_NORM, GELU or a name of ONNX's.
      inputs: what it is computed from.
      shape: its sizes.
      dtype: of NumPy.
      name: of an input or a weight.
      array: of a constant.
      sizes: what a scalar or vector holds, where these are sizes.
      attributes: of the operation.
      computed: of LAYER_NORM and GELU, the same in smaller operations.
    """

    def __init__(
        self,
        operation: str,
        inputs: Sequence["Value"] = (),
        shape: Shape = (),
        dtype: Any = np.float32,
        name: str = "",
        array: Any = None,
        sizes: Shape | None = None,
        computed: Any = None,
        **attributes: Any,
    ):
        self.operation, self.inputs = operation, tuple(inputs)
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.name, self.array, self.sizes = name, array, sizes
        self.attributes, self.computed = attributes, computed


class Graph(NamedTuple):
    """A traced model.

    Attributes:
      inputs: input_ids, input_mask and segment_ids, int32 [B, S].
      outputs: by name.
    """

    inputs: list[Value]
    outputs: dict[str, Value]


def unsupported(source: str, operation: str) -> UserError:
    """The refusal of a model that has an operation which no file has.

    Args:
      source: names the model.
      operation: what it computes.
    """
    return UserError(
        f"{source}: computes {operation}, which such a file cannot; give "
        "`file_format` saved_model."
    )


def constant(array: np.ndarray, name: str = "") -> Value:
    """A constant; whole numbers may be sizes."""
    sizes = None
    if array.dtype in (np.int32, np.int64) and array.ndim < 2:
        sizes = tuple(Size(int(number)) for number in array.reshape(-1))
    shape = tuple(map(Size, array.shape))
    return Value(CONSTANT, (), shape, array.dtype, name, array, sizes)


def of_sizes(sizes: Shape, shape: Shape, dtype: Any = np.int32) -> Value:
    """A scalar or vector of sizes."""
    if any(size.symbols for size in sizes):
        return Value(SIZES, (), shape, dtype, sizes=sizes)
    array = np.array([size.number for size in sizes], dtype)
    return constant(array.reshape([size.number for size in shape]))


def count(sizes: Sequence[Size]) -> Size:
    """The product of sizes."""
    return functools.reduce(Size.times, sizes, ONE)


def reshape(value: Value, shape: Sequence[Size]) -> Value:
    """Another shape."""
    shape = tuple(shape)
    rows = (count(value.shape[:-1]), *value.shape[-1:])
    # The rows of a value, by which `whole_of` knows it.
    if value.operation == "Reshape" and shape != rows:
        (value,) = value.inputs
    if value.shape == shape:
        return value
    if value.sizes is not None and len(shape) < 2:
        return of_sizes(value.sizes, shape, value.dtype)
    if value.array is not None:
        array = value.array.reshape([size.number for size in shape])
        return constant(array, value.name)
    return Value("Reshape", [value], shape, value.dtype)


def transpose(value: Value, order: Sequence[int]) -> Value:
    """The axes in another order."""
    if value.operation == "Transpose":
        order = [value.attributes["perm"][axis] for axis in order]
        (value,) = value.inputs
    if list(order) == list(range(len(order))):
        return value
    if value.array is not None:
        return constant(value.array.transpose(order), value.name)
    shape = tuple(value.shape[axis] for axis in order)
    return Value("Transpose", [value], shape, value.dtype, perm=tuple(order))


def slice_axis(value: Value, axis: int, begin: int, end: Size) -> Value:
    """Elements `begin` to `end` of an axis, which stays."""
    size = value.shape[axis]
    if begin == 0 and end == size:
        return value
    if value.array is not None and not end.symbols:
        place = (slice(None),) * axis + (slice(begin, end.number),)
        return constant(value.array[place], value.name)
    shape = (*value.shape[:axis], end.plus(-begin), *value.shape[axis + 1 :])
    return Value(
        "Slice", [value], shape, value.dtype, axis=axis, begin=begin, end=end
    )


def whole_of(value: Value) -> Value | None:
    """The value [..., I] whose rows [M, I] a value is."""
    if value.operation != "Reshape" or len(value.shape) != 2:
        return None
    (whole,) = value.inputs
    if len(whole.shape) < 3 or whole.shape[-1] != value.shape[-1]:
        return None
    return whole
