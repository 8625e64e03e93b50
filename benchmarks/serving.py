"""Load on `bert-tf serve`: batches beside one request at a time, and a peer.

    python -m benchmarks.serving --model_base_path=export/sst2 \
        --texts=texts.txt --clients=32 --seconds=60 \
        --peer_python=.venv-peers/bin/python --peer_model=FOLDER

Starts servers of the same model, one that batches and one that answers one
request at a time, and asks each from many clients at once, for as many rounds
as --rounds says, so that a slow minute of the machine falls on all. --texts has
a text a line, or a JSON object a line with all inputs of a row. For a task of
single sentences the peer is a text-classification pipeline of Hugging Face
transformers in its own process, with and without batches; its model is the same
one, written by `bert-tf convert --to=hugging_face`. Before the load, all
must give the same answers. Any error ends the run.
"""

import asyncio
import contextlib
import io
import json
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import aiohttp
import numpy as np
from absl import flags

from benchmarks import comparison
from bert_tf.errors import UserError
from tools import command_line

_MODEL_BASE_PATH = flags.DEFINE_string(
    "model_base_path", None, "Folder of the version folders."
)
_TEXTS = flags.DEFINE_string("texts", None, "File with a text a line.")
_SIGNATURE = flags.DEFINE_string("signature", "", "Signature to ask.")
_CLIENTS = flags.DEFINE_integer("clients", 32, "Requests at a time.")
_SECONDS = flags.DEFINE_float("seconds", 60, "Of each round.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "For each server.")
_MAX_BATCH_SIZE = flags.DEFINE_integer("max_batch_size", 32, "Of a batch.")
_BATCH_THREADS = flags.DEFINE_integer(
    "num_batch_threads", 1, "Batches at once."
)
_INTRA_OP = flags.DEFINE_integer(
    "tensorflow_intra_op_parallelism", 0, "Of the server that batches."
)
_EQUAL = flags.DEFINE_integer("equal", 100, "Rows that must be equal.")
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python with torch, transformers and aiohttp."
)
_PEER_MODEL = flags.DEFINE_string(
    "peer_model", None, "The same model as a Hugging Face folder."
)
_PEER = "benchmarks/serving_transformers.py"
# Answers of the peer may differ by so much, as float32 sums do.
_PEER_DIFFERENCE = 1e-4


# The command of a server, given its port.
CommandOf = Callable[[int], list[str]]


def ours(port: int, *more: str) -> list[str]:
    """The command of our server."""
    return [
        sys.executable,
        "-m",
        "tools.serve",
        "--model_name=model",
        f"--model_base_path={_MODEL_BASE_PATH.value}",
        f"--rest_api_port={port}",
        "--port=0",
        *more,
    ]


def peer(port: int, batch_size: int) -> list[str]:
    """The command of the peer's server."""
    return [
        _PEER_PYTHON.value,
        _PEER,
        f"--model={_PEER_MODEL.value}",
        f"--port={port}",
        f"--threads={comparison.threads()}",
        f"--batch_size={batch_size}",
    ]


def our_servers() -> dict[str, CommandOf]:
    """Our two servers."""
    batching = (
        "--enable_batching",
        f"--max_batch_size={_MAX_BATCH_SIZE.value}",
        f"--num_batch_threads={_BATCH_THREADS.value}",
        f"--tensorflow_intra_op_parallelism={_INTRA_OP.value}",
    )
    return {
        "batches": lambda port: ours(port, *batching),
        "one at a time": lambda port: ours(port, "--rest_api_num_threads=1"),
    }


def peer_servers() -> dict[str, CommandOf]:
    """The servers of the peer, if it is asked for."""
    if not _PEER_PYTHON.value:
        return {}
    return {
        "pipeline, one at a time": lambda port: peer(port, 1),
        "pipeline, batches": lambda port: peer(port, _MAX_BATCH_SIZE.value),
    }


def rows_of(path: pathlib.Path) -> list:
    """The rows of a file, shuffled."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [
        json.loads(line) if line.startswith("{") else line
        for line in lines
        if line
    ]
    if not rows:
        raise UserError(f"--texts={path}: no line.")
    random.Random(0).shuffle(rows)
    return rows


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def server(command_of: CommandOf) -> Iterator[str]:
    """A server in its own process; gives the URL of its model."""
    port = free_port()
    command = command_of(port)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if line == "ready\n":
                break
        else:
            raise UserError(f"the server did not start: {' '.join(said)}")
        yield f"http://127.0.0.1:{port}/v1/models/model:predict"
    finally:
        process.terminate()
        process.communicate()


async def ask(
    session: aiohttp.ClientSession, url: str, row: object
) -> tuple[float, dict]:
    """One request: its seconds and its answer."""
    body = {"instances": [row]}
    if _SIGNATURE.value:
        body["signature_name"] = _SIGNATURE.value
    data = io.BytesIO(json.dumps(body).encode())
    start = time.perf_counter()
    async with session.post(url, data=data) as answer:
        text = await answer.text()
        took = time.perf_counter() - start
        if answer.status != 200:
            raise UserError(f"{answer.status}: {text}")
    return took, json.loads(text)


async def load(url: str, rows: list, seconds: float) -> list[float]:
    """Asks from all clients until the time is over: what each took."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    following = iter(range(sys.maxsize))

    async def client(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < end:
            row = rows[next(following) % len(rows)]
            took, _ = await ask(session, url, row)
            times.append(took)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CLIENTS.value):
                group.create_task(client(session))
    return times


async def answers(url: str, rows: list) -> list:
    """The answers to some rows, all asked at once."""
    async with aiohttp.ClientSession() as session:
        found = await asyncio.gather(*(ask(session, url, row) for row in rows))
    return [answer["predictions"][0] for _, answer in found]


def difference(one: object, other: object) -> float:
    """The largest difference between two answers; text must be equal."""
    if isinstance(one, dict):
        return max(difference(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return abs(one - other)
    if isinstance(one, list) and one and isinstance(one[0], list | float):
        # Lists of different lengths are padded to the longest of a batch.
        return max(map(difference, one, other))
    if isinstance(one, list):
        one, other = ([v for v in x if v != ""] for x in (one, other))
    if one != other:
        raise UserError(f"different answers: {one!r} and {other!r}")
    return 0.0


def summary(times: list[float], seconds: float) -> dict[str, float]:
    p50, p99 = np.percentile(times, [50, 99])
    return {
        "rate": len(times) / seconds,
        "p50": p50 * 1000,
        "p99": p99 * 1000,
        "count": len(times),
    }


def compare(urls: dict[str, str], rows: list) -> None:
    """Prints how far answers are apart; other answers end the run."""
    found = {
        name: asyncio.run(answers(url, rows[: _EQUAL.value]))
        for name, url in urls.items()
    }
    first, second, *peers = found
    print(
        f"largest difference of {first} and {second}: "
        f"{max(map(difference, found[first], found[second])):.2g}"
    )
    for name in peers:
        apart = max(map(peer_difference, found[first], found[name]))
        print(f"largest difference to {name}: {apart:.2g}")
        if apart > _PEER_DIFFERENCE:
            raise UserError(f"the peer answers otherwise: {apart:.2g} apart")


def peer_difference(one: dict, other: dict) -> float:
    """The largest difference of the probabilities of two answers."""
    probabilities = dict(zip(one["labels"], one["probabilities"], strict=True))
    return max(
        abs(probabilities[label] - theirs)
        for label, theirs in other["probabilities"].items()
    )


def main() -> None:
    """Measures and prints."""
    rows = rows_of(pathlib.Path(_TEXTS.value))
    if _PEER_PYTHON.value:
        comparison.show_heading("benchmarks.serving", _PEER_PYTHON.value)
    else:
        packages = ("tensorflow", "aiohttp")
        comparison.show_machine("benchmarks.serving", *packages)
    commands = our_servers() | peer_servers()
    with contextlib.ExitStack() as stack:
        urls = {
            name: stack.enter_context(server(command_of))
            for name, command_of in commands.items()
        }
        compare(urls, rows)
        results = measure(urls, rows)
    report(results)


def measure(urls: dict[str, str], rows: list) -> dict[str, list[dict]]:
    """The rounds of each server, in turn."""
    results: dict[str, list[dict]] = {name: [] for name in urls}
    for number in range(_ROUNDS.value):
        for name, url in urls.items():
            times = asyncio.run(load(url, rows, _SECONDS.value))
            found = summary(times, _SECONDS.value)
            results[name].append(found)
            print(
                f"round {number + 1}, {name}: {found['count']} requests, no "
                f"error, {found['rate']:.1f}/s, p50 {found['p50']:.1f} ms, "
                f"p99 {found['p99']:.1f} ms",
                flush=True,
            )
    return results


def report(results: dict[str, list[dict]]) -> None:
    """Prints the medians and how they compare."""
    medians = {}
    for name, rounds in results.items():
        medians[name] = {
            key: statistics.median(one[key] for one in rounds)
            for key in ("rate", "p50", "p99")
        }
        print(
            f"median, {name}: {medians[name]['rate']:.1f}/s, p50 "
            f"{medians[name]['p50']:.1f} ms, p99 {medians[name]['p99']:.1f} ms"
        )
    batches, *others = results
    for name in others:
        ratio = medians[batches]["rate"] / medians[name]["rate"]
        print(f"{batches} answer {ratio:.2f} times as many as {name}")


if __name__ == "__main__":
    command_line.require("model_base_path", "texts")
    command_line.run(main)
