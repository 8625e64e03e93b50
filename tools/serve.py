"""Serves SavedModels by TF Serving's REST and gRPC, with a page to try them.

python -m tools.serve --model_name=sst2 --model_base_path=export/sst2 \\
    --rest_api_port=8501 --port=8500

For development and small machines: the flags and the answers are those of
tensorflow_model_server, which takes over the same folders and clients.
"""

import asyncio
import dataclasses
import os
import pathlib
from typing import Any

from absl import flags

from bert_tf.errors import UserError

from . import command_line

_MODEL_NAME = flags.DEFINE_string(
    "model_name", "default", "What clients call the model."
)
_MODEL_BASE_PATH = flags.DEFINE_string(
    "model_base_path", None, "Folder of the version folders (1, 2, ...)."
)
_MODEL_CONFIG_FILE = flags.DEFINE_string(
    "model_config_file",
    None,
    "ModelServerConfig as text: several models, which versions, labels.",
)
_MODEL_CONFIG_POLL = flags.DEFINE_integer(
    "model_config_file_poll_wait_seconds",
    0,
    "Between two looks at --model_config_file; 0 looks once.",
    lower_bound=0,
)
_HOST = flags.DEFINE_string(
    "host", "127.0.0.1", "Address to listen on; 0.0.0.0 for every one."
)
_PORT = flags.DEFINE_integer(
    "port", 8500, "Port of gRPC; 0 for none.", 0, 65535
)
_REST_API_PORT = flags.DEFINE_integer(
    "rest_api_port", 8501, "Port of REST and the page; 0 for none.", 0, 65535
)
_REST_API_TIMEOUT = flags.DEFINE_integer(
    "rest_api_timeout_in_ms",
    30_000,
    "For the answer to a REST request; 0 for any time.",
    lower_bound=0,
)
_CORS = flags.DEFINE_bool(
    "rest_api_enable_cors_support",
    False,
    "Let pages of other sites use REST (CORS).",
)
_THREADS = flags.DEFINE_integer(
    "rest_api_num_threads",
    4 * (os.cpu_count() or 1),
    "Requests, of gRPC too, that run at once where they are not batched.",
    lower_bound=1,
)
_CLIENT_TIMEOUT = flags.DEFINE_integer(
    "client_timeout_in_ms",
    30_000,
    "A client must have sent its REST request by then.",
    lower_bound=1,
)
_MAX_REQUEST_BYTES = flags.DEFINE_integer(
    "max_request_bytes",
    16 * 2**20,
    "Larger requests get 413 or RESOURCE_EXHAUSTED.",
    lower_bound=1,
)
_ENABLE_BATCHING = flags.DEFINE_bool(
    "enable_batching", False, "Run requests that arrive together at once."
)
_BATCHING_FILE = flags.DEFINE_string(
    "batching_parameters_file", None, "BatchingParameters as text."
)
_MAX_BATCH_SIZE = flags.DEFINE_integer(
    "max_batch_size", None, "Rows in a batch (1000).", lower_bound=1
)
_BATCH_TIMEOUT = flags.DEFINE_integer(
    "batch_timeout_micros",
    None,
    "How long a row waits for others while a thread is free (0).",
    lower_bound=0,
)
_MAX_ENQUEUED = flags.DEFINE_integer(
    "max_enqueued_batches",
    None,
    "Full batches that may wait; past that, 503 or UNAVAILABLE (10).",
    lower_bound=1,
)
_BATCH_THREADS = flags.DEFINE_integer(
    "num_batch_threads",
    None,
    "Batches that run at once (one for each CPU).",
    lower_bound=1,
)
_POLL = flags.DEFINE_float(
    "file_system_poll_wait_seconds",
    1.0,
    "Between two looks for new versions; 0 looks once.",
    lower_bound=0,
)
_RETRIES = flags.DEFINE_integer(
    "max_num_load_retries",
    5,
    "How often a version that does not load is tried again.",
    lower_bound=0,
)
_RETRY_INTERVAL = flags.DEFINE_integer(
    "load_retry_interval_micros",
    60_000_000,
    "Between two tries.",
    lower_bound=0,
)
_WARM_UP = flags.DEFINE_bool(
    "enable_model_warmup", True, "Replay the requests stored with a model."
)
_LABELS = flags.DEFINE_bool(
    "allow_version_labels_for_unavailable_models",
    False,
    "Whether a label may name a version that is not served.",
)
_MONITORING_FILE = flags.DEFINE_string(
    "monitoring_config_file",
    None,
    "MonitoringConfig as text; without it, metrics are shown at "
    "/monitoring/prometheus/metrics.",
)
_SESSION_THREADS = flags.DEFINE_integer(
    "tensorflow_session_parallelism",
    0,
    "Both of the following; 0 for one thread for each CPU.",
    lower_bound=0,
)
_INTRA_OP = flags.DEFINE_integer(
    "tensorflow_intra_op_parallelism",
    0,
    "Threads of one operation.",
    lower_bound=0,
)
_INTER_OP = flags.DEFINE_integer(
    "tensorflow_inter_op_parallelism",
    0,
    "Operations at once.",
    lower_bound=0,
)
_SIMPLE = {
    "max_batch_size": _MAX_BATCH_SIZE,
    "batch_timeout_micros": _BATCH_TIMEOUT,
    "max_enqueued_batches": _MAX_ENQUEUED,
    "num_batch_threads": _BATCH_THREADS,
}


def _batching():
    """The parameters of batching, or None where it is off."""
    from bert_tf.server.batching import BatchingParameters
    from bert_tf.server.config import read_batching

    given: dict[str, Any] = {
        name: flag.value
        for name, flag in _SIMPLE.items()
        if flag.value is not None
    }
    if not _ENABLE_BATCHING.value:
        if _BATCHING_FILE.value is not None:
            given["batching_parameters_file"] = _BATCHING_FILE.value
        for name, value in given.items():
            raise UserError(f"--{name}={value}: add --enable_batching.")
        return None
    parameters = BatchingParameters()
    if _BATCHING_FILE.value is not None:
        parameters = read_batching(pathlib.Path(_BATCHING_FILE.value))
    return dataclasses.replace(parameters, **given)


def _models():
    """The models that the flags name."""
    from bert_tf.server.config import ModelConfig, read_models

    if _MODEL_CONFIG_FILE.value is not None:
        if _MODEL_BASE_PATH.value is not None:
            raise UserError(
                f"--model_base_path={_MODEL_BASE_PATH.value}: give it or "
                "--model_config_file, not both."
            )
        return read_models(_MODEL_CONFIG_FILE.value)
    if _MODEL_BASE_PATH.value is None:
        raise UserError("give --model_base_path or --model_config_file.")
    path = pathlib.Path(_MODEL_BASE_PATH.value)
    return (ModelConfig(_MODEL_NAME.value, path),)


def _threads_of_session() -> tuple[int, int]:
    both = _SESSION_THREADS.value
    single = (_INTRA_OP.value, _INTER_OP.value)
    if both and any(single):
        raise UserError(
            f"--tensorflow_session_parallelism={both}: give it, or "
            "--tensorflow_intra_op_parallelism and "
            "--tensorflow_inter_op_parallelism."
        )
    return (both, both) if both else single


def main() -> None:
    """Reads the flags and serves until it is told to stop."""
    import tensorflow as tf

    from bert_tf.server.config import ServerConfig, read_metrics_path
    from bert_tf.server.server import serve

    command_line.name_arguments(
        {"rest_port": "--rest_api_port", "grpc_port": "--port"}
    )
    if not _PORT.value and not _REST_API_PORT.value:
        raise UserError("--port=0 --rest_api_port=0: give one of them a port.")
    if _PORT.value == _REST_API_PORT.value:
        raise UserError(
            f"--port={_PORT.value} is --rest_api_port too; give two ports."
        )
    # The loader that TF Serving takes is, to TensorFlow, an old one.
    tf.get_logger().setLevel("ERROR")
    intra_op, inter_op = _threads_of_session()
    config = ServerConfig(
        models=_models(),
        host=_HOST.value,
        rest_port=_REST_API_PORT.value or None,
        grpc_port=_PORT.value or None,
        batching=_batching(),
        threads=_THREADS.value,
        request_timeout=_REST_API_TIMEOUT.value / 1000,
        client_timeout=_CLIENT_TIMEOUT.value / 1000,
        max_request_bytes=_MAX_REQUEST_BYTES.value,
        poll_wait=_POLL.value,
        config_file=_MODEL_CONFIG_FILE.value,
        config_poll_wait=_MODEL_CONFIG_POLL.value,
        max_load_retries=_RETRIES.value,
        load_retry_interval=_RETRY_INTERVAL.value / 1e6,
        warm_up=_WARM_UP.value,
        labels_for_unavailable=_LABELS.value,
        intra_op_threads=intra_op,
        inter_op_threads=inter_op,
        cors=_CORS.value,
    )
    if _MONITORING_FILE.value is not None:
        path = read_metrics_path(pathlib.Path(_MONITORING_FILE.value))
        config = dataclasses.replace(config, metrics_path=path)
    asyncio.run(serve(config))


if __name__ == "__main__":
    command_line.run(main)
