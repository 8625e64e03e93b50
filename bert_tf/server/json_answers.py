"""Writes responses as JSON in the format of TF Serving.

Floats have as many digits as needed and always a point or an exponent, and
outputs whose name ends with _bytes are {"b64": "..."}, see MakeJsonFrom* in
tensorflow_serving/util/json_tensor.cc.
"""

import base64
import json
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, regression_pb2

from bert_tf.server.json_requests import COLUMNS
from bert_tf.server.loaded_model import Arrays, dtype_name
from bert_tf.server.status import invalid


def write_outputs(outputs: Arrays, form: str) -> bytes:
    """Returns the response to a predict request, in the request's format."""
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    outputs = dict(sorted(outputs.items()))
    if form == COLUMNS:
        values = {
            alias: _nested(array.shape, iter(_texts(alias, array)))
            for alias, array in outputs.items()
        }
        return f'{{\n    "outputs": {_object_or_value(values)}\n}}'.encode()
    rows: int | None = None
    for alias, array in outputs.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {alias} has no shape information ")
        if rows is not None and len(array) != rows:
            raise invalid(
                f"Tensor name: {alias} has inconsistent batch size: "
                f"{len(array)} expecting: {rows}"
            )
        rows = len(array)
    texts = {alias: iter(_texts(alias, a)) for alias, a in outputs.items()}
    lines = []
    for _ in range(rows or 0):
        values = {
            alias: _nested(array.shape[1:], texts[alias])
            for alias, array in outputs.items()
        }
        lines.append(f"        {_object_or_value(values)}")
    joined = ",\n".join(lines)
    return f'{{\n    "predictions": [\n{joined}\n    ]\n}}'.encode()


def _object_or_value(values: dict[str, str]) -> str:
    if len(values) == 1:
        return next(iter(values.values()))
    pairs = (f"{json.dumps(alias)}: {v}" for alias, v in values.items())
    return f"{{{', '.join(pairs)}}}"


def _nested(shape: tuple[int, ...], texts: Iterator[str]) -> str:
    if not shape:
        return next(texts)
    inside = (_nested(shape[1:], texts) for _ in range(shape[0]))
    return f"[{', '.join(inside)}]"


def _texts(alias: str, array: np.ndarray) -> list[str]:
    """Returns every value of an array as JSON."""
    flat = array.ravel()
    if array.dtype == object:
        if alias.endswith("_bytes"):
            return [
                f'{{"b64": "{base64.b64encode(value).decode()}"}}'
                for value in flat
            ]
        return [write_string(value) for value in flat]
    if array.dtype in (np.float32, np.float64):
        return write_floats(flat)
    if array.dtype == np.bool_:
        return ["true" if value else "false" for value in flat.tolist()]
    if np.issubdtype(array.dtype, np.integer):
        return [str(value) for value in flat.tolist()]
    raise invalid(
        "Failed to write JSON value for tensor type: "
        f"{dtype_name(tf.as_dtype(array.dtype).as_datatype_enum)}"
    )


def write_string(value: bytes) -> str:
    """Returns a string of a tensor as JSON; invalid UTF-8 becomes U+FFFD."""
    return json.dumps(value.decode("utf-8", "replace"), ensure_ascii=False)


def write_floats(flat: np.ndarray) -> list[str]:
    """Returns floats with the digits of TF Serving.

    These are six if they identify the float, and 9, or 17 for float64,
    otherwise.
    """
    digits = 9 if flat.dtype == np.float32 else 17
    values = flat.tolist()
    texts = [f"{value:.6g}" for value in values]
    exact = np.array(texts, flat.dtype) == flat
    return [
        _decimal(text if same else f"{value:.{digits}g}", value)
        for text, same, value in zip(texts, exact, values, strict=True)
    ]


def _decimal(text: str, value: float) -> str:
    if not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    return text if "." in text or "e" in text else f"{text}.0"


def write_classification(
    result: classification_pb2.ClassificationResult,
) -> bytes:
    """Returns the labels and scores of each example as JSON."""
    lines = []
    for row in result.classifications:
        pairs = (
            f"[{write_string(one.label.encode())}, {_float(one.score)}]"
            for one in row.classes
        )
        lines.append(f"        [{', '.join(pairs)}]")
    joined = ",\n".join(lines)
    return f'{{\n    "results": [\n{joined}\n    ]\n}}'.encode()


def write_regression(result: regression_pb2.RegressionResult) -> bytes:
    """Returns the number of each example as JSON."""
    values = ", ".join(_float(one.value) for one in result.regressions)
    return f'{{\n    "results": [{values}]\n}}'.encode()


def _float(value: float) -> str:
    return write_floats(np.array([value], np.float32))[0]
