"""Tensors of protocol buffers as arrays, and arrays as tensors."""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from bert_tf.server.loaded_model import (
    MAX_DIMS,
    Arrays,
    Signature,
    dtype_name,
)
from bert_tf.server.status import invalid

# Where the values of each dtype lie: see Tensor::FromProto of TensorFlow.
_FIELDS: dict[int, tuple[str, type]] = {
    types_pb2.DT_STRING: ("string_val", object),
    types_pb2.DT_FLOAT: ("float_val", np.float32),
    types_pb2.DT_DOUBLE: ("double_val", np.float64),
    types_pb2.DT_INT8: ("int_val", np.int8),
    types_pb2.DT_INT16: ("int_val", np.int16),
    types_pb2.DT_INT32: ("int_val", np.int32),
    types_pb2.DT_UINT8: ("int_val", np.uint8),
    types_pb2.DT_UINT16: ("int_val", np.uint16),
    types_pb2.DT_INT64: ("int64_val", np.int64),
    types_pb2.DT_UINT32: ("uint32_val", np.uint32),
    types_pb2.DT_UINT64: ("uint64_val", np.uint64),
    types_pb2.DT_BOOL: ("bool_val", np.bool_),
    types_pb2.DT_HALF: ("half_val", np.float16),
    types_pb2.DT_BFLOAT16: ("half_val", tf.bfloat16.as_numpy_dtype),
    types_pb2.DT_COMPLEX64: ("scomplex_val", np.complex64),
    types_pb2.DT_COMPLEX128: ("dcomplex_val", np.complex128),
}
# What a string takes in a tensor of TensorFlow, without its bytes.
_STRING_BYTES = 24
# Values are copied in parts, so that other threads get their turn.
_PART = 1 << 14


def arrays_of(
    tensors: Mapping[str, tensor_pb2.TensorProto],
    signature: Signature,
    max_bytes: int,
) -> Arrays:
    """The inputs of a request.

    Args:
      tensors: by the names of the signature's inputs.
      signature: which inputs there are.
      max_bytes: one value may stand for a whole tensor; what all such tensors
        stand for may take this many bytes.

    Returns:
      an array for each tensor.

    Raises:
      RequestError: names or dtypes are not the signature's, or a tensor's
        values do not fit its shape.
    """
    signature.check_names(tensors)
    arrays = {}
    for alias, tensor in tensors.items():
        signature.check_dtype(alias, tensor.dtype)
        shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
        if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0:
            raise _unreadable(alias, f"no tensor has the shape {list(shape)}")
        if len(shape) > MAX_DIMS:
            raise _unreadable(alias, f"it has more than {MAX_DIMS} dimensions")
        if tensor.dtype not in _FIELDS:
            raise _unreadable(alias, f"{dtype_name(tensor.dtype)} is not taken")
        more = _bytes_to_repeat(tensor, math.prod(shape))
        if more > max_bytes:
            raise _unreadable(
                alias,
                f"its shape {list(shape)} stands for {more} bytes more than "
                f"the request holds; {max_bytes} are left",
            )
        max_bytes -= more
        try:
            arrays[alias] = _array(tensor, math.prod(shape)).reshape(shape)
        except ValueError as error:
            raise _unreadable(
                alias, f"its values do not fit the shape {list(shape)}"
            ) from error
    return arrays


def _unreadable(alias: str, why: str) -> Exception:
    return invalid(f"tensor parsing error: {alias}: {why}")


def _given(tensor: tensor_pb2.TensorProto) -> int:
    """How many values a tensor holds in its own field."""
    field, dtype = _FIELDS[tensor.dtype]
    pairs = np.issubdtype(dtype, np.complexfloating)
    return len(getattr(tensor, field)) // (2 if pairs else 1)


def _bytes_to_repeat(tensor: tensor_pb2.TensorProto, size: int) -> int:
    """The bytes of the values that the last one given stands for."""
    given = _given(tensor)
    if tensor.tensor_content or given >= size:
        return 0
    one = np.dtype(_FIELDS[tensor.dtype][1]).itemsize
    if tensor.dtype == types_pb2.DT_STRING:
        one = _STRING_BYTES + len(tensor.string_val[-1] if given else b"")
    return size * one


def _array(tensor: tensor_pb2.TensorProto, size: int) -> np.ndarray:
    """The values of a tensor, the last one repeated where some are missing.

    As in TensorFlow, values beyond its size are left out, and a tensor
    without any is of zeros or empty strings.
    """
    field, dtype = _FIELDS[tensor.dtype]
    if tensor.tensor_content:
        if tensor.dtype == types_pb2.DT_STRING:
            raise ValueError("strings lie in string_val")
        return np.frombuffer(tensor.tensor_content, dtype).copy()
    values = getattr(tensor, field)
    array: np.ndarray = np.empty(size, dtype)
    given = min(_given(tensor), size)
    wire = {"half_val": np.uint16, "scomplex_val": np.float32}.get(field)
    wire = np.float64 if field == "dcomplex_val" else wire
    flat = array.view(wire) if wire else array
    numbers = given * (len(flat) // size) if size else 0
    for start in range(0, numbers, _PART):
        part = values[start : min(start + _PART, numbers)]
        flat[start : start + len(part)] = (
            part if dtype is object else np.array(part).astype(flat.dtype)
        )
    empty = b"" if dtype is object else 0
    array[given:] = array[given - 1] if given else empty
    return array


def tensor_of(array: np.ndarray) -> tensor_pb2.TensorProto:
    """An array for the wire: in the typed fields, where clients look."""
    dtype = tf.as_dtype(array.dtype).as_datatype_enum
    tensor = tensor_pb2.TensorProto(dtype=dtype)
    tensor.tensor_shape.SetInParent()
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    flat = array.ravel()
    if dtype not in _FIELDS:
        tensor.tensor_content = flat.tobytes()
        return tensor
    field = _FIELDS[dtype][0]
    if field == "half_val":
        flat = flat.view(np.uint16)
    elif np.issubdtype(array.dtype, np.complexfloating):
        flat = flat.view(flat.real.dtype)
    values = getattr(tensor, field)
    for start in range(0, len(flat), _PART):
        values.extend(flat[start : start + _PART].tolist())
    return tensor


def size_of(arrays: Iterable[np.ndarray]) -> int:
    """About how many bytes arrays have on the wire."""
    return sum(
        array.nbytes
        if array.dtype != object
        else sum(map(len, array.ravel().tolist())) + 8 * array.size
        for array in arrays
    )
