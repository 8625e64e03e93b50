"""tools.serve as a process: start, errors in one line, SIGTERM."""

import contextlib
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

import aiohttp
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver
from tensorflow_serving.apis import prediction_log_pb2

import bert_tf
from bert_tf.errors import UserError
from bert_tf.server import server as bert_tf_server
from bert_tf.server.batching import BatchingParameters
from bert_tf.server.manager import WARM_UP_FILE
from tests import commands
from tests.inference.model_folders import make
from tests.server.served_models import fetch, predict_request
from tools import serve

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ONE = {"model_base_path": "a"}


class Waiting(tf.Module):
    """Echoes text; the text "slow" takes a while, "endless" for ever."""

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="text")]
    )
    def echo(self, text):
        steps = tf.where(tf.reduce_any(text == "slow"), 5000, 0)
        steps = tf.where(tf.reduce_any(text == "endless"), 10_000_000, steps)
        seed = tf.ones([200, 200]) / 200.0
        matrix = tf.while_loop(
            lambda i, m: i < steps, lambda i, m: (i + 1, m @ seed), [0, seed]
        )[1]
        one = tf.cast(tf.reduce_sum(matrix) > 0, tf.int32)
        return {"echo": text, "one": tf.fill(tf.shape(text), one)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    module = Waiting()
    signatures = {"serving_default": module.echo}
    tf.saved_model.save(module, str(folder / "3"), signatures=signatures)
    return folder


def free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def started(*words: str) -> subprocess.Popen:
    """With the environment of a user, who does not set TensorFlow's log."""
    environment = dict(os.environ)
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.Popen(
        [sys.executable, "-m", "tools.serve", *words],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def parsed():
    """Lets the flags be read though no command line was."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


@pytest.mark.witness("bert-tf serve: what it prints from start to SIGTERM")
def test_from_start_to_sigterm(folder):
    rest, grpc = free_ports()
    process = started(
        "--model_name=echo",
        f"--model_base_path={folder}",
        f"--rest_api_port={rest}",
        f"--port={grpc}",
        "--enable_batching",
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line == "ready\n":
            break
    assert lines == [
        "model echo: version 3 serves\n",
        f"gRPC: 127.0.0.1:{grpc}\n",
        f"REST: http://127.0.0.1:{rest}/v1/models\n",
        f"page: http://127.0.0.1:{rest}/\n",
        "ready\n",
    ]
    url = f"http://127.0.0.1:{rest}/v1/models/echo:predict"
    answers = []
    client = threading.Thread(
        target=lambda: answers.append(fetch(url, {"instances": ["slow"]}))
    )
    client.start()
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    client.join()
    # What was asked before the signal is answered.
    assert answers == [(200, {"predictions": [{"echo": "slow", "one": 1}]})]
    stopping, unloaded = process.stderr.read().splitlines()
    assert stopping.startswith("stopping: ")
    assert unloaded == "model echo: version 3 is unloaded"
    process.stderr.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give one of --model, --model_base_path and"),
        (ONE | {"model_config_file": "b"}, "give one of --model, --model_base"),
        (ONE | {"runtime": "openvino"}, "--runtime: is for --model; leave it"),
        ({"model_config_file": "/none"}, "/none: No such file"),
        ({"model_base_path": "/none"}, "'default': no such folder: /none."),
        ({"port": 0, "rest_api_port": 0}, "give one of them a port"),
        ({"port": 8501}, "--port=8501 is --rest_api_port too"),
        (ONE | {"max_batch_size": 3}, "--max_batch_size=3: add --enable_batch"),
        (
            ONE | {"batching_parameters_file": "b"},
            "--batching_parameters_file=b: add --enable_batching",
        ),
        (
            {
                "tensorflow_session_parallelism": 2,
                "tensorflow_inter_op_parallelism": 1,
            },
            "--tensorflow_session_parallelism=2: give it, or",
        ),
        (
            ONE | {"use_alts_credentials": True},
            "credentials=True is not offer",
        ),
        (
            ONE | {"grpc_channel_arguments": ["x"]},
            "--grpc_channel_arguments=x: give name=value",
        ),
        (ONE | {"ssl_config_file": "/none"}, "/none: No such file"),
    ],
)
def test_flags_that_do_not_go_together(parsed, given, message):
    with flagsaver.flagsaver(**given), pytest.raises(UserError) as caught:
        serve.main()
    assert message in str(caught.value)


def test_every_flag_of_tf_serving_is_known():
    # Those of main.cc of tensorflow/serving 2.21; --version is left out.
    names = """port grpc_socket_path rest_api_port rest_api_num_threads
    rest_api_timeout_in_ms rest_api_enable_cors_support enable_batching
    allow_version_labels_for_unavailable_models batching_parameters_file
    enable_per_model_batching_parameters model_config_file
    model_config_file_poll_wait_seconds model_name model_base_path
    num_load_threads num_unload_threads max_num_load_retries
    load_retry_interval_micros file_system_poll_wait_seconds
    flush_filesystem_caches tensorflow_session_parallelism
    tensorflow_session_config_file tensorflow_intra_op_parallelism
    tensorflow_inter_op_parallelism use_alts_credentials ssl_config_file
    platform_config_file per_process_gpu_memory_fraction saved_model_tags
    grpc_channel_arguments grpc_max_threads enable_model_warmup
    num_request_iterations_for_warmup monitoring_config_file
    remove_unused_fields_from_bundle_metagraph prefer_tflite_model
    num_tflite_pools num_tflite_interpreters_per_pool
    enable_signature_method_name_check xla_cpu_compilation_enabled
    xla_gpu_compilation_enabled enable_profiler
    thread_pool_factory_config_file mixed_precision skip_initialize_tpu
    enable_grpc_healthcheck_service enable_serialization_as_tensor_content"""
    assert set(names.split()) <= set(flags.FLAGS)


def test_flags_that_have_no_effect_say_so(parsed, capsys):
    given = {"num_unload_threads": "4", "use_alts_credentials": False}
    with flagsaver.flagsaver(**given):
        serve._check_flags_of_tf_serving()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--num_unload_threads=4 has no effect: ")


def test_flags_go_before_the_file(parsed, tmp_path):
    path = tmp_path / "batching"
    text = "max_batch_size { value: 5 } max_enqueued_batches { value: 2 }"
    path.write_text(text)
    with flagsaver.flagsaver(
        enable_batching=True,
        batching_parameters_file=str(path),
        max_batch_size=9,
        batch_timeout_micros=100,
    ):
        assert serve._batching() == BatchingParameters(9, 100, 2)


def test_sigterm_while_models_load(folder, tmp_path):
    shutil.copytree(folder / "3", tmp_path / "m" / "3")
    log = prediction_log_pb2.PredictionLog()
    request = predict_request(text=["endless"])
    log.predict_log.request.CopyFrom(request)
    warm_up = tmp_path / "m" / "3" / WARM_UP_FILE
    warm_up.parent.mkdir()
    with tf.io.TFRecordWriter(str(warm_up)) as writer:
        writer.write(log.SerializeToString())
    server = commands.Command(
        "tools.serve",
        f"--model_base_path={tmp_path / 'm'}",
        log=tmp_path / "log",
    )
    status = pathlib.Path(f"/proc/{server.pid}/status")
    caught = 0
    while not caught & 1 << (signal.SIGTERM - 1):
        assert server.poll() is None
        time.sleep(0.1)
        (line,) = re.findall(r"SigCgt:\s*(\w+)", status.read_text())
        caught = int(line, 16)
    time.sleep(1)
    server.send_signal(signal.SIGTERM)
    assert server.wait(5) == 0
    last = server.printed().splitlines()[-1]
    assert last.startswith("stopping: the models were still")


def ready(module: str, *words: str, log: pathlib.Path) -> commands.Command:
    """Starts a server, and waits until it serves."""
    log.touch()
    server = commands.Command(module, *words, log=log)
    while "ready\n" not in server.printed():
        assert server.poll() is None, server.printed()
        time.sleep(0.05)
    return server


def test_a_model_folder_by_openvino(tmp_path, eagerly):
    folder = make(tmp_path, "classes")
    text = "the film was good"
    wanted = bert_tf.load(folder)(text)
    rest, _ = free_ports()
    server = ready(
        "tools.serve",
        *(f"--model={folder}/", "--access_log", "--runtime=openvino"),
        *(f"--rest_api_port={rest}", "--port=0"),
        log=tmp_path / "log",
    )
    # Its name is that of the folder.
    name = pathlib.Path(folder).name
    url = f"http://127.0.0.1:{rest}/v1/models/{name}:predict"
    health = fetch(f"http://127.0.0.1:{rest}/health")
    assert health == (200, {"status": "ok", "models": {name: True}})
    answers = [fetch(url, {"instances": [text] * n}) for n in (1, 3)]
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    line = rf'127.0.0.1 "POST /v1/models/{name}:predict HTTP/1.1" 200 \d+ '
    assert len(re.findall(line, server.printed())) == 2
    rows = [row for _, found in answers for row in found["predictions"]]
    for row in rows:
        assert row["label"] == wanted["label"]
        found = dict(zip(row["labels"], row["probabilities"], strict=True))
        assert found == pytest.approx(wanted["probabilities"], abs=1e-5)


def test_sigterm_while_a_request_never_ends(folder, tmp_path):
    # Kubernetes kills after 30 s.
    assert bert_tf_server._DRAIN_TIMEOUT < 27
    rest, grpc = free_ports()
    server = ready(
        "tests.tools.impatient_serve",
        *(f"--model_base_path={folder}", f"--rest_api_port={rest}"),
        f"--port={grpc}",
        log=tmp_path / "log",
    )
    url = f"http://127.0.0.1:{rest}/v1/models/default:predict"

    def ask() -> None:
        with contextlib.suppress(aiohttp.ClientError):
            fetch(url, {"instances": ["endless"]})

    client = threading.Thread(target=ask)
    client.start()
    time.sleep(1)
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    client.join()
    *_, stopping, stopped = server.printed().splitlines()
    assert stopping.startswith("stopping: ")
    assert "a thread still runs" in stopped
