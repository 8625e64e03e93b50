"""The intermediate graph from which model files are written.

Operations have the names of ONNX. Sizes are computed symbolically here, in
terms of the batch and length that are known only at run time, so that files
contain no shape computation.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import UserError

# Inputs or outputs by name.
Arrays = dict[str, np.ndarray]
BATCH, LENGTH = "batch", "length"
INPUT, CONSTANT, SIZES = "Input", "Constant", "Sizes"
LAYER_NORM, GELU = "LayerNormalization", "Gelu"
# Internal: a product with it becomes Gather.
ONE_HOT = "OneHotRows"


def is_of_tokens(output: str, rank: int) -> bool:
    """Whether the second axis of an output of a model is that of tokens."""
    return rank == 3 or output in ("start_logits", "end_logits")


class UnknownError(Exception):
    """Raised for an unsupported form of an operation."""


class Size(NamedTuple):
    """Size of an axis: number * product of symbols + added.

    Symbols are sizes that are known only at run time.
    """

    number: int
    symbols: tuple[str, ...] = ()
    added: int = 0

    def plus(self, number: int) -> "Size":
        """Adds a number."""
        if not self.symbols:
            return Size(self.number + number)
        return self._replace(added=self.added + number)

    def times(self, other: "Size") -> "Size":
        """Multiplies two sizes."""
        if ONE in (self, other):
            return self if other == ONE else other
        if self.added or other.added:
            raise UnknownError
        symbols = tuple(sorted(self.symbols + other.symbols))
        return Size(self.number * other.number, symbols)

    def over(self, other: "Size") -> "Size":
        """Divides by a size that is a factor."""
        symbols = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in symbols or self.added or other.added:
                raise UnknownError
            symbols.remove(symbol)
        return Size(self.number // other.number, tuple(symbols), self.added)


Shape = tuple[Size, ...]
ONE = Size(1)


class Value:
    """A tensor of the graph and the operation that computes it.

    Attributes:
      operation: INPUT, CONSTANT, SIZES, LAYER_NORM, GELU or an ONNX operator.
      inputs: inputs of the operation.
      shape: symbolic shape.
      dtype: NumPy dtype.
      name: name of an input or weight.
      array: value of a constant.
      sizes: elements of a scalar or vector of sizes.
      attributes: attributes of the operation.
      computed: LAYER_NORM and GELU decomposed into smaller operations.
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
      outputs: output tensors by name.
    """

    inputs: list[Value]
    outputs: dict[str, Value]


def unsupported(source: str, operation: str) -> UserError:
    """Returns the error for an operation that a file format lacks.

    Args:
      source: name of the model.
      operation: name of the operation.
    """
    return UserError(
        f"{source}: computes {operation}, which such a file cannot; give "
        "`file_format` saved_model."
    )


def constant(array: np.ndarray, name: str = "") -> Value:
    """Creates a constant; integer scalars and vectors are sizes too."""
    sizes = None
    if array.dtype in (np.int32, np.int64) and array.ndim < 2:
        sizes = tuple(Size(int(number)) for number in array.reshape(-1))
    shape = tuple(map(Size, array.shape))
    return Value(CONSTANT, (), shape, array.dtype, name, array, sizes)


def of_sizes(sizes: Shape, shape: Shape, dtype: Any = np.int32) -> Value:
    """Creates a scalar or vector of sizes."""
    if any(size.symbols for size in sizes):
        return Value(SIZES, (), shape, dtype, sizes=sizes)
    array = np.array([size.number for size in sizes], dtype)
    return constant(array.reshape([size.number for size in shape]))


def count(sizes: Sequence[Size]) -> Size:
    """Returns the product of sizes."""
    return functools.reduce(Size.times, sizes, ONE)


def reshape(value: Value, shape: Sequence[Size]) -> Value:
    """Reshapes a value; merges consecutive reshapes."""
    shape = tuple(shape)
    rows = (count(value.shape[:-1]), *value.shape[-1:])
    # A reshape to rows is kept, since `whole_of` looks for it.
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
    """Permutes axes; merges consecutive permutations."""
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
    """Slices an axis from `begin` to `end`."""
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
    """Returns the value [..., I] of which a value [M, I] is a reshape."""
    if value.operation != "Reshape" or len(value.shape) != 2:
        return None
    (whole,) = value.inputs
    if len(whole.shape) < 3 or whole.shape[-1] != value.shape[-1]:
        return None
    return whole
