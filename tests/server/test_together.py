"""Batched answers are the answers of each request alone."""

import asyncio
import io
import json
import random
import string

import aiohttp
import numpy as np
import pytest

import bert_tf
from bert_tf.server.batching import BatchingParameters
from bert_tf.text.token_table import SPECIAL_TOKENS
from tests.server.served_models import served, write_classifier

TOKENS = [*SPECIAL_TOKENS, *"a good film bad ##ly made ü .".split()]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A folder with version 1 of a classifier of text."""
    config = bert_tf.BertConfig.from_size("1/32/2", len(TOKENS))
    config = config.override(["initializer_range=0.5"])
    folder = tmp_path_factory.mktemp("classifier")
    write_classifier(folder, TOKENS, config)
    return folder


def texts(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    words = ["a", "good", "film", "badly", "made", "ü", ".", "?"]
    sizes = [generator.randint(0, 25) for _ in range(count)]
    return [" ".join(generator.choices(words, k=size)) for size in sizes]


async def ask_all(url: str, rows: list[list[str]], clients: int) -> list:
    answers: list = [None] * len(rows)
    waiting = list(range(len(rows)))

    async def client(session):
        while waiting:
            number = waiting.pop()
            body = json.dumps({"instances": rows[number]}).encode()
            async with session.post(url, data=io.BytesIO(body)) as answer:
                assert answer.status == 200, await answer.text()
                answers[number] = (await answer.json())["predictions"]

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return answers


def test_a_classifier_answers_the_same_batched(classifier):
    generator = random.Random(5)
    rows = [texts(generator.randint(1, 3), seed) for seed in range(120)]
    parameters = BatchingParameters(16, batch_timeout_micros=5000)
    with served(classifier, batching=parameters) as server:
        url = f"{server.rest}/v1/models/m:predict"
        alone = asyncio.run(ask_all(url, rows, clients=1))
        together = asyncio.run(ask_all(url, rows, clients=24))
        page = server.server._metrics.page()
    runs = ":tensorflow:serving:batching_session:wrapped_run_count"
    (line,) = [line for line in page.splitlines() if line.startswith(runs)]
    batches = int(line.split()[-1]) - len(rows)
    assert batches < len(rows) / 2, "nothing was batched"
    for one, other in zip(alone, together, strict=True):
        assert len(one) == len(other)
        for row, batched in zip(one, other, strict=True):
            for name, atol in (("probabilities", 1e-6), ("logits", 1e-5)):
                np.testing.assert_allclose(
                    batched[name], row[name], rtol=0, atol=atol
                )
    spread = np.ptp([row["logits"] for rows in alone for row in rows], axis=0)
    assert spread.min() > 0.1, "the answers should differ"


def test_many_signatures_at_once(batching_server):
    def body(number):
        text = string.ascii_letters[: number % 40]
        return [
            ("pair", {"text": [text], "text_b": ["xy"]}),
            ("tokens", {"ids": [list(range(number % 5 + 1))]}),
            ("picky", {"text": ["bad" if number % 9 == 0 else text]}),
        ][number % 3]

    url = f"{batching_server.rest}/v1/models/m:predict"

    async def ask(session, number):
        name, inputs = body(number)
        data = json.dumps({"signature_name": name, "inputs": inputs})
        async with session.post(url, data=io.BytesIO(data.encode())) as answer:
            return answer.status, await answer.json()

    async def main():
        async with aiohttp.ClientSession() as session:
            asked = [ask(session, number) for number in range(300)]
            return await asyncio.gather(*asked)

    for number, (status, answer) in enumerate(asyncio.run(main())):
        name, inputs = body(number)
        if inputs.get("text") == ["bad"] and name == "picky":
            assert status == 400
            continue
        assert status == 200, answer
        outputs = answer["outputs"]
        if name == "pair":
            assert outputs["joined"] == [inputs["text"][0] + "xy"]
        elif name == "tokens":
            expected = np.cumsum(inputs["ids"], 1).tolist()
            assert outputs["total"] == expected
        else:
            assert outputs == inputs["text"]
