"""What each version of a model is doing, as clients are told."""

import grpc
from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from bert_tf.server.versions import Models


def status_response(
    models: Models, spec: model_pb2.ModelSpec
) -> get_model_status_pb2.GetModelStatusResponse:
    """The answer to a status request."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in models.statuses(spec):
        status = response.model_version_status.add(
            version=version.number, state=version.state.value
        )
        # Set, so that it is shown where all is well too.
        status.status.error_code = grpc.StatusCode.OK.value[0]
        if version.error:
            status.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
            status.status.error_message = version.error
    return response
