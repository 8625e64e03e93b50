"""TF Serving's gRPC services: PredictionService and ModelService.

Handlers take and return bytes, so that large messages are parsed and serialized
in a thread, and a malformed message is reported as an invalid argument.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2,
    predict_pb2,
    prediction_service_pb2,
    regression_pb2,
)

from bert_tf.errors import UserError
from bert_tf.server.config import ServerConfig, models_of
from bert_tf.server.loaded_model import Arrays
from bert_tf.server.manager import LabelError, Manager
from bert_tf.server.metrics import Metrics
from bert_tf.server.prediction import (
    Predictor,
    answered_by,
    filtered,
    off_loop,
    signature_of,
    size_of,
    tensor_of,
)
from bert_tf.server.status import RequestError, invalid, request_error
from bert_tf.server.versions import Version

_METADATA = "signature_def"
# The counted methods and their names in the metrics.
_APIS = {
    "Predict": "predict",
    "Classify": "classify",
    "Regress": "regress",
    "MultiInference": "multi_inference",
    "GetModelMetadata": "",
}
# The status is sent in the trailers, whose size is limited.
_MAX_DETAILS = 2000


class Services:
    """The methods of both services by their names.

    A method takes the parsed request and its size in bytes, which protobuf
    could only tell by serializing it again.

    Args:
      manager: loads and unloads the served models.
      metrics: counts every inference request.
      config: limits.
    """

    def __init__(
        self, manager: Manager, metrics: Metrics, config: ServerConfig
    ) -> None:
        self._manager = manager
        self._models = manager.models
        self._metrics = metrics
        self._predictor = Predictor(metrics, config.max_request_bytes)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Adds the services to a server."""
        for file in (prediction_service_pb2, model_service_pb2):
            (service,) = file.DESCRIPTOR.services_by_name.values()
            handlers = {
                method.name: grpc.unary_unary_rpc_method_handler(
                    self._handler(method)
                )
                for method in service.methods
            }
            server.add_generic_rpc_handlers(
                (
                    grpc.method_handlers_generic_handler(
                        service.full_name, handlers
                    ),
                )
            )

    def _handler(
        self, method: MethodDescriptor
    ) -> Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]:
        """Returns a handler that parses, counts and reports errors."""
        kind: Any = message_factory.GetMessageClass(method.input_type)
        answer = getattr(self, method.name)

        async def handle(
            body: bytes, context: grpc.aio.ServicerContext
        ) -> bytes:
            start = time.monotonic()
            code, name = grpc.StatusCode.CANCELLED, ""
            try:
                try:
                    request = await off_loop(len(body), kind.FromString, body)
                except DecodeError as error:
                    raise invalid(
                        f"the request is not a {kind.DESCRIPTOR.full_name}"
                    ) from error
                name = _model_name(request)
                response = await answer(request, len(body))
                code = grpc.StatusCode.OK
                return response
            except Exception as error:
                failure = request_error(error)
                code = failure.code
                await context.abort(code, failure.message[:_MAX_DETAILS])
                raise AssertionError("abort has raised") from error
            finally:
                if method.name in _APIS:
                    known = name if name in self._models.configs else ""
                    api, seconds = _APIS[method.name], time.monotonic() - start
                    self._metrics.request(
                        known, api, "GRPC", code.name, seconds
                    )

        return handle

    async def Predict(
        self, request: predict_pb2.PredictRequest, num_bytes: int
    ) -> bytes:
        """Runs a signature on tensors."""
        spec = _spec(request)
        with self._models.find(spec) as version:
            signature = signature_of(version, spec.signature_name)
            aliases = list(request.output_filter)
            filtered(dict.fromkeys(signature.outputs), signature, aliases)
            inputs = await off_loop(
                num_bytes, self._predictor.arrays, signature, request
            )
            outputs = await self._predictor.predict(version, signature, inputs)
            outputs = filtered(outputs, signature, aliases)
            return await off_loop(
                size_of(outputs.values()),
                _predict_response,
                version,
                spec.signature_name,
                outputs,
            )

    async def Classify(
        self, request: classification_pb2.ClassificationRequest, _: int
    ) -> bytes:
        """Returns labels and scores of tf.Examples."""
        kind = classification_pb2.ClassificationResponse
        return await self._run_examples(request, self._predictor.classify, kind)

    async def Regress(
        self, request: regression_pb2.RegressionRequest, _: int
    ) -> bytes:
        """Returns a number for each tf.Example."""
        kind = regression_pb2.RegressionResponse
        return await self._run_examples(request, self._predictor.regress, kind)

    async def _run_examples(
        self,
        request: Any,
        compute: Callable[..., Awaitable[Message]],
        kind: Callable[..., Message],
    ) -> bytes:
        spec = _spec(request)
        with self._models.find(spec) as version:
            result = await compute(version, spec.signature_name, request.input)
            answered = answered_by(version, spec.signature_name)
            return kind(model_spec=answered, result=result).SerializeToString()

    async def MultiInference(
        self, request: inference_pb2.MultiInferenceRequest, _: int
    ) -> bytes:
        """Runs several signatures of a model on the same tf.Examples."""
        first = model_pb2.ModelSpec()
        if request.tasks:
            first = request.tasks[0].model_spec
        with self._models.find(first) as version:
            response = await self._predictor.multi_inference(version, request)
        return response.SerializeToString()

    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, _: int
    ) -> bytes:
        """Returns the signatures of a model."""
        spec = _spec(request)
        if not request.metadata_field:
            raise invalid(
                "GetModelMetadataRequest must specify at least one "
                "metadata_field"
            )
        for field in request.metadata_field:
            if field != _METADATA:
                raise invalid(f"Metadata field {field} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self._models.find(spec) as version:
            response.model_spec.name = version.model
            response.model_spec.version.value = version.number
            response.metadata[_METADATA].Pack(
                get_model_metadata_pb2.SignatureDefMap(
                    signature_def=version.graph.meta_graph.signature_def
                )
            )
        return response.SerializeToString()

    async def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest, _: int
    ) -> bytes:
        """Returns the states of the versions of a model."""
        return self._models.status(_spec(request)).SerializeToString()

    async def HandleReloadConfigRequest(
        self, request: model_management_pb2.ReloadConfigRequest, _: int
    ) -> bytes:
        """Replaces the served models."""
        try:
            models = models_of(request.config, "ReloadConfigRequest")
            await self._manager.change_models(models)
        except LabelError as error:
            code = grpc.StatusCode.FAILED_PRECONDITION
            raise RequestError(code, str(error)) from error
        except UserError as error:
            raise invalid(str(error)) from error
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response.SerializeToString()


def _spec(request: Any) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    return request.model_spec


def _model_name(request: Any) -> str:
    """Returns the model that a request is counted for."""
    if isinstance(request, inference_pb2.MultiInferenceRequest):
        return request.tasks[0].model_spec.name if request.tasks else ""
    if isinstance(request, model_management_pb2.ReloadConfigRequest):
        return ""
    return request.model_spec.name


def _predict_response(
    version: Version, signature: str, outputs: Arrays
) -> bytes:
    return predict_pb2.PredictResponse(
        model_spec=answered_by(version, signature),
        outputs={alias: tensor_of(array) for alias, array in outputs.items()},
    ).SerializeToString()
