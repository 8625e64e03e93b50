"""TF Serving's gRPC services: PredictionService and ModelService.

Methods take and return bytes: what is large is parsed and written in a thread,
and what cannot be parsed is the client's error.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias

import grpc
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
from bert_tf.server.versions import Models, Version

_Context: TypeAlias = grpc.aio.ServicerContext
_METADATA = "signature_def"
# The status of a call travels in its trailers, which have little room.
_MAX_DETAILS = 2000


async def _parsed(kind: type[Message], body: bytes) -> Any:
    try:
        return await off_loop(len(body), kind.FromString, body)
    except DecodeError as error:
        raise invalid(
            f"the request is no {kind.DESCRIPTOR.full_name}"
        ) from error


async def _abort(context: _Context, error: RequestError) -> NoReturn:
    await context.abort(error.code, error.message[:_MAX_DETAILS])
    raise AssertionError("abort has raised")


class PredictionService:
    """Answers of models.

    Args:
      models: what is served.
      metrics: counts every request.
      config: limits.
    """

    def __init__(
        self, models: Models, metrics: Metrics, config: ServerConfig
    ) -> None:
        self._models = models
        self._metrics = metrics
        self._predictor = Predictor(metrics, config.max_request_bytes)

    async def _counted(
        self,
        kind: type[Message],
        body: bytes,
        api: str,
        context: _Context,
        answer: Callable[[Any], Awaitable[bytes]],
    ) -> bytes:
        """Answers, counts, and turns errors into a gRPC status."""
        start = time.monotonic()
        code, name = grpc.StatusCode.CANCELLED, ""
        try:
            request = await _parsed(kind, body)
            name = _model_name(request)
            response = await answer(request)
            code = grpc.StatusCode.OK
            return response
        except Exception as error:
            failure = request_error(error)
            code = failure.code
            await _abort(context, failure)
        finally:
            known = name if name in self._models.configs else ""
            seconds = time.monotonic() - start
            self._metrics.request(known, api, "GRPC", code.name, seconds)

    async def Predict(self, body: bytes, context: _Context) -> bytes:
        """Runs a signature on tensors."""

        async def answer(request: predict_pb2.PredictRequest) -> bytes:
            spec = _spec(request)
            with self._models.find(spec) as version:
                signature = signature_of(version, spec.signature_name)
                aliases = list(request.output_filter)
                filtered(dict.fromkeys(signature.outputs), signature, aliases)
                inputs = await off_loop(
                    len(body), self._predictor.arrays, signature, request
                )
                outputs = await self._predictor.predict(
                    version, signature, inputs
                )
                outputs = filtered(outputs, signature, aliases)
                return await off_loop(
                    size_of(outputs.values()),
                    _predict_response,
                    version,
                    spec.signature_name,
                    outputs,
                )

        kind = predict_pb2.PredictRequest
        return await self._counted(kind, body, "predict", context, answer)

    async def Classify(self, body: bytes, context: _Context) -> bytes:
        """Labels and scores of tf.Examples."""
        return await self._counted(
            classification_pb2.ClassificationRequest,
            body,
            "classify",
            context,
            lambda request: self._of_examples(
                request,
                self._predictor.classify,
                classification_pb2.ClassificationResponse,
            ),
        )

    async def Regress(self, body: bytes, context: _Context) -> bytes:
        """One number for each tf.Example."""
        return await self._counted(
            regression_pb2.RegressionRequest,
            body,
            "regress",
            context,
            lambda request: self._of_examples(
                request,
                self._predictor.regress,
                regression_pb2.RegressionResponse,
            ),
        )

    async def _of_examples(
        self,
        request: Any,
        compute: Callable[..., Awaitable[Message]],
        make: Callable[..., Message],
    ) -> bytes:
        """The answer to tf.Examples, by `classify` or `regress`."""
        spec = _spec(request)
        with self._models.find(spec) as version:
            result = await compute(version, spec.signature_name, request.input)
            answered = answered_by(version, spec.signature_name)
            return make(model_spec=answered, result=result).SerializeToString()

    async def MultiInference(self, body: bytes, context: _Context) -> bytes:
        """Several signatures of one model on the same tf.Examples."""

        async def answer(request: inference_pb2.MultiInferenceRequest) -> bytes:
            names = [task.model_spec.name for task in request.tasks]
            if not names or not all(names):
                raise invalid("Found ModelSpec with an empty model name.")
            if len(set(names)) > 1:
                raise invalid(
                    "All ModelSpecs in a MultiInferenceRequest must access "
                    "the same model name."
                )
            with self._models.find(request.tasks[0].model_spec) as version:
                response = await self._predictor.multi_inference(
                    version, request
                )
                return response.SerializeToString()

        kind = inference_pb2.MultiInferenceRequest
        return await self._counted(
            kind, body, "multi_inference", context, answer
        )

    async def GetModelMetadata(self, body: bytes, context: _Context) -> bytes:
        """The signatures of a model."""

        async def answer(
            request: get_model_metadata_pb2.GetModelMetadataRequest,
        ) -> bytes:
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

        kind = get_model_metadata_pb2.GetModelMetadataRequest
        return await self._counted(kind, body, "", context, answer)


def _spec(request: Any) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    return request.model_spec


def _model_name(request: Any) -> str:
    """The model that a request is counted for."""
    if isinstance(request, inference_pb2.MultiInferenceRequest):
        return request.tasks[0].model_spec.name if request.tasks else ""
    return request.model_spec.name


def _predict_response(
    version: Version, signature: str, outputs: Arrays
) -> bytes:
    return predict_pb2.PredictResponse(
        model_spec=answered_by(version, signature),
        outputs={alias: tensor_of(array) for alias, array in outputs.items()},
    ).SerializeToString()


class ModelService:
    """Status of models, and which are served.

    Args:
      manager: loads and unloads them.
    """

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def GetModelStatus(self, body: bytes, context: _Context) -> bytes:
        """What the versions of a model are doing."""
        try:
            request = await _parsed(
                get_model_status_pb2.GetModelStatusRequest, body
            )
            response = self._manager.models.status(_spec(request))
            return response.SerializeToString()
        except RequestError as error:
            await _abort(context, error)

    async def HandleReloadConfigRequest(
        self, body: bytes, context: _Context
    ) -> bytes:
        """Serves other models from now on."""
        try:
            request = await _parsed(
                model_management_pb2.ReloadConfigRequest, body
            )
            models = models_of(request.config, "ReloadConfigRequest")
            await self._manager.change_models(models)
        except LabelError as error:
            code = grpc.StatusCode.FAILED_PRECONDITION
            await _abort(context, RequestError(code, str(error)))
        except RequestError as error:
            await _abort(context, error)
        except UserError as error:
            await _abort(context, invalid(str(error)))
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response.SerializeToString()


def add_services(
    server: grpc.aio.Server,
    prediction: PredictionService,
    model: ModelService,
) -> None:
    """Lets a server answer both services."""
    for service, file in (
        (prediction, prediction_service_pb2),
        (model, model_service_pb2),
    ):
        (described,) = file.DESCRIPTOR.services_by_name.values()
        handlers = {
            method.name: grpc.unary_unary_rpc_method_handler(
                getattr(service, method.name)
            )
            for method in described.methods
        }
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    described.full_name, handlers
                ),
            )
        )
