"""The commands and clients of docs/serving.md work as they stand."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
import yaml

from bert_tf.server.config import read_batching, read_metrics_path, read_models
from tests.commands import run_line, run_script
from tests.documents import ROOT, blocks, commands
from tests.inference.model_folders import make

PAGE = "docs/serving.md"
PRODUCTION = ROOT / "production"


def compose() -> dict:
    return yaml.safe_load((PRODUCTION / "compose.yaml").read_text())


def test_the_configuration_files_are_read():
    (model,) = read_models(PRODUCTION / "models.config")
    assert model.name == "bert"
    batching = read_batching(PRODUCTION / "batching.config")
    assert batching.max_batch_size == 32
    path = read_metrics_path(PRODUCTION / "monitoring.config")
    assert path == "/monitoring/prometheus/metrics"


def test_what_is_asked_for_is_served():
    """The names in the page's addresses are those that it serves."""
    text = "".join(blocks(PAGE, "sh") + blocks(PAGE, "python"))
    served = set(re.search(r"for name in (stars .*); do", text)[1].split())
    asked = set(re.findall(r"/v1/models/(\w+)", text))
    assert asked == served
    assert set(re.findall(r'model="(\w+)"', text)) == {"stars"}
    assert "--model_base_path=served/stars" in text
    for body in re.findall(r"curl -d '([^']*)'", text):
        assert set(json.loads(body)) & {"instances", "examples"}


@pytest.mark.parametrize("file", ["compose.yaml", "kubernetes.yaml"])
def test_all_files_that_are_mounted_exist(file):
    text = (PRODUCTION / file).read_text()
    named = re.findall(r"/config/([\w.]+)", text)
    assert len(named) == 3
    for name in named:
        assert (PRODUCTION / name).is_file()
    assert "/v1/models/bert" in text


def test_compose_publishes_to_this_machine_alone():
    (service,) = compose()["services"].values()
    assert service["ports"] == [
        "${ADDRESS:-127.0.0.1}:8500:8500",
        "${ADDRESS:-127.0.0.1}:8501:8501",
    ]
    models, config = service["volumes"]
    assert models["target"] == "/models/bert"
    # The files of this folder: Compose resolves paths from it.
    assert config["source"] == "."


@pytest.mark.parametrize("state", ["AVAILABLE", "LOADING"])
def test_composes_health_check(state):
    """Of an answer of TensorFlow Serving, by bash alone."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.path == "/v1/models/bert"
            self.send_response(200)
            self.end_headers()
            version = {"version": "1", "state": state}
            body = {"model_version_status": [version]}
            self.wfile.write(json.dumps(body, indent=1).encode())

        def log_message(self, *_):
            pass

    (service,) = compose()["services"].values()
    _, *command = service["healthcheck"]["test"]
    address = ("127.0.0.1", 0)
    with http.server.HTTPServer(address, Answer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        command[-1] = command[-1].replace("8501", str(server.server_port))
        done = subprocess.run(command, timeout=60)
        thread.join()
    assert done.returncode == (0 if state == "AVAILABLE" else 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Where the page's commands run: small models of its names in out/."""
    root = tmp_path_factory.mktemp("page")
    (root / "out").mkdir()
    for name, kind in (
        *(("stars", "classes"), ("paraphrases", "pairs"), ("squad", "span")),
        *(("swag", "choice"), ("pretraining", "pretrained")),
    ):
        make(root, kind).rename(root / "out" / name)
    return root


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Page:
    """The page's blocks, run by bash or Python in a folder.

    As they stand but for the ports: others may use those of the page.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.rest, self.grpc = free_port(), free_port()
        bin_folder = str(pathlib.Path(sys.executable).parent)
        self.environment = os.environ | {
            "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
        }

    def with_ports(self, block: str) -> str:
        block = block.replace("localhost:8501", f"localhost:{self.rest}")
        block = block.replace("localhost:8500", f"localhost:{self.grpc}")
        flags = f" --rest_api_port={self.rest} --port={self.grpc}"
        return re.sub(r"(bert-tf serve[^\n]*)", rf"\1{flags}", block)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*words[:-1], self.with_ports(words[-1])],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def serving(self, block: str, name: str):
        """Runs a block that ends with a server, until it is not needed."""
        process = subprocess.Popen(
            ["bash", "-ec", self.with_ports(block)],
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )
        try:
            address = f"http://localhost:{self.rest}/v1/models/{name}"
            end = time.monotonic() + 600
            while True:
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < end, "the server does not start"
                try:
                    with urllib.request.urlopen(address) as answer:
                        assert b"AVAILABLE" in answer.read()
                    break
                except urllib.error.URLError:
                    time.sleep(0.5)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def test_every_command_of_the_page(folder):
    export, serve, several, docker, curls = blocks(PAGE, "sh")
    assert "docker compose" in docker  # No daemon runs where tests do.
    assert shutil.which("curl"), "the page's commands need curl: install it"
    page = Page(folder)
    exports, end, several = several.partition("done\n")
    printed = run_line(export, folder).stdout
    assert "served/stars/1: " in printed
    run_script(exports + end, folder)
    version = folder / "served" / "stars" / "1"
    for name in (
        *("saved_model.pb", "assets/vocab.txt", "assets.extra/model.json"),
        "assets.extra/tf_serving_warmup_requests",
    ):
        assert (version / name).is_file()
    with page.serving(serve, "stars"):
        rest, grpc = blocks(PAGE, "python")
        rows = page.run("python", "-c", rest).splitlines()
        assert [set(eval(row)) for row in rows] == [
            {"label", "labels", "probabilities", "logits"}
        ] * 2
        arrays = page.run("python", "-c", grpc)
        label = eval(rows[0])["label"]
        assert f"'label': array([b'{label}'" in arrays
    with page.serving(several, "pretraining"):
        asked = commands(curls)
        assert len(asked) == 10
        answers = [page.run("bash", "-ec", command) for command in asked]
    for answer, command in zip(answers, asked, strict=True):
        assert '"error":' not in answer, command
    assert [next(iter(json.loads(answer))) for answer in answers[:6]] == [
        *["predictions"] * 5,
        "results",
    ]
    assert "AVAILABLE" in answers[6]
    assert "signature_def" in answers[7]
    assert json.loads(answers[8])["status"] == "ok"
    assert "tensorflow:serving:request_count" in answers[9]
