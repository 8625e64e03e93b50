"""TF Serving's gRPC services: PredictionService and ModelService."""

import time
from collections.abc import Awaitable, Callable

import grpc
from google.protobuf.message import Message
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from bert_tf.errors import UserError
from bert_tf.server.config import models_of
from bert_tf.server.manager import LabelError, Manager
from bert_tf.server.metrics import Metrics
from bert_tf.server.model_status import status_response
from bert_tf.server.prediction import (
    answered_by,
    array_of,
    classify,
    filtered,
    multi_inference,
    predict,
    regress,
    signature_of,
    tensor_of,
)
from bert_tf.server.status import RequestError, invalid, request_error
from bert_tf.server.versions import Models

_Context = grpc.aio.ServicerContext
_METADATA = "signature_def"


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers of models.

    Args:
      models: what is served.
      metrics: told of every request.
    """

    def __init__(self, models: Models, metrics: Metrics) -> None:
        self._models = models
        self._metrics = metrics

    async def _counted(
        self,
        name: str,
        api: str,
        context: _Context,
        answer: Callable[[], Awaitable[Message]],
    ) -> Message:
        """Answers, counts, and turns errors into a gRPC status."""
        start = time.monotonic()
        code = grpc.StatusCode.CANCELLED
        try:
            response = await answer()
            code = grpc.StatusCode.OK
            return response
        except Exception as error:
            failure = request_error(error)
            code = failure.code
            await context.abort(failure.code, failure.message)
        finally:
            known = name if name in self._models.configs else ""
            seconds = time.monotonic() - start
            self._metrics.request(known, api, "GRPC", code.name, seconds)

    async def Predict(
        self, request: predict_pb2.PredictRequest, context: _Context
    ) -> predict_pb2.PredictResponse:
        """Runs a signature on tensors."""

        async def answer() -> predict_pb2.PredictResponse:
            spec = _spec(request)
            with self._models.find(spec) as version:
                signature = signature_of(version, spec.signature_name)
                wanted = list(request.output_filter)
                filtered(dict.fromkeys(signature.outputs), signature, wanted)
                outputs = await predict(
                    version,
                    signature,
                    {a: array_of(a, t) for a, t in request.inputs.items()},
                    self._metrics,
                )
                outputs = filtered(outputs, signature, wanted)
                return predict_pb2.PredictResponse(
                    model_spec=answered_by(version, spec.signature_name),
                    outputs={a: tensor_of(v) for a, v in outputs.items()},
                )

        name = request.model_spec.name
        return await self._counted(name, "predict", context, answer)

    async def Classify(
        self,
        request: classification_pb2.ClassificationRequest,
        context: _Context,
    ) -> classification_pb2.ClassificationResponse:
        """Labels and scores of tf.Examples."""
        make = classification_pb2.ClassificationResponse
        return await self._of_examples(
            request, "classify", context, classify, make
        )

    async def Regress(
        self, request: regression_pb2.RegressionRequest, context: _Context
    ) -> regression_pb2.RegressionResponse:
        """One number for each tf.Example."""
        make = regression_pb2.RegressionResponse
        return await self._of_examples(
            request, "regress", context, regress, make
        )

    async def _of_examples(
        self,
        request: Message,
        method: str,
        context: _Context,
        compute: Callable[..., Awaitable[Message]],
        make: Callable[..., Message],
    ) -> Message:
        """The answer to tf.Examples, by `classify` or `regress`."""

        async def answer() -> Message:
            spec = _spec(request)
            with self._models.find(spec) as version:
                return make(
                    model_spec=answered_by(version, spec.signature_name),
                    result=await compute(
                        version,
                        spec.signature_name,
                        request.input,
                        self._metrics,
                    ),
                )

        name = request.model_spec.name
        return await self._counted(name, method, context, answer)

    async def MultiInference(
        self, request: inference_pb2.MultiInferenceRequest, context: _Context
    ) -> inference_pb2.MultiInferenceResponse:
        """Several signatures of one model on the same tf.Examples."""
        names = [task.model_spec.name for task in request.tasks]

        async def answer() -> inference_pb2.MultiInferenceResponse:
            if not names or not all(names):
                raise invalid("Found ModelSpec with an empty model name.")
            if len(set(names)) > 1:
                raise invalid(
                    "All ModelSpecs in a MultiInferenceRequest must access "
                    "the same model name."
                )
            with self._models.find(request.tasks[0].model_spec) as version:
                return await multi_inference(version, request, self._metrics)

        name = names[0] if names else ""
        return await self._counted(name, "multi_inference", context, answer)

    async def GetModelMetadata(
        self,
        request: get_model_metadata_pb2.GetModelMetadataRequest,
        context: _Context,
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """The signatures of a model."""

        async def answer() -> get_model_metadata_pb2.GetModelMetadataResponse:
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
                        signature_def=version.loaded.meta_graph.signature_def
                    )
                )
            return response

        name = request.model_spec.name
        return await self._counted(name, "", context, answer)


def _spec(request: Message) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    return request.model_spec


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Status of models, and which are served.

    Args:
      manager: loads and unloads them.
    """

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def GetModelStatus(
        self,
        request: get_model_status_pb2.GetModelStatusRequest,
        context: _Context,
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """What the versions of a model are doing."""
        try:
            return status_response(self._manager.models, _spec(request))
        except RequestError as error:
            await context.abort(error.code, error.message)

    async def HandleReloadConfigRequest(
        self,
        request: model_management_pb2.ReloadConfigRequest,
        context: _Context,
    ) -> model_management_pb2.ReloadConfigResponse:
        """Serves other models from now on."""
        try:
            models = models_of(request.config, "ReloadConfigRequest")
            await self._manager.change_models(models)
        except LabelError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except UserError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response
