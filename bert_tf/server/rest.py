"""TF Serving's REST API, the metrics and the page to try models."""

import asyncio
import re
import time
import urllib.parse
from collections.abc import Awaitable, Callable

import grpc
from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, model_pb2

from bert_tf.server import json_examples, json_outputs, json_tensors, page
from bert_tf.server.config import ServerConfig
from bert_tf.server.loaded_model import DEFAULT_SIGNATURE
from bert_tf.server.metrics import Metrics
from bert_tf.server.model_status import status_response
from bert_tf.server.prediction import classify, predict, regress
from bert_tf.server.status import http_status, invalid, request_error
from bert_tf.server.versions import Models, Version

_WHICH = r"(?:(?:/versions/(?P<version>\d+))|(?:/labels/(?P<label>[^/:]+)))?"
_POST = re.compile(
    rf"(?i:/v1/models/(?P<name>[^/:]+){_WHICH})"
    ":(?P<method>classify|regress|predict)"
)
_GET = re.compile(
    rf"(?i:/v1/models(?:/(?P<name>[^/:]+))?{_WHICH})(?:/(?P<metadata>metadata))?"
)
# Above this many bytes or values, JSON is read and written in a thread.
_LARGE = 1 << 16


class RestApi:
    """Answers HTTP.

    Args:
      models: what is served.
      metrics: told of every request, and shown.
      config: limits.
    """

    def __init__(
        self, models: Models, metrics: Metrics, config: ServerConfig
    ) -> None:
        self._models = models
        self._metrics = metrics
        self._config = config
        self.idle_since: dict[object, float] = {}

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(
            client_max_size=self._config.max_request_bytes,
            middlewares=[self._mark_busy],
        )
        if self._config.metrics_path:
            application.router.add_get(
                self._config.metrics_path, self._show_metrics
            )
        page.add_routes(application, self._models)
        application.router.add_route("*", "/{v:[vV]}1/{rest:.*}", self._answer)
        return application

    @web.middleware
    async def _mark_busy(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Lets `close_idle` know which connections have a request."""
        self.idle_since[request.protocol] = float("inf")
        try:
            return await handler(request)
        finally:
            self.idle_since[request.protocol] = time.monotonic()

    async def close_idle(self, server: web.Server) -> None:
        """Closes connections that send no whole request in time.

        Headers that trickle in, and answers that are not fetched, would hold
        a connection for ever.
        """
        while True:
            await asyncio.sleep(min(self._config.client_timeout / 4, 5.0))
            now = time.monotonic()
            self.idle_since = {
                connection: self.idle_since.get(connection, now)
                for connection in server.connections
            }
            for connection, since in self.idle_since.items():
                if now - since > self._config.client_timeout:
                    connection.force_close()

    async def _show_metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            text=self._metrics.page(), content_type="text/plain"
        )

    async def _answer(self, request: web.Request) -> web.Response:
        start = time.monotonic()
        name, method = "", ""
        try:
            matched = self._match(request)
            name = urllib.parse.unquote(matched["name"] or "")
            method = matched.groupdict().get("method") or ""
            body = await self._body(request)
            async with asyncio.timeout(self._config.request_timeout or None):
                text = await self._text(_spec(matched, name), matched, body)
            status, code = 200, grpc.StatusCode.OK
        except TimeoutError:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            status = http_status(code)
            text = _error_text(
                f"Timed out after {self._config.request_timeout * 1000:.0f} ms"
            )
        except web.HTTPException as error:
            code, status = grpc.StatusCode.RESOURCE_EXHAUSTED, error.status
            text = _error_text(error.text)
        except Exception as error:
            failure = request_error(error)
            code, status = failure.code, http_status(failure.code)
            text = _error_text(failure.message)
        # A name that nobody serves must not make the metrics grow.
        known = name if name in self._models.configs else ""
        seconds = time.monotonic() - start
        self._metrics.request(known, method, "REST", code.name, seconds)
        return web.Response(
            text=text, status=status, content_type="application/json"
        )

    def _match(self, request: web.Request) -> re.Match:
        path = request.rel_url.raw_path
        form = {"POST": _POST, "GET": _GET}.get(request.method)
        matched = form.fullmatch(path) if form else None
        if matched is None:
            raise invalid(f"Malformed request: {request.method} {path}")
        return matched

    async def _body(self, request: web.Request) -> bytes:
        """The body, which must come whole, in time and not be too large."""
        if request.method != "POST":
            return b""
        limit = self._config.max_request_bytes
        too_large = web.HTTPRequestEntityTooLarge(
            limit,
            text=f"The request is larger than the {limit} bytes that are "
            "allowed",
        )
        if (request.content_length or 0) > limit:
            raise too_large
        try:
            async with asyncio.timeout(self._config.client_timeout):
                return await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(
                text="The request did not arrive within "
                f"{self._config.client_timeout:g} s",
                headers={"Connection": "close"},
            ) from error
        except web.HTTPRequestEntityTooLarge as error:
            raise too_large from error
        except (ConnectionError, web.PayloadAccessError) as error:
            raise invalid(f"The body cannot be read: {error}") from error

    async def _text(
        self, spec: model_pb2.ModelSpec, matched: re.Match, body: bytes
    ) -> str:
        if "method" not in matched.groupdict():
            if not spec.name:
                raise invalid("Missing model name in request.")
            if matched["metadata"]:
                with self._models.find(spec) as version:
                    return _metadata(version)
            return json_format.MessageToJson(
                status_response(self._models, spec),
                always_print_fields_with_no_presence=True,
            )
        method = matched["method"]
        work = {
            "predict": self._predict,
            "classify": self._classify,
            "regress": self._regress,
        }
        with self._models.find(spec) as version:
            request = await _off_loop(len(body), json_tensors.parse, body)
            signature = json_tensors.signature_name(request)
            return await work[method](version, request, signature)

    async def _predict(self, version: Version, request: dict, name: str) -> str:
        signature = version.loaded.signature(name)
        if signature is None:
            raise invalid(
                f'Serving signature name: "{name or DEFAULT_SIGNATURE}" not '
                "found in signature def"
            )
        if not signature.inputs:
            raise invalid(
                f"Failed to get input map for signature: {name or 'DEFAULT'}"
            )
        inputs, form = json_tensors.read_inputs(request, signature.inputs)
        outputs = await predict(version, signature, inputs, self._metrics)
        size = sum(array.size for array in outputs.values())
        return await _off_loop(size, json_outputs.write_outputs, outputs, form)

    async def _classify(
        self, version: Version, request: dict, name: str
    ) -> str:
        given = json_examples.read_examples(request)
        result = await classify(version, name, given, self._metrics)
        return json_examples.write_classification(result)

    async def _regress(self, version: Version, request: dict, name: str) -> str:
        given = json_examples.read_examples(request)
        result = await regress(version, name, given, self._metrics)
        return json_examples.write_regression(result)


async def _off_loop(
    size: int, function: Callable[..., object], *arguments: object
) -> object:
    """Calls a function, in a thread where it may take long."""
    if size < _LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _spec(matched: re.Match, name: str) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=name)
    if matched["version"]:
        number = int(matched["version"])
        if number >= 2**63:
            raise invalid(f"Failed to convert version: {number} to numeric.")
        spec.version.value = number
    if matched["label"]:
        spec.version_label = urllib.parse.unquote(matched["label"])
    return spec


def _error_text(message: str) -> str:
    text = json_outputs.write_string(message.encode("utf-8", "replace"))
    return f'{{\n    "error": {text}\n}}'


def _metadata(version: Version) -> str:
    spec = model_pb2.ModelSpec(name=version.model)
    spec.version.value = version.number
    definitions = get_model_metadata_pb2.SignatureDefMap(
        signature_def=version.loaded.meta_graph.signature_def
    )
    spec_text, definitions_text = (
        json_format.MessageToJson(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for message in (spec, definitions)
    )
    return (
        f'{{\n"model_spec": {spec_text},\n"metadata": '
        f'{{"signature_def": {definitions_text}}}\n}}\n'
    )
