"""Converts JSON requests to arrays by the rules of TF Serving's REST API.

The rules are those of tensorflow_serving/util/json_tensor.cc: types are strict
(1.0 is not an integer, 1 is also a float), "instances" are rows, "inputs" are
columns, and bytes are {"b64": "..."}.
"""

import base64
import binascii
import itertools
import math
from collections.abc import Iterator
from typing import Any, TypeGuard

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import input_pb2

from bert_tf.server.json_parser import shown, to_double
from bert_tf.server.loaded_model import MAX_DIMS, Arrays, Tensor
from bert_tf.server.status import RequestError, invalid

ROWS = "instances"
COLUMNS = "inputs"
_EXAMPLES = "examples"
_CONTEXT = "context"
# The rows are another dimension.
_MAX_DEPTH = MAX_DIMS - 1
_INTEGERS: dict[int, type[np.integer]] = {
    types_pb2.DT_INT8: np.int8,
    types_pb2.DT_INT16: np.int16,
    types_pb2.DT_INT32: np.int32,
    types_pb2.DT_INT64: np.int64,
    types_pb2.DT_UINT8: np.uint8,
    types_pb2.DT_UINT32: np.uint32,
    types_pb2.DT_UINT64: np.uint64,
}
_FLOATS = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE)
# For values converted in bulk their Python types, and a dtype that holds them.
_SIMPLE: dict[int, tuple[set[type], type]] = {
    **dict.fromkeys(_INTEGERS, ({int}, np.int64)),
    **dict.fromkeys(_FLOATS, ({int, float}, np.float64)),
    types_pb2.DT_UINT64: ({int}, np.uint64),
    types_pb2.DT_BOOL: ({bool}, np.bool_),
    types_pb2.DT_STRING: ({str}, object),
}
# Number of values converted at a time, between which other threads can run.
_PART = 1 << 14


def _type_name(value: object) -> str:
    """Returns TF Serving's name of the JSON type of a value."""
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, str):
        return "String"
    if isinstance(value, list):
        return "Array"
    return "Object" if isinstance(value, dict) else "Number"


def signature_name(request: dict) -> str:
    """Returns the signature that a request names; empty for the default."""
    name = request.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {shown(request)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def _is_base64(value: object) -> TypeGuard[dict[str, str]]:
    """Returns whether a value is {"b64": "..."}."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(value.get("b64"), str)
    )


def _from_base64(value: object) -> bytes:
    """Decodes {"b64": "..."}."""
    if not _is_base64(value):
        raise invalid(
            f"JSON Value: {shown(value)} not formatted correctly for base64 "
            "data"
        )
    text = "".join(value["b64"].split()).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("Unable to base64 decode") from error


def _to_bytes(text: str) -> bytes:
    """Encodes a JSON string as UTF-8, for a tensor."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid(
            "JSON Parse error: The surrogate pair in string is invalid."
        ) from error


def read_inputs(
    request: dict, tensors: dict[str, Tensor]
) -> tuple[Arrays, str]:
    """Returns the arrays of a predict request and its format.

    The format is ROWS or COLUMNS.
    """
    if ROWS in request and COLUMNS in request:
        raise invalid(
            f"JSON Value: {shown(request)} Not formatted correctly expecting "
            f"only one of '{COLUMNS}' or '{ROWS}' keys to exist "
        )
    if ROWS in request:
        return _from_rows(request, tensors), ROWS
    if COLUMNS in request:
        return _from_columns(request[COLUMNS], tensors), COLUMNS
    raise invalid(f"Missing '{COLUMNS}' or '{ROWS}' key")


def _from_rows(request: dict, tensors: dict[str, Tensor]) -> Arrays:
    rows = request[ROWS]
    if not isinstance(rows, list):
        raise invalid(
            f"JSON Value: {shown(request)} Expecting '{ROWS}' to be an "
            "list/array"
        )
    if not rows:
        raise invalid(
            f"JSON Value: {shown(request)} No values in '{ROWS}' array"
        )
    if not isinstance(rows[0], dict) and len(tensors) > 1:
        raise invalid(
            f"{ROWS} is a plain list, but expecting list of objects as "
            "multiple input tensors required as per tensorinfo_map"
        )
    if isinstance(rows[0], dict) and not _is_base64(rows[0]):
        columns = _columns_of_objects(rows, tensors)
    else:
        for number, row in enumerate(rows):
            if isinstance(row, dict) and not _is_base64(row):
                raise invalid(
                    "Expecting value/list but got object at item "
                    f"{number} of input list"
                )
        (tensor,) = tensors.values()
        return {next(iter(tensors)): _stack(rows, "", tensor)}
    return {
        alias: _stack(values, f" key: {alias}", tensors[alias])
        for alias, values in columns.items()
    }


def _columns_of_objects(rows: list, tensors: dict[str, Tensor]) -> dict:
    columns: dict[str, list] = {alias: [] for alias in tensors}
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or _is_base64(row):
            raise invalid(
                f"Expecting object but got list at item {number} of input list"
            )
        for alias in row:
            if alias not in tensors:
                raise invalid(
                    f"Failed to process element: {number} key: {alias} of "
                    f"'{ROWS}' list. Error: INVALID_ARGUMENT: JSON object: "
                    f"does not have named input: {alias}"
                )
        if row.keys() != tensors.keys():
            raise invalid(
                f"Failed to process element: {number} of '{ROWS}' list. JSON "
                f"object: {shown(row)} keys must be equal to: "
                f"{','.join(sorted(tensors))}"
            )
        for alias, value in row.items():
            columns[alias].append(value)
    return columns


def _stack(values: list, where: str, tensor: Tensor) -> np.ndarray:
    """Stacks the values of the rows, which must have the same shape."""
    shape = _shape(values[0])
    whole = (len(values), *shape)
    array = _in_bulk(values, whole, tensor)
    if array is not None:
        return array
    flat: list = []
    for number, value in enumerate(values):
        try:
            actual = _shape(value)
            leaves = list(_leaves(value, actual, tensor))
            if math.prod(actual) != math.prod(shape):
                raise invalid(
                    f"Expecting tensor size: {math.prod(shape)} but got: "
                    f"{math.prod(actual)}"
                )
            if actual != shape:
                raise invalid(
                    f"Expecting shape {_brackets(shape)} but got: "
                    f"{_brackets(actual)}"
                )
            flat += leaves
        except RequestError as error:
            raise RequestError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Failed to process element: {number}{where} of '{ROWS}' "
                f"list. Error: {error.code.name}: {error.message}",
            ) from error
    return _array(flat, whole, tensor)


def _from_columns(value: object, tensors: dict[str, Tensor]) -> Arrays:
    if not isinstance(value, dict) or _is_base64(value):
        if len(tensors) > 1:
            raise invalid(
                f"{COLUMNS} is a plain value/list, but expecting an object as "
                "multiple input tensors required as per tensorinfo_map"
            )
        value = {next(iter(tensors)): value}
    arrays = {}
    for alias, tensor in tensors.items():
        if alias not in value:
            raise invalid(
                f"Missing named input: {alias} in '{COLUMNS}' object."
            )
        shape = _shape(value[alias])
        array = _in_bulk(value[alias], shape, tensor)
        if array is None:
            flat = list(_leaves(value[alias], shape, tensor))
            array = _array(flat, shape, tensor)
        arrays[alias] = array
    return arrays


def _shape(value: object) -> tuple[int, ...]:
    """Returns the shape of nested lists, along their first elements."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    if len(shape) > _MAX_DEPTH:
        raise invalid(f"lists are nested more than {_MAX_DEPTH} deep")
    return tuple(shape)


def _brackets(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _leaves(
    value: object, shape: tuple[int, ...], tensor: Tensor, level: int = 0
) -> Iterator[object]:
    """Yields the values of nested lists, checking their shape and type."""
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {shown(value)} found at incorrect level: "
                f"{level + 1} in the JSON DOM. Expected at level: {len(shape)}"
            )
        yield _leaf(value, tensor)
        return
    if level >= len(shape):
        raise invalid(
            f"Encountered list at unexpected level: {level} expected < "
            f"{len(shape)}"
        )
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: "
            f"{level} expected size: {shape[level]}"
        )
    if level == len(shape) - 1 and not any(isinstance(v, list) for v in value):
        yield from (_leaf(item, tensor) for item in value)
        return
    for item in value:
        yield from _leaves(item, shape, tensor, level + 1)


def _leaf(value: object, tensor: Tensor) -> object:
    kind = tensor.dtype
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == types_pb2.DT_STRING:
        if isinstance(value, dict):
            return _from_base64(value)
        if isinstance(value, str):
            return _to_bytes(value)
    elif kind in _FLOATS:
        if number:
            return value
    elif kind in _INTEGERS:
        limits = np.iinfo(_INTEGERS[kind])
        if (
            number
            and isinstance(value, int)
            and limits.min <= value <= limits.max
        ):
            return value
    elif kind == types_pb2.DT_BOOL:
        if isinstance(value, bool):
            return value
    else:
        raise RequestError(
            grpc.StatusCode.UNIMPLEMENTED,
            f"Conversion of JSON Value: {shown(value)} to type: "
            f"{tensor.dtype_name}",
        )
    raise invalid(
        f"JSON Value: {shown(value)} Type: {_type_name(value)} is not of "
        f"expected type: {tensor.dtype_name}"
    )


def _array(flat: list, shape: tuple[int, ...], tensor: Tensor) -> np.ndarray:
    """Converts values checked by `_leaf` to an array."""
    array = np.empty(len(flat), tf.as_dtype(tensor.dtype).as_numpy_dtype)
    if tensor.dtype in _FLOATS:
        flat = [to_double(value) for value in flat]
    # Values above the largest float32 become infinity, as in TF Serving.
    with np.errstate(over="ignore"):
        array[:] = flat
    return array.reshape(shape)


def _in_bulk(
    value: object, shape: tuple[int, ...], tensor: Tensor
) -> np.ndarray | None:
    """Converts nested lists like `_leaves` and `_array`, but many times faster.

    Returns:
      None unless all values are of the simple types of the dtype; `_leaves`
      then finds the error or converts mixed types.
    """
    flat: list[Any] = [value]
    for size in shape:
        if set(map(type, flat)) != {list} or set(map(len, flat)) != {size}:
            return None
        flat = list(itertools.chain.from_iterable(flat))
    dtype = tensor.dtype
    types, wide = _SIMPLE.get(dtype, (set(), object))
    array = np.empty(len(flat), tf.as_dtype(dtype).as_numpy_dtype)
    for start in range(0, len(flat), _PART):
        part = flat[start : start + _PART]
        if not set(map(type, part)) <= types:
            return None
        try:
            if dtype == types_pb2.DT_STRING:
                part = [text.encode() for text in part]
            numbers: np.ndarray = np.array(part, wide)
        except (OverflowError, UnicodeEncodeError):
            return None
        if dtype in _INTEGERS:
            limits = np.iinfo(_INTEGERS[dtype])
            if numbers.min() < limits.min or numbers.max() > limits.max:
                return None
        with np.errstate(over="ignore"):
            array[start : start + len(part)] = numbers
    return array.reshape(shape)


def read_examples(request: dict) -> input_pb2.Input:
    """Returns the tf.Examples of a request, with their context if any."""
    data = input_pb2.Input()
    target = data.example_list.examples
    if _CONTEXT in request:
        shared = data.example_list_with_context
        shared.context.CopyFrom(_example(request[_CONTEXT]))
        target = shared.examples
    if _EXAMPLES not in request:
        raise invalid(
            f"JSON Value: {shown(request)} When method is classify, key "
            f"'{_EXAMPLES}' is expected and was not found"
        )
    examples = request[_EXAMPLES]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {shown(request)} Expecting '{_EXAMPLES}' value to "
            "be an list/array"
        )
    if not examples:
        raise invalid(
            f"JSON Value: {shown(request)} '{_EXAMPLES}' value is an empty "
            "array"
        )
    target.extend(_example(example) for example in examples)
    return data


def _example(value: object) -> tf.train.Example:
    if not isinstance(value, dict):
        raise invalid(
            "Example must be JSON object but got JSON " + _type_name(value)
        )
    example = tf.train.Example()
    for name, content in value.items():
        feature = example.features.feature[_to_bytes(name).decode()]
        for item in content if isinstance(content, list) else [content]:
            _add(item, name, feature)
    return example


def _add(value: object, name: str, feature: tf.train.Feature) -> None:
    kind: str
    item: bytes | int | float
    if isinstance(value, str):
        kind, item = "bytes_list", _to_bytes(value)
    elif _is_base64(value):
        kind, item = "bytes_list", _from_base64(value)
    elif isinstance(value, bool):
        kind, item = "int64_list", int(value)
    elif isinstance(value, int):
        kind, item = "int64_list", value
        if not -(2**63) <= value < 2**64:
            kind, item = "float_list", to_double(value)
        elif value >= 2**63:
            raise invalid(
                f"Feature: {name} has uint64_t element. Only int64_t is "
                "supported."
            )
    elif isinstance(value, float):
        kind, item = "float_list", value
    else:
        raise invalid(
            f"Feature: {name} has element with unexpected JSON type: "
            f"{_type_name(value)}"
        )
    expected = feature.WhichOneof("kind")
    if expected not in (None, kind):
        raise invalid(
            f"Unexpected element type in feature: {name} expecting type: "
            f"{expected.removesuffix('_list')}"
        )
    getattr(feature, kind).value.append(item)
