"""The REST API over real sockets."""

import asyncio
import gzip
import json
import socket
import time
import zlib

import aiohttp
import numpy as np
import pytest

from tests.server.served_models import fetch, served

MODEL = "/v1/models/m"


def ask(server, body, path=f"{MODEL}:predict", **more):
    return fetch(server.rest + path, body, **more)


@pytest.mark.parametrize("name", ["server", "batching_server"])
def test_rows_columns_and_versions(name, request):
    server = request.getfixturevalue(name)
    for path in (MODEL, f"{MODEL}/versions/2", "/V1/Models/m"):
        status, rows = ask(
            server, {"instances": ["good film", ""]}, f"{path}:predict"
        )
        assert status == 200
        first, second = rows["predictions"]
        assert first["labels"] == ["bad", "fair", "good"]
        assert (
            first["label"] == first["labels"][np.argmax(first["probabilities"])]
        )
        assert first["probabilities"] != second["probabilities"]
        assert abs(sum(first["probabilities"]) - 1) < 1e-5
    status, columns = ask(server, {"inputs": {"text": ["good film", ""]}})
    assert status == 200
    for key, values in columns["outputs"].items():
        assert values == [first[key], second[key]]


def test_classify_and_regress(server):
    examples = {"examples": [{"text": "good film"}, {"text": "x"}]}
    status, answer = ask(
        server, examples | {"signature_name": "classify"}, f"{MODEL}:classify"
    )
    assert status == 200
    _, rows = ask(server, {"instances": ["good film", "x"]})
    for classes, row in zip(
        answer["results"], rows["predictions"], strict=True
    ):
        assert [name for name, _ in classes] == row["labels"]
        np.testing.assert_allclose(
            [score for _, score in classes], row["probabilities"], atol=1e-6
        )
    context = {"context": {"text": "abc"}, "examples": [{"other": 1}]}
    status, answer = ask(
        server, context | {"signature_name": "regress"}, f"{MODEL}:regress"
    )
    assert (status, answer) == (200, {"results": [3.0]})


def test_status_and_metadata(server):
    expected = {
        "model_version_status": [
            {
                "version": "2",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    assert fetch(server.rest + MODEL) == (200, expected)
    assert fetch(f"{server.rest}{MODEL}/versions/2") == (200, expected)
    status, found = fetch(f"{server.rest}{MODEL}/metadata")
    assert found["model_spec"] == {
        "name": "m",
        "signature_name": "",
        "version": "2",
    }
    signature = found["metadata"]["signature_def"]["signature_def"]["choice"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    choices = signature["inputs"]["choices"]
    assert choices["dtype"] == "DT_STRING"
    assert [d["size"] for d in choices["tensor_shape"]["dim"]] == ["-1", "-1"]


@pytest.mark.parametrize("name", ["server", "batching_server"])
def test_empty_and_very_long_texts(name, request):
    server = request.getfixturevalue(name)
    for text in ("", "x" * 2**20, "\x00", "\U0001f600" * 1000):
        status, answer = ask(server, {"instances": [text]})
        assert (status, len(answer["predictions"])) == (200, 1)


WHOLE = json.dumps({"instances": ["good film"]}).encode()
RAW_DEFLATE = zlib.compressobj(wbits=-15)


@pytest.mark.parametrize(
    ("encoding", "body", "status", "message"),
    [
        ("gzip", gzip.compress(WHOLE, mtime=0), 200, ""),
        ("GZip", gzip.compress(WHOLE, mtime=0), 200, ""),
        ("deflate", zlib.compress(WHOLE), 200, ""),
        (
            "deflate",
            RAW_DEFLATE.compress(WHOLE) + RAW_DEFLATE.flush(),
            200,
            "",
        ),
        ("identity", WHOLE, 200, ""),
        ("gzip", WHOLE, 400, "The body is no gzip"),
        ("deflate", WHOLE, 400, "The body is no deflate"),
        ("gzip", b"", 400, "not one whole stream of gzip"),
        (
            "gzip",
            gzip.compress(WHOLE, mtime=0)[:-9],
            400,
            "one whole stream of gzip",
        ),
        (
            "gzip",
            gzip.compress(WHOLE, mtime=0)[:20],
            400,
            "one whole stream of gzip",
        ),
        ("gzip", gzip.compress(WHOLE, mtime=0) + b"x", 400, "one whole stream"),
        ("deflate", zlib.compress(WHOLE)[:-5], 400, "one whole stream"),
        ("br", WHOLE[::-1], 400, "JSON Parse error"),
        ("gzip", gzip.compress(b" " * 2**25, mtime=0), 413, "larger than"),
    ],
)
def test_compressed_bodies(server, encoding, body, status, message):
    found, answer = fetch(
        f"{server.rest}{MODEL}:predict",
        body,
        headers={"Content-Encoding": encoding},
    )
    assert found == status
    assert message in answer.get("error", "")


def head(server, method, path, body=None, **headers):
    """The status, headers and text of an answer."""

    async def ask_it():
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, server.rest + path, data=body, headers=headers
            ) as answer,
        ):
            return answer.status, answer.headers, await answer.text()

    return asyncio.run(ask_it())


def test_headers_are_those_of_tf_serving(server):
    for method, path, body in (
        ("POST", f"{MODEL}:predict", WHOLE),
        ("POST", f"{MODEL}:predict", b"{"),
        ("GET", MODEL, None),
        ("GET", f"{MODEL}/metadata", None),
    ):
        _, headers, _ = head(server, method, path, body)
        assert headers["Content-Type"] == "application/json"
        assert headers["Server"] == "bert_tf"
        assert "Access-Control-Allow-Origin" not in headers
    for path in ("/", "/nothing", "/monitoring/prometheus/metrics"):
        assert head(server, "GET", path)[1]["Server"] == "bert_tf"


def test_nothing_tells_versions_where_no_http_is_sent(server):
    port = server.server.rest_port
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(10)
        client.sendall(b"\xff\x00\r\n\r\n")
        answer = client.recv(10_000)
    assert answer.startswith(b"HTTP/1.0 400")
    assert b"aiohttp/" not in answer
    assert b"Python/" not in answer


def test_preflight_and_cors(server, versions):
    ask_first = ("OPTIONS", f"{MODEL}:predict")
    assert head(server, *ask_first)[0] == 400
    status, headers, text = head(server, *ask_first, Origin="https://a.b")
    assert (status, text) == (200, "")
    assert "Access-Control-Allow-Origin" not in headers
    with served(versions, cors=True) as open_server:
        for method, path, body in (
            (*ask_first, None),
            ("POST", f"{MODEL}:predict", WHOLE),
            ("POST", f"{MODEL}:predict", b"{"),
        ):
            _, headers, _ = head(
                open_server, method, path, body, Origin="http://a.b"
            )
            assert headers["Access-Control-Allow-Origin"] == "*"
            assert headers["Access-Control-Allow-Methods"] == "POST, GET"
            allowed = headers["Access-Control-Allow-Headers"]
            assert allowed == "Content-Type"


def test_a_body_that_is_too_large(versions):
    with served(versions, max_request_bytes=1000) as server:
        for chunked in (None, True):
            status, answer = ask(
                server, b'{"instances": ["' + b"x" * 5000, chunked=chunked
            )
            assert status == 413
            assert "larger than the 1000 bytes" in answer["error"]
        assert ask(server, {"instances": ["x"]})[0] == 200


def test_a_client_that_sends_its_body_slowly(versions):
    with served(versions, client_timeout=0.5) as server:

        async def dribble():
            for _ in range(50):
                yield b"{"
                await asyncio.sleep(0.1)

        async def send():
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"{server.rest}{MODEL}:predict", data=dribble()
                ) as answer,
            ):
                return answer.status, await answer.json()

        status, answer = asyncio.run(send())
        assert status == 408
        assert "did not arrive within 0.5 s" in answer["error"]
        assert ask(server, {"instances": ["x"]})[0] == 200


def test_a_client_that_never_ends_its_headers(versions):
    with served(versions, client_timeout=0.5) as server:
        port = server.server.rest_port
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(10)
            start = time.monotonic()
            client.sendall(b"POST /v1/models/m:predict HTTP/1.1\r\nHost: a\r\n")
            assert client.recv(100) == b""
            assert 0.4 < time.monotonic() - start < 5
        assert ask(server, {"instances": ["x"]})[0] == 200


def test_an_answer_that_takes_too_long(versions):
    with served(versions, request_timeout=0.5) as server:
        body = {"signature_name": "slow", "instances": [20_000]}
        status, answer = ask(server, body)
        assert (status, answer["error"]) == (504, "Timed out after 500 ms")
        # The graph runs on for a moment, then there is time again.
        for _ in range(60):
            status, _ = ask(server, {"instances": ["x"]})
            if status == 200:
                break
        assert status == 200


def test_metrics_have_tf_servings_names(versions):
    with served(versions) as server:
        ask(server, {"instances": ["x"]})
        ask(server, {"instances": [1]})
        fetch(f"{server.rest}/v1/models/{'z' * 50}")

        async def read():
            async with (
                aiohttp.ClientSession() as session,
                session.get(
                    f"{server.rest}/monitoring/prometheus/metrics"
                ) as answer,
            ):
                assert answer.content_type == "text/plain"
                return (await answer.text()).splitlines()

        lines = asyncio.run(read())
    name = ":tensorflow:serving:request_"
    assert f"# TYPE {name}count counter" in lines
    assert f'{name}count{{model_name="m",status="OK"}} 1' in lines
    invalid = f'{name}count{{model_name="m",status="INVALID_ARGUMENT"}} 1'
    assert invalid in lines
    labels = 'model_name="m",API="predict",entrypoint="REST"'
    assert f"{name}latency_count{{{labels}}} 1" in lines
    assert f'{name}latency_bucket{{{labels},le="+Inf"}} 1' in lines
    # Names that nobody serves must not fill the memory.
    assert not any("zzz" in line for line in lines)
