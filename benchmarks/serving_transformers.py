"""A Hugging Face text-classification pipeline behind HTTP.

The peer of benchmarks/serving.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
As transformers' own page on web servers has it: requests wait in a queue, one
thread takes what waits, at most --batch_size, and calls the pipeline with it.
It takes the body of TensorFlow Serving's :predict and prints "ready" when warm.

    python benchmarks/serving_transformers.py --model=FOLDER --port=8600 \
        --threads=2 --batch_size=1
"""

import argparse
import asyncio
import sys

import torch
from aiohttp import web
from transformers import pipeline


class Queue:
    """Requests on their way to the pipeline."""

    def __init__(self, model: str, batch_size: int) -> None:
        self.pipeline = pipeline("text-classification", model=model, top_k=None)
        self.pipeline("warm", batch_size=1)
        self.batch_size = batch_size
        self.waiting: asyncio.Queue[tuple[str, asyncio.Future]]

    async def answer(self, request: web.Request) -> web.Response:
        """Answers one request of one row."""
        body = await request.json()
        future = asyncio.get_running_loop().create_future()
        await self.waiting.put((body["instances"][0], future))
        return web.json_response({"predictions": [await future]})

    async def work(self, _: web.Application):
        """Calls the pipeline as long as the server lives."""
        self.waiting = asyncio.Queue()

        async def forever() -> None:
            while True:
                taken = [await self.waiting.get()]
                while not self.waiting.empty() and (
                    len(taken) < self.batch_size
                ):
                    taken.append(self.waiting.get_nowait())
                texts = [text for text, _ in taken]
                found = await asyncio.to_thread(self.call, texts)
                for (_, future), scores in zip(taken, found, strict=True):
                    future.set_result(scores)

        task = asyncio.create_task(forever())
        yield
        task.cancel()

    def call(self, texts: list[str]) -> list[dict]:
        """Labels, the likeliest first, and their probabilities."""
        found = self.pipeline(texts, batch_size=self.batch_size)
        return [
            {
                "label": scores[0]["label"],
                "probabilities": {s["label"]: s["score"] for s in scores},
            }
            for scores in found
        ]


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    queue = Queue(given.model, given.batch_size)
    application = web.Application()
    application.router.add_post("/v1/models/model:predict", queue.answer)
    application.cleanup_ctx.append(queue.work)
    web.run_app(
        application,
        host="127.0.0.1",
        port=given.port,
        access_log=None,
        print=lambda *_: print("ready", file=sys.stderr, flush=True),
    )


if __name__ == "__main__":
    main()
