"""Loads, warms up, switches and unloads versions as their folders change."""

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

# Of the versions that have ended, this many are remembered for each model.
_REMEMBERED = 10
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
# TF Serving's saved_model_warmup_util.h has the same limit.
_MAX_RECORDS = 1000


class LabelError(UserError):
    """A label was to name a version that is not served."""


class Manager:
    """Keeps what is in memory in step with the model folders.

    A new version is loaded and warmed up beside the old one, then takes the
    requests over; the old one goes when its last request is answered. A
    folder that does not load is reported and tried again; meanwhile the
    version before it serves.
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
        # Loading must not keep requests waiting, so it has its own threads.
        self._loader = ThreadPoolExecutor(config.load_threads, "load")
        self._busy = asyncio.Lock()
        self._begun: set[asyncio.Task] = set()
        self._attempts: dict[tuple[str, pathlib.Path], Attempt] = {}
        self._noticed: dict[str, str] = {}
        self._read: tuple[ModelConfig, ...] = config.models

    async def start(self) -> None:
        """Loads all models.

        Raises:
          UserError: one of them has no version that loads.
        """
        await self.change_models(self._config.models)

    async def change_models(self, models: tuple[ModelConfig, ...]) -> None:
        """Serves these models from now on, and no others.

        It goes on where the client that asked for it has gone.

        Raises:
          LabelError: a label names a version that is not served.
          UserError: one of the models cannot be served; in both cases what
            was served before goes on.
        """
        await asyncio.shield(self._begin(self._change_models(models)))

    async def _change_models(self, models: tuple[ModelConfig, ...]) -> None:
        async with self._busy:
            for model in models:
                found = await asyncio.to_thread(check_folder, model)
                self._check_labels(model, found)
            configs = {model.name: model for model in models}
            keep = await self._load_missing(configs, at_once=True)
            try:
                for model in models:
                    self._check_served(model, keep[model.name])
                # Names and labels go over when their versions are there.
                self.models.configs = configs
            except UserError:
                # Of a folder that changed, the old one is loaded again.
                configs = self.models.configs
                keep = await self._load_missing(configs, at_once=True)
                raise
            finally:
                self._unload_others(keep)

    def _check_served(self, model: ModelConfig, kept: set[int]) -> None:
        available = self.models.available(model.name).keys() & kept
        if not available:
            versions = self.models.versions.get(model.name, {})
            errors = [versions[key].error for key in sorted(versions)]
            why = next(
                filter(None, reversed(errors)),
                f"no version in {model.base_path}",
            )
            raise UserError(f"model {model.name!r}: {why}.")
        self._check_labels(model, available)

    def _check_labels(self, model: ModelConfig, there: set[int]) -> None:
        """UpdateModelVersionLabelMap of TF Serving's server_core.cc."""
        given = self.models.labels(model.name)
        for label, number in model.labels:
            # A label may wait for its version, but not leave another for it.
            waits = self._config.labels_for_unavailable and (
                given.get(label, number) == number
            )
            if number not in there and not waits:
                raise LabelError(
                    f"Request to assign label to version {number} of model "
                    f"{model.name}, which is not currently available for "
                    f"inference: {label!r} names version {number}, and there "
                    f"is {', '.join(map(str, sorted(there))) or 'none'}."
                )

    async def watch(self) -> None:
        """Follows the folders, and the config file, until cancelled."""
        works = []
        if self._config.poll_wait > 0:
            works.append(self._repeat(self._config.poll_wait, self.update))
        if self._config.config_file and self._config.config_poll_wait > 0:
            works.append(
                self._repeat(self._config.config_poll_wait, self._read_config)
            )
        await asyncio.gather(*works)

    async def _repeat(
        self, wait: float, work: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(wait)
            try:
                await work()
            except Exception as error:  # The server lives on.
                known = isinstance(error, UserError)
                kind = "" if known else f"{type(error).__name__}: "
                self._notice_once("watch", f"{kind}{error}")

    async def _read_config(self) -> None:
        assert self._config.config_file is not None
        models = await asyncio.to_thread(read_models, self._config.config_file)
        if models != self._read:
            before, self._read = self._read, models
            try:
                await self.change_models(models)
            except LabelError:
                self._read = before  # The version may come.
                raise

    def _notice_once(self, about: str, line: str) -> None:
        """Says a line once, not at every look."""
        if self._noticed.get(about) != line:
            self._noticed[about] = line
            log(line)

    async def update(self) -> None:
        """Looks at the folders once and follows them."""
        async with self._busy:
            keep = await self._load_missing(self.models.configs, at_once=False)
            self._unload_others(keep)

    async def _load_missing(
        self, configs: dict[str, ModelConfig], at_once: bool
    ) -> dict[str, set[int]]:
        """Loads what is missing; returns the versions to keep."""
        folders: set[tuple[str, pathlib.Path]] = set()

        async def follow(config: ModelConfig) -> set[int]:
            found: dict[int, pathlib.Path] = {}
            try:
                found = await asyncio.to_thread(
                    version_folders, config.base_path
                )
            except OSError as error:
                self._notice_once(
                    config.name, f"{config.base_path}: {error.strerror}"
                )
            folders.update((config.name, path) for path in found.values())
            return await self._follow(config, found, at_once)

        keep = await asyncio.gather(*map(follow, configs.values()))
        for key in self._attempts.keys() - folders:
            del self._attempts[key]
        return dict(zip(configs, keep, strict=True))

    async def _follow(
        self,
        config: ModelConfig,
        found: dict[int, pathlib.Path],
        at_once: bool,
    ) -> set[int]:
        """Loads what one model lacks; returns the versions to keep."""
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
                # A folder emptied by mistake, or gone for a moment, ends
                # nothing.
                return chosen or set(available)
            number = max(missing)
            folder = found[number]
            now = await asyncio.to_thread(fingerprint, folder)
            key = (config.name, folder)
            attempt = self._attempts.setdefault(key, Attempt())
            serves = attempt.is_due(now, at_once, self._config.max_load_retries)
            if serves and now is not None:
                attempt.begins(now, self._config.load_retry_interval)
                version = Version(config.name, number, folder)
                serves = await self._load(version, now)
            if serves:
                del self._attempts[key]
            else:
                # Then the one before it is chosen instead.
                usable.discard(number)

    async def _load(self, version: Version, now: Fingerprint) -> bool:
        """Loads and warms up a version; returns whether it serves."""
        versions = self.models.versions.setdefault(version.model, {})
        before = self.models.available(version.model).get(version.number)
        if before is None:
            versions[version.number] = version
        version.state = State.LOADING
        loop = asyncio.get_running_loop()
        try:
            loaded = await loop.run_in_executor(
                self._loader, self._load_whole, version.folder, now
            )
            version.take(loaded, self._runner)
            if self._config.warm_up:
                await warm_up(
                    version, self._metrics, self._config.max_request_bytes
                )
        except LoadError as error:
            await self._close(version)
            version.state, version.error = State.END, str(error)
            log(
                f"model {version.model}: version {version.number} does not "
                f"load: {error}"
            )
            return False
        versions[version.number] = version
        version.state = State.AVAILABLE
        log(f"model {version.model}: version {version.number} serves")
        if before is not None:
            self._start_unloading(before)
        return True

    def _load_whole(
        self, folder: pathlib.Path, before: Fingerprint
    ) -> LoadedModel:
        loaded = LoadedModel(folder, self._session, self._config.tags)
        if fingerprint(folder) != before:
            loaded.close()
            raise LoadError(f"{folder} changed while it was loaded")
        return loaded

    def _unload_others(self, keep: dict[str, set[int]]) -> None:
        """Unloads the versions that are not to be kept."""
        for name, versions in list(self.models.versions.items()):
            for number in self.models.available(name):
                if number not in keep.get(name, ()):
                    self._start_unloading(versions[number])
            ended = [n for n, v in versions.items() if v.state == State.END]
            for number in sorted(ended)[:-_REMEMBERED]:
                del versions[number]

    def _start_unloading(self, version: Version) -> None:
        version.state = State.UNLOADING
        self._begin(self._unload(version))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts what `stop` waits for."""
        task = asyncio.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    async def _unload(self, version: Version) -> None:
        await version.unused()
        await self._close(version)
        version.state = State.END
        log(f"model {version.model}: version {version.number} has gone")

    async def _close(self, version: Version) -> None:
        loaded = version.release()
        if loaded is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._loader, loaded.close)
            del loaded
            await loop.run_in_executor(self._loader, free_memory)

    async def stop(self) -> None:
        """Unloads everything; requests must have been answered."""
        async with self._busy:
            self.models.configs = {}
            self._unload_others({})
        await asyncio.gather(*self._begun, return_exceptions=True)
        self._loader.shutdown()


async def warm_up(
    version: Version, metrics: Metrics, max_request_bytes: int
) -> None:
    """Runs the stored requests, if any.

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
