"""Predict, classify and regress, whichever way a request came in."""

import math
import time

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    model_pb2,
    prediction_log_pb2,
    regression_pb2,
)

from bert_tf.server.loaded_model import (
    DEFAULT_SIGNATURE,
    Arrays,
    Signature,
)
from bert_tf.server.metrics import Metrics
from bert_tf.server.status import RequestError, invalid
from bert_tf.server.versions import Version

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
_LARGEST_TENSOR = 1 << 28


def answered_by(version: Version, signature: str) -> model_pb2.ModelSpec:
    """Which model, version and signature gave an answer."""
    spec = model_pb2.ModelSpec(
        name=version.model, signature_name=signature or DEFAULT_SIGNATURE
    )
    spec.version.value = version.number
    return spec


def signature_of(version: Version, name: str) -> Signature:
    """The signature that a predict request names."""
    signature = version.loaded.signature(name)
    if signature is None:
        raise RequestError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found.',
        )
    return signature


async def predict(
    version: Version, signature: Signature, inputs: Arrays, metrics: Metrics
) -> Arrays:
    """Runs a signature on arrays."""
    signature.check(inputs)
    return await _run(version, signature, inputs, "Predict", metrics)


async def _run(
    version: Version,
    signature: Signature,
    inputs: Arrays,
    api: str,
    metrics: Metrics,
) -> Arrays:
    start = time.monotonic()
    outputs = await version.run(signature, inputs)
    metrics.run(version.model, api, time.monotonic() - start)
    return outputs


def filtered(outputs: Arrays, signature: Signature, wanted: list) -> Arrays:
    """The outputs that a request asks for, all where it names none."""
    for alias in wanted:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs "
                f"expected to be in the set "
                f"{{{','.join(sorted(signature.outputs))}}}."
            )
        if wanted.count(alias) > 1:
            raise invalid(f"duplicate output tensor alias: {alias}")
    return {alias: outputs[alias] for alias in wanted or outputs}


def array_of(alias: str, tensor: tensor_pb2.TensorProto) -> np.ndarray:
    """The array in a tensor that came over the wire."""
    # One value may stand for a whole tensor: a few bytes must not become
    # more memory than there is.
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    if min(sizes, default=0) < 0 or math.prod(sizes) > _LARGEST_TENSOR:
        raise invalid(f'input "{alias}" cannot have the shape {sizes}')
    try:
        array = tf.make_ndarray(tensor)
    except (ValueError, TypeError, IndexError) as error:
        raise invalid(
            f'input "{alias}": tensor parsing error: {error}'
        ) from error
    if array.dtype.kind in "SU":
        array = array.astype(object)
    return array


def tensor_of(array: np.ndarray) -> tensor_pb2.TensorProto:
    """An array for the wire: in the typed fields, where clients look."""
    dtype = tf.as_dtype(array.dtype).as_datatype_enum
    tensor = tensor_pb2.TensorProto(dtype=dtype)
    tensor.tensor_shape.SetInParent()
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    flat = array.ravel()
    field = _FIELDS.get(dtype)
    if field:
        getattr(tensor, field).extend(flat.tolist())
    else:
        tensor.tensor_content = flat.tobytes()
    return tensor


_FIELDS = {
    types_pb2.DT_STRING: "string_val",
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
    types_pb2.DT_BOOL: "bool_val",
}


def serialized_examples(given: input_pb2.Input) -> np.ndarray:
    """The tf.Examples of a request, each with the shared context."""
    shared = b""
    examples = given.example_list.examples
    if given.WhichOneof("kind") == "example_list_with_context":
        shared = given.example_list_with_context.context.SerializeToString()
        examples = given.example_list_with_context.examples
    if not examples:
        raise invalid("Input is empty.")
    array = np.empty(len(examples), object)
    # Serialized messages that follow each other merge.
    array[:] = [shared + example.SerializeToString() for example in examples]
    return array


def _example_signature(
    version: Version, name: str, outputs: tuple[set[str], ...], kind: str
) -> Signature:
    """A signature that takes tf.Examples and has such outputs."""
    signature = version.loaded.signature(name)
    if signature is None:
        raise invalid(
            f"No signature was found with the name: {name or DEFAULT_SIGNATURE}"
        )
    if set(signature.inputs) != {"inputs"}:
        raise invalid(
            f'signature "{signature.name}" does not {kind}: expected one input '
            f'Tensor, "inputs", but it has {", ".join(signature.inputs)}'
        )
    if set(signature.outputs) not in outputs:
        want = " or ".join(", ".join(sorted(names)) for names in outputs)
        raise invalid(
            f'signature "{signature.name}" does not {kind}: expected the '
            f"outputs {want}, but it has {', '.join(signature.outputs)}"
        )
    return signature


async def classify(
    version: Version, name: str, given: input_pb2.Input, metrics: Metrics
) -> classification_pb2.ClassificationResult:
    """Labels and scores of tf.Examples."""
    kinds = ({"classes", "scores"}, {"classes"}, {"scores"})
    signature = _example_signature(version, name, kinds, "classify")
    examples = serialized_examples(given)
    signature.check({"inputs": examples})
    outputs = await _run(
        version, signature, {"inputs": examples}, "Classify", metrics
    )
    metrics.examples(version.model, len(examples))
    for alias, array in outputs.items():
        if array.ndim != 2 or len(array) != len(examples):
            raise invalid(
                f"Expected {alias} of shape [{len(examples)}, num_classes] "
                f"but got {list(array.shape)}"
            )
    if len({array.shape for array in outputs.values()}) > 1:
        raise invalid("classes and scores differ in shape")
    result = classification_pb2.ClassificationResult()
    for row in range(len(examples)):
        classes = result.classifications.add().classes
        for column in range(next(iter(outputs.values())).shape[1]):
            one = classes.add()
            if "classes" in outputs:
                label = outputs["classes"][row, column]
                one.label = label.decode("utf-8", "replace")
            if "scores" in outputs:
                one.score = outputs["scores"][row, column]
    return result


async def regress(
    version: Version, name: str, given: input_pb2.Input, metrics: Metrics
) -> regression_pb2.RegressionResult:
    """One number for each tf.Example."""
    signature = _example_signature(version, name, ({"outputs"},), "regress")
    examples = serialized_examples(given)
    signature.check({"inputs": examples})
    outputs = await _run(
        version, signature, {"inputs": examples}, "Regress", metrics
    )
    metrics.examples(version.model, len(examples))
    values = outputs["outputs"]
    if values.shape not in ((len(examples),), (len(examples), 1)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or "
            f"[batch_size, 1] but got {list(values.shape)}"
        )
    result = regression_pb2.RegressionResult()
    for value in values.ravel().tolist():
        result.regressions.add(value=value)
    return result


async def multi_inference(
    version: Version,
    request: inference_pb2.MultiInferenceRequest,
    metrics: Metrics,
) -> inference_pb2.MultiInferenceResponse:
    """Several signatures of one model on the same tf.Examples."""
    response = inference_pb2.MultiInferenceResponse()
    asked = [
        task.model_spec.signature_name or DEFAULT_SIGNATURE
        for task in request.tasks
    ]
    for name in asked:
        if asked.count(name) > 1:
            raise invalid(f"Duplicate evaluation of signature: {name}")
    for task, name in zip(request.tasks, asked, strict=True):
        result = response.results.add()
        result.model_spec.CopyFrom(answered_by(version, name))
        if task.method_name == CLASSIFY:
            result.classification_result.CopyFrom(
                await classify(version, name, request.input, metrics)
            )
        elif task.method_name == REGRESS:
            result.regression_result.CopyFrom(
                await regress(version, name, request.input, metrics)
            )
        else:
            raise RequestError(
                grpc.StatusCode.UNIMPLEMENTED,
                f"Unsupported signature method_name: {task.method_name}",
            )
    return response


async def replay(
    version: Version, log: prediction_log_pb2.PredictionLog, metrics: Metrics
) -> None:
    """Runs one recorded request, to warm a model up."""
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        signature = signature_of(version, request.model_spec.signature_name)
        inputs = {a: array_of(a, t) for a, t in request.inputs.items()}
        await predict(version, signature, inputs, metrics)
    elif kind == "classify_log":
        request = log.classify_log.request
        name = request.model_spec.signature_name
        await classify(version, name, request.input, metrics)
    elif kind == "regress_log":
        request = log.regress_log.request
        name = request.model_spec.signature_name
        await regress(version, name, request.input, metrics)
    elif kind == "multi_inference_log":
        request = log.multi_inference_log.request
        await multi_inference(version, request, metrics)
    else:
        raise RequestError(
            grpc.StatusCode.UNIMPLEMENTED,
            f"Unsupported log_type for warmup: {kind}",
        )
