"""Load on `bert-tf serve` beside transformers' pipeline behind HTTP.

A section of benchmarks/cpu_table.py. Each server runs in its own process, on
the cores that its clients are on too, and answers an SST-2 sentence a request:
`bert-tf serve --model` as it comes and in bfloat16, a folder of
`bert-tf export`, and a text-classification pipeline of Hugging Face
transformers, all of the same weights. Before the load all answer the same
texts. Any error ends the run.
"""

import asyncio
import contextlib
import io
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import aiohttp
import numpy as np

from benchmarks import comparison
from benchmarks.comparison import Section, Settings
from bert_tf.errors import UserError

_CLIENTS, _EQUAL = 32, 100
_PEER = "benchmarks/serving_transformers.py"
_EXACT = "exported, bert-tf serve --model_base_path"
_REFERENCE = "pipeline of transformers, batches"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def _server(command: list[str]) -> Iterator[str]:
    """A server in its own process; gives the URL of its model."""
    port = _free_port()
    command = [part.format(port=port) for part in command]
    # A file, since nobody reads a pipe while the server runs.
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stderr=said, text=True)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                said.seek(0)
                if "ready\n" in said.readlines():
                    break
            else:
                said.seek(0)
                raise UserError(f"the server did not start: {said.read()}")
            yield f"http://127.0.0.1:{port}/v1/models/model:predict"
        finally:
            process.terminate()
            process.wait()


async def _ask(
    session: aiohttp.ClientSession, url: str, text: str
) -> tuple[float, dict]:
    """One request: its seconds and its answer."""
    data = io.BytesIO(json.dumps({"instances": [text]}).encode())
    start = time.perf_counter()
    async with session.post(url, data=data) as answer:
        body = await answer.text()
        took = time.perf_counter() - start
        if answer.status != 200:
            raise UserError(f"{answer.status}: {body}")
    return took, json.loads(body)["predictions"][0]


async def _load(url: str, texts: list[str], seconds: float) -> list[float]:
    """Asks from all clients until the time is over: what each took."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    following = iter(range(sys.maxsize))

    async def client(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < end:
            text = texts[next(following) % len(texts)]
            took, _ = await _ask(session, url, text)
            times.append(took)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CLIENTS):
                group.create_task(client(session))
    return times


async def _chances(url: str, texts: list[str]) -> np.ndarray:
    """The probabilities of texts, all asked at once, by the label's name."""
    async with aiohttp.ClientSession() as session:
        asked = (_ask(session, url, text) for text in texts)
        answers = [answer for _, answer in await asyncio.gather(*asked)]
    rows = []
    for answer in answers:
        found = answer["probabilities"]
        if not isinstance(found, dict):
            found = dict(zip(answer["labels"], found, strict=True))
        rows.append([found[name] for name in sorted(found)])
    return np.array(rows)


def served(settings: Settings) -> list[dict]:
    """The table of servers."""
    texts = settings.sentences[:5000]
    random.Random(0).shuffle(texts)
    section = Section(
        f"served requests ({_CLIENTS} clients, an SST-2 sentence each, MiniLM)",
        "requests/s",
        _REFERENCE,
    )
    chances: dict[str, np.ndarray] = {}
    times: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        export = stack.enter_context(tempfile.TemporaryDirectory())
        comparison.run(
            [
                *(sys.executable, "-m", "tools.export_saved_model"),
                f"--model={settings.classifier}",
                f"--output_dir={export}/model",
            ]
        )
        ours = [
            *(sys.executable, "-m", "tools.serve", "--model_name=model"),
            *("--rest_api_port={port}", "--port=0"),
        ]
        model = f"--model={settings.classifier}"
        commands = {
            _EXACT: [*ours, f"--model_base_path={export}/model"],
            "bert-tf serve --model": [*ours, model],
            "bert-tf serve --model, bfloat16": [
                *ours,
                model,
                "--precision=mixed_bfloat16",
            ],
            "bert-tf serve --model, Keras, bfloat16": [
                *ours,
                model,
                "--runtime=keras",
                "--precision=mixed_bfloat16",
            ],
        }
        if settings.peers:
            commands[_REFERENCE] = [
                *(settings.peers, _PEER, f"--model={settings.converted}"),
                *("--port={port}", f"--threads={comparison.threads()}"),
                "--batch_size=32",
            ]
        else:
            section.missing[_REFERENCE] = "no environment of peers"

        def start(name: str) -> Callable[[], float]:
            url = stack.enter_context(_server(commands[name]))
            asyncio.run(_load(url, texts, min(3.0, settings.seconds)))
            chances[name] = asyncio.run(_chances(url, texts[:_EQUAL]))
            times[name] = []

            def work() -> float:
                found = asyncio.run(_load(url, texts, settings.seconds))
                times[name].extend(found)
                return settings.seconds / len(found)

            return work

        for name in commands:
            section.add(name, lambda name=name: start(name), warm=False)
        table = section.measured(
            settings.rounds, lambda seconds: 1 / seconds, True
        )
    exact = chances[_EXACT]
    for name, row in table["rows"].items():
        p50, p99 = 1e3 * np.percentile(times[name], [50, 99])
        mine = chances[name]
        flips = np.sum(mine.argmax(1) != exact.argmax(1))
        row["cells"] = {
            f"other labels of {_EQUAL}": str(flips),
            "largest difference": f"{np.abs(mine - exact).max():.1e}",
            "p50, ms": f"{p50:.0f}",
            "p99, ms": f"{p99:.0f}",
        }
    return [table]
