"""Serves SavedModels by TF Serving's REST and gRPC, with a demo page.

bert-tf serve --model_name=sst2 --model_base_path=export/sst2 \\
    --rest_api_port=8501 --port=8500

For development and small machines: flags and responses are those of
tensorflow_model_server, which can replace it with the same folders and clients.
"""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import tempfile
from typing import Any

from absl import flags

from bert_tf.config import AUTO
from bert_tf.errors import UserError
from bert_tf.libraries import RUNTIME_HELP
from bert_tf.progress import log

from . import command_line

_MODEL_NAME = flags.DEFINE_string(
    "model_name",
    None,
    "Name of the model for clients; by default that of the folder in --model, "
    "and default with --model_base_path.",
)
_MODEL_BASE_PATH = flags.DEFINE_string(
    "model_base_path", None, "Folder of the version folders (1, 2, ...)."
)
_MODEL = flags.DEFINE_string(
    "model",
    None,
    "A model folder of any family, or hf://organisation/name, to be served "
    "without an export.",
)
_RUNTIME = flags.DEFINE_string(
    "runtime", AUTO, f"With --model, {RUNTIME_HELP}."
)
_PRECISION = flags.DEFINE_string(
    "precision", "float32", "With --model, float32 or mixed_bfloat16."
)
_MODEL_CONFIG_FILE = flags.DEFINE_string(
    "model_config_file",
    None,
    "ModelServerConfig as text: several models, which versions, labels.",
)
_MODEL_CONFIG_POLL = flags.DEFINE_integer(
    "model_config_file_poll_wait_seconds",
    0,
    "Interval between reads of --model_config_file; 0 reads it once.",
    lower_bound=0,
)
_HOST = flags.DEFINE_string(
    "host", "127.0.0.1", "Address to listen on; 0.0.0.0 for all."
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
    "Timeout of the response to a REST request; 0 for none.",
    lower_bound=0,
)
_CORS = flags.DEFINE_bool(
    "rest_api_enable_cors_support",
    False,
    "Allow pages of other sites to use REST (CORS).",
)
_THREADS = flags.DEFINE_integer(
    "rest_api_num_threads",
    None,
    "Number of parallel requests, including gRPC, without batching; by "
    "default four per processor.",
    lower_bound=1,
)
_CLIENT_TIMEOUT = flags.DEFINE_integer(
    "client_timeout_in_ms",
    30_000,
    "Timeout for a client to send its REST request.",
    lower_bound=1,
)
_MAX_REQUEST_BYTES = flags.DEFINE_integer(
    "max_request_bytes",
    16 * 2**20,
    "Larger requests get 413 or RESOURCE_EXHAUSTED.",
    lower_bound=1,
)
_ENABLE_BATCHING = flags.DEFINE_bool(
    "enable_batching",
    None,
    "Batch concurrent requests, with the settings of the following flags. By "
    "default, on a CPU, batches of up to 32 rows, one at a time.",
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
    "Maximum time that a row waits for others while a thread is free (0).",
    lower_bound=0,
)
_MAX_ENQUEUED = flags.DEFINE_integer(
    "max_enqueued_batches",
    None,
    "Maximum number of waiting full batches; beyond it, 503 or UNAVAILABLE "
    "(10).",
    lower_bound=1,
)
_BATCH_THREADS = flags.DEFINE_integer(
    "num_batch_threads",
    None,
    "Number of parallel batches (one per CPU).",
    lower_bound=1,
)
_POLL = flags.DEFINE_float(
    "file_system_poll_wait_seconds",
    1.0,
    "Interval between searches for new versions; 0 searches once.",
    lower_bound=0,
)
_RETRIES = flags.DEFINE_integer(
    "max_num_load_retries",
    5,
    "Number of retries for a version that fails to load.",
    lower_bound=0,
)
_RETRY_INTERVAL = flags.DEFINE_integer(
    "load_retry_interval_micros",
    60_000_000,
    "Interval between retries.",
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
    "MonitoringConfig as text; by default metrics are at "
    "/monitoring/prometheus/metrics.",
)
_SSL_FILE = flags.DEFINE_string(
    "ssl_config_file", None, "SSLConfig as text: TLS for gRPC and REST."
)
_HEALTH = flags.DEFINE_bool(
    "enable_grpc_healthcheck_service", False, "Offer grpc.health.v1.Health."
)
_ACCESS_LOG = flags.DEFINE_bool(
    "access_log",
    False,
    "Write a line for each REST request to standard error: client, request, "
    "status, bytes and seconds.",
)
_GRPC_MAX_THREADS = flags.DEFINE_integer(
    "grpc_max_threads",
    None,
    "Maximum number of parallel gRPC requests; more get RESOURCE_EXHAUSTED "
    "(unlimited).",
    lower_bound=1,
)
_GRPC_ARGUMENTS = flags.DEFINE_list(
    "grpc_channel_arguments",
    [],
    "Options of gRPC, such as grpc.max_connection_age_ms=2000.",
)
_LOAD_THREADS = flags.DEFINE_integer(
    "num_load_threads",
    0,
    "Number of models loaded in parallel; 0 is 1.",
    lower_bound=0,
)
_TAGS = flags.DEFINE_list(
    "saved_model_tags", ["serve"], "Tags of the MetaGraphDef to load."
)
_SESSION_THREADS = flags.DEFINE_integer(
    "tensorflow_session_parallelism",
    0,
    "Both of the following; 0 for one thread per CPU.",
    lower_bound=0,
)
_INTRA_OP = flags.DEFINE_integer(
    "tensorflow_intra_op_parallelism",
    0,
    "Threads of one operation.",
    lower_bound=0,
)
_INTER_OP = flags.DEFINE_integer(
    "tensorflow_inter_op_parallelism", 0, "Parallel operations.", lower_bound=0
)
# Unsupported flags of tensorflow_model_server that change responses.
_NOT_OFFERED = {
    "grpc_socket_path": "gRPC listens on --port alone.",
    "use_alts_credentials": "TLS is --ssl_config_file.",
    "platform_config_file": "its settings have flags of their own here.",
    "tensorflow_session_config_file": "threads are set by "
    "--tensorflow_intra_op_parallelism and --tensorflow_inter_op_parallelism.",
    "mixed_precision": "export with --precision=mixed_bfloat16.",
    "prefer_tflite_model": "there is no TensorFlow Lite here.",
    "enable_signature_method_name_check": "signatures are told apart by their "
    "inputs and outputs.",
    "enable_serialization_as_tensor_content": "answers are in typed fields.",
    "enable_profiler": "there is no profiler service here.",
}
# Flags without effect on responses, and the behaviour here.
_WITHOUT_EFFECT = {
    "enable_per_model_batching_parameters": "all models are batched alike",
    "num_unload_threads": "versions are unloaded by the threads that load",
    "num_request_iterations_for_warmup": "each request is replayed once",
    "flush_filesystem_caches": "they are left to the system",
    "remove_unused_fields_from_bundle_metagraph": "none are removed",
    "per_process_gpu_memory_fraction": "TensorFlow takes what it needs",
    "num_tflite_pools": "there is no TensorFlow Lite here",
    "num_tflite_interpreters_per_pool": "there is no TensorFlow Lite here",
    "xla_cpu_compilation_enabled": "XLA compiles what a model marks for it",
    "xla_gpu_compilation_enabled": "XLA compiles what a model marks for it",
    "thread_pool_factory_config_file": "TensorFlow's own threads are used",
    "skip_initialize_tpu": "there is no TPU here",
}
_BOOLS = {
    "enable_per_model_batching_parameters",
    "enable_profiler",
    "enable_serialization_as_tensor_content",
    "enable_signature_method_name_check",
    "flush_filesystem_caches",
    "prefer_tflite_model",
    "remove_unused_fields_from_bundle_metagraph",
    "skip_initialize_tpu",
    "use_alts_credentials",
    "xla_cpu_compilation_enabled",
    "xla_gpu_compilation_enabled",
}
for _name, _why in (_NOT_OFFERED | _WITHOUT_EFFECT).items():
    if _name in _BOOLS:
        flags.DEFINE_bool(_name, None, f"Not offered: {_why}")
    else:
        flags.DEFINE_string(_name, None, f"Not offered: {_why}")


def _is_on_cpu() -> bool:
    import tensorflow as tf

    devices = tf.config.list_physical_devices()
    return all(device.device_type == "CPU" for device in devices)


def _batching():
    from bert_tf.server.batching import BATCHING_ON_CPU, BatchingParameters
    from bert_tf.server.config import read_batching

    given: dict[str, Any] = {
        flag.name: flag.value
        for flag in (
            _MAX_BATCH_SIZE,
            _BATCH_TIMEOUT,
            _MAX_ENQUEUED,
            _BATCH_THREADS,
        )
        if flag.value is not None
    }
    if not _ENABLE_BATCHING.value:
        told = given or _BATCHING_FILE.value or _ENABLE_BATCHING.value is False
        if not told and _is_on_cpu():
            rows = BATCHING_ON_CPU.max_batch_size
            log(
                f"batches of up to {rows} rows, one at a time; "
                "--noenable_batching answers each request alone"
            )
            return BATCHING_ON_CPU
        if _BATCHING_FILE.value is not None:
            given["batching_parameters_file"] = _BATCHING_FILE.value
        for name, value in given.items():
            raise UserError(f"--{name}={value}: add --enable_batching.")
        return None
    parameters = BatchingParameters()
    if _BATCHING_FILE.value is not None:
        parameters = read_batching(_BATCHING_FILE.value)
    return dataclasses.replace(parameters, **given)


def _models():
    from bert_tf.server.config import ModelConfig, read_models

    given = [
        flag
        for flag in (_MODEL, _MODEL_BASE_PATH, _MODEL_CONFIG_FILE)
        if flag.value is not None
    ]
    if len(given) != 1:
        raise UserError(
            "give one of --model, --model_base_path and --model_config_file."
        )
    if _MODEL_CONFIG_FILE.value is not None:
        return read_models(_MODEL_CONFIG_FILE.value)
    path = pathlib.Path(_MODEL_BASE_PATH.value or "")
    name = _MODEL_NAME.value
    if name is None and _MODEL.value is not None:
        # The last part of a folder, and of hf://organisation/name.
        name = os.path.basename(os.path.normpath(_MODEL.value))
        if name in ("", os.curdir, os.pardir):
            name = pathlib.Path(_MODEL.value).resolve().name
    return (ModelConfig(name or "default", path),)


@contextlib.contextmanager
def _written(config):
    """Writes a version of --model, which exists while the block runs."""
    if _MODEL.value is None:
        for flag in (_RUNTIME, _PRECISION):
            if flag.value != flag.default:
                raise UserError(f"--{flag.name}: is for --model; leave it out.")
        yield config
        return
    from bert_tf.inference.load import load
    from bert_tf.inference.saving import write_files
    from bert_tf.inference.served_folder import describe_training

    loaded = load(
        _MODEL.value, precision=_PRECISION.value, runtime=_RUNTIME.value
    )
    log(f"{_MODEL.value}: computed by {loaded.served.computed_by}.")
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        version = base / "1"
        version.mkdir()
        training = describe_training(loaded.folder)
        # The version calls functions of this process, which these hold.
        signatures = write_files(
            loaded.served, version, version, training=training
        )
        (model,) = config.models
        models = (dataclasses.replace(model, base_path=base),)
        yield dataclasses.replace(config, models=models)
        del signatures


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


def _check_flags_of_tf_serving() -> None:
    """Refuses unsupported flags, and logs those without effect."""
    for name, why in _NOT_OFFERED.items():
        value = flags.FLAGS[name].value
        if value:
            raise UserError(f"--{name}={value} is not offered: {why}")
    for name, why in _WITHOUT_EFFECT.items():
        value = flags.FLAGS[name].value
        if value is not None:
            log(f"--{name}={value} has no effect: {why}.")


def _grpc_options() -> tuple[tuple[str, str | int], ...]:
    options: list[tuple[str, str | int]] = []
    for argument in _GRPC_ARGUMENTS.value:
        name, equals, value = argument.partition("=")
        if not equals:
            raise UserError(
                f"--grpc_channel_arguments={argument}: give name=value."
            )
        number = value.removeprefix("-").isdecimal()
        options.append((name, int(value) if number else value))
    return tuple(options)


def _config():
    from bert_tf.server.config import (
        METRICS_PATH,
        ServerConfig,
        read_metrics_path,
        read_tls,
    )

    intra_op, inter_op = _threads_of_session()
    return ServerConfig(
        models=_models(),
        host=_HOST.value,
        rest_port=_REST_API_PORT.value or None,
        grpc_port=_PORT.value or None,
        batching=_batching(),
        threads=_THREADS.value or 4 * (os.cpu_count() or 1),
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
        health=_HEALTH.value,
        access_log=_ACCESS_LOG.value,
        grpc_max_requests=_GRPC_MAX_THREADS.value,
        grpc_options=_grpc_options(),
        load_threads=_LOAD_THREADS.value or 1,
        tags=tuple(_TAGS.value),
        tls=read_tls(_SSL_FILE.value) if _SSL_FILE.value else None,
        metrics_path=(
            read_metrics_path(_MONITORING_FILE.value)
            if _MONITORING_FILE.value
            else METRICS_PATH
        ),
    )


def main() -> None:
    """Reads the flags and serves until SIGTERM or an interrupt."""
    import tensorflow as tf

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
    _check_flags_of_tf_serving()
    # TensorFlow warns that TF Serving's loader is deprecated.
    tf.get_logger().setLevel("ERROR")
    config = _config()
    with _written(config) as config:
        asyncio.run(serve(config))


if __name__ == "__main__":
    command_line.run(main)
