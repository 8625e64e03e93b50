"""The REST API over real sockets."""

import asyncio
import gzip
import json
import re
import socket
import time
import zlib

import aiohttp
import numpy as np
import pytest

from tests.server.served_models import fetch, fetch_text, served

MODEL = "/v1/models/m"


def ask(server, body, path=f"{MODEL}:predict", **more):
    return fetch(server.rest + path, body, **more)


@pytest.mark.parametrize("name", ["server", "batching_server"])
def test_rows_columns_and_versions(name, request):
    server = request.getfixturevalue(name)
    for path in (MODEL, f"{MODEL}/versions/2", "/V1/Models/m"):
        body = {"instances": ["good film", ""]}
        status, rows = ask(server, body, f"{path}:predict")
        assert status == 200
        first, second = rows["predictions"]
        assert first["labels"] == ["bad", "fair", "good"]
        best = np.argmax(first["probabilities"])
        assert first["label"] == first["labels"][best]
        assert first["probabilities"] != second["probabilities"]
        assert abs(sum(first["probabilities"]) - 1) < 1e-5
    status, columns = ask(server, {"inputs": {"text": ["good film", ""]}})
    assert status == 200
    for key, values in columns["outputs"].items():
        assert values == [first[key], second[key]]


def test_status_and_metadata(server):
    good = {"error_code": "OK", "error_message": ""}
    version = {"version": "2", "state": "AVAILABLE", "status": good}
    expected = {"model_version_status": [version]}
    assert fetch(server.rest + MODEL) == (200, expected)
    assert fetch(f"{server.rest}{MODEL}/versions/2") == (200, expected)
    status, found = fetch(f"{server.rest}{MODEL}/metadata")
    spec = {"name": "m", "signature_name": "", "version": "2"}
    assert found["model_spec"] == spec
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
GZIP = gzip.compress(WHOLE, mtime=0)
RAW_DEFLATE = zlib.compressobj(wbits=-15)


@pytest.mark.parametrize(
    ("encoding", "body", "status", "message"),
    [
        ("gzip", GZIP, 200, ""),
        ("GZip", GZIP, 200, ""),
        ("deflate", zlib.compress(WHOLE), 200, ""),
        ("deflate", RAW_DEFLATE.compress(WHOLE) + RAW_DEFLATE.flush(), 200, ""),
        ("identity", WHOLE, 200, ""),
        ("gzip", WHOLE, 400, "The body is not valid gzip"),
        ("deflate", WHOLE, 400, "The body is not valid deflate"),
        ("gzip", b"", 400, "not one complete stream of gzip"),
        ("gzip", GZIP[:-9], 400, "one complete stream of gzip"),
        ("gzip", GZIP[:20], 400, "one complete stream of gzip"),
        ("gzip", GZIP + b"x", 400, "complete stream"),
        ("deflate", zlib.compress(WHOLE)[:-5], 400, "one complete stream"),
        ("br", WHOLE[::-1], 400, "JSON Parse error"),
        ("gzip", gzip.compress(b" " * 2**25, mtime=0), 413, "larger than"),
    ],
)
def test_compressed_bodies(server, encoding, body, status, message):
    found, answer = ask(server, body, headers={"Content-Encoding": encoding})
    assert found == status
    assert message in answer.get("error", "")


def head(server, method, path, body=None, **headers):
    """The status, headers and text of an answer."""
    return fetch_text(server.rest + path, body, method, headers=headers)


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


@pytest.mark.parametrize(
    "line",
    [
        b"GET /\xff\xfe HTTP/1.1\r\n\x00: a",
        b"GET / HTTP/9.9\nmore\n",
        b"GET /v1/models/m HTTP/1.1\r\nContent-Length: \xff\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1",
    ],
)
def test_requests_of_raw_bytes_are_one_line_in_the_log(server, line, capfd):
    port = server.server.rest_port
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(10)
        # One that aiohttp logs: its first request may be of another protocol.
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(100_000).startswith(b"HTTP/1.1 200")
        client.sendall(line + b"\r\n\r\n")
        while b"HTTP/1.0 400" not in (answer := client.recv(100_000)):
            assert answer
    (logged,) = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"127\.0\.0\.1: sent a malformed .{1,76}", logged)


def test_preflight_and_cors(server, strict_server):
    ask_first = ("OPTIONS", f"{MODEL}:predict")
    assert head(server, *ask_first)[0] == 400
    status, headers, text = head(server, *ask_first, Origin="https://a.b")
    assert (status, text) == (200, "")
    assert "Access-Control-Allow-Origin" not in headers
    for method, path, body in (
        (*ask_first, None),
        ("POST", f"{MODEL}:predict", WHOLE),
        ("POST", f"{MODEL}:predict", b"{"),
    ):
        asked = strict_server, method, path, body
        _, headers, _ = head(*asked, Origin="http://a.b")
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert headers["Access-Control-Allow-Methods"] == "POST, GET"
        assert headers["Access-Control-Allow-Headers"] == "Content-Type"


def test_a_body_that_is_too_large(strict_server):
    for chunked in (None, True):
        body = b'{"instances": ["' + b"x" * 5000
        status, answer = ask(strict_server, body, chunked=chunked)
        assert status == 413
        assert "limit of 1000 bytes" in answer["error"]


def test_a_client_that_sends_its_body_slowly(strict_server):
    async def dribble():
        for _ in range(50):
            yield b"{"
            await asyncio.sleep(0.1)

    async def send():
        url = f"{strict_server.rest}{MODEL}:predict"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=dribble()) as answer,
        ):
            return answer.status, await answer.json()

    status, answer = asyncio.run(send())
    assert status == 408
    assert "did not arrive within 0.5 s" in answer["error"]


def test_a_client_that_never_ends_its_headers(strict_server):
    port = strict_server.server.rest_port
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(10)
        start = time.monotonic()
        client.sendall(b"POST /v1/models/m:predict HTTP/1.1\r\nHost: a\r\n")
        assert client.recv(100) == b""
        assert 0.4 < time.monotonic() - start < 5


def test_an_answer_that_takes_too_long(strict_server):
    body = {"signature_name": "slow", "instances": ["10000"]}
    status, answer = ask(strict_server, body)
    assert (status, answer["error"]) == (504, "Timed out after 500 ms")


def test_metrics_have_tf_servings_names(versions):
    with served(versions) as server:
        ask(server, {"instances": ["x"]})
        ask(server, {"instances": [1]})
        fetch(f"{server.rest}/v1/models/{'z' * 50}")
        path = "/monitoring/prometheus/metrics"
        _, headers, text = head(server, "GET", path)
    assert headers["Content-Type"].startswith("text/plain")
    name = ":tensorflow:serving:request_"
    for line in (
        f"# TYPE {name}count counter",
        f'{name}count{{model_name="m",status="OK"}} 1',
        f'{name}count{{model_name="m",status="INVALID_ARGUMENT"}} 1',
    ):
        assert line in text.splitlines()
    # Names that nobody serves must not fill the memory.
    assert "zzz" not in text


def test_health_is_that_of_all_models(server):
    """A model without a version that serves is named."""
    url = f"{server.rest}/health"
    assert fetch(url) == (200, {"status": "ok", "models": {"m": True}})
    models = server.server.manager.models
    models.configs["late"] = models.configs["m"]
    try:
        status, body = fetch(url)
    finally:
        del models.configs["late"]
    assert (status, body["status"]) == (503, "unavailable")
    assert body["models"] == {"late": False, "m": True}
