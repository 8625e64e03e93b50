"""Predict, classify and regress, whichever way a request came in.

From the tensors of protocol buffers to arrays, through a signature and back.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

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
# Above this many bytes or values, requests are read and answers written in a
# thread, so that nobody waits for them.
_LARGE = 1 << 16
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
T = TypeVar("T")


async def off_loop(
    size: int, function: Callable[..., T], *arguments: object
) -> T:
    """Calls a function, in a thread where it may take long."""
    if size < _LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def answered_by(version: Version, signature: str) -> model_pb2.ModelSpec:
    """Which model, version and signature gave an answer."""
    spec = model_pb2.ModelSpec(
        name=version.model, signature_name=signature or DEFAULT_SIGNATURE
    )
    spec.version.value = version.number
    return spec


def signature_of(version: Version, name: str) -> Signature:
    """The signature that a predict request names."""
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
    """The outputs that a request asks for, all where it names none."""
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
    """A signature that takes tf.Examples and has such outputs."""
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
    """Runs signatures on what requests hold.

    Args:
      metrics: times every run.
      max_request_bytes: what a request may hold, and stand for.
    """

    def __init__(self, metrics: Metrics, max_request_bytes: int) -> None:
        self._metrics = metrics
        self._max_request_bytes = max_request_bytes

    def arrays(
        self, signature: Signature, request: predict_pb2.PredictRequest
    ) -> Arrays:
        """The inputs of a request of protocol buffers.

        Raises:
          RequestError: names or dtypes are not the signature's, or a tensor's
            values do not fit its shape.
        """
        signature.check_names(request.inputs)
        # One value may stand for a whole tensor.
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
        """Runs a signature on arrays, with its defaults for those left out."""
        inputs = signature.defaults | inputs
        return await self._run(version, signature, inputs, "Predict")

    async def _run(
        self, version: Version, signature: Signature, inputs: Arrays, api: str
    ) -> Arrays:
        start = time.monotonic()
        outputs = await version.run(signature, inputs)
        self._metrics.run(version.model, api, time.monotonic() - start)
        return outputs

    def _serialized_examples(self, given: input_pb2.Input) -> np.ndarray:
        """The tf.Examples of a request, each with the shared context."""
        shared = b""
        examples = given.example_list.examples
        if given.WhichOneof("kind") == "example_list_with_context":
            shared = given.example_list_with_context.context.SerializeToString()
            examples = given.example_list_with_context.examples
        if not examples:
            raise invalid("Input is empty.")
        if len(shared) * (len(examples) - 1) > self._max_request_bytes:
            raise invalid(
                f"The context of {len(shared)} bytes stands in each of "
                f"{len(examples)} examples: more than the "
                f"{self._max_request_bytes} bytes that a request may hold"
            )
        array = np.empty(len(examples), object)
        # Serialized messages that follow each other merge.
        array[:] = [
            shared + example.SerializeToString() for example in examples
        ]
        return array

    async def _run_examples(
        self,
        version: Version,
        signature: Signature,
        given: input_pb2.Input,
        api: str,
    ) -> tuple[int, Arrays]:
        """The number of tf.Examples, and what a signature makes of them."""
        examples = await off_loop(
            given.ByteSize(), self._serialized_examples, given
        )
        outputs = await self._run(version, signature, {"inputs": examples}, api)
        self._metrics.examples(version.model, len(examples))
        return len(examples), outputs

    async def classify(
        self, version: Version, name: str, given: input_pb2.Input
    ) -> classification_pb2.ClassificationResult:
        """Labels and scores of tf.Examples."""
        kinds = ({"classes", "scores"}, {"classes"}, {"scores"})
        signature = _example_signature(version, name, kinds, "classification")
        rows, outputs = await self._run_examples(
            version, signature, given, "Classify"
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
        self, version: Version, name: str, given: input_pb2.Input
    ) -> regression_pb2.RegressionResult:
        """One number for each tf.Example."""
        kinds = ({"outputs"},)
        signature = _example_signature(version, name, kinds, "regression")
        rows, outputs = await self._run_examples(
            version, signature, given, "Regress"
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
        """Several signatures of one model on the same tf.Examples."""
        asked: list[str] = []
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
            if name in asked:
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
            asked.append(name)
        response = inference_pb2.MultiInferenceResponse()
        for task, name in zip(request.tasks, asked, strict=True):
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
        """Runs one recorded request, to warm a model up."""
        kind = log.WhichOneof("log_type")
        if kind == "predict_log":
            request = log.predict_log.request
            signature = signature_of(version, request.model_spec.signature_name)
            inputs = self.arrays(signature, request)
            await self.predict(version, signature, inputs)
        elif kind == "classify_log":
            request = log.classify_log.request
            name = request.model_spec.signature_name
            await self.classify(version, name, request.input)
        elif kind == "regress_log":
            request = log.regress_log.request
            name = request.model_spec.signature_name
            await self.regress(version, name, request.input)
        elif kind == "multi_inference_log":
            request = log.multi_inference_log.request
            await self.multi_inference(version, request)
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
