"""TF Serving's REST API, the metrics and the page."""

import asyncio
import dataclasses
import re
import time
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from aiohttp import hdrs, web, web_response
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, model_pb2

from bert_tf.server import json_answers, json_requests, page, text_apis
from bert_tf.server.config import ServerConfig
from bert_tf.server.json_parser import parse
from bert_tf.server.loaded_model import DEFAULT_SIGNATURE
from bert_tf.server.metrics import Metrics
from bert_tf.server.prediction import Predictor, off_loop, size_of
from bert_tf.server.status import (
    RequestError,
    http_status,
    invalid,
    request_error,
)
from bert_tf.server.versions import Models, Version

_WHICH = r"(?:(?:/versions/(?P<version>\d+))|(?:/labels/(?P<label>[^/:]+)))?"
_POST = re.compile(
    rf"(?i:/v1/models/(?P<name>[^/:]+){_WHICH})"
    ":(?P<method>classify|regress|predict)"
)
_GET = re.compile(
    rf"(?i:/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}"
    "(?:/(?P<metadata>metadata))?)"
)
# aiohttp's default names its version and Python's.
web_response.SERVER_SOFTWARE = "bert_tf"
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_WINDOW_BITS = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}


@dataclasses.dataclass
class _Call:
    """The model and the method of a request, for the metrics."""

    model: str = ""
    method: str = ""


class RestApi:
    """The handlers of HTTP requests.

    Args:
      models: the served models.
      metrics: counts every request, and has a page.
      config: limits and time-outs.
    """

    def __init__(
        self, models: Models, metrics: Metrics, config: ServerConfig
    ) -> None:
        self._models = models
        self._metrics = metrics
        self._config = config
        self._predictor = Predictor(metrics, config.max_request_bytes)
        self._texts = text_apis.TextApis(models, self._predictor)
        self.idle_since: dict[Any, float] = {}

    def application(self) -> web.Application:
        """Returns the application with all routes."""
        application = web.Application(
            client_max_size=self._config.max_request_bytes,
            middlewares=[self._mark_busy],
        )
        if self._config.metrics_path:
            application.router.add_get(
                self._config.metrics_path, self._show_metrics
            )
        application.router.add_get("/health", self._show_health)
        page.add_routes(application, self._models)
        application.router.add_route("*", "/v1/embeddings", self._embed)
        application.router.add_route("*", "/rerank", self._rerank)
        application.router.add_route("*", "/{v:[vV]}1/{rest:.*}", self._answer)
        return application

    @web.middleware
    async def _mark_busy(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Records for `close_idle` which connections have a request."""
        self.idle_since[request.protocol] = float("inf")
        try:
            return await handler(request)
        finally:
            self.idle_since[request.protocol] = time.monotonic()

    async def close_idle(self, server: web.Server) -> None:
        """Closes connections that send no complete request in time.

        Slow headers and responses that are not read would keep a connection
        open forever.
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

    async def _show_health(self, request: web.Request) -> web.Response:
        """Answers 200 if a version of every model serves requests, or 503."""
        models = {
            name: bool(self._models.available(name))
            for name in sorted(self._models.configs)
        }
        is_healthy = all(models.values())
        state = {
            "status": "ok" if is_healthy else "unavailable",
            "models": models,
        }
        return web.json_response(state, status=200 if is_healthy else 503)

    async def _answer(self, request: web.Request) -> web.Response:
        """Answers a request of TF Serving's API."""

        async def answer(call: _Call) -> bytes:
            matched = _match(request)
            call.model = urllib.parse.unquote(matched["name"] or "")
            call.method = matched.groupdict().get("method") or ""
            body = await self._body(request)
            async with self._in_time():
                return await self._text(
                    _spec(matched, call.model), matched, body
                )

        return await self._respond(request, answer, _serving_error)

    async def _embed(self, request: web.Request) -> web.Response:
        """Answers a request of OpenAI's embeddings."""
        return await self._answer_posted(
            *(request, "embeddings", text_apis.read_embeddings),
            *(self._texts.embeddings, text_apis.openai_error),
        )

    async def _rerank(self, request: web.Request) -> web.Response:
        """Answers a request of text-embeddings-inference's reranking."""
        return await self._answer_posted(
            *(request, "rerank", text_apis.read_rerank),
            *(self._texts.rerank, text_apis.rerank_error),
        )

    async def _answer_posted(
        self,
        request: web.Request,
        method: str,
        read: Callable[[bytes], dict[str, Any]],
        answer_asked: Callable[[dict[str, Any]], Awaitable[bytes]],
        write_error: Callable[[int, RequestError], tuple[int, bytes]],
    ) -> web.Response:
        """Answers a request whose body names the model."""

        async def answer(call: _Call) -> bytes:
            call.method = method
            body = await self._posted(request)
            asked = await off_loop(len(body), read, body)
            call.model = asked["model"]
            async with self._in_time():
                return await answer_asked(asked)

        return await self._respond(request, answer, write_error)

    def _in_time(self) -> asyncio.Timeout:
        return asyncio.timeout(self._config.request_timeout or None)

    async def _posted(self, request: web.Request) -> bytes:
        """Returns the body of a request that must be a POST."""
        if request.method != "POST":
            raise web.HTTPMethodNotAllowed(
                request.method,
                ["POST"],
                text=f"{request.path} takes POST, not {request.method}",
            )
        return await self._body(request)

    async def _respond(
        self,
        request: web.Request,
        answer: Callable[[_Call], Awaitable[bytes]],
        write_error: Callable[[int, RequestError], tuple[int, bytes]],
    ) -> web.Response:
        """Sends an answer, or an error in the form of its API."""
        start = time.monotonic()
        call = _Call()
        headers = dict(_CORS) if self._config.cors else {}
        if request.method == hdrs.METH_OPTIONS:
            allowed = re.search("https?://", request.headers.get("Origin", ""))
            return web.Response(status=200 if allowed else 400, headers=headers)
        code, status = grpc.StatusCode.OK, 200
        try:
            text = await answer(call)
        except TimeoutError:
            failure = RequestError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"Timed out after {self._config.request_timeout * 1000:.0f} ms",
            )
            code = failure.code
            status, text = write_error(http_status(code), failure)
        except web.HTTPException as error:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            failure = RequestError(code, error.text or "")
            status, text = write_error(error.status, failure)
        except Exception as error:
            failure = request_error(error)
            code = failure.code
            status, text = write_error(http_status(code), failure)
        # Unknown names must not add metrics.
        known = call.model if call.model in self._models.configs else ""
        seconds = time.monotonic() - start
        self._metrics.request(known, call.method, "REST", code.name, seconds)
        headers["Content-Type"] = "application/json"
        return web.Response(body=text, status=status, headers=headers)

    async def _body(self, request: web.Request) -> bytes:
        """Reads the body, within the limits of size and time."""
        if request.method != "POST":
            return b""
        limit = self._config.max_request_bytes
        too_large = web.HTTPRequestEntityTooLarge(
            limit,
            text=f"The request is larger than the limit of {limit} bytes",
        )
        if (request.content_length or 0) > limit:
            raise too_large
        try:
            async with asyncio.timeout(self._config.client_timeout):
                body = await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(
                text="The request did not arrive within "
                f"{self._config.client_timeout:g} s",
                headers={"Connection": "close"},
            ) from error
        except web.HTTPRequestEntityTooLarge as error:
            raise too_large from error
        except (ConnectionError, web.PayloadAccessError) as error:
            raise invalid("The body cannot be read") from error
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in _WINDOW_BITS:
            return body
        body = await asyncio.to_thread(_decompressed, body, encoding, limit + 1)
        if len(body) > limit:
            raise too_large
        return body

    async def _text(
        self, spec: model_pb2.ModelSpec, matched: re.Match, body: bytes
    ) -> bytes:
        if "method" not in matched.groupdict():
            if not spec.name:
                raise invalid("Missing model name in request.")
            if matched["metadata"] == "metadata":
                with self._models.find(spec) as version:
                    return _metadata(version)
            return json_format.MessageToJson(
                self._models.status(spec),
                always_print_fields_with_no_presence=True,
            ).encode()
        request = await off_loop(len(body), parse, body)
        name = json_requests.signature_name(request)
        if matched["method"] == "predict":
            with self._models.find(spec) as version:
                return await self._predict(version, request, name, len(body))
        data = await off_loop(len(body), json_requests.read_examples, request)
        with self._models.find(spec) as version:
            if matched["method"] == "classify":
                result = await self._predictor.classify(version, name, data)
                write = json_answers.write_classification
            else:
                result = await self._predictor.regress(version, name, data)
                write = json_answers.write_regression
        return await off_loop(result.ByteSize(), write, result)

    async def _predict(
        self, version: Version, request: dict, name: str, size: int
    ) -> bytes:
        signature = version.graph.signature(name)
        if signature is None:
            raise invalid(
                f'Serving signature name: "{name or DEFAULT_SIGNATURE}" not '
                "found in signature def"
            )
        if not signature.inputs:
            raise invalid(
                f"Failed to get input map for signature: {name or 'DEFAULT'}"
            )
        inputs, form = await off_loop(
            size, json_requests.read_inputs, request, signature.inputs
        )
        outputs = await self._predictor.predict(version, signature, inputs)
        return await off_loop(
            size_of(outputs.values()),
            json_answers.write_outputs,
            outputs,
            form,
        )


def _match(request: web.Request) -> re.Match:
    # TF Serving matches the query string too.
    path = request.rel_url.raw_path_qs
    form = {"POST": _POST, "GET": _GET}.get(request.method)
    matched = form.fullmatch(path) if form else None
    if matched is None:
        raise invalid(f"Malformed request: {request.method} {path}")
    return matched


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompresses at most `limit` bytes of a body."""
    bits = _WINDOW_BITS[encoding]
    if encoding == "deflate" and body[:1] and body[0] & 15 != zlib.DEFLATED:
        bits = -zlib.MAX_WBITS  # Some clients omit the header.
    reader = zlib.decompressobj(bits)
    try:
        content = reader.decompress(body, limit)
    except zlib.error as error:
        raise invalid(f"The body is not valid {encoding}") from error
    if len(content) < limit and (not reader.eof or reader.unused_data):
        raise invalid(f"The body is not one complete stream of {encoding}")
    return content


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


def _serving_error(status: int, error: RequestError) -> tuple[int, bytes]:
    """Returns the status and the text of an error in TF Serving's form."""
    message = error.message.encode("utf-8", "replace")
    text = json_answers.write_string(message)
    return status, f'{{\n    "error": {text}\n}}'.encode()


def _metadata(version: Version) -> bytes:
    spec = model_pb2.ModelSpec(name=version.model)
    spec.version.value = version.number
    definitions = get_model_metadata_pb2.SignatureDefMap(
        signature_def=version.graph.meta_graph.signature_def
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
    ).encode()
