"""The status of a request: gRPC codes, HTTP codes and error messages."""

import grpc
import tensorflow as tf

from bert_tf.progress import log

_HTTP = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
# TensorFlow's details of the graph before and after a message.
_BEFORE = "Graph execution error:\n\n"
_AFTER = ("\n\t [[", "\n\nOriginal stack trace")


class RequestError(Exception):
    """The error of a request.

    Args:
      code: the gRPC status code.
      message: the message for the client.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> RequestError:
    """Returns the error of an invalid request."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def http_status(code: grpc.StatusCode) -> int:
    """Returns the HTTP status of a code, as TF Serving's http_server.cc."""
    return _HTTP.get(code, 500)


def request_error(error: Exception) -> RequestError:
    """Converts any error to one that is safe to show to a client."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, tf.errors.OpError):
        message = error.message.removeprefix(_BEFORE)
        for details in _AFTER:
            message = message.partition(details)[0]
        return RequestError(_BY_NUMBER[error.error_code], message)
    if isinstance(error, MemoryError):
        return RequestError(
            grpc.StatusCode.RESOURCE_EXHAUSTED, "Out of memory."
        )
    log(f"a request failed: {type(error).__name__}: {error}")
    return RequestError(grpc.StatusCode.INTERNAL, "Internal error.")
