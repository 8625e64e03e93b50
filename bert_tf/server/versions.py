"""Which versions of models there are: on the disk, and in memory.

A version folder has a number for a name. `Models` is what requests look up.
"""

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
    """The version folders of a model: those with a number for a name."""
    found = {}
    with os.scandir(base_path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = entry.name
            if name.isascii() and name.isdigit() and entry.is_dir():
                found[int(name)] = base_path / name
    return found


def fingerprint(folder: pathlib.Path) -> Fingerprint | None:
    """Names, sizes and times of all files: changes while it is copied.

    None for a folder that goes away meanwhile.
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
    """The tries to load a folder so far.

    Attributes:
      seen: the fingerprint at the last look.
      tried: the fingerprint at the last try to load it.
      tries: how many there were with that one.
      again_at: the next may come then.
    """

    seen: Fingerprint | None = None
    tried: Fingerprint | None = None
    tries: int = 0
    again_at: float = 0.0

    def is_due(
        self, now: Fingerprint | None, at_once: bool, retries: int
    ) -> bool:
        """Whether to load the folder now.

        Args:
          now: its fingerprint.
          at_once: whether it need not have rested since the last look.
          retries: how often to try the same files again.
        """
        rested = at_once or self.seen == now
        self.seen = now
        if now is None:
            return False
        if self.tried != now:
            self.tries = 0
            return rested
        return self.tries <= retries and time.monotonic() >= self.again_at

    def begins(self, now: Fingerprint, interval: float) -> None:
        """The folder is loaded now; the next try comes after `interval`."""
        self.tried = now
        self.tries += 1
        self.again_at = time.monotonic() + interval


def check_folder(model: ModelConfig) -> set[int]:
    """The versions of a model; raises UserError where it has none."""
    if not model.base_path.is_dir():
        raise UserError(
            f"model {model.name!r}: no such folder: {model.base_path}."
        )
    found = version_folders(model.base_path)
    if not found:
        hint = ""
        if (model.base_path / "saved_model.pb").exists():
            hint = "; it is a version itself: give the folder it lies in"
        raise UserError(
            f"model {model.name!r}: no version folder (1, 2, ...) in "
            f"{model.base_path}{hint}."
        )
    return set(found)


class State(enum.IntEnum):
    """What a version is doing; the numbers of ModelVersionStatus.State."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


class Version:
    """One version of one model.

    Args:
      model: the model's name.
      number: the version.
      folder: where it lies.
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

    def take(self, loaded: LoadedModel, runner: Runner) -> None:
        """Gets the graph that answers its requests."""
        self.loaded = loaded
        self._queues = {
            name: SignatureQueue(self.model, signature, runner, self.in_use)
            for name, signature in loaded.signatures.items()
        }

    @property
    def graph(self) -> LoadedModel:
        """What answers its requests, while there may be any."""
        assert self.loaded is not None
        return self.loaded

    async def run(self, signature: Signature, inputs: Arrays) -> Arrays:
        """Runs one of its signatures."""
        return await self._queues[signature.name].run(inputs)

    @contextlib.contextmanager
    def in_use(self) -> Iterator["Version"]:
        """Keeps it in memory for as long as a request or thread needs it."""
        self._users += 1
        self._unused.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def unused(self) -> None:
        """Waits until no request and no thread needs it."""
        await self._unused.wait()

    def release(self) -> LoadedModel | None:
        """Gives the graph back, to be closed."""
        loaded, self.loaded, self._queues = self.loaded, None, {}
        return loaded


class Models:
    """All models by name, as requests look them up."""

    def __init__(self) -> None:
        self.configs: dict[str, ModelConfig] = {}
        self.versions: dict[str, dict[int, Version]] = {}

    def available(self, name: str) -> dict[int, Version]:
        """The versions of a model that answer requests."""
        return {
            number: version
            for number, version in self.versions.get(name, {}).items()
            if version.state == State.AVAILABLE
        }

    def labels(self, name: str) -> dict[str, int]:
        """The versions of a model by their labels."""
        config = self.configs.get(name)
        return dict(config.labels) if config else {}

    def number_of(self, spec: model_pb2.ModelSpec) -> int | None:
        """The version a request asks for; None for the latest."""
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
        """The version that answers a request, kept in memory meanwhile."""
        number = self.number_of(spec)
        versions = self.available(spec.name)
        if number is None:
            asked = f"Latest({spec.name})"
            number = max(versions, default=None)
        else:
            asked = f"Specific({spec.name}, {number})"
        if number not in versions:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}",
            )
        with versions[number].in_use() as version:
            yield version

    def status(
        self, spec: model_pb2.ModelSpec
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """The answer to a status request."""
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self._asked_for(spec):
            status = response.model_version_status.add(
                version=version.number, state=version.state.value
            )
            # Set, so that it is shown where all is well too.
            status.status.error_code = grpc.StatusCode.OK.value[0]
            if version.error:
                status.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
                status.status.error_message = version.error
        return response

    def _asked_for(self, spec: model_pb2.ModelSpec) -> list[Version]:
        """The versions a status request asks for, the newest first.

        As in TensorFlow Serving (get_model_status_impl.cc) a label stands for
        all versions.
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
