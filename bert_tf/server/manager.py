"""Loads, warms up, replaces and unloads versions as their folders change."""

import asyncio
import pathlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.errors import UserError
from bert_tf.progress import log
from bert_tf.server.batching import Runner
from bert_tf.server.config import ModelConfig, ServerConfig, read_models
from bert_tf.server.loaded_model import (
    LoadedModel,
    LoadError,
    free_memory,
)
from bert_tf.server.metrics import Metrics
from bert_tf.server.prediction import Predictor
from bert_tf.server.status import request_error
from bert_tf.server.versions import (
    Attempt,
    Fingerprint,
    Models,
    State,
    Version,
    check_folder,
    fingerprint,
    version_folders,
)

# Number of unloaded versions of a model whose status is kept.
_REMEMBERED = 10
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
# TF Serving's saved_model_warmup_util.h has the same limit.
_MAX_RECORDS = 1000


class LabelError(UserError):
    """A label would point to a version that is not available."""


class Manager:
    """Synchronises the versions in memory with the model folders.

    A new version is loaded and warmed up while the old one serves, then
    replaces it; the old one is unloaded after its last request. A folder that
    fails to load is reported and retried, while the version before it serves.
    """

    def __init__(
        self, config: ServerConfig, runner: Runner, metrics: Metrics
    ) -> None:
        self.models = Models()
        self._config = config
        self._runner = runner
        self._metrics = metrics
        self._session = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=config.intra_op_threads,
            inter_op_parallelism_threads=config.inter_op_threads,
        )
        # Separate threads, so that loading does not delay requests.
        self._loader = ThreadPoolExecutor(config.load_threads, "load")
        self._lock = asyncio.Lock()
        self._started: set[asyncio.Task] = set()
        self._attempts: dict[tuple[str, pathlib.Path], Attempt] = {}
        self._logged: dict[str, str] = {}
        self._configured: tuple[ModelConfig, ...] = config.models

    async def start(self) -> None:
        """Loads all models.

        Raises:
          UserError: a model has no version that loads.
        """
        await self.change_models(self._config.models)

    async def change_models(self, models: tuple[ModelConfig, ...]) -> None:
        """Serves these models and no others.

        Continues if the client that requested it disconnects. After an error
        the models before are still served.

        Raises:
          LabelError: a label points to a version that is not available.
          UserError: a model cannot be served.
        """
        await asyncio.shield(self._start(self._change_models(models)))

    async def _change_models(self, models: tuple[ModelConfig, ...]) -> None:
        async with self._lock:
            for model in models:
                versions = await asyncio.to_thread(check_folder, model)
                self._check_labels(model, versions)
            configs = {model.name: model for model in models}
            keep = await self._load_missing(configs, at_once=True)
            try:
                for model in models:
                    self._check_served(model, keep[model.name])
                # Names and labels change once their versions are available.
                self.models.configs = configs
            except UserError:
                # Loads the versions of a folder that was replaced again.
                configs = self.models.configs
                keep = await self._load_missing(configs, at_once=True)
                raise
            finally:
                self._unload_others(keep)

    def _check_served(self, model: ModelConfig, keep: set[int]) -> None:
        available = self.models.available(model.name).keys() & keep
        if not available:
            versions = self.models.versions.get(model.name, {})
            errors = [versions[key].error for key in sorted(versions)]
            why = next(
                filter(None, reversed(errors)),
                f"no version in {model.base_path}",
            )
            raise UserError(f"model {model.name!r}: {why}.")
        self._check_labels(model, available)

    def _check_labels(self, model: ModelConfig, available: set[int]) -> None:
        """UpdateModelVersionLabelMap of TF Serving's server_core.cc."""
        current = self.models.labels(model.name)
        for label, number in model.labels:
            # A label may point to a version that is still loading, but is
            # never moved away from a loaded one.
            may_wait = self._config.labels_for_unavailable and (
                current.get(label, number) == number
            )
            if number not in available and not may_wait:
                raise LabelError(
                    f"Request to assign label to version {number} of model "
                    f"{model.name}, which is not currently available for "
                    f"inference: {label!r} names version {number}; available: "
                    f"{', '.join(map(str, sorted(available))) or 'none'}."
                )

    async def watch(self) -> None:
        """Polls the folders and the config file until cancelled."""
        polls = []
        if self._config.poll_wait > 0:
            polls.append(self._repeat(self._config.poll_wait, self.update))
        if self._config.config_file and self._config.config_poll_wait > 0:
            polls.append(
                self._repeat(self._config.config_poll_wait, self._read_config)
            )
        await asyncio.gather(*polls)

    async def _repeat(
        self, wait: float, poll: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(wait)
            try:
                await poll()
            except Exception as error:  # The server keeps running.
                known = isinstance(error, UserError)
                kind = "" if known else f"{type(error).__name__}: "
                self._log_once("watch", f"{kind}{error}")

    async def _read_config(self) -> None:
        assert self._config.config_file is not None
        models = await asyncio.to_thread(read_models, self._config.config_file)
        if models != self._configured:
            before, self._configured = self._configured, models
            try:
                await self.change_models(models)
            except LabelError:
                self._configured = before  # Retries, as a version may appear.
                raise

    def _log_once(self, topic: str, line: str) -> None:
        """Logs a line unless it was the last one about its topic."""
        if self._logged.get(topic) != line:
            self._logged[topic] = line
            log(line)

    async def update(self) -> None:
        """Synchronises the versions in memory with the folders once."""
        async with self._lock:
            keep = await self._load_missing(self.models.configs, at_once=False)
            self._unload_others(keep)

    async def _load_missing(
        self, configs: dict[str, ModelConfig], at_once: bool
    ) -> dict[str, set[int]]:
        """Loads missing versions; returns the versions to keep by model."""
        folders: set[tuple[str, pathlib.Path]] = set()

        async def load(config: ModelConfig) -> set[int]:
            found: dict[int, pathlib.Path] = {}
            try:
                found = await asyncio.to_thread(
                    version_folders, config.base_path
                )
            except OSError as error:
                self._log_once(
                    config.name, f"{config.base_path}: {error.strerror}"
                )
            folders.update((config.name, path) for path in found.values())
            return await self._load_versions(config, found, at_once)

        keep = await asyncio.gather(*map(load, configs.values()))
        for key in self._attempts.keys() - folders:
            del self._attempts[key]
        return dict(zip(configs, keep, strict=True))

    async def _load_versions(
        self,
        config: ModelConfig,
        found: dict[int, pathlib.Path],
        at_once: bool,
    ) -> set[int]:
        """Loads missing versions of a model; returns the versions to keep."""
        usable = set(found)
        while True:
            chosen = config.chosen(usable)
            available = self.models.available(config.name)
            missing = [
                number
                for number in chosen
                if number not in available
                or available[number].folder != found[number]
            ]
            if not missing:
                # An emptied or missing folder does not end the serving.
                return chosen or set(available)
            number = max(missing)
            folder = found[number]
            files = await asyncio.to_thread(fingerprint, folder)
            key = (config.name, folder)
            attempt = self._attempts.setdefault(key, Attempt())
            loaded = attempt.is_due(
                files, at_once, self._config.max_load_retries
            )
            if loaded and files is not None:
                attempt.start(files, self._config.load_retry_interval)
                version = Version(config.name, number, folder)
                loaded = await self._load(version, files)
            if loaded:
                del self._attempts[key]
            else:
                # The policy chooses the version before it instead.
                usable.discard(number)

    async def _load(self, version: Version, files: Fingerprint) -> bool:
        """Loads and warms up a version; returns whether it serves."""
        versions = self.models.versions.setdefault(version.model, {})
        before = self.models.available(version.model).get(version.number)
        if before is None:
            versions[version.number] = version
        version.state = State.LOADING
        loop = asyncio.get_running_loop()
        try:
            loaded = await loop.run_in_executor(
                self._loader, self._load_folder, version.folder, files
            )
            version.attach(loaded, self._runner)
            if self._config.warm_up:
                await warm_up(
                    version, self._metrics, self._config.max_request_bytes
                )
        except LoadError as error:
            await self._close(version)
            version.state, version.error = State.END, str(error)
            log(
                f"model {version.model}: version {version.number} failed to "
                f"load: {error}"
            )
            return False
        versions[version.number] = version
        version.state = State.AVAILABLE
        log(f"model {version.model}: version {version.number} serves")
        if before is not None:
            self._start_unloading(before)
        return True

    def _load_folder(
        self, folder: pathlib.Path, before: Fingerprint
    ) -> LoadedModel:
        loaded = LoadedModel(folder, self._session, self._config.tags)
        if fingerprint(folder) != before:
            loaded.close()
            raise LoadError(f"{folder} changed while it was loaded")
        return loaded

    def _unload_others(self, keep: dict[str, set[int]]) -> None:
        """Unloads all versions but those to keep."""
        for name, versions in list(self.models.versions.items()):
            for number in self.models.available(name):
                if number not in keep.get(name, ()):
                    self._start_unloading(versions[number])
            ended = [n for n, v in versions.items() if v.state == State.END]
            for number in sorted(ended)[:-_REMEMBERED]:
                del versions[number]

    def _start_unloading(self, version: Version) -> None:
        version.state = State.UNLOADING
        self._start(self._unload(version))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task that `stop` waits for."""
        task = asyncio.create_task(work)
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return task

    async def _unload(self, version: Version) -> None:
        await version.unused()
        await self._close(version)
        version.state = State.END
        log(f"model {version.model}: version {version.number} is unloaded")

    async def _close(self, version: Version) -> None:
        loaded = version.detach()
        if loaded is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._loader, loaded.close)
            del loaded
            await loop.run_in_executor(self._loader, free_memory)

    async def stop(self) -> None:
        """Unloads all versions, which no request may use."""
        async with self._lock:
            self.models.configs = {}
            self._unload_others({})
        await asyncio.gather(*self._started, return_exceptions=True)
        self._loader.shutdown()


async def warm_up(
    version: Version, metrics: Metrics, max_request_bytes: int
) -> None:
    """Runs the warm-up requests stored with a version, if any.

    Raises:
      LoadError: the file is damaged, or a request fails.
    """
    path = version.folder / WARM_UP_FILE
    if not path.is_file():
        return
    predictor = Predictor(metrics, max_request_bytes)
    start = time.monotonic()
    status, count = grpc.StatusCode.OK, 0
    try:
        records = tf.data.TFRecordDataset(str(path)).take(_MAX_RECORDS + 1)
        for record in await asyncio.to_thread(
            lambda: list(records.as_numpy_iterator())
        ):
            if count == _MAX_RECORDS:
                raise LoadError(f"more than {_MAX_RECORDS} requests")
            request = prediction_log_pb2.PredictionLog.FromString(record)
            await predictor.replay(version, request)
            count += 1
    except (LoadError, DecodeError) as error:
        status = grpc.StatusCode.INVALID_ARGUMENT
        raise LoadError(f"{path}: request {count}: {error}") from error
    except Exception as error:
        failure = request_error(error)
        status = failure.code
        raise LoadError(
            f"{path}: request {count}: {failure.message}"
        ) from error
    finally:
        seconds = time.monotonic() - start
        metrics.warm_up(str(version.folder), status.name, count, seconds)
