"""Batches of requests that arrive together."""

import asyncio
import contextlib
import functools
import pathlib
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.server.batching import BatchingParameters, Runner, SignatureQueue
from bert_tf.server.loaded_model import Signature, Tensor
from bert_tf.server.metrics import Metrics
from bert_tf.server.status import RequestError
from bert_tf.server.versions import Version

SPLITTING = {"max_batch_size": 3, "enable_large_batch_splitting": True}
# 60 is near enough to 3 and 40, and 900 to 700 and 1300.
SIZES = (3, 900, 60, 3000, 40, 1300, 0, 700)


def in_loop(test):
    """Runs a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return run


class Graph:
    """Doubles numbers, keeps the sizes of its runs and refuses 13."""

    def __init__(self, error="x: row {} is 13."):
        self.error = error
        self.runs = []
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, x):
        self.hold.wait(10)
        self.runs.append(x.tolist())
        if 13 in np.atleast_1d(x):
            error = self.error.format(x.tolist().index(13))
            raise tf.errors.InvalidArgumentError(None, None, error)
        return [x * 2]


@contextlib.asynccontextmanager
async def queue(graph, shape=(None,), kind=None, **parameters):
    kind = kind or Tensor("x:0", tf.int32.as_datatype_enum, shape)
    signature = Signature("s", {"x": kind}, {"y": kind}, graph)
    with ThreadPoolExecutor(4) as threads:
        runner = Runner(
            threads,
            BatchingParameters(**{"num_batch_threads": 1} | parameters),
            Metrics(),
        )
        yield SignatureQueue("m", signature, runner)


def ask(queue, values):
    return queue.run({"x": np.int32(values)})


@in_loop
async def test_what_waits_runs_together_and_is_split_again():
    graph = Graph()
    async with queue(graph, max_batch_size=4) as line:
        graph.hold.clear()
        first = asyncio.create_task(ask(line, [1]))
        await asyncio.sleep(0.1)
        values = ([2, 3], [4], [5, 6], [7])
        later = [asyncio.create_task(ask(line, v)) for v in values]
        await asyncio.sleep(0.1)
        graph.hold.set()
        answers = await asyncio.gather(first, *later)
    assert graph.runs == [[1], [2, 3, 4], [5, 6, 7]]
    got = [answer["y"].tolist() for answer in answers]
    assert got == [[2], [4, 6], [8], [10, 12], [14]]


@in_loop
async def test_a_batch_waits_for_its_time_or_until_it_is_full():
    graph = Graph()
    settings = {"max_batch_size": 3, "batch_timeout_micros": 300_000}
    async with queue(graph, **settings) as line:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.gather(ask(line, [1]), ask(line, [2]))
        assert 0.25 < loop.time() - start < 5
        start = loop.time()
        await asyncio.gather(*(ask(line, [i]) for i in range(3)))
        assert loop.time() - start < 0.25
    assert graph.runs == [[1, 2], [0, 1, 2]]


@in_loop
async def test_other_shapes_do_not_mix():
    graph = Graph()
    async with queue(graph, (None, None), batch_timeout_micros=100_000) as line:
        rows = ([[1, 2]], [[3]], [[4, 5]])
        answers = await asyncio.gather(*(ask(line, row) for row in rows))
    assert graph.runs == [[[1, 2], [4, 5]], [[3]]]
    got = [answer["y"].tolist() for answer in answers]
    assert got == [[[2, 4]], [[6]], [[8, 10]]]


@in_loop
async def test_long_texts_do_not_make_short_ones_wait():
    class Texts(Graph):
        def __call__(self, text):
            self.runs.append([len(value) for value in text])
            return [text]

    graph = Texts()
    kind = Tensor("x:0", tf.string.as_datatype_enum, (None,))
    async with queue(graph, kind=kind, batch_timeout_micros=100_000) as line:
        texts = [np.array([b"x" * n], object) for n in SIZES]
        running = [line.run({"x": text}) for text in texts]
        answers = await asyncio.gather(*running)
    assert graph.runs == [[3, 60, 40, 0], [900, 1300, 700], [3000]]
    for text, answer in zip(texts, answers, strict=True):
        assert answer["y"] == text


@in_loop
async def test_without_the_row_that_the_graph_names_the_rest_runs_together():
    graph = Graph()
    async with queue(graph, batch_timeout_micros=100_000) as line:
        answers = await asyncio.gather(
            *(ask(line, v) for v in ([1, 2], [3, 13], [4], [13], [5])),
            return_exceptions=True,
        )
    first, second, *rest = graph.runs
    assert (first, second) == ([1, 2, 3, 13, 4, 13, 5], [3, 13])
    assert rest == [[1, 2, 4, 13, 5], [13], [1, 2, 4, 5]]
    got = [answers[number]["y"].tolist() for number in (0, 2, 4)]
    assert got == [[2, 4], [8], [10]]
    # Each error names the row as its own client counts.
    assert "row 1 is 13" in str(answers[1])
    assert "row 0 is 13" in str(answers[3])


@in_loop
async def test_a_request_that_waits_alone_runs_once():
    graph = Graph()
    async with queue(graph, batch_timeout_micros=1000) as line:
        with pytest.raises(tf.errors.InvalidArgumentError, match="row 0 is 13"):
            await ask(line, [13])
    assert graph.runs == [[13]]


@pytest.mark.parametrize("error", ["13 is no number", "x: row 99 is 13."])
@in_loop
async def test_each_runs_alone_where_the_graph_names_no_row_of_theirs(error):
    graph = Graph(error)
    async with queue(graph, batch_timeout_micros=100_000) as line:
        answers = await asyncio.gather(
            *(ask(line, [v]) for v in (1, 13, 2)), return_exceptions=True
        )
    assert graph.runs == [[1, 13, 2], [1], [13], [2]]
    assert [answers[0]["y"], answers[2]["y"]] == [[2], [4]]
    assert "13" in str(answers[1])


@in_loop
async def test_without_batching_the_queue_has_a_bound():
    graph = Graph()
    kind = Tensor("x:0", tf.int32.as_datatype_enum, (None,))
    signature = Signature("s", {"x": kind}, {"y": kind}, graph)
    with ThreadPoolExecutor(1) as threads:
        runner = Runner(threads, None, Metrics(), max_open=2)
        line = SignatureQueue("m", signature, runner)
        graph.hold.clear()
        running = [asyncio.create_task(ask(line, [i])) for i in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(RequestError, match="waiting") as caught:
            await ask(line, [2])
        assert caught.value.code.name == "UNAVAILABLE"
        graph.hold.set()
        await asyncio.gather(*running)
        await asyncio.sleep(0.1)
        await ask(line, [3])


@in_loop
async def test_more_than_may_wait_is_turned_away():
    graph = Graph()
    async with queue(graph, max_batch_size=2, max_enqueued_batches=2) as line:
        graph.hold.clear()
        running = asyncio.create_task(ask(line, [0]))
        await asyncio.sleep(0.1)
        waiting = [asyncio.create_task(ask(line, [i])) for i in range(4)]
        await asyncio.sleep(0.1)
        with pytest.raises(RequestError, match="is full") as caught:
            await ask(line, [9])
        assert caught.value.code.name == "UNAVAILABLE"
        with pytest.raises(RequestError, match="larger than maximum"):
            await ask(line, [1, 2, 3])
        # Whoever gives up makes room.
        waiting.pop().cancel()
        await asyncio.sleep(0)
        more = asyncio.create_task(ask(line, [8]))
        await asyncio.sleep(0.1)
        graph.hold.set()
        await asyncio.gather(running, *waiting, more)
    assert graph.runs == [[0], [0, 1], [2, 8]]


@in_loop
async def test_large_requests_are_split_and_keep_the_order_of_their_rows():
    graph = Graph()
    async with queue(graph, (None, 1), **SPLITTING) as line:
        values = np.arange(14, 22)[:, None]
        large, small = await asyncio.gather(ask(line, values), ask(line, [[2]]))
        rows = [[[14], [15], [16]], [[17], [18], [19]], [[20], [21], [2]]]
        assert graph.runs == rows
        assert large["y"].tolist() == (2 * values).tolist()
        assert small["y"].tolist() == [[4]]


@in_loop
async def test_a_large_request_fails_as_one():
    graph = Graph()
    async with queue(graph, **SPLITTING) as line:
        values = [1, 2, 3, 4, 13, 5, *range(20, 30)]
        failed, other = await asyncio.gather(
            ask(line, values), ask(line, [6]), return_exceptions=True
        )
    # Its client counts rows from the start of the request.
    assert "row 4 is 13" in str(failed)
    assert isinstance(failed, tf.errors.InvalidArgumentError)
    assert other["y"].tolist() == [12]
    # What waited behind the failure is not run.
    assert [29] not in graph.runs


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        # Each part would be as wide as its widest row.
        ((None, None), [[1], [2], [3], [4]]),
        # Without a common number of rows there are no parts.
        ((None,), 5),
    ],
)
@in_loop
async def test_what_has_no_parts_runs_as_without_batching(shape, values):
    graph = Graph()
    async with queue(graph, shape, **SPLITTING) as line:
        answer = await ask(line, values)
    assert graph.runs == [values]
    assert answer["y"].tolist() == (2 * np.int32(values)).tolist()


@in_loop
async def test_allowed_sizes_are_filled_up():
    graph = Graph()
    sizes = {"max_batch_size": 8, "allowed_batch_sizes": (2, 8)}
    async with queue(graph, **sizes) as line:
        one = await ask(line, [5])
        three = await ask(line, [1, 2, 3])
    assert graph.runs == [[5, 5], [1, 2, 3, 1, 1, 1, 1, 1]]
    assert (one["y"].tolist(), three["y"].tolist()) == ([10], [2, 4, 6])


@in_loop
async def test_an_output_without_rows_cannot_be_split():
    async with queue(
        lambda x: [np.int32(3)], batch_timeout_micros=100_000
    ) as line:
        # Together it fails, so each runs alone.
        answers = await asyncio.gather(ask(line, [1]), ask(line, [2]))
    assert [answer["y"] for answer in answers] == [3, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch_size": 0},
        {"num_batch_threads": 0},
        {"batch_timeout_micros": -1},
        {"max_batch_size": 4, "allowed_batch_sizes": (2, 8)},
        {"max_batch_size": 4, "allowed_batch_sizes": (4, 2)},
    ],
)
def test_wrong_parameters(wrong):
    with pytest.raises(UserError, match=f"{list(wrong)[-1]}`?="):
        BatchingParameters(**wrong)


@pytest.mark.parametrize("batched", [False, True])
@in_loop
async def test_a_version_is_in_use_until_its_thread_ends(batched):
    graph = Graph()
    version = Version("m", 1, pathlib.Path("1"))
    kind = Tensor("x:0", tf.int32.as_datatype_enum, (None,))
    signature = Signature("s", {"x": kind}, {"y": kind}, graph)
    with ThreadPoolExecutor(1) as threads:
        parameters = BatchingParameters() if batched else None
        runner = Runner(threads, parameters, Metrics())
        loaded = types.SimpleNamespace(signatures={"s": signature})
        version.attach(loaded, runner)
        graph.hold.clear()
        inputs = {"x": np.int32([1])}
        # The second one never gets a thread.
        running = [version.run(signature, inputs) for _ in range(2)]
        requests = [asyncio.create_task(one) for one in running]
        await asyncio.sleep(0.1)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        waiting = asyncio.create_task(version.unused())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        graph.hold.set()
        await asyncio.wait_for(waiting, 5)
    assert len(graph.runs) == 1
