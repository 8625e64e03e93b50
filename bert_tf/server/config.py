"""The settings of the server, and TF Serving's text files of settings."""

import dataclasses
import pathlib
import ssl
import tempfile
from typing import Any

import grpc
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from google.protobuf.message import Message
from tensorflow_serving.config import model_server_config_pb2

from bert_tf.errors import UserError
from bert_tf.server.batching import BatchingParameters

METRICS_PATH = "/monitoring/prometheus/metrics"
_FIELD = descriptor_pb2.FieldDescriptorProto


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A model to serve.

    Attributes:
      name: its name in requests.
      base_path: the folder of its version folders.
      policy: the versions to serve: "latest", "all" or "specific".
      num_versions: the number of latest versions.
      versions: the specific versions.
      labels: labels and their version numbers.
    """

    name: str
    base_path: pathlib.Path
    policy: str = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()
    labels: tuple[tuple[str, int], ...] = ()

    def chosen(self, present: set[int]) -> set[int]:
        """Returns the versions to serve."""
        if self.policy == "all":
            return present
        if self.policy == "specific":
            return present & set(self.versions)
        return set(sorted(present)[-self.num_versions :])


@dataclasses.dataclass(frozen=True)
class TlsConfig:
    """Keys and certificates in PEM, with the fields of TF Serving's SSLConfig.

    Attributes:
      server_key: private key of the server.
      server_cert: certificate chain of the server.
      custom_ca: certificate authority of the clients; empty for those that the
        system trusts.
      client_verify: whether clients must have a certificate.
    """

    server_key: str
    server_cert: str
    custom_ca: str = ""
    client_verify: bool = False

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Returns the credentials of a gRPC port."""
        return grpc.ssl_server_credentials(
            [(self.server_key.encode(), self.server_cert.encode())],
            self.custom_ca.encode() or None,
            self.client_verify,
        )

    def context(self) -> ssl.SSLContext:
        """Returns the context of a REST port.

        Raises:
          ssl.SSLError: key or certificate are invalid or do not match.
        """
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cadata=self.custom_ca or None
        )
        if self.client_verify:
            context.verify_mode = ssl.CERT_REQUIRED
        with tempfile.TemporaryDirectory() as folder:
            both = pathlib.Path(folder, "both.pem")
            both.touch(mode=0o600)
            both.write_text(f"{self.server_key}\n{self.server_cert}")
            # Without a password OpenSSL would prompt for that of the key.
            context.load_cert_chain(both, password="")
        return context


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """All settings of a server; times are in seconds.

    Attributes:
      models: the models to serve.
      host: address to listen on.
      rest_port: port of REST and the page; None for no REST, 0 for any port.
      grpc_port: port of gRPC; None for no gRPC, 0 for any port.
      batching: settings of batching; None runs each request separately.
      threads: number of requests that run concurrently without batching.
      request_timeout: time limit of a REST response.
      client_timeout: time limit of receiving a request, after which an idle
        connection is closed too.
      max_request_bytes: maximum size of a request.
      poll_wait: time between two polls of the model folders; 0 for no polling.
      config_file: file that is polled every `config_poll_wait`, unless that is
        0.
      config_poll_wait: time between two polls of `config_file`.
      max_load_retries: number of further attempts to load a version whose
        folder does not change.
      load_retry_interval: time between two attempts.
      warm_up: whether to replay the requests stored with a model.
      labels_for_unavailable: whether a label may point to a version that is not
        available.
      metrics_path: path of the metrics for Prometheus; None for no metrics.
      intra_op_threads: threads of an operation; 0 for one per core.
      inter_op_threads: concurrent operations; 0 for one per core.
      cors: whether pages of other sites may use REST.
      tls: keys of TLS for REST and gRPC; None for no TLS.
      health: whether gRPC has the service grpc.health.v1.Health.
      access_log: whether each REST request is a line on standard error.
      grpc_max_requests: maximum of concurrent gRPC requests, above which
        RESOURCE_EXHAUSTED is returned; None for no limit.
      grpc_options: channel arguments of gRPC by name.
      load_threads: number of models that are loaded concurrently.
      tags: tags of the MetaGraphDef to load.
    """

    models: tuple[ModelConfig, ...]
    host: str = "127.0.0.1"
    rest_port: int | None = 8501
    grpc_port: int | None = 8500
    batching: BatchingParameters | None = None
    threads: int = 8
    request_timeout: float = 30.0
    client_timeout: float = 30.0
    max_request_bytes: int = 16 * 2**20
    poll_wait: float = 1.0
    config_file: str | pathlib.Path | None = None
    config_poll_wait: float = 0.0
    max_load_retries: int = 5
    load_retry_interval: float = 60.0
    warm_up: bool = True
    labels_for_unavailable: bool = False
    metrics_path: str | None = METRICS_PATH
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    cors: bool = False
    tls: TlsConfig | None = None
    health: bool = False
    access_log: bool = False
    grpc_max_requests: int | None = None
    grpc_options: tuple[tuple[str, str | int], ...] = ()
    load_threads: int = 1
    tags: tuple[str, ...] = ("serve",)


def read_models(path: str | pathlib.Path) -> tuple[ModelConfig, ...]:
    """Reads the models of a file with TF Serving's ModelServerConfig."""
    config = _read_text(path, "ModelServerConfig")
    return models_of(config, str(path))


def models_of(
    config: model_server_config_pb2.ModelServerConfig, where: str
) -> tuple[ModelConfig, ...]:
    """Returns the models of a ModelServerConfig.

    Args:
      config: the message.
      where: its origin, for errors.
    """
    if not config.HasField("model_config_list"):
        raise UserError(
            f"{where}: no model; write model_config_list {{ config {{ name: "
            '"..." base_path: "..." model_platform: "tensorflow" } }.'
        )
    models = tuple(
        _model(one, where) for one in config.model_config_list.config
    )
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where}: two models are called {name!r}.")
    return models


def _model(one: model_server_config_pb2.ModelConfig, where: str) -> ModelConfig:
    if not one.name or not one.base_path:
        raise UserError(f"{where}: each config needs a name and a base_path.")
    if one.model_platform not in ("", "tensorflow"):
        raise UserError(
            f"{where}: model {one.name!r} has model_platform "
            f"{one.model_platform!r}; only 'tensorflow' is served."
        )
    if one.HasField("logging_config"):
        raise UserError(
            f"{where}: model {one.name!r} has logging_config; requests are "
            "not logged by this server; remove it."
        )
    policy = one.model_version_policy
    kind = policy.WhichOneof("policy_choice") or "latest"
    if kind == "specific" and not policy.specific.versions:
        raise UserError(
            f"{where}: model {one.name!r} has the policy specific, but no "
            "versions."
        )
    return ModelConfig(
        one.name,
        pathlib.Path(one.base_path),
        kind,
        max(policy.latest.num_versions, 1),
        tuple(policy.specific.versions),
        tuple(sorted(one.version_labels.items())),
    )


def read_batching(path: str | pathlib.Path) -> BatchingParameters:
    """Reads a file with TF Serving's BatchingParameters."""
    message = _read_text(path, "BatchingParameters")
    for name in ("pad_variable_length_inputs", "max_execution_batch_size"):
        if message.HasField(name):
            raise UserError(
                f"{path}: {name} is not supported by this server; remove it."
            )
    values: dict[str, Any] = {
        field.name: getattr(message, field.name).value
        for field in dataclasses.fields(BatchingParameters)
        if field.name != "allowed_batch_sizes" and message.HasField(field.name)
    }
    values["allowed_batch_sizes"] = tuple(message.allowed_batch_sizes)
    try:
        return BatchingParameters(**values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def read_metrics_path(path: str | pathlib.Path) -> str | None:
    """Reads the path of the metrics from TF Serving's MonitoringConfig."""
    prometheus = _read_text(path, "MonitoringConfig").prometheus_config
    if not prometheus.enable:
        return None
    metrics_path = prometheus.path or METRICS_PATH
    if not metrics_path.startswith("/"):
        raise UserError(f"{path}: path {metrics_path!r} must start with /.")
    return metrics_path


def read_tls(path: str | pathlib.Path) -> TlsConfig:
    """Reads a file with TF Serving's SSLConfig."""
    message = _read_text(path, "SSLConfig")
    tls = TlsConfig(
        message.server_key,
        message.server_cert,
        message.custom_ca,
        message.client_verify,
    )
    if not tls.server_key or not tls.server_cert:
        raise UserError(
            f"{path}: give server_key and server_cert, the PEM texts."
        )
    if tls.client_verify and not tls.custom_ca:
        raise UserError(
            f"{path}: client_verify requires custom_ca, the authority of the "
            "clients' certificates."
        )
    try:
        tls.context()
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            f"{path}: the keys and certificates cannot be used: {error}."
        ) from error
    return tls


def _read_text(path: str | pathlib.Path, kind: str) -> Any:
    """Reads a message from a text file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        return text_format.Parse(text, _MESSAGES[kind]())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}.") from error


def _messages() -> dict[str, type[Message]]:
    """Defines messages of TF Serving that tensorflow-serving-api lacks.

    Their fields are those of session_bundle_config.proto,
    monitoring_config.proto and ssl_config.proto.
    """
    package = "bert_tf.server"
    integer, text, flag = (
        f".google.protobuf.{kind}Value" for kind in ("Int64", "String", "Bool")
    )
    # The type of a field is a number, or the name of a message.
    messages: dict[str, dict[str, tuple[int, Any]]] = {
        "BatchingParameters": {
            "max_batch_size": (1, integer),
            "batch_timeout_micros": (2, integer),
            "max_enqueued_batches": (3, integer),
            "num_batch_threads": (4, integer),
            "thread_pool_name": (5, text),
            "allowed_batch_sizes": (6, _FIELD.TYPE_INT64),
            "pad_variable_length_inputs": (7, _FIELD.TYPE_BOOL),
            "enable_large_batch_splitting": (8, flag),
            "max_execution_batch_size": (9, integer),
        },
        "PrometheusConfig": {
            "enable": (1, _FIELD.TYPE_BOOL),
            "path": (2, _FIELD.TYPE_STRING),
        },
        "MonitoringConfig": {
            "prometheus_config": (1, f".{package}.PrometheusConfig"),
        },
        "SSLConfig": {
            "server_key": (1, _FIELD.TYPE_STRING),
            "server_cert": (2, _FIELD.TYPE_STRING),
            "custom_ca": (3, _FIELD.TYPE_STRING),
            "client_verify": (4, _FIELD.TYPE_BOOL),
        },
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="bert_tf/server/config.proto",
        package=package,
        syntax="proto2",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            repeated = field == "allowed_batch_sizes"
            added.label = (
                _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            )
            if isinstance(kind, str):
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, kind
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{name}")
        )
        for name in messages
    } | {"ModelServerConfig": model_server_config_pb2.ModelServerConfig}


_MESSAGES = _messages()
