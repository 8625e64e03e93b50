"""Predict, classify and regress, for REST, gRPC and warm-up requests.

Converts tensors of protocol buffers to arrays and back.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    model_pb2,
    predict_pb2,
    prediction_log_pb2,
    regression_pb2,
)

from bert_tf.server.loaded_model import (
    DEFAULT_SIGNATURE,
    MAX_DIMS,
    Arrays,
    Signature,
    dtype_name,
)
from bert_tf.server.metrics import Metrics
from bert_tf.server.status import RequestError, invalid
from bert_tf.server.versions import Version

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
# Messages of more bytes or values are parsed and written in a thread, so that
# they do not block the event loop.
_LARGE = 1 << 16
# The field of the values of each dtype, see Tensor::FromProto of TensorFlow.
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
# Size of a string in a tensor of TensorFlow, without its bytes.
_STRING_BYTES = 24
# Number of values copied at a time, between which other threads can run.
_PART = 1 << 14
T = TypeVar("T")


async def off_loop(
    size: int, function: Callable[..., T], *arguments: object
) -> T:
    """Calls a function, in a thread if its data is large."""
    if size < _LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def answered_by(version: Version, signature: str) -> model_pb2.ModelSpec:
    """Returns the model, version and signature of a response."""
    spec = model_pb2.ModelSpec(
        name=version.model, signature_name=signature or DEFAULT_SIGNATURE
    )
    spec.version.value = version.number
    return spec


def signature_of(version: Version, name: str) -> Signature:
    """Returns the signature that a predict request names."""
    signature = version.graph.signature(name)
    if signature is None:
        raise RequestError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found.',
        )
    return signature


def filtered(
    outputs: Mapping[str, T], signature: Signature, aliases: list
) -> dict[str, T]:
    """Returns the outputs that a request names, or all if it names none."""
    for alias in aliases:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs "
                f"expected to be in the set "
                f"{{{','.join(sorted(signature.outputs))}}}."
            )
        if aliases.count(alias) > 1:
            raise invalid(f"duplicate output tensor alias: {alias}")
    return {alias: outputs[alias] for alias in aliases or outputs}


def _example_signature(
    version: Version, name: str, outputs: tuple[set[str], ...], kind: str
) -> Signature:
    """Returns a signature of tf.Examples, checking the names of its outputs."""
    signature = version.graph.signature(name)
    if signature is None:
        raise invalid(
            f"No signature was found with the name: {name or DEFAULT_SIGNATURE}"
        )
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if "inputs" not in signature.inputs:
        raise invalid(
            f"No {kind} inputs found in SignatureDef: {signature.name} has "
            f"the input {next(iter(signature.inputs))}"
        )
    if set(signature.outputs) not in outputs:
        want = " or ".join(", ".join(sorted(names)) for names in outputs)
        raise invalid(
            f"Expected {kind} signature outputs {want}. Signature "
            f"{signature.name} has {', '.join(signature.outputs)}"
        )
    signature.check_dtype("inputs", types_pb2.DT_STRING)
    return signature


class Predictor:
    """Runs signatures on requests.

    Args:
      metrics: records the time of every run.
      max_request_bytes: maximum size of a request, and of its tensors once
        repeated values are expanded.
    """

    def __init__(self, metrics: Metrics, max_request_bytes: int) -> None:
        self._metrics = metrics
        self._max_request_bytes = max_request_bytes

    def arrays(
        self, signature: Signature, request: predict_pb2.PredictRequest
    ) -> Arrays:
        """Returns the inputs of a request of protocol buffers.

        Raises:
          RequestError: names or dtypes differ from the signature's, or the
            values of a tensor do not fit its shape.
        """
        signature.check_names(request.inputs)
        # A single value may be expanded to a whole tensor.
        max_bytes = self._max_request_bytes
        arrays = {}
        for alias, tensor in request.inputs.items():
            signature.check_dtype(alias, tensor.dtype)
            shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
            if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0:
                raise _unreadable(
                    alias, f"no tensor has the shape {list(shape)}"
                )
            if len(shape) > MAX_DIMS:
                raise _unreadable(
                    alias, f"it has more than {MAX_DIMS} dimensions"
                )
            if tensor.dtype not in _FIELDS:
                raise _unreadable(
                    alias, f"{dtype_name(tensor.dtype)} is not taken"
                )
            more = _bytes_to_repeat(tensor, math.prod(shape))
            if more > max_bytes:
                raise _unreadable(
                    alias,
                    f"its shape {list(shape)} stands for {more} bytes more "
                    f"than the request holds; {max_bytes} are left",
                )
            max_bytes -= more
            try:
                arrays[alias] = _array(tensor, math.prod(shape)).reshape(shape)
            except ValueError as error:
                raise _unreadable(
                    alias, f"its values do not fit the shape {list(shape)}"
                ) from error
        return arrays

    async def predict(
        self, version: Version, signature: Signature, inputs: Arrays
    ) -> Arrays:
        """Runs a signature on arrays, with its defaults for missing inputs."""
        inputs = signature.defaults | inputs
        return await self._run(version, signature, inputs, "Predict")

    async def _run(
        self, version: Version, signature: Signature, inputs: Arrays, api: str
    ) -> Arrays:
        start = time.monotonic()
        outputs = await version.run(signature, inputs)
        self._metrics.run(version.model, api, time.monotonic() - start)
        return outputs

    def _serialized_examples(self, data: input_pb2.Input) -> np.ndarray:
        """Returns the tf.Examples of a request, each with the context."""
        shared = b""
        examples = data.example_list.examples
        if data.WhichOneof("kind") == "example_list_with_context":
            shared = data.example_list_with_context.context.SerializeToString()
            examples = data.example_list_with_context.examples
        if not examples:
            raise invalid("Input is empty.")
        if len(shared) * (len(examples) - 1) > self._max_request_bytes:
            raise invalid(
                f"The context of {len(shared)} bytes stands in each of "
                f"{len(examples)} examples: more than the "
                f"{self._max_request_bytes} bytes that a request may hold"
            )
        array = np.empty(len(examples), object)
        # Concatenated serialized messages are merged by the parser.
        array[:] = [
            shared + example.SerializeToString() for example in examples
        ]
        return array

    async def _run_examples(
        self,
        version: Version,
        signature: Signature,
        data: input_pb2.Input,
        api: str,
    ) -> tuple[int, Arrays]:
        """Returns the number of tf.Examples and the outputs of a signature."""
        examples = await off_loop(
            data.ByteSize(), self._serialized_examples, data
        )
        outputs = await self._run(version, signature, {"inputs": examples}, api)
        self._metrics.examples(version.model, len(examples))
        return len(examples), outputs

    async def classify(
        self, version: Version, name: str, data: input_pb2.Input
    ) -> classification_pb2.ClassificationResult:
        """Returns labels and scores of tf.Examples."""
        kinds = ({"classes", "scores"}, {"classes"}, {"scores"})
        signature = _example_signature(version, name, kinds, "classification")
        rows, outputs = await self._run_examples(
            version, signature, data, "Classify"
        )
        for alias, array in outputs.items():
            if array.ndim != 2:
                raise invalid(
                    "Expected Tensor shape: [batch_size num_classes] but got "
                    f"{list(array.shape)}"
                )
            if len(array) != rows:
                raise invalid(
                    f"Expected {alias} output batch size of {rows}. Got: "
                    f"{len(array)}"
                )
        if len({array.shape for array in outputs.values()}) > 1:
            raise invalid(
                "Tensors class and score should match in dim_size(1)."
            )
        size = sum(array.size for array in outputs.values())
        return await off_loop(size, _classifications, rows, outputs)

    async def regress(
        self, version: Version, name: str, data: input_pb2.Input
    ) -> regression_pb2.RegressionResult:
        """Returns a number for each tf.Example."""
        kinds = ({"outputs"},)
        signature = _example_signature(version, name, kinds, "regression")
        rows, outputs = await self._run_examples(
            version, signature, data, "Regress"
        )
        values = outputs["outputs"]
        if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
            raise invalid(
                "Expected output Tensor shape to be either [batch_size] or "
                f"[batch_size, 1] but got {list(values.shape)}"
            )
        if len(values) != rows:
            raise invalid(
                "Input batch size did not match output batch size: "
                f"{rows} vs. {len(values)}"
            )
        result = regression_pb2.RegressionResult()
        for value in values.ravel().tolist():
            result.regressions.add(value=value)
        return result

    async def multi_inference(
        self, version: Version, request: inference_pb2.MultiInferenceRequest
    ) -> inference_pb2.MultiInferenceResponse:
        """Runs several signatures of a model on the same tf.Examples."""
        names: list[str] = []
        # Checked in TensorFlow Serving's order (multi_inference.cc).
        for task in request.tasks:
            if not task.model_spec.name:
                raise invalid("Found ModelSpec with an empty model name.")
            if task.model_spec.name != request.tasks[0].model_spec.name:
                raise invalid(
                    "All ModelSpecs in a MultiInferenceRequest must access the "
                    "same model name."
                )
            name = task.model_spec.signature_name or DEFAULT_SIGNATURE
            if name in names:
                raise invalid(f"Duplicate evaluation of signature: {name}")
            if version.graph.signature(name) is None:
                raise invalid(
                    f"Requested signature not found in model graph: {name}"
                )
            if task.method_name not in (CLASSIFY, REGRESS):
                raise RequestError(
                    grpc.StatusCode.UNIMPLEMENTED,
                    f"Unsupported signature method_name: {task.method_name}",
                )
            names.append(name)
        response = inference_pb2.MultiInferenceResponse()
        for task, name in zip(request.tasks, names, strict=True):
            result = response.results.add()
            result.model_spec.CopyFrom(answered_by(version, name))
            if task.method_name == CLASSIFY:
                result.classification_result.CopyFrom(
                    await self.classify(version, name, request.input)
                )
            else:
                result.regression_result.CopyFrom(
                    await self.regress(version, name, request.input)
                )
        return response

    async def replay(
        self, version: Version, log: prediction_log_pb2.PredictionLog
    ) -> None:
        """Runs a recorded request, to warm up a model."""
        kind = log.WhichOneof("log_type")
        request: Any = getattr(log, kind or "", None)
        if kind == "predict_log":
            request = request.request
            signature = signature_of(version, request.model_spec.signature_name)
            inputs = self.arrays(signature, request)
            await self.predict(version, signature, inputs)
        elif kind == "multi_inference_log":
            await self.multi_inference(version, request.request)
        elif kind in ("classify_log", "regress_log"):
            request = request.request
            name = request.model_spec.signature_name
            run = self.classify if kind == "classify_log" else self.regress
            await run(version, name, request.input)
        else:
            raise RequestError(
                grpc.StatusCode.UNIMPLEMENTED,
                f"Unsupported log_type for warmup: {kind}",
            )


def _classifications(
    rows: int, outputs: Arrays
) -> classification_pb2.ClassificationResult:
    result = classification_pb2.ClassificationResult()
    for row in range(rows):
        classes = result.classifications.add().classes
        for column in range(next(iter(outputs.values())).shape[1]):
            one = classes.add()
            if "classes" in outputs:
                label = outputs["classes"][row, column]
                one.label = label.decode("utf-8", "replace")
            if "scores" in outputs:
                one.score = outputs["scores"][row, column]
    return result


def _unreadable(alias: str, why: str) -> Exception:
    return invalid(f"tensor parsing error: {alias}: {why}")


def _num_values(tensor: tensor_pb2.TensorProto) -> int:
    """Returns the number of values in the field of a tensor's dtype."""
    field, dtype = _FIELDS[tensor.dtype]
    pairs = np.issubdtype(dtype, np.complexfloating)
    return len(getattr(tensor, field)) // (2 if pairs else 1)


def _bytes_to_repeat(tensor: tensor_pb2.TensorProto, size: int) -> int:
    """Returns the bytes of a tensor whose last value is to be repeated."""
    count = _num_values(tensor)
    if tensor.tensor_content or count >= size:
        return 0
    item = np.dtype(_FIELDS[tensor.dtype][1]).itemsize
    if tensor.dtype == types_pb2.DT_STRING:
        item = _STRING_BYTES + len(tensor.string_val[-1] if count else b"")
    return size * item


def _array(tensor: tensor_pb2.TensorProto, size: int) -> np.ndarray:
    """Returns the values of a tensor, repeating the last one to its size.

    As in TensorFlow, excess values are ignored, and a tensor without values is
    of zeros or empty strings.
    """
    field, dtype = _FIELDS[tensor.dtype]
    if tensor.tensor_content:
        if tensor.dtype == types_pb2.DT_STRING:
            raise ValueError("strings are in string_val")
        return np.frombuffer(tensor.tensor_content, dtype).copy()
    values = getattr(tensor, field)
    array: np.ndarray = np.empty(size, dtype)
    count = min(_num_values(tensor), size)
    wire = {"half_val": np.uint16, "scomplex_val": np.float32}.get(field)
    wire = np.float64 if field == "dcomplex_val" else wire
    flat = array.view(wire) if wire else array
    numbers = count * (len(flat) // size) if size else 0
    for start in range(0, numbers, _PART):
        part = values[start : min(start + _PART, numbers)]
        flat[start : start + len(part)] = (
            part if dtype is object else np.array(part).astype(flat.dtype)
        )
    empty = b"" if dtype is object else 0
    array[count:] = array[count - 1] if count else empty
    return array


def tensor_of(array: np.ndarray) -> tensor_pb2.TensorProto:
    """Converts an array to a tensor, with values in the field of its dtype."""
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
    """Estimates the serialized bytes of arrays."""
    return sum(
        array.nbytes
        if array.dtype != object
        else sum(map(len, array.ravel().tolist())) + 8 * array.size
        for array in arrays
    )
