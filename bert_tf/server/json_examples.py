"""The JSON of :classify and :regress, by TF Serving's rules."""

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    input_pb2,
    regression_pb2,
)

from bert_tf.server.json_outputs import write_floats, write_string
from bert_tf.server.json_parser import shown, to_double
from bert_tf.server.json_tensors import (
    from_base64,
    is_base64,
    to_bytes,
    type_name,
)
from bert_tf.server.status import invalid

_EXAMPLES = "examples"
_CONTEXT = "context"


def read_examples(request: dict) -> input_pb2.Input:
    """The tf.Examples of a request, with the context they share if any."""
    given = input_pb2.Input()
    into = given.example_list.examples
    if _CONTEXT in request:
        shared = given.example_list_with_context
        shared.context.CopyFrom(_example(request[_CONTEXT]))
        into = shared.examples
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
    into.extend(_example(example) for example in examples)
    return given


def _example(value: object) -> tf.train.Example:
    if not isinstance(value, dict):
        raise invalid(
            "Example must be JSON object but got JSON " + type_name(value)
        )
    example = tf.train.Example()
    for name, content in value.items():
        feature = example.features.feature[to_bytes(name).decode()]
        for item in content if isinstance(content, list) else [content]:
            _add(item, name, feature)
    return example


def _add(value: object, name: str, feature: tf.train.Feature) -> None:
    kind: str
    item: bytes | int | float
    if isinstance(value, str):
        kind, item = "bytes_list", to_bytes(value)
    elif is_base64(value):
        kind, item = "bytes_list", from_base64(value)
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
            f"{type_name(value)}"
        )
    have = feature.WhichOneof("kind")
    if have not in (None, kind):
        raise invalid(
            f"Unexpected element type in feature: {name} expecting type: "
            f"{have.removesuffix('_list')}"
        )
    getattr(feature, kind).value.append(item)


def write_classification(
    result: classification_pb2.ClassificationResult,
) -> bytes:
    """Labels with their scores for each example."""
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
    """One number for each example."""
    values = ", ".join(_float(one.value) for one in result.regressions)
    return f'{{\n    "results": [{values}]\n}}'.encode()


def _float(value: float) -> str:
    return write_floats(np.array([value], np.float32))[0]
