"""Arrays from JSON, by the rules of TF Serving's REST API.

The rules are those of tensorflow_serving/util/json_tensor.cc: values are typed
strictly (1.0 is no integer, 1 is a float too), "instances" are rows, "inputs"
are columns, and bytes are {"b64": "..."}.
"""

import base64
import binascii
import json
import math
from collections.abc import Iterator

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from bert_tf.server.loaded_model import Arrays, Tensor
from bert_tf.server.status import RequestError, invalid

ROWS = "instances"
COLUMNS = "inputs"
_SHOWN = 256
_INTEGERS = {
    types_pb2.DT_INT8: np.int8,
    types_pb2.DT_INT16: np.int16,
    types_pb2.DT_INT32: np.int32,
    types_pb2.DT_INT64: np.int64,
    types_pb2.DT_UINT8: np.uint8,
    types_pb2.DT_UINT32: np.uint32,
    types_pb2.DT_UINT64: np.uint64,
}
_FLOATS = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE)


def parse(body: bytes) -> dict:
    """The JSON object of a request's body.

    As in TF Serving, whatever follows the object is not read; unlike there,
    text must be UTF-8, so that what arrives is what was meant.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8-sig").lstrip(" \t\r\n")
        value, _ = json.JSONDecoder().raw_decode(text)
    except UnicodeDecodeError as error:
        raise invalid(
            "JSON Parse error: Invalid UTF-8 encoding in string at offset: "
            f"{error.start}; bytes go into {{'b64': '...'}}"
        ) from error
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        raise invalid(
            f"JSON Parse error: {error.msg} at offset: {offset}"
        ) from error
    except RecursionError as error:
        raise invalid("JSON Parse error: nested too deeply") from error
    except ValueError as error:  # An integer of thousands of digits.
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(value, dict):
        raise invalid(f"JSON Value: {shown(value)} Is not object")
    return value


def shown(value: object) -> str:
    """A JSON value for an error message, cut where it is long."""
    pieces, length = [], 0
    try:
        for piece in json.JSONEncoder().iterencode(value):
            pieces.append(piece)
            length += len(piece)
            if length >= _SHOWN:
                break
    except RecursionError:
        pass
    return "".join(pieces)[:_SHOWN]


def type_name(value: object) -> str:
    """The JSON type of a value, as TF Serving calls it."""
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
    """The signature a request asks for; empty means the default."""
    name = request.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {shown(request)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def is_base64(value: object) -> bool:
    """Whether a value is {"b64": "..."}."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(value.get("b64"), str)
    )


def from_base64(value: object) -> bytes:
    """The bytes of {"b64": "..."}."""
    if not is_base64(value):
        raise invalid(
            f"JSON Value: {shown(value)} not formatted correctly for base64 "
            "data"
        )
    text = "".join(value["b64"].split()).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("Unable to base64 decode") from error


def to_bytes(text: str) -> bytes:
    """A JSON string as the UTF-8 that goes into a tensor."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid(
            "JSON Parse error: The surrogate pair in string is invalid."
        ) from error


def read_inputs(
    request: dict, tensors: dict[str, Tensor]
) -> tuple[Arrays, str]:
    """The arrays of a predict request, and its format, ROWS or COLUMNS."""
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
    if isinstance(rows[0], dict) and not is_base64(rows[0]):
        columns = _columns_of_objects(rows, tensors)
    else:
        for number, row in enumerate(rows):
            if isinstance(row, dict) and not is_base64(row):
                raise invalid(
                    "Expecting value/list but got object at item "
                    f"{number} of input list"
                )
        columns = {next(iter(tensors)): rows}
    return {
        alias: _stack(values, alias, tensors[alias])
        for alias, values in columns.items()
    }


def _columns_of_objects(rows: list, tensors: dict[str, Tensor]) -> dict:
    columns: dict[str, list] = {alias: [] for alias in tensors}
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or is_base64(row):
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


def _stack(values: list, alias: str, tensor: Tensor) -> np.ndarray:
    """One array from the values of the rows, which must agree in shape."""
    shape = _shape(values[0])
    flat: list = []
    for number, value in enumerate(values):
        try:
            have = _shape(value)
            if have != shape:
                raise invalid(
                    f"Expecting shape {_brackets(shape)} but got: "
                    f"{_brackets(have)}"
                )
            flat.extend(_leaves(value, shape, tensor))
        except RequestError as error:
            raise invalid(
                f"Failed to process element: {number} key: {alias} of "
                f"'{ROWS}' list. Error: {error.code.name}: {error.message}"
            ) from error
    return _array(flat, (len(values), *shape), tensor)


def _from_columns(value: object, tensors: dict[str, Tensor]) -> Arrays:
    if not isinstance(value, dict) or is_base64(value):
        if len(tensors) > 1:
            raise invalid(
                f"{COLUMNS} is a plain value/list, but expecting an object as "
                "multiple input tensors required as per tensorinfo_map"
            )
        value = {next(iter(tensors)): value}
    for alias in value:
        # TF Serving passes over these; a mistyped name deserves better.
        if alias not in tensors:
            raise invalid(
                f"JSON object: does not have named input: {alias}; the inputs "
                f"are {','.join(sorted(tensors))}"
            )
    arrays = {}
    for alias, tensor in tensors.items():
        if alias not in value:
            raise invalid(
                f"Missing named input: {alias} in '{COLUMNS}' object."
            )
        shape = _shape(value[alias])
        flat = list(_leaves(value[alias], shape, tensor))
        arrays[alias] = _array(flat, shape, tensor)
    return arrays


def _shape(value: object) -> tuple[int, ...]:
    """The shape of nested lists, along their first elements."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _brackets(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _leaves(
    value: object, shape: tuple[int, ...], tensor: Tensor, level: int = 0
) -> Iterator[object]:
    """The values in nested lists, which must be of one shape and type."""
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
            return from_base64(value)
        if isinstance(value, str):
            return to_bytes(value)
    elif kind in _FLOATS:
        if number:
            return value
    elif kind in _INTEGERS:
        if number and isinstance(value, int) and _fits(value, kind):
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
        f"JSON Value: {shown(value)} Type: {type_name(value)} is not of "
        f"expected type: {tensor.dtype_name}"
    )


def _fits(value: int, kind: int) -> bool:
    limits = np.iinfo(_INTEGERS[kind])
    return limits.min <= value <= limits.max


def _array(flat: list, shape: tuple[int, ...], tensor: Tensor) -> np.ndarray:
    if tensor.dtype == types_pb2.DT_STRING:
        array = np.empty(len(flat), object)
        array[:] = flat
    else:
        dtype = tf.as_dtype(tensor.dtype).as_numpy_dtype
        # Past the largest float32 lies infinity, as in TF Serving.
        with np.errstate(over="ignore"):
            array = np.array([_float(v) for v in flat], dtype)
    return array.reshape(shape)


def _float(value: object) -> object:
    """A number that NumPy takes: integers past 64 bits become floats."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return value
