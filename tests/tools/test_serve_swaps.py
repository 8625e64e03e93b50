"""tools.serve under load: hot swaps, slow clients, and what they cost."""

import asyncio
import collections
import contextlib
import io
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import aiohttp
import grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

import bert_tf
from bert_tf.text.token_table import SPECIAL_TOKENS
from tests.server.served_models import (
    copy_version,
    predict_request,
    resident,
    write_classifier,
)
from tests.tools.test_serve import ROOT, free_ports

SWAPS = 20
# 5.9 MB of weights: what a small model weighs.
TOKENS = [*SPECIAL_TOKENS, "a", "good", "film"]
TOKENS += [f"word{number}" for number in range(7_500)]
CONFIG = bert_tf.BertConfig.from_size("2/128/2", len(TOKENS))
PATH = "/v1/models/m:predict"
BODY = json.dumps({"instances": ["a good film"]}).encode()


class Clients:
    """Clients of every kind; counts what each is answered."""

    def __init__(self, rest: int, grpc_port: int) -> None:
        self.rest = rest
        self.grpc_port = grpc_port
        self.counts: collections.Counter = collections.Counter()

    async def rest_client(self, session: aiohttp.ClientSession) -> None:
        url = f"http://127.0.0.1:{self.rest}{PATH}"
        for number in itertools.count():
            body = b'{"instances": [1]}' if number % 20 == 19 else BODY
            async with session.post(url, data=io.BytesIO(body)) as answer:
                await answer.read()
                self.counts["REST", answer.status] += 1

    async def grpc_client(self) -> None:
        request = predict_request(text=["a film"])
        where = f"127.0.0.1:{self.grpc_port}"
        async with grpc.aio.insecure_channel(where) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for number in itertools.count():
                # Every twentieth gives up at once.
                timeout = 0.001 if number % 20 == 19 else None
                try:
                    await stub.Predict(request, timeout=timeout)
                    self.counts["gRPC", "OK"] += 1
                except grpc.aio.AioRpcError as error:
                    self.counts["gRPC", error.code().name] += 1

    async def slow_client(self, kind: str) -> None:
        """Stops in the middle of its body, or hardly reads the answer."""
        texts = {"instances": ["a good film"] * 100}
        body = json.dumps(texts).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: "
        request = f"{head}{len(body)}\r\n\r\n".encode() + body
        while True:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.rest, limit=1 << 10
            )
            answer = b""
            try:
                writer.write(request if kind == "reader" else request[:-9])
                await writer.drain()
                await asyncio.sleep(2)
                if kind == "reader":
                    answer = await reader.read(1 << 10)
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()
            status = answer.split(b" ")[1].decode() if answer else "closed"
            self.counts[kind, status] += 1

    @contextlib.asynccontextmanager
    async def at_work(self):
        async with (
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as group,
        ):
            kinds = ("half a body", "reader")
            tasks = [
                group.create_task(work)
                for work in (
                    *(self.rest_client(session) for _ in range(3)),
                    self.grpc_client(),
                    *(self.slow_client(kind) for kind in kinds),
                )
            ]
            yield
            for task in tasks:
                task.cancel()

    async def states(self) -> dict[int, str]:
        url = f"http://127.0.0.1:{self.rest}/v1/models/m"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url) as answer,
        ):
            found = (await answer.json())["model_version_status"]
        return {int(one["version"]): one["state"] for one in found}


async def swaps(clients: Clients, folder: pathlib.Path, process: int):
    """Swaps one version for the next; the memory after each, in MiB."""
    used = [resident(process)]
    async with clients.at_work():
        for number in range(1, SWAPS + 1):
            copy_version(folder / str(number), folder / str(number + 1))
            async with asyncio.timeout(120):
                while (await clients.states()).get(number) != "END":
                    await asyncio.sleep(0.2)
                answered = clients.counts["REST", 200]
                while clients.counts["REST", 200] < answered + 100:
                    await asyncio.sleep(0.2)
            shutil.rmtree(folder / str(number))
            used.append(resident(process))
    return used


def test_swaps_under_load_and_slow_clients(tmp_path):
    folder = tmp_path / "m"
    write_classifier(folder, TOKENS, CONFIG)
    rest, grpc_port = free_ports()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tools.serve", "--model_name=m"),
            f"--model_base_path={folder}",
            f"--rest_api_port={rest}",
            f"--port={grpc_port}",
            "--enable_batching",
            "--max_batch_size=100",
            "--client_timeout_in_ms=4000",
            "--file_system_poll_wait_seconds=0.2",
        ],
        cwd=ROOT,
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stderr:
            if line == "ready\n":
                break
        clients = Clients(rest, grpc_port)
        used = asyncio.run(swaps(clients, folder, process.pid))
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        process.stderr.close()
        ended = process.wait(60)
    counts = dict(sorted(clients.counts.items(), key=str))
    print(f"answers: {counts}")
    print(
        f"resident MiB: start {used[0]:.0f}, after swap 5 {used[5]:.0f}, "
        f"10 {used[10]:.0f}, 20 {used[20]:.0f}"
    )
    assert ended == 0
    assert "Traceback" not in said
    found = collections.defaultdict(set)
    for kind, status in counts:
        found[kind].add(status)
    assert found.pop("REST") == {200, 400}
    assert found.pop("gRPC") == {"OK", "DEADLINE_EXCEEDED"}
    assert found.keys() == {"half a body", "reader"}
    assert set().union(*found.values()) <= {"200", "closed"}
    # By swap 10 each thread has the memory that it keeps.
    assert used[SWAPS] < 1.03 * max(used[5:11])
