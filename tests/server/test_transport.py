"""TLS, the health service, and limits of gRPC."""

import contextlib
import json
import pathlib
import ssl
import subprocess
import threading
import time

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

from bert_tf.errors import UserError
from bert_tf.server.config import read_tls
from tests.server.served_models import (
    Background,
    fetch,
    predict_request,
    served,
)

_STATUS = health_pb2.HealthCheckResponse.ServingStatus


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[str, str]:
    """A key and a certificate of localhost that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert "
        "-days 2 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost,IP:127.0.0.1".split(),
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return (folder / "key").read_text(), (folder / "cert").read_text()


def written(folder: pathlib.Path, **fields: object) -> pathlib.Path:
    path = folder / "ssl.config"
    lines = (f"{k}: {json.dumps(v)}\n" for k, v in fields.items())
    path.write_text("".join(lines))
    return path


def asked_by_grpc(channel: grpc.Channel) -> list[int]:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = predict_request("version", text=["a"])
    answer = stub.Predict(request, timeout=30)
    return list(answer.outputs["version"].int_val)


def rest_url(server: Background) -> str:
    return f"https://127.0.0.1:{server.server.rest_port}/v1/models/m"


@pytest.mark.parametrize("verified", [False, True])
def test_both_ports_are_over_tls(versions, pair, tmp_path, verified):
    """With a certificate of the client's where one is asked for."""
    key, cert = pair
    fields = {"server_key": key, "server_cert": cert}
    if verified:
        fields |= {"custom_ca": cert, "client_verify": True}
    for name, text in (("key", key), ("cert", cert)):
        (tmp_path / name).write_text(text)
    known = ssl.create_default_context(cadata=cert)
    known.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    unknown = ssl.create_default_context(cadata=cert)
    root = cert.encode()
    tls = read_tls(written(tmp_path, **fields))
    with served(versions, tls=tls) as server:
        for context, credentials, welcome in (
            (known, (root, key.encode(), root), True),
            (unknown, (root,), not verified),
        ):
            with grpc.secure_channel(
                server.grpc, grpc.ssl_channel_credentials(*credentials)
            ) as channel:
                if welcome:
                    assert fetch(rest_url(server), ssl=context)[0] == 200
                    assert asked_by_grpc(channel) == [2]
                    continue
                with pytest.raises(aiohttp.ClientError):
                    fetch(rest_url(server), ssl=context)
                with pytest.raises(grpc.RpcError):
                    asked_by_grpc(channel)
        with (
            grpc.insecure_channel(server.grpc) as channel,
            pytest.raises(grpc.RpcError),
        ):
            asked_by_grpc(channel)


def test_wrong_tls(pair, tmp_path):
    key, cert = pair
    for fields, message in (
        ({"server_cert": cert}, "give server_key and server_cert"),
        (
            {"server_key": key, "server_cert": cert, "client_verify": True},
            "client_verify requires custom_ca",
        ),
        ({"server_key": "x", "server_cert": cert}, "cannot be used"),
        ({"server": "x"}, "ssl.config: 1:1"),
    ):
        with pytest.raises(UserError, match=message):
            read_tls(written(tmp_path, **fields))


def test_health_is_told_until_the_end_and_requests_are_counted(versions):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            served(versions, health=True, grpc_max_requests=1)
        )
        with grpc.insecure_channel(server.grpc) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("", "PredictionService", "ModelService"):
                request = health_pb2.HealthCheckRequest(service=name)
                assert stub.Check(request, timeout=30).status == _STATUS.SERVING
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
            assert next(watch).status == _STATUS.SERVING
            # The watch is the one request that may be open.
            with pytest.raises(grpc.RpcError) as caught:
                asked_by_grpc(channel)
            assert caught.value.code().name == "RESOURCE_EXHAUSTED"
            seen = []
            reader = threading.Thread(
                target=lambda: seen.extend(one.status for one in watch)
            )
            reader.start()
            start = time.monotonic()
            stack.close()
            # Whoever watches does not hold it up.
            assert time.monotonic() - start < 15
            reader.join()
    assert seen == [_STATUS.NOT_SERVING]


def test_without_the_flag_there_is_no_health_service(server):
    with (
        grpc.insecure_channel(server.grpc) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=30
        )
    assert caught.value.code().name == "UNIMPLEMENTED"
