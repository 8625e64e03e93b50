"""OpenAI's embeddings and text-embeddings-inference's reranking, by HTTP."""

import asyncio
import base64
import json

import aiohttp
import numpy as np
import pytest

from bert_tf.server.batching import BATCHING_ON_CPU
from bert_tf.server.config import ModelConfig
from tests.server.served_models import fetch, served
from tests.server.text_models import SIZE, vectors_of, write_texts

TEXTS = ["abba", "cab", "", "über a \U0001f600"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def server(folder):
    with served(
        folder, "texts", batching=BATCHING_ON_CPU, max_request_bytes=1 << 20
    ) as background:
        yield background


def embeddings(server, **body):
    return fetch(f"{server.rest}/v1/embeddings", {"model": "texts", **body})


def rerank(server, **body):
    return fetch(f"{server.rest}/rerank", body)


def vectors_in(answer) -> np.ndarray:
    return np.array([one["embedding"] for one in answer["data"]])


def test_vectors_of_texts_at_unit_length(server):
    status, answer = embeddings(server, input=TEXTS, user="someone")
    assert status == 200
    assert answer.keys() == {"object", "data", "model", "usage"}
    assert (answer["object"], answer["model"]) == ("list", "texts")
    assert [one["index"] for one in answer["data"]] == [*range(len(TEXTS))]
    assert {one["object"] for one in answer["data"]} == {"embedding"}
    np.testing.assert_allclose(
        vectors_in(answer), vectors_of(TEXTS), rtol=0, atol=1e-6
    )
    # Words and two special tokens of each.
    count = sum(len(text.split()) + 2 for text in TEXTS)
    usage = {"prompt_tokens": count, "total_tokens": count}
    assert answer["usage"] == usage
    status, one = embeddings(server, input=TEXTS[0], dimensions=None)
    assert vectors_in(one).tolist() == vectors_in(answer)[:1].tolist()


def test_base64_dimensions_and_prompts(server):
    status, answer = embeddings(server, input=TEXTS, encoding_format="base64")
    assert status == 200
    found = [
        np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        for one in answer["data"]
    ]
    np.testing.assert_allclose(found, vectors_of(TEXTS), rtol=0, atol=1e-6)
    status, answer = embeddings(server, input=TEXTS[0], dimensions=2)
    assert status == 200
    # abba has two of each, and the rest is cut off before it is normalised.
    np.testing.assert_allclose(vectors_in(answer), [[0.5**0.5] * 2], atol=1e-6)
    status, answer = embeddings(server, input=TEXTS[:1], prompt_name="query")
    expected = vectors_of([f"ask: {TEXTS[0]}"])
    np.testing.assert_allclose(vectors_in(answer), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "status", "field", "message"),
    [
        ({}, 400, "input", "input is missing; it takes a string or a list of "),
        ({"input": []}, 400, "input", "input is empty; it takes at least one"),
        ({"input": 7}, 400, "input", "input is 7; it takes a string or a list"),
        ({"input": [1, 2]}, 400, "input", "input[0] is 1; it takes a string ("),
        (
            {"input": ["a", ["b"]]},
            400,
            "input",
            "input[1] is ['b']; it takes a",
        ),
        ({"input": "\ud800"}, 400, "input", "input[0] has half of a surrogate"),
        (
            {"input": "a", "encoding_format": "int8"},
            *(400, "encoding_format"),
            "encoding_format is 'int8'; it takes float or base64",
        ),
        (
            {"input": "a", "dimensions": 0},
            *(400, "dimensions", "dimensions is 0; it takes a positive whole "),
        ),
        (
            {"input": "a", "dimensions": True},
            *(400, "dimensions", "dimensions is True; it takes a positive w"),
        ),
        (
            {"input": "a", "dimensions": SIZE + 1},
            *(
                400,
                "dimensions",
                "dimensions is 5; the vectors of texts have 4",
            ),
        ),
        (
            {"input": "a", "inputs": 1},
            400,
            "inputs",
            "Unknown field 'inputs'; ",
        ),
        ({"input": ["a", "refused"]}, 400, None, "text: row 1 is refused"),
        (
            {"input": "a", "model": "other"},
            *(
                404,
                "model",
                "The model 'other' does not exist; models with emb",
            ),
        ),
        (
            {"input": "a", "model": None},
            *(400, "model", "model is missing; it takes a string"),
        ),
        ({"input": "a" * 2**20}, 413, None, "larger than the limit"),
    ],
)
def test_errors_of_embeddings(server, body, status, field, message):
    found, answer = embeddings(server, **body)
    assert found == status
    error = answer["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == field
    code = "model_not_found" if status == 404 else None
    assert error["code"] == code


def test_malformed_requests(server):
    for path in ("/v1/embeddings", "/rerank"):
        status, answer = fetch(server.rest + path, b"{")
        assert status == 400
        assert "JSON Parse error" in json.dumps(answer["error"])
        status, answer = fetch(server.rest + path)
        assert status == 405
        assert "takes POST, not GET" in json.dumps(answer["error"])


def test_ranks_best_first(server):
    texts = ["bcdef", "b", "bc", "x"]
    status, answer = rerank(server, query="a", texts=texts)
    assert status == 200
    assert [one["index"] for one in answer] == [1, 3, 2, 0]
    assert {key for one in answer for key in one} == {"index", "score"}
    logits = np.array([0.0, 0, -10, -40])
    found = [one["score"] for one in answer]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)), rtol=1e-3)
    status, answer = rerank(
        server,
        **{"query": "a", "texts": texts, "raw_scores": True},
        **{"return_text": True, "truncate": True, "model": "texts"},
    )
    assert [one["score"] for one in answer] == logits.tolist()
    assert [one["text"] for one in answer] == ["b", "x", "bc", "bcdef"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"texts": ["a"]}, 422, "query is missing; it takes a string"),
        ({"query": "a", "texts": []}, 422, "texts is empty; it takes at least"),
        (
            {"query": "a", "texts": "a"},
            422,
            "texts is 'a'; it takes a list of ",
        ),
        (
            {"query": "a", "texts": [None]},
            422,
            "texts[0] is None; it takes a s",
        ),
        (
            {"query": "a", "texts": ["a"], "raw_scores": 1},
            *(422, "raw_scores is 1; it takes true or false"),
        ),
        (
            {"query": "a", "texts": ["a"], "truncation_direction": "Left"},
            *(422, "truncation_direction is 'Left'; it takes Right"),
        ),
        (
            {"query": "a", "texts": ["a"], "model": "other"},
            *(
                404,
                "The model 'other' does not exist; models with rank: te",
            ),
        ),
        ({"query": "a", "texts": ["a" * 2**20]}, 413, "larger than the limit"),
    ],
)
def test_errors_of_reranking(server, body, status, message):
    found, answer = rerank(server, **body)
    assert found == status
    assert answer.keys() == {"error", "error_type"}
    assert message in answer["error"]
    assert answer["error_type"] == "Validation"


def test_thousands_of_texts_are_split_into_batches(server):
    def load() -> tuple[int, int]:
        url = f"{server.rest}/v1/models/texts:predict"
        body = {"signature_name": "load", "inputs": [0.0]}
        _, answer = fetch(url, body)
        outputs = answer["outputs"]
        return outputs["runs"][0], outputs["largest"][0]

    texts = ["a" * (number % 7) for number in range(3000)]
    before, _ = load()
    status, answer = embeddings(server, input=texts)
    runs, largest = load()
    assert status == 200
    np.testing.assert_allclose(
        vectors_in(answer), vectors_of(texts), rtol=0, atol=1e-6
    )
    assert largest <= 32
    assert runs - before >= 3000 / 32
    status, answer = rerank(server, query="aaa", texts=texts)
    assert status == 200
    assert len(answer) == 3000
    assert [one["index"] % 7 for one in answer[:400]] == [3] * 400


def test_concurrent_requests_get_their_own_answers(server):
    texts = [
        f"{'a' * (n % 5)}{'b' * (n % 3)}" if n % 10 else "refused"
        for n in range(120)
    ]

    async def ask_all() -> list[tuple[int, dict]]:
        async with aiohttp.ClientSession() as session:

            async def ask(text: str) -> tuple[int, dict]:
                url = f"{server.rest}/v1/embeddings"
                body = {"model": "texts", "input": ["a", text]}
                async with session.post(url, json=body) as answer:
                    return answer.status, await answer.json()

            return await asyncio.gather(*map(ask, texts))

    for text, (status, answer) in zip(
        texts, asyncio.run(ask_all()), strict=True
    ):
        if text == "refused":
            assert status == 400
            assert "text: row 1 is refused" in answer["error"]["message"]
            continue
        np.testing.assert_allclose(
            vectors_in(answer), vectors_of(["a", text]), rtol=0, atol=1e-6
        )


def test_the_model_must_be_able_and_clear(folder, versions):
    models = (
        ModelConfig("other", versions),
        ModelConfig("one", folder),
        ModelConfig("two", folder),
    )
    with served(models=models) as server:
        status, answer = embeddings(server, input="a", model="other")
        assert status == 400
        assert answer["error"]["message"] == (
            "model 'other' lacks the signature embed and count_tokens; models "
            "with embed and count_tokens: one, two"
        )
        status, answer = rerank(server, query="a", texts=["b"])
        assert status == 422
        assert answer["error"] == (
            "model is missing; models with rank: one, two"
        )
        status, _ = rerank(server, query="a", texts=["b"], model="two")
        assert status == 200


def test_a_full_queue_and_slow_models(folder):
    with served(folder, "texts", request_timeout=1e-6) as server:
        status, answer = embeddings(server, input=["a"] * 1000)
        assert (status, answer["error"]["type"]) == (504, "server_error")
        status, answer = rerank(server, query="a", texts=["b"] * 1000)
        assert (status, answer["error_type"]) == (504, "Backend")
