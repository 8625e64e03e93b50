"""The training states of a run on disk, and its best weights.

`<folder>/step-00001000/` holds `state.safetensors` (every variable, float32 as
trained) and `state.json` (the step, the CRC-32C of the other file, and the
values of the loop). The folder is written under another name and renamed, so a
killed run leaves the state before.
"""

import dataclasses
import json
import math
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import google_crc32c
import keras
import numpy as np

from bert_tf.checkpoints import read_arrays, write_arrays
from bert_tf.errors import OtherRun, UserError
from bert_tf.files import free_bytes, sync, written_beside
from bert_tf.foreign_files import demand_regular, read_text
from bert_tf.layers.initialization import view
from bert_tf.training.step import TrainingStep
from bert_tf.training.strategies import cluster_of, gather_numbers

_ARRAYS, _FACTS = "state.safetensors", "state.json"
_CHUNK = 1 << 24
# Prefix of the arrays of the best weights.
_BEST = "best/"


class BestWeights:
    """A copy of the weights with the best score so far, and early stopping.

    The copy and the count of evaluations are part of the training state, so
    that a resumed run selects and stops like an uninterrupted one.

    Args:
      variables: the weights.
      score: returns the scores of the current weights on held-out data.
      metric: name of the score to compare; a NaN is worse than any number.
      patience: number of evaluations without improvement after which to stop;
        0 for no early stopping.
      lower_is_better: whether a smaller score is better.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        score: Callable[[], Mapping[str, float]],
        metric: str,
        patience: int = 0,
        lower_is_better: bool = False,
    ):
        self.score = score
        self.step = 0
        self._variables = list(variables)
        self._metric = metric
        self._patience = patience
        self._sign = -1.0 if lower_is_better else 1.0
        self._value = -math.inf
        self._waited = 0
        self._arrays: list[np.ndarray] | None = None

    def offer(self, step: int, scores: Mapping[str, float]) -> bool:
        """Copies the weights and returns True if their score is better."""
        value = self._sign * scores[self._metric]
        if self._arrays is not None and not value > self._value:
            self._waited += 1
            return False
        self.step, self._waited = step, 0
        self._value = -math.inf if math.isnan(value) else value
        self._arrays = [v.numpy() for v in self._variables]
        return True

    @property
    def exhausted(self) -> bool:
        """Whether the last `patience` evaluations brought no improvement."""
        return 0 < self._patience <= self._waited

    @property
    def is_newest(self) -> bool:
        """Whether the last evaluated weights are the best."""
        return self._arrays is not None and not self._waited

    def assign(self) -> None:
        """Assigns the best weights to the variables, if any were evaluated."""
        if self._arrays is not None:
            for variable, array in zip(
                self._variables, self._arrays, strict=True
            ):
                variable.assign(array)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the copy by its names in a training state."""
        return {
            f"{_BEST}{index:04d}": array
            for index, array in enumerate(self._arrays or [])
        }

    def facts(self) -> dict[str, Any]:
        """Returns the other values for a training state, for JSON."""
        return {
            "step": self.step,
            "value": self._value,
            "waited": self._waited,
        }

    def restore(
        self, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Restores the values returned by `facts` and `arrays`."""
        self.step, self._value = facts["step"], facts["value"]
        self._waited = facts["waited"]
        self._arrays = [arrays[name] for name in sorted(arrays)] or None


def split_off_best(
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Splits a training state's arrays into variables and best weights."""
    best = {k: v for k, v in arrays.items() if k.startswith(_BEST)}
    return {k: v for k, v in arrays.items() if k not in best}, best


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """Number of steps done, variables by name, and JSON values of the loop."""

    step: int
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]


def _checksum(path: pathlib.Path) -> int:
    digest = 0
    demand_regular(path)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest = google_crc32c.extend(digest, chunk)
    return digest


def _steps(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the states in a folder, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def state_folder(folder: pathlib.Path, step: int) -> pathlib.Path:
    """Returns the path of the state after a step."""
    return folder / f"step-{step:08d}"


def save_state(
    folder: pathlib.Path,
    state: TrainingState,
    keep: int,
    best: int | None = None,
) -> pathlib.Path:
    """Writes a state and removes all but the newest `keep` and the best.

    Args:
      folder: the folder of the run's states.
      state: the state to write.
      keep: number of newest states to keep, at least 1.
      best: step of another state to keep.

    Returns:
      The folder of the written state.
    """
    target = state_folder(folder, state.step)
    with written_beside(target) as partial:
        partial.mkdir()
        write_arrays(partial / _ARRAYS, state.arrays)
        sync(partial / _ARRAYS)
        facts = {
            "step": state.step,
            "crc32c": _checksum(partial / _ARRAYS),
            "facts": dict(state.facts),
        }
        (partial / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        sync(partial / _FACTS)
    sync(folder)
    for old in _steps(folder)[keep:]:
        if best is None or old != state_folder(folder, best):
            shutil.rmtree(old)
    for torn in folder.glob(".step-*.partial"):
        shutil.rmtree(torn)
    return target


def load_state(path: pathlib.Path) -> TrainingState:
    """Reads the state in a folder; raises `UserError` if it is damaged."""
    try:
        facts = json.loads(read_text(path / _FACTS))
        if _checksum(path / _ARRAYS) != facts["crc32c"]:
            raise UserError(f"{path / _ARRAYS}: checksum does not match")
        return TrainingState(
            facts["step"], read_arrays(path / _ARRAYS), facts["facts"]
        )
    except (FileNotFoundError, ValueError, KeyError) as error:
        # json.JSONDecodeError and UserError are both ValueErrors.
        raise UserError(f"{path}: {error}") from None


def newest_state(
    folder: pathlib.Path,
) -> tuple[TrainingState | None, list[str]]:
    """Reads the newest undamaged state.

    Returns:
      The state, or None if there is no state, and a line for each newer state
      that was skipped because it is damaged.

    Raises:
      UserError: every state is damaged.
    """
    damaged: list[str] = []
    paths = _steps(folder)
    for path in paths:
        try:
            return load_state(path), damaged
        except UserError as error:
            damaged.append(f"{error}; using the state before it")
    if paths:
        raise UserError(
            f"{folder}: every training state is damaged; remove the folder to "
            f"start again ({damaged[0]})."
        )
    return None, damaged


_NONE = -1
# A network file system may show files to other workers late.
_SECONDS_TO_APPEAR = 30


class SavedStates:
    """Saves the states of a run and restores the newest one.

    The first worker writes states and selects the one to resume from, which all
    workers read.

    Args:
      folder: the folder of the states, the same for all workers.
      keep: number of states to keep besides that of the lowest held-out loss.
      step: has the weights, the optimizer and the other changing variables.
      best: see `TrainingLoop`.
      fingerprint: see `TrainingLoop`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        keep: int,
        step: TrainingStep,
        best: BestWeights | None,
        fingerprint: Mapping[str, str],
    ):
        self.folder = folder
        self.keep = keep
        self.step = step
        self.best = best
        self.fingerprint = dict(fingerprint)
        self._cluster = cluster_of(step.strategy)
        self._lowest: dict[str, float | int] | None = None

    def offer(self, number: int, loss: float) -> bool:
        """Returns whether a held-out loss is the lowest, to keep its state."""
        if math.isnan(loss) or (
            self._lowest is not None and loss >= self._lowest["loss"]
        ):
            return False
        self._lowest = {"step": number, "loss": loss}
        return True

    def demand_space(self) -> None:
        """Raises `UserError` if the disk has no room for a state."""
        if not self._cluster.is_chief:
            return
        variables = list(self._variables().values())
        if self.best is not None:
            variables += self.step.variables
        needed = 0
        for variable in variables:
            dtype = keras.backend.standardize_dtype(variable.dtype)
            needed += math.prod(variable.shape) * np.dtype(dtype).itemsize
        free = free_bytes(self.folder)
        if needed > free:
            raise UserError(
                f"{self.folder}: a training state takes {needed / 1e6:,.0f} MB "
                f"and {free / 1e6:,.0f} MB are free; free some, or choose "
                "another `output_dir`."
            )

    def save(self, number: int, window: Mapping[str, float]) -> None:
        """Writes the state after a step; all workers wait until it exists.

        Args:
          number: number of steps done.
          window: sums over the steps since the last row of the history.
        """
        if self._cluster.is_chief:
            arrays = {k: view(v) for k, v in self._variables().items()}
            facts = {
                "window": dict(window),
                "identity": self.fingerprint,
                "lowest": self._lowest,
            }
            if self.best is not None:
                arrays |= self.best.arrays()
                facts["best"] = self.best.facts()
            save_state(
                self.folder,
                TrainingState(number, arrays, facts),
                self.keep,
                None if self._lowest is None else int(self._lowest["step"]),
            )
        gather_numbers(self.step.strategy, [number])
        self._wait_for(number)

    def restore(self) -> tuple[int, dict[str, float]]:
        """Resumes from the newest undamaged state, if there is one.

        Returns:
          The number of its steps, and the window passed to `save`.
        """
        state = self._newest()
        if state is None:
            return 0, {}
        self._check(state)
        arrays, best = split_off_best(state.arrays)
        for name, variable in self._variables().items():
            variable.assign(arrays[name])
        if self.best is not None:
            self.best.restore(state.facts["best"], best)
        self._lowest = state.facts["lowest"]
        return state.step, dict(state.facts["window"])

    def _newest(self) -> TrainingState | None:
        """Returns the newest undamaged state that the first worker sees."""
        state = None
        if self._cluster.is_chief:
            state, damaged = newest_state(self.folder)
            for line in damaged:
                print(f"warning: {line}", flush=True)
        own = _NONE if state is None else state.step
        chosen = int(gather_numbers(self.step.strategy, [own])[0, 0])
        if chosen == own or chosen == _NONE:
            return state
        self._wait_for(chosen)
        return load_state(state_folder(self.folder, chosen))

    def _wait_for(self, number: int) -> None:
        """Waits until this worker sees the state that the first one wrote."""
        path = state_folder(self.folder, number)
        deadline = time.monotonic() + _SECONDS_TO_APPEAR
        while not path.is_dir():
            if time.monotonic() > deadline:
                raise UserError(
                    f"{self._cluster.name(self._cluster.index)} does not see "
                    f"{path}, which {self._cluster.name(0)} wrote; all workers "
                    "need the same `output_dir` on a file system that they "
                    "share."
                )
            time.sleep(0.1)

    def _variables(self) -> dict[str, Any]:
        """Returns every variable that training changes, by a stable name."""
        named = {}
        for index, variable in enumerate(self.step.variables):
            named[f"weights/{index:04d}.{variable.name}"] = variable
        for index, variable in enumerate(self.step.optimizer.variables):
            named[f"optimizer/{index:04d}"] = variable
        for remedy in self.step.remedies:
            for variable in remedy.variables:
                named[f"{type(remedy).__name__}/{variable.name}"] = variable
        return named

    def _check(self, state: TrainingState) -> None:
        """Raises `UserError` if a state is of another run."""
        before = state.facts["identity"]
        changed = [k for k, v in self.fingerprint.items() if before.get(k) != v]
        if changed:
            raise OtherRun(
                f"{self.folder}: the run so far had another "
                f"{' and '.join(changed)}; choose another `output_dir`, or "
                "put back what was changed."
            )
        variables = self._variables()
        arrays, _ = split_off_best(state.arrays)
        for name in sorted(variables.keys() | arrays.keys()):
            shape = getattr(variables.get(name), "shape", None)
            stored = getattr(arrays.get(name), "shape", None)
            if shape is None or stored is None or tuple(shape) != stored:
                raise UserError(
                    f"{self.folder}: the training state is of another model "
                    f"or optimizer ({name} is {stored}, this run has {shape})."
                )
