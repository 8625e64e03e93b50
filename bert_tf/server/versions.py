"""The versions of models, on disk and in memory."""

import asyncio
import contextlib
import dataclasses
import enum
import os
import pathlib
import time
from collections.abc import Iterator

import grpc
from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from bert_tf.errors import UserError
from bert_tf.server.batching import Runner, SignatureQueue
from bert_tf.server.config import ModelConfig
from bert_tf.server.loaded_model import Arrays, LoadedModel, Signature
from bert_tf.server.status import RequestError, invalid

Fingerprint = tuple[tuple[str, int, int], ...]


def version_folders(base_path: pathlib.Path) -> dict[int, pathlib.Path]:
    """Returns the version folders of a model, whose names are numbers."""
    found = {}
    with os.scandir(base_path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = entry.name
            if name.isascii() and name.isdigit() and entry.is_dir():
                found[int(name)] = base_path / name
    return found


def fingerprint(folder: pathlib.Path) -> Fingerprint | None:
    """Returns names, sizes and times of the files in a folder.

    It changes while files are copied. None if the folder disappears.
    """
    found = []
    try:
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                status = os.stat(path)
                found.append((path, status.st_size, status.st_mtime_ns))
    except OSError:
        return None
    return tuple(sorted(found)) or None


@dataclasses.dataclass
class Attempt:
    """The attempts to load a version folder.

    Attributes:
      seen: the fingerprint at the last poll.
      tried: the fingerprint at the last attempt.
      tries: the number of attempts with that fingerprint.
      retry_at: the earliest time of the next attempt.
    """

    seen: Fingerprint | None = None
    tried: Fingerprint | None = None
    tries: int = 0
    retry_at: float = 0.0

    def is_due(
        self, files: Fingerprint | None, at_once: bool, retries: int
    ) -> bool:
        """Returns whether to load the folder now.

        Args:
          files: its fingerprint.
          at_once: whether to load it even if it changed since the last poll.
          retries: maximum of further attempts with the same files.
        """
        unchanged = at_once or self.seen == files
        self.seen = files
        if files is None:
            return False
        if self.tried != files:
            self.tries = 0
            return unchanged
        return self.tries <= retries and time.monotonic() >= self.retry_at

    def start(self, files: Fingerprint, interval: float) -> None:
        """Records an attempt; the next one is due after `interval` seconds."""
        self.tried = files
        self.tries += 1
        self.retry_at = time.monotonic() + interval


def check_folder(model: ModelConfig) -> set[int]:
    """Returns the versions of a model; raises UserError if it has none."""
    if not model.base_path.is_dir():
        raise UserError(
            f"model {model.name!r}: no such folder: {model.base_path}."
        )
    found = version_folders(model.base_path)
    if not found:
        hint = ""
        if (model.base_path / "saved_model.pb").exists():
            hint = "; it is a version folder: give its parent folder"
        raise UserError(
            f"model {model.name!r}: no version folder (1, 2, ...) in "
            f"{model.base_path}{hint}."
        )
    return set(found)


class State(enum.IntEnum):
    """The state of a version, numbered as ModelVersionStatus.State."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


class Version:
    """A version of a model.

    Args:
      model: the name of the model.
      number: the version number.
      folder: the folder of its SavedModel.
    """

    def __init__(self, model: str, number: int, folder: pathlib.Path) -> None:
        self.model = model
        self.number = number
        self.folder = folder
        self.state = State.START
        self.error: str | None = None
        self.loaded: LoadedModel | None = None
        self._queues: dict[str, SignatureQueue] = {}
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    def attach(self, loaded: LoadedModel, runner: Runner) -> None:
        """Sets the loaded model that runs the requests."""
        self.loaded = loaded
        self._queues = {
            name: SignatureQueue(self.model, signature, runner, self.in_use)
            for name, signature in loaded.signatures.items()
        }

    @property
    def graph(self) -> LoadedModel:
        """The loaded model."""
        assert self.loaded is not None
        return self.loaded

    async def run(self, signature: Signature, inputs: Arrays) -> Arrays:
        """Runs a signature of the version."""
        return await self._queues[signature.name].run(inputs)

    @contextlib.contextmanager
    def in_use(self) -> Iterator["Version"]:
        """Keeps the version in memory during a request or thread."""
        self._users += 1
        self._unused.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def unused(self) -> None:
        """Waits until no request and no thread uses the version."""
        await self._unused.wait()

    def detach(self) -> LoadedModel | None:
        """Removes and returns the loaded model, to close it."""
        loaded, self.loaded, self._queues = self.loaded, None, {}
        return loaded


class Models:
    """All models by name, for the requests."""

    def __init__(self) -> None:
        self.configs: dict[str, ModelConfig] = {}
        self.versions: dict[str, dict[int, Version]] = {}

    def available(self, name: str) -> dict[int, Version]:
        """Returns the versions of a model that serve requests."""
        return {
            number: version
            for number, version in self.versions.get(name, {}).items()
            if version.state == State.AVAILABLE
        }

    def labels(self, name: str) -> dict[str, int]:
        """Returns label to version number of a model."""
        config = self.configs.get(name)
        return dict(config.labels) if config else {}

    def number_of(self, spec: model_pb2.ModelSpec) -> int | None:
        """Returns the version that a request names; None for the latest."""
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        choice = spec.WhichOneof("version_choice")
        if choice == "version":
            return spec.version.value
        if choice == "version_label":
            labels = self.labels(spec.name)
            if spec.version_label not in labels:
                raise invalid(
                    f"Unrecognized servable version label: {spec.version_label}"
                )
            return labels[spec.version_label]
        return None

    @contextlib.contextmanager
    def find(self, spec: model_pb2.ModelSpec) -> Iterator[Version]:
        """Yields the version of a request and keeps it in memory."""
        number = self.number_of(spec)
        versions = self.available(spec.name)
        if number is None:
            servable = f"Latest({spec.name})"
            number = max(versions, default=None)
        else:
            servable = f"Specific({spec.name}, {number})"
        if number not in versions:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {servable}",
            )
        with versions[number].in_use() as version:
            yield version

    def status(
        self, spec: model_pb2.ModelSpec
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the response to a status request."""
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self._requested(spec):
            status = response.model_version_status.add(
                version=version.number, state=version.state.value
            )
            # Set explicitly, so that JSON shows OK.
            status.status.error_code = grpc.StatusCode.OK.value[0]
            if version.error:
                status.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
                status.status.error_message = version.error
        return response

    def _requested(self, spec: model_pb2.ModelSpec) -> list[Version]:
        """Returns the versions of a status request, newest first.

        A label means all versions, as in TensorFlow Serving
        (get_model_status_impl.cc).
        """
        number = spec.version.value
        versions = self.versions.get(spec.name, {})
        if not spec.HasField("version"):
            if not versions:
                raise RequestError(
                    grpc.StatusCode.NOT_FOUND,
                    f"Could not find any versions of model {spec.name}",
                )
            return [versions[key] for key in sorted(versions, reverse=True)]
        if number not in versions:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find version {number} of model {spec.name}",
            )
        return [versions[number]]
