"""The server: loads the models, opens the ports, and stops gracefully."""

import asyncio
import gc
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import grpc
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from bert_tf.errors import UserError, excerpt
from bert_tf.progress import log
from bert_tf.server.batching import Runner
from bert_tf.server.config import ServerConfig
from bert_tf.server.grpc_api import Services
from bert_tf.server.manager import Manager
from bert_tf.server.metrics import Metrics
from bert_tf.server.rest import RestApi

# Time for the last requests; Kubernetes kills after 30 s.
_DRAIN_TIMEOUT = 20.0
# Time to free the models after the last request.
_FREE_TIMEOUT = 4.0
# Time for health checks to see NOT_SERVING before requests are rejected.
_NOTICE_TIME = 0.5
_SERVING = health_pb2.HealthCheckResponse.SERVING


class _Malformed(logging.Filter):
    """Logs aiohttp's traceback of a malformed request as one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether to log the record unchanged."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        if record.levelno >= logging.WARNING:
            client = "a client"
            if isinstance(record.args, tuple) and record.args:
                client = str(record.args[0])
            reason = excerpt(" ".join(error.message.split()))
            log(f"{client}: sent a malformed HTTP request: {reason}")
        return False


_HTTP_LOGGER = logging.getLogger("bert_tf.server.http")
_HTTP_LOGGER.addFilter(_Malformed())
_ACCESS_LOGGER = logging.getLogger("bert_tf.server.access")
# Client, request line, status, bytes and seconds.
_ACCESS_FORMAT = '%a "%r" %s %b %Tf'


def _start_access_log() -> None:
    """Writes a line for each REST request to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    _ACCESS_LOGGER.addHandler(handler)
    _ACCESS_LOGGER.setLevel(logging.INFO)
    _ACCESS_LOGGER.propagate = False


class _Health(health.aio.HealthServicer):
    """The health service; notifies watchers before it ends their calls."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext,
    ) -> None:
        """Sends every change of the status until the server stops."""
        watching = asyncio.create_task(super().Watch(request, context))
        ending = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait(
                (watching, ending), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            watching.cancel()
            ending.cancel()

    async def end(self) -> None:
        """Sends NOT_SERVING while requests are still accepted."""
        await self.enter_graceful_shutdown()
        await asyncio.sleep(_NOTICE_TIME)
        self._ended.set()


class Server:
    """Serves models until it is stopped.

    Args:
      config: all settings.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._metrics = Metrics()
        batching = config.batching
        threads = config.threads
        if batching:  # Signatures without batching have their own threads.
            threads += batching.num_batch_threads
        self._threads = ThreadPoolExecutor(threads, "run")
        runner = Runner(self._threads, batching, self._metrics)
        self.manager = Manager(config, runner, self._metrics)
        self.rest_port: int | None = None
        self.grpc_port: int | None = None
        self._tasks: list[asyncio.Task] = []
        self._http: web.AppRunner | None = None
        self._grpc: grpc.aio.Server | None = None
        self._health: _Health | None = None

    async def start(self) -> None:
        """Loads the models, then opens the ports.

        Raises:
          UserError: a model has no version that loads, or a port is taken.
        """
        await self.manager.start()
        self._tasks.append(asyncio.create_task(self.manager.watch()))
        if self._config.rest_port is not None:
            await self._start_http(self._config.rest_port)
        if self._config.grpc_port is not None:
            await self._start_grpc(self._config.grpc_port)

    async def _start_http(self, port: int) -> None:
        api = RestApi(self.manager.models, self._metrics, self._config)
        if self._config.access_log:
            _start_access_log()
        self._http = web.AppRunner(
            api.application(),
            access_log=_ACCESS_LOGGER if self._config.access_log else None,
            access_log_format=_ACCESS_FORMAT,
            logger=_HTTP_LOGGER,
            handle_signals=False,
            auto_decompress=False,  # RestApi reports errors in a body.
            # aiohttp waits twice.
            shutdown_timeout=_DRAIN_TIMEOUT / 2,
            # Removes the request of a disconnected client from the queue.
            handler_cancellation=True,
        )
        await self._http.setup()
        tls = self._config.tls.context() if self._config.tls else None
        site = web.TCPSite(self._http, self._config.host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise UserError(
                f"`rest_port`={port}: cannot listen on "
                f"{self._config.host}:{port}: {error.strerror}."
            ) from error
        self.rest_port = self._http.addresses[0][1]
        assert self._http.server is not None
        self._tasks.append(
            asyncio.create_task(api.close_idle(self._http.server))
        )

    async def _start_grpc(self, port: int) -> None:
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                (
                    "grpc.max_receive_message_length",
                    self._config.max_request_bytes,
                ),
                ("grpc.max_send_message_length", -1),
                *self._config.grpc_options,
            ],
            maximum_concurrent_rpcs=self._config.grpc_max_requests,
        )
        Services(self.manager, self._metrics, self._config).add_to(server)
        if self._config.health:
            self._health = _Health()
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
            for name in ("ModelService", "PredictionService"):
                await self._health.set(name, _SERVING)
        host = self._config.host
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.grpc_port = (
                server.add_secure_port(address, tls.grpc_credentials())
                if (tls := self._config.tls)
                else server.add_insecure_port(address)
            )
        except RuntimeError as error:
            raise UserError(
                f"`grpc_port`={port}: cannot listen on {address}; is it in use?"
            ) from error
        await server.start()
        self._grpc = server

    async def stop(self) -> bool:
        """Rejects new requests, finishes open ones, and frees the models.

        Returns:
          Whether all threads have ended in time: a running graph or the loading
          of a version cannot be interrupted.
        """
        if self._health:
            await self._health.end()
        stopping = []
        if self._grpc:
            stopping.append(self._grpc.stop(_DRAIN_TIMEOUT))
        if self._http:
            stopping.append(self._http.cleanup())
        await asyncio.gather(*stopping)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        freed = True
        try:
            await asyncio.wait_for(self.manager.stop(), _FREE_TIMEOUT)
        except TimeoutError:
            freed = False
        self._threads.shutdown(wait=freed, cancel_futures=True)
        return freed


async def serve(config: ServerConfig) -> None:
    """Serves until SIGTERM or an interrupt, then finishes open requests.

    Exits the process if a thread is left that cannot be interrupted.

    Raises:
      UserError: the server cannot start.
    """
    # The objects so far live as long as the server; without them a garbage
    # collection after unloading a version is half a second faster.
    gc.collect()
    gc.freeze()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = Server(config)
    starting = asyncio.create_task(server.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when="FIRST_COMPLETED")
    if not starting.done():
        _exit("stopping: the models were still being loaded")
    try:
        await starting
        if server.grpc_port is not None:
            log(f"gRPC: {config.host}:{server.grpc_port}")
        if server.rest_port is not None:
            scheme = "https" if config.tls else "http"
            address = f"{scheme}://{config.host}:{server.rest_port}"
            log(f"REST: {address}/v1/models")
            log(f"page: {address}/")
        log("ready")
        await stopping
        log("stopping: no new requests")
    finally:
        stopping.cancel()
        freed = await server.stop()
    if not freed:
        _exit("stopped, though a thread still runs")


def _exit(line: str) -> NoReturn:
    """Exits the process immediately with code 0."""
    log(line)
    os._exit(0)
