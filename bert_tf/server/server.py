"""A running server: both ports, from the first model to the last answer."""

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

# How long the last requests are waited for; Kubernetes kills after 30 s.
_DRAIN_TIMEOUT = 20.0
# For what is freed after the last answer.
_FREE_TIMEOUT = 4.0
# For whoever asks for the server's health, before it takes no requests.
_NOTICE_TIME = 0.5
_SERVING = health_pb2.HealthCheckResponse.SERVING


class _Malformed(logging.Filter):
    """Has aiohttp's trace of bytes that are no HTTP logged as one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged as it is."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        if record.levelno >= logging.WARNING:
            client = "a client"
            if isinstance(record.args, tuple) and record.args:
                client = str(record.args[0])
            reason = excerpt(" ".join(error.message.split()))
            log(f"{client}: sent what is no HTTP request: {reason}")
        return False


_HTTP_LOGGER = logging.getLogger("bert_tf.server.http")
_HTTP_LOGGER.addFilter(_Malformed())


class _Health(health.aio.HealthServicer):
    """Notifies watchers of the end before it ends their calls."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext,
    ) -> None:
        """Notifies of every change, until the end."""
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
        """Says NOT_SERVING while requests are still taken."""
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
        if batching:  # What cannot be batched needs threads of its own.
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
        self._http = web.AppRunner(
            api.application(),
            access_log=None,
            logger=_HTTP_LOGGER,
            handle_signals=False,
            auto_decompress=False,  # RestApi says what is wrong with a body.
            # aiohttp waits so long for an answer, and then again.
            shutdown_timeout=_DRAIN_TIMEOUT / 2,
            # A client that goes away stops waiting for its batch.
            handler_cancellation=True,
        )
        await self._http.setup()
        tls = self._config.tls.context() if self._config.tls else None
        site = web.TCPSite(self._http, self._config.host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise UserError(
                f"`rest_port`={port}: {self._config.host}:{port} cannot "
                f"be listened on: {error.strerror}."
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
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.grpc_port = (
                server.add_secure_port(where, tls.grpc_credentials())
                if (tls := self._config.tls)
                else server.add_insecure_port(where)
            )
        except RuntimeError as error:
            raise UserError(
                f"`grpc_port`={port}: {where} cannot be listened on; "
                "is it in use?"
            ) from error
        await server.start()
        self._grpc = server

    async def stop(self) -> bool:
        """Takes no new requests, answers those it has, and frees all.

        Returns:
          whether that was done in time: a graph that runs, or a version that
          is being loaded, cannot be interrupted.
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
    """Serves until SIGTERM or an interrupt, then answers what is open.

    Where threads are left that cannot be interrupted, it ends the process.

    Raises:
      UserError: the server cannot start.
    """
    # What lives as long as the server need not be looked through each time
    # that a version is freed, which takes half a second.
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
        _end("stopping: the models were still being loaded")
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
        _end("stopped, though a thread still runs")


def _end(line: str) -> NoReturn:
    """Ends the process at once, with the exit code of success."""
    log(line)
    os._exit(0)
