"""Predict, classify and regress, whichever way a request came in."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import grpc
import numpy as np
from tensorflow.core.framework import types_pb2
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
    Arrays,
    Signature,
)
from bert_tf.server.metrics import Metrics
from bert_tf.server.status import RequestError, invalid
from bert_tf.server.tensors import arrays_of
from bert_tf.server.versions import Version

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
# Above this many bytes or values, requests are read and answers written in a
# thread, so that nobody waits for them.
_LARGE = 1 << 16
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
    outputs: Mapping[str, T], signature: Signature, wanted: list
) -> dict[str, T]:
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
      metrics: told of every run.
      max_request_bytes: what a request may hold, and stand for.
    """

    def __init__(self, metrics: Metrics, max_request_bytes: int) -> None:
        self._metrics = metrics
        self._max_request_bytes = max_request_bytes

    def arrays(
        self, signature: Signature, request: predict_pb2.PredictRequest
    ) -> Arrays:
        """The inputs of a request of protocol buffers."""
        return arrays_of(request.inputs, signature, self._max_request_bytes)

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
                    await self.classify(version, name, request.input)
                )
            elif task.method_name == REGRESS:
                result.regression_result.CopyFrom(
                    await self.regress(version, name, request.input)
                )
            else:
                raise RequestError(
                    grpc.StatusCode.UNIMPLEMENTED,
                    f"Unsupported signature method_name: {task.method_name}",
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
