"""Mutated requests: an error of the client's is never the server's."""

import asyncio
import collections
import copy
import gzip
import io
import json
import random
import zlib

import aiohttp
import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from tests.server.served_models import fetch, predict_request
from tests.server.test_server_conformance import rows

# Of the tables, what is answered: the method and the body.
BODIES = [
    (":" + path.rpartition(":")[2], json.loads(body))
    for path, body, status, _ in (
        *((":predict", *row) for row in rows("bodies")),
        *rows("paths"),
    )
    if status == "200" and body.endswith("}")
]
VALUES = [None, True, 0, -1, 2**31, 2**63, 2**64, 10**30, 1.5, 1e308, "", "x"]
VALUES += ["\U0001f600", [], {}, [[]], [[], [1]], [{}], {"b64": "aGk="}]
VALUES += [{"b64": "?"}, {"text": ["a"]}, [[[["deep"]]]], ["a"] * 9, [1, "a"]]
KEYS = ["instances", "inputs", "signature_name", "examples", "context", "x"]
KEYS += ["text", "text_b", "b64", ""]


def mutated_json(value: object, rng: random.Random) -> object:
    """A copy of a JSON value in which one place is another."""
    value = copy.deepcopy(value)
    places = []

    def walk(node: object) -> None:
        keys = node if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(value)
    holder, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            holder[key] = rng.choice(VALUES)
        case 1:
            del holder[key]
        case 2:
            holder[key] = [holder[key]] * rng.choice([1, 2, 70])
        case 3 if isinstance(holder, dict):
            holder[rng.choice(KEYS)] = holder.pop(key)
        case _:
            for _ in range(rng.choice([3, 31, 70])):
                holder[key] = [holder[key]]
    return value


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some of them flipped, cut off, doubled or put in."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0 if place < len(data):
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                del data[place:]
            case 2:
                data[place:place] = data[place : place + 9]
            case _:
                data[place:place] = rng.randbytes(rng.randrange(1, 5))
    return bytes(data)


def rest_request(rng: random.Random) -> tuple[str, str, bytes, dict]:
    """Method, path, body and headers of a mutated request."""
    method, headers = "POST", {}
    path, body = rng.choice(BODIES)
    path = f"/v1/models/m{rng.choice(['', '', '/versions/2'])}{path}"
    kind = rng.randrange(10)
    if kind < 5:
        for _ in range(rng.choice([1, 1, 2, 4])):
            body = mutated_json(body, rng) if body else {}
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode()
    if rng.random() < 0.05:
        depth = rng.choice([100, 1000, 20_000])
        data = data.replace(b'"text"', b"[" * depth + b"]" * depth)
    if kind in (5, 6):
        data = mutated_bytes(data, rng)
    if kind == 7:
        coder = rng.choice([gzip.compress, zlib.compress, lambda b: b])
        data = coder(data)
        if rng.random() < 0.7:
            data = mutated_bytes(data, rng)
        names = ["gzip", "deflate", "GZIP", "br", "identity", "", "gzip, gzip"]
        headers["Content-Encoding"] = rng.choice(names)
    if kind == 8:
        method = rng.choice("GET PUT DELETE PATCH OPTIONS POST".split())
        path = mutated_bytes(path.encode(), rng).decode("latin-1")
        path = "/v1/" + "".join(c for c in path[4:] if "!" <= c <= "~")
    if kind == 9:
        headers["Content-Type"] = rng.choice(["text/html", "", "multipart/x"])
        headers["Accept-Encoding"] = "gzip"
        headers["X-" + "y" * rng.randrange(1, 500)] = "z" * rng.randrange(9000)
        headers["Origin"] = rng.choice(["http://a", "null", ""])
    return method, path, data, headers


def random_request(rng: random.Random) -> predict_pb2.PredictRequest:
    name, inputs = rng.choice(
        [
            ("", {"text": ["good film", ""]}),
            ("pair", {"text": ["a"], "text_b": ["b"]}),
            ("optional", {"text": ["a"]}),
            ("tokens", {"ids": np.int32([[1, 2], [3, 4]])}),
            ("float32", {"x": np.float32([1, 2])}),
            ("string", {"x": "a"}),
            ("float16", {"x": np.float16([1])}),
            ("complex64", {"x": np.complex64([1j])}),
            ("raw_bytes", {"image_bytes": [b"\xff"]}),
        ]
    )
    return predict_request(name, **inputs)


def mutated_tensor(tensor, rng: random.Random) -> None:
    """Changes the dtype, shape or values of a TensorProto."""
    match rng.randrange(6):
        case 0:
            tensor.dtype = rng.choice([*range(32), 101, 110, 1000, -1])
        case 1:
            sizes = [0, 1, 2, 3, 1000, 2**20, 2**28, 2**40, 2**62, -1, -5]
            del tensor.tensor_shape.dim[:]
            for _ in range(rng.choice([0, 1, 1, 2, 3, 70, 300])):
                tensor.tensor_shape.dim.add(size=rng.choice(sizes))
        case 2:
            tensor.tensor_shape.unknown_rank = True
        case 3:
            tensor.tensor_content = rng.randbytes(rng.randrange(40))
        case 4:
            for field in ("string_val", "float_val", "int_val"):
                tensor.ClearField(field)
        case _:
            tensor.float_val.extend([1.0] * rng.randrange(9))
            tensor.string_val.append(b"\xff")
            tensor.int_val.append(rng.choice([-1, 2**31 - 1]))
            tensor.half_val.append(rng.choice([-1, 2**31 - 1, 7]))


def grpc_request(rng: random.Random) -> tuple[str, bytes]:
    """Method and bytes of a mutated request."""
    method = "Predict"
    if rng.random() < 0.7:
        request = random_request(rng)
        if rng.random() < 0.7:
            alias = rng.choice(sorted(request.inputs))
            mutated_tensor(request.inputs[alias], rng)
    else:
        method, kind = rng.choice(
            [
                ("Classify", classification_pb2.ClassificationRequest),
                ("Regress", regression_pb2.RegressionRequest),
                ("MultiInference", inference_pb2.MultiInferenceRequest),
                (
                    "GetModelMetadata",
                    get_model_metadata_pb2.GetModelMetadataRequest,
                ),
                ("GetModelStatus", get_model_status_pb2.GetModelStatusRequest),
            ]
        )
        request = kind()
        if method in ("Classify", "Regress", "MultiInference"):
            example = request.input.example_list.examples.add()
            feature = example.features.feature["text"]
            feature.bytes_list.value.append(b"good film")
        spec = getattr(request, "model_spec", None)
        if spec is None:
            task = request.tasks.add(method_name="tensorflow/serving/regress")
            spec = task.model_spec
        spec.name = "m"
        spec.signature_name = rng.choice(["classify", "regress", "", "pair"])
        if method == "GetModelMetadata":
            request.metadata_field.append(rng.choice(["signature_def", "x"]))
    data = request.SerializeToString()
    if rng.random() < 0.5:
        data = mutated_bytes(data, rng)
    service = "Model" if method == "GetModelStatus" else "Prediction"
    return f"/tensorflow.serving.{service}Service/{method}", data


async def run(server, count: int, seed: int) -> collections.Counter:
    """Sends mutated requests, half of each kind, and counts the answers."""
    rng = random.Random(seed)
    found: collections.Counter = collections.Counter()
    pending = iter(range(count))

    async def rest(session) -> None:
        method, path, body, headers = rest_request(rng)
        url = aiohttp.client.URL(server.rest + path, encoded=True)
        more = {"headers": headers, "allow_redirects": False}
        data = io.BytesIO(body)
        async with session.request(method, url, data=data, **more) as answer:
            text = await answer.text(errors="replace")
        found["REST", answer.status] += 1
        assert answer.status != 500, (method, path, body[:3000], headers, text)

    async def over_grpc(channel) -> None:
        method, data = grpc_request(rng)
        compression = rng.choice([None, grpc.Compression.Gzip])
        try:
            call = channel.unary_unary(method)
            await call(data, timeout=60, compression=compression)
            code, details = grpc.StatusCode.OK, ""
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details()
        found["gRPC", code.name] += 1
        bad = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
        assert code not in bad, (method, data[:3000], details)

    async def client(session, channel) -> None:
        for number in pending:
            await (rest(session) if number % 2 else over_grpc(channel))

    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        grpc.aio.insecure_channel(server.grpc) as channel,
        asyncio.TaskGroup() as clients,
    ):
        for _ in range(8):
            clients.create_task(client(session, channel))
    return found


@pytest.mark.parametrize("name", ["server", "batching_server"])
def test_no_mutated_request_is_an_error_of_the_server(request, name):
    count = 600
    server = request.getfixturevalue(name)
    found = asyncio.run(run(server, count, seed=1))
    print(name, dict(sorted(found.items(), key=str)))
    assert found.total() == count
    # It is no test if hardly anything is answered.
    assert found["REST", 200] > count / 50
    assert found["gRPC", "OK"] > count / 50
    url = f"{server.rest}/v1/models/m:predict"
    status, answer = fetch(url, {"instances": ["good film"]})
    assert (status, len(answer["predictions"])) == (200, 1)
