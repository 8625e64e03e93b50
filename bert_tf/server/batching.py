"""Puts the rows of requests that arrive together through the graph at once."""

import asyncio
import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import grpc
import numpy as np

from bert_tf.errors import UserError, whole_number
from bert_tf.server.loaded_model import Arrays, Signature, rows_of
from bert_tf.server.metrics import Metrics
from bert_tf.server.status import RequestError, invalid

T = TypeVar("T")
# How a graph names a row that it refuses, as those of this project do.
_REFUSED_ROW = re.compile(r"\brow (\d+) ")


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """How batches are made; names and defaults are TF Serving's.

    Attributes:
      max_batch_size: rows in a batch at most.
      batch_timeout_micros: how long the first row of a batch waits for
        others while a thread is free.
      max_enqueued_batches: full batches that may wait for each signature;
        past that, requests are refused.
      num_batch_threads: batches that run at once.
      allowed_batch_sizes: if any, a batch is filled up to the next of these
        with copies of its first row.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple[int, ...] = ()

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
                f"allowed_batch_sizes={list(sizes)}: give rising sizes, the "
                f"last of them max_batch_size, which is {self.max_batch_size}."
            )

    def padding(self, rows: int) -> int:
        """How many rows to add to a batch of that many."""
        for size in self.allowed_batch_sizes:
            if size >= rows:
                return size - rows
        return 0


class _Waiting:
    """A request in the queue."""

    def __init__(self, inputs: Arrays, rows: int) -> None:
        self.inputs = inputs
        self.rows = rows
        self.answer: asyncio.Future = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self._key = [array.shape[1:] for array in inputs.values()]
        # The bytes of text in the longest row.
        lengths = [0] * rows
        for array in inputs.values():
            if array.dtype == object:
                for row, values in enumerate(array.reshape(rows, -1)):
                    lengths[row] += sum(map(len, values))
        self._length = max(lengths)

    def goes_with(self, other: "_Waiting") -> bool:
        """Whether two requests are to run together.

        Their shapes must agree. Texts of very different lengths could, but
        the short ones would be padded to the long ones, which takes longer
        than two batches. A few words, about 16 tokens, never matter.
        """
        shorter, longer = sorted((self._length, other._length))
        return self._key == other._key and longer <= 1.5 * shorter + 64


def _refused_request(error: Exception, batch: list[_Waiting]) -> int | None:
    """Which request of a batch holds the row that an error names, if any."""
    named = _REFUSED_ROW.search(str(error))
    if named is None:
        return None
    row = int(named[1])
    for number, waiting in enumerate(batch):
        if row < waiting.rows:
            return number
        row -= waiting.rows
    return None


class Runner:
    """Runs graphs in threads: what all models of a server share.

    Args:
      executor: the threads.
      parameters: how to batch; None runs each request by itself.
      metrics: counts every run.
      max_open: requests without batching that may wait or run at once; past
        that, they are refused.
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
            # One for each batch that may run at once.
            self.slots = asyncio.Semaphore(parameters.num_batch_threads)

    async def alone(
        self,
        use: contextlib.AbstractContextManager,
        function: Callable[..., T],
        *arguments: object,
    ) -> T:
        """Runs a function in one of the threads.

        Args:
          use: left when the thread has ended, which may be long after the
            request was cancelled.
          function: what to run, on `arguments`.
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
        """Raises RequestError where too many requests wait already."""
        if self._open >= self._max_open:
            raise RequestError(
                grpc.StatusCode.UNAVAILABLE,
                f"{self._open} requests are waiting already",
            )


class SignatureQueue:
    """The requests to one signature of one version.

    Args:
      model: the name of the model, for the metrics.
      signature: runs batches.
      runner: the threads.
      in_use: keeps the version in memory while a thread runs it.
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
        self._waiting: list[_Waiting] = []
        self._filled = asyncio.Event()
        self._task: asyncio.Task | None = None
        self._running: set[asyncio.Task] = set()

    async def run(self, inputs: Arrays) -> Arrays:
        """Answers one request, maybe together with others.

        Raises:
          RequestError: it is larger than a batch, or too many are waiting.
          tf.errors.OpError: the graph refuses it.
        """
        parameters = self._runner.parameters
        batched = parameters is not None and self._signature.can_batch
        rows = rows_of(inputs) if batched else 0
        if parameters is None or not rows:
            self._runner.check_room()
            return await self._runner.alone(
                self._in_use(), self._signature.run, inputs
            )
        if rows > parameters.max_batch_size:
            raise invalid(
                f"Task size {rows} is larger than maximum input batch size "
                f"{parameters.max_batch_size}"
            )
        self._waiting = [w for w in self._waiting if not w.answer.done()]
        limit = parameters.max_batch_size * parameters.max_enqueued_batches
        if sum(w.rows for w in self._waiting) + rows > limit:
            raise RequestError(
                grpc.StatusCode.UNAVAILABLE,
                "The batch scheduling queue to which this task was submitted "
                "is full",
            )
        waiting = _Waiting(inputs, rows)
        self._waiting.append(waiting)
        self._filled.set()
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await waiting.answer

    @property
    def _parameters(self) -> BatchingParameters:
        parameters = self._runner.parameters
        assert parameters is not None, "without batching nobody waits"
        return parameters

    async def _work(self) -> None:
        """Forms batches until nobody waits."""
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
        """Waits until the oldest request's batch is full or its time over."""
        parameters = self._parameters
        until = self._waiting[0].since + parameters.batch_timeout_micros / 1e6
        while self._waiting:
            oldest = self._waiting[0]
            rows = sum(w.rows for w in self._waiting if w.goes_with(oldest))
            left = until - time.monotonic()
            if rows >= parameters.max_batch_size or left <= 0:
                return
            self._filled.clear()
            try:
                await asyncio.wait_for(self._filled.wait(), left)
            except TimeoutError:
                return

    def _take(self) -> list[_Waiting]:
        """The oldest requests that fit into one batch, in their order."""
        batch: list[_Waiting] = []
        left: list[_Waiting] = []
        room = self._parameters.max_batch_size
        for waiting in self._waiting:
            if waiting.answer.done():
                continue  # Its client has gone.
            same = not batch or waiting.goes_with(batch[0])
            if same and waiting.rows <= room:
                batch.append(waiting)
                room -= waiting.rows
            else:
                if same:
                    room = 0  # Nobody overtakes one of the same kind.
                left.append(waiting)
        self._waiting = left
        return batch

    async def _run_batch(self, batch: list[_Waiting]) -> None:
        now = time.monotonic()
        for waiting in batch:
            self._runner.metrics.queued(self._model, now - waiting.since)
        results: list[Arrays | Exception]
        try:
            results = await self._runner.alone(
                self._in_use(), self._compute, batch
            )
        except Exception as error:
            results = [error] * len(batch)
        finally:
            self._runner.slots.release()
        for waiting, result in zip(batch, results, strict=True):
            if waiting.answer.done():
                continue  # Its client has gone.
            if isinstance(result, Exception):
                waiting.answer.set_exception(result)
            else:
                waiting.answer.set_result(result)

    def _compute(self, batch: list[_Waiting]) -> list[Arrays | Exception]:
        """Runs a batch, without the requests that the graph refuses.

        A row that the graph refuses must not fail its neighbours. Where the
        error names the row, its request is taken out and the rest run
        together again; otherwise each request runs alone.
        """
        results: dict[int, Arrays | Exception] = {}
        left = list(range(len(batch)))
        while len(left) > 1:
            together = [batch[number] for number in left]
            try:
                answers = self._together(together)
                results.update(zip(left, answers, strict=True))
                left = []
            except Exception as error:
                refused = _refused_request(error, together)
                if refused is None:
                    break
                number = left.pop(refused)
                results[number] = self._alone(batch[number])
        for number in left:
            results[number] = self._alone(batch[number])
        return [results[number] for number in range(len(batch))]

    def _alone(self, waiting: _Waiting) -> Arrays | Exception:
        """Runs one request; an error is returned."""
        try:
            return self._together([waiting])[0]
        except Exception as error:
            return error

    def _together(self, batch: list[_Waiting]) -> list[Arrays]:
        size = sum(waiting.rows for waiting in batch)
        padding = self._parameters.padding(size)
        self._runner.metrics.batch(self._model, size, padding)
        if len(batch) == 1 and not padding:
            return [self._signature.run(batch[0].inputs)]
        inputs = {}
        for alias in self._signature.inputs:
            parts = [waiting.inputs[alias] for waiting in batch]
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
        ends = np.cumsum([waiting.rows for waiting in batch])
        return [
            {a: array[end - w.rows : end] for a, array in outputs.items()}
            for w, end in zip(batch, ends, strict=True)
        ]
