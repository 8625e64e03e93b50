"""Batches concurrent requests, so that the graph runs once for their rows."""

import asyncio
import contextlib
import dataclasses
import os
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import grpc
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, whole_number
from bert_tf.server.loaded_model import Arrays, Signature, rows_of
from bert_tf.server.metrics import Metrics
from bert_tf.server.status import RequestError, invalid

T = TypeVar("T")
# How a graph's error names the row that it rejects, in this project's exports.
_REJECTED_ROW = re.compile(r"\brow (\d+) ")


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """Settings of batching, with the names and defaults of TF Serving.

    Attributes:
      max_batch_size: maximum number of rows of a batch.
      batch_timeout_micros: time that the first row of a batch waits for others
        while a thread is free.
      max_enqueued_batches: number of full batches that may wait for each
        signature; further requests are rejected.
      num_batch_threads: number of batches that run concurrently.
      allowed_batch_sizes: if not empty, a batch is padded to the next of these
        sizes with copies of its first row.
      enable_large_batch_splitting: whether a request with more rows than a
        batch is split over several batches; otherwise it is rejected.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple[int, ...] = ()
    enable_large_batch_splitting: bool = False

    def __post_init__(self) -> None:
        for name in (
            "max_batch_size",
            "max_enqueued_batches",
            "num_batch_threads",
        ):
            whole_number(name, getattr(self, name), 1)
        whole_number("batch_timeout_micros", self.batch_timeout_micros, 0)
        sizes = self.allowed_batch_sizes
        if sizes and (
            list(sizes) != sorted(set(sizes))
            or sizes[0] < 1
            or sizes[-1] != self.max_batch_size
        ):
            raise UserError(
                f"allowed_batch_sizes={list(sizes)}: give increasing sizes, "
                f"the last of them max_batch_size={self.max_batch_size}."
            )

    def padding(self, rows: int) -> int:
        """Returns the number of rows to add to a batch."""
        for size in self.allowed_batch_sizes:
            if size >= rows:
                return size - rows
        return 0


# What `bert-tf serve` does by itself on a CPU: larger batches take longer and
# are no faster, and concurrent ones compete for the cores. As many requests may
# wait as without batching.
BATCHING_ON_CPU = BatchingParameters(
    max_batch_size=32,
    num_batch_threads=1,
    max_enqueued_batches=sys.maxsize,
    enable_large_batch_splitting=True,
)


class _Request:
    """A request in the queue, and the future of its outputs."""

    def __init__(self, inputs: Arrays, rows: int) -> None:
        self.inputs = inputs
        self.rows = rows
        self.outputs: asyncio.Future = (
            asyncio.get_running_loop().create_future()
        )
        self.since = time.monotonic()
        self._shapes = [array.shape[1:] for array in inputs.values()]
        lengths = [0] * rows
        for array in inputs.values():
            if array.dtype == object:
                for row, values in enumerate(array.reshape(rows, -1)):
                    lengths[row] += sum(map(len, values))
        # Bytes of text in the longest row.
        self._length = max(lengths)

    def compatible(self, other: "_Request") -> bool:
        """Returns whether two requests may run in one batch.

        Their shapes must be equal and the lengths of their texts similar, since
        padding short texts to long ones takes longer than two batches. A
        difference of a few words, about 16 tokens, does not matter.
        """
        shorter, longer = sorted((self._length, other._length))
        return self._shapes == other._shapes and longer <= 1.5 * shorter + 64


def _with_row_from(error: Exception, start: int) -> Exception:
    """Returns a graph's error with the row that it names counted from `start`.

    Args:
      error: the error of a part of a request.
      start: the row of the request that is the first of the part.
    """
    if not isinstance(error, tf.errors.OpError):
        return error
    message = _REJECTED_ROW.sub(
        lambda match: f"row {int(match[1]) + start} ", error.message, count=1
    )
    return type(error)(error.node_def, error.op, message)


def _rejected_request(error: Exception, batch: list[_Request]) -> int | None:
    """Returns the index of the request whose row an error names, if any."""
    match = _REJECTED_ROW.search(str(error))
    if match is None:
        return None
    row = int(match[1])
    for number, request in enumerate(batch):
        if row < request.rows:
            return number
        row -= request.rows
    return None


class Runner:
    """Runs graphs in threads, for all models of a server.

    Args:
      executor: the threads.
      parameters: settings of batching; None runs each request separately.
      metrics: counts every run.
      max_open: number of requests without batching that may wait or run;
        further ones are rejected.
    """

    def __init__(
        self,
        executor: Executor,
        parameters: BatchingParameters | None,
        metrics: Metrics,
        max_open: int = 1000,
    ) -> None:
        self._executor = executor
        self.metrics = metrics
        self._max_open = max_open
        self._open = 0
        self.parameters = parameters
        if parameters:
            self.slots = asyncio.Semaphore(parameters.num_batch_threads)

    async def run(
        self,
        use: contextlib.AbstractContextManager,
        function: Callable[..., T],
        *arguments: object,
    ) -> T:
        """Runs a function in one of the threads.

        Args:
          use: context that is exited when the thread has finished, which may
            be after the request was cancelled.
          function: the function.
          *arguments: its arguments.
        """
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            stack.enter_context(use)
            stack.callback(self._close)
            self._open += 1
            work = self._executor.submit(function, *arguments)
            leave = stack.pop_all().close
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(leave))
        return await asyncio.wrap_future(work)

    def _close(self) -> None:
        self._open -= 1

    def check_room(self) -> None:
        """Raises RequestError if too many requests are open."""
        if self._open >= self._max_open:
            raise RequestError(
                grpc.StatusCode.UNAVAILABLE,
                f"{self._open} requests are waiting already",
            )


class SignatureQueue:
    """The queue of requests to a signature of a version.

    Args:
      model: name of the model, for the metrics.
      signature: the signature, which runs batches.
      runner: the threads.
      in_use: context that keeps the version in memory while a thread runs it.
    """

    def __init__(
        self,
        model: str,
        signature: Signature,
        runner: Runner,
        in_use: Callable[
            [], contextlib.AbstractContextManager
        ] = contextlib.nullcontext,
    ) -> None:
        self._model = model
        self._signature = signature
        self._runner = runner
        self._in_use = in_use
        self._waiting: list[_Request] = []
        self._filled = asyncio.Event()
        self._task: asyncio.Task | None = None
        self._running: set[asyncio.Task] = set()

    async def run(self, inputs: Arrays) -> Arrays:
        """Runs a request, possibly in a batch with others.

        Raises:
          RequestError: it is larger than a batch and not split, or too many are
            waiting.
          tf.errors.OpError: the graph rejects it.
        """
        parameters = self._runner.parameters
        batched = parameters is not None and self._signature.can_batch
        rows = rows_of(inputs) if batched else 0
        if parameters is None or not rows:
            return await self._run_unbatched(inputs)
        if rows <= parameters.max_batch_size:
            self._check_queue(rows)
            return await self._enqueue(inputs, rows)
        if not parameters.enable_large_batch_splitting:
            raise invalid(
                f"Task size {rows} is larger than maximum input batch size "
                f"{parameters.max_batch_size}"
            )
        if not self._signature.can_split:
            return await self._run_unbatched(inputs)
        self._check_queue(rows)
        return await self._run_parts(inputs, rows)

    async def _run_unbatched(self, inputs: Arrays) -> Arrays:
        self._runner.check_room()
        return await self._runner.run(
            self._in_use(), self._signature.run, inputs
        )

    def _check_queue(self, rows: int) -> None:
        """Raises RequestError if the queue has no room for as many rows."""
        self._waiting = [r for r in self._waiting if not r.outputs.done()]
        parameters = self._parameters
        limit = parameters.max_batch_size * parameters.max_enqueued_batches
        if sum(r.rows for r in self._waiting) + rows > limit:
            raise RequestError(
                grpc.StatusCode.UNAVAILABLE,
                "The batch scheduling queue to which this task was submitted "
                "is full",
            )

    def _enqueue(self, inputs: Arrays, rows: int) -> asyncio.Future:
        """Adds a request to the queue and returns its outputs' future."""
        request = _Request(inputs, rows)
        self._waiting.append(request)
        self._filled.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run_batches())
        return request.outputs

    async def _run_parts(self, inputs: Arrays, rows: int) -> Arrays:
        """Runs a large request as several of the size of a batch.

        Its rows stay in order. If a part fails, so does the request, and parts
        that still wait are not run.
        """
        size = self._parameters.max_batch_size
        parts = {
            start: self._enqueue(
                {
                    alias: array[start : start + size]
                    for alias, array in inputs.items()
                },
                min(size, rows - start),
            )
            for start in range(0, rows, size)
        }
        results = []
        try:
            for start, outputs in parts.items():
                try:
                    results.append(await outputs)
                except Exception as error:
                    raise _with_row_from(error, start) from error
        finally:
            for outputs in parts.values():
                if not outputs.cancel() and not outputs.cancelled():
                    # Otherwise asyncio reports that nobody asked for it.
                    outputs.exception()
        return {
            alias: np.concatenate([result[alias] for result in results])
            for alias in self._signature.outputs
        }

    @property
    def _parameters(self) -> BatchingParameters:
        parameters = self._runner.parameters
        assert parameters is not None, "without batching there is no queue"
        return parameters

    async def _run_batches(self) -> None:
        """Starts batches until the queue is empty."""
        try:
            while self._waiting:
                await self._wait_for_more()
                await self._runner.slots.acquire()
                batch = self._take()
                if not batch:
                    self._runner.slots.release()
                    continue
                task = asyncio.create_task(self._run_batch(batch))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        finally:
            self._task = None

    async def _wait_for_more(self) -> None:
        """Waits until the batch of the oldest request is full or times out."""
        parameters = self._parameters
        until = self._waiting[0].since + parameters.batch_timeout_micros / 1e6
        while self._waiting:
            oldest = self._waiting[0]
            rows = sum(r.rows for r in self._waiting if r.compatible(oldest))
            seconds = until - time.monotonic()
            if rows >= parameters.max_batch_size or seconds <= 0:
                return
            self._filled.clear()
            try:
                await asyncio.wait_for(self._filled.wait(), seconds)
            except TimeoutError:
                return

    def _take(self) -> list[_Request]:
        """Removes the oldest requests that fit into one batch, in order."""
        batch: list[_Request] = []
        remaining: list[_Request] = []
        room = self._parameters.max_batch_size
        for request in self._waiting:
            if request.outputs.done():
                continue  # Its client has disconnected.
            compatible = not batch or request.compatible(batch[0])
            if compatible and request.rows <= room:
                batch.append(request)
                room -= request.rows
            else:
                if compatible:
                    room = 0  # Keeps the order of compatible requests.
                remaining.append(request)
        self._waiting = remaining
        return batch

    async def _run_batch(self, batch: list[_Request]) -> None:
        now = time.monotonic()
        for request in batch:
            self._runner.metrics.queued(self._model, now - request.since)
        results: list[Arrays | Exception]
        try:
            results = await self._runner.run(
                self._in_use(), self._compute, batch
            )
        except Exception as error:
            results = [error] * len(batch)
        finally:
            self._runner.slots.release()
        for request, result in zip(batch, results, strict=True):
            if request.outputs.done():
                continue  # Its client has disconnected.
            if isinstance(result, Exception):
                request.outputs.set_exception(result)
            else:
                request.outputs.set_result(result)

    def _compute(self, batch: list[_Request]) -> list[Arrays | Exception]:
        """Runs a batch; requests that the graph rejects do not fail others.

        If the error names a row, its request is run separately and the others
        together again; otherwise each request runs separately.
        """
        results: dict[int, Arrays | Exception] = {}
        numbers = list(range(len(batch)))
        while len(numbers) > 1:
            requests = [batch[number] for number in numbers]
            try:
                outputs = self._run_together(requests)
                results.update(zip(numbers, outputs, strict=True))
                numbers = []
            except Exception as error:
                rejected = _rejected_request(error, requests)
                if rejected is None:
                    break
                number = numbers.pop(rejected)
                results[number] = self._run_alone(batch[number])
        for number in numbers:
            results[number] = self._run_alone(batch[number])
        return [results[number] for number in range(len(batch))]

    def _run_alone(self, request: _Request) -> Arrays | Exception:
        """Runs a request; returns its outputs or its error."""
        try:
            return self._run_together([request])[0]
        except Exception as error:
            return error

    def _run_together(self, batch: list[_Request]) -> list[Arrays]:
        size = sum(request.rows for request in batch)
        padding = self._parameters.padding(size)
        self._runner.metrics.batch(self._model, size, padding)
        if len(batch) == 1 and not padding:
            return [self._signature.run(batch[0].inputs)]
        inputs = {}
        for alias in self._signature.inputs:
            parts = [request.inputs[alias] for request in batch]
            parts += [parts[0][:1]] * padding
            inputs[alias] = np.concatenate(parts)
        outputs = self._signature.run(inputs)
        rows = rows_of(inputs)
        for alias, array in outputs.items():
            if array.ndim == 0 or len(array) != rows:
                raise RequestError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f'Batched output "{alias}" has shape '
                    f"{list(array.shape)} for {rows} rows",
                )
        ends = np.cumsum([request.rows for request in batch])
        return [
            {a: array[end - r.rows : end] for a, array in outputs.items()}
            for r, end in zip(batch, ends, strict=True)
        ]
