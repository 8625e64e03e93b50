"""The server's settings, and TF Serving's text files they are read from."""

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
      name: what clients call it.
      base_path: folder of its version folders.
      policy: which versions: "latest", "all" or "specific".
      num_versions: how many of the latest.
      versions: the specific ones.
      labels: version numbers by label.
    """

    name: str
    base_path: pathlib.Path
    policy: str = "latest"
    num_versions: int = 1
    versions: tuple[int, ...] = ()
    labels: tuple[tuple[str, int], ...] = ()

    def chosen(self, present: set[int]) -> set[int]:
        """Those of the versions that are to be served."""
        if self.policy == "all":
            return present
        if self.policy == "specific":
            return present & set(self.versions)
        return set(sorted(present)[-self.num_versions :])


@dataclasses.dataclass(frozen=True)
class TlsConfig:
    """What TLS takes, in PEM; the fields of TF Serving's SSLConfig.

    Attributes:
      server_key: private key of the server.
      server_cert: its certificate, and those that it depends on.
      custom_ca: who signs the certificates of clients; empty for those whom
        the system trusts.
      client_verify: whether clients must have one.
    """

    server_key: str
    server_cert: str
    custom_ca: str = ""
    client_verify: bool = False

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For a port of gRPC."""
        return grpc.ssl_server_credentials(
            [(self.server_key.encode(), self.server_cert.encode())],
            self.custom_ca.encode() or None,
            self.client_verify,
        )

    def context(self) -> ssl.SSLContext:
        """For a port of REST.

        Raises:
          ssl.SSLError: key and certificate are none, or not of each other.
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
            # An encrypted key would ask for its password.
            context.load_cert_chain(both, password="")
        return context


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """All settings of a server; times are in seconds.

    Attributes:
      models: what to serve.
      host: address to listen on.
      rest_port: port of REST and the page; None for none, 0 for any.
      grpc_port: port of gRPC; None for none, 0 for any.
      batching: how to batch; None runs each request by itself.
      threads: requests that run at once without batching.
      request_timeout: for the answer to a REST request.
      client_timeout: a client must have sent its request by then, and a
        connection without requests is closed after it.
      max_request_bytes: larger requests are refused.
      poll_wait: between two looks at the model folders; 0 looks once.
      config_file: read again every `config_poll_wait`, if that is not 0.
      config_poll_wait: see there.
      max_load_retries: how often a version that does not load is tried again
        as long as its folder stays the same.
      load_retry_interval: between two tries.
      warm_up: whether to replay the requests stored with a model.
      labels_for_unavailable: whether a label may name a version that is not
        there.
      metrics_path: where Prometheus finds the metrics; None for nowhere.
      intra_op_threads: threads of one operation; 0 for one a core.
      inter_op_threads: operations at once; 0 for one a core.
      cors: whether pages of other sites may use REST.
      tls: REST and gRPC are over TLS; None for neither.
      health: whether gRPC has the service grpc.health.v1.Health.
      grpc_max_requests: of gRPC at once, the others get
        RESOURCE_EXHAUSTED; None for any number.
      grpc_options: channel arguments of gRPC by name.
      load_threads: models that are loaded at once.
      tags: of the MetaGraphDef to load.
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
    grpc_max_requests: int | None = None
    grpc_options: tuple[tuple[str, str | int], ...] = ()
    load_threads: int = 1
    tags: tuple[str, ...] = ("serve",)


def read_models(path: str | pathlib.Path) -> tuple[ModelConfig, ...]:
    """The models in a file of TF Serving's ModelServerConfig."""
    config = _read_text(path, "ModelServerConfig")
    return models_of(config, str(path))


def models_of(
    config: model_server_config_pb2.ModelServerConfig, where: str
) -> tuple[ModelConfig, ...]:
    """The models in a ModelServerConfig that came from `where`."""
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
            "not logged here, take it out."
        )
    policy = one.model_version_policy
    kind = policy.WhichOneof("policy_choice") or "latest"
    if kind == "specific" and not policy.specific.versions:
        raise UserError(
            f"{where}: model {one.name!r} asks for specific versions and "
            "names none."
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
    """The parameters in a file of TF Serving's BatchingParameters."""
    message = _read_text(path, "BatchingParameters")
    for name in (
        "pad_variable_length_inputs",
        "enable_large_batch_splitting",
        "max_execution_batch_size",
    ):
        if message.HasField(name):
            raise UserError(
                f"{path}: {name} is not offered here; take it out for this "
                "server."
            )
    given: dict[str, Any] = {
        field.name: getattr(message, field.name).value
        for field in dataclasses.fields(BatchingParameters)
        if field.name != "allowed_batch_sizes" and message.HasField(field.name)
    }
    given["allowed_batch_sizes"] = tuple(message.allowed_batch_sizes)
    try:
        return BatchingParameters(**given)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def read_metrics_path(path: str | pathlib.Path) -> str | None:
    """Where a file of TF Serving's MonitoringConfig puts the metrics."""
    prometheus = _read_text(path, "MonitoringConfig").prometheus_config
    if not prometheus.enable:
        return None
    found = prometheus.path or METRICS_PATH
    if not found.startswith("/"):
        raise UserError(f"{path}: path {found!r} must start with /.")
    return found


def read_tls(path: str | pathlib.Path) -> TlsConfig:
    """What a file of TF Serving's SSLConfig says."""
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
            f"{path}: client_verify asks for custom_ca, who signs clients."
        )
    try:
        tls.context()
    except (ssl.SSLError, ValueError) as error:
        raise UserError(
            f"{path}: the keys and certificates cannot be used: {error}."
        ) from error
    return tls


def _read_text(path: str | pathlib.Path, kind: str) -> Any:
    """The message of that kind that a text file holds."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        return text_format.Parse(text, _MESSAGES[kind]())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}.") from error


def _messages() -> dict[str, type[Message]]:
    """Messages of TF Serving that tensorflow-serving-api does not carry.

    Names and numbers of the fields: session_bundle_config.proto,
    monitoring_config.proto and ssl_config.proto of tensorflow_serving.
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
