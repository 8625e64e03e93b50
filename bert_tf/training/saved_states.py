"""The states of a run: what is saved of it, and where it goes on."""

import math
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from bert_tf.errors import UserError
from bert_tf.training.agreement import gather_numbers
from bert_tf.training.best_weights import BestWeights, split_off_best
from bert_tf.training.state import (
    TrainingState,
    load_state,
    newest_state,
    save_state,
    state_folder,
)
from bert_tf.training.step import TrainingStep
from bert_tf.training.strategies import cluster_of

_NONE = -1
# What one worker writes, a network file system may show to others late.
_SECONDS_TO_APPEAR = 30


class SavedStates:
    """Saves the states of a run and restores the newest one.

    The first worker writes and chooses; all read the same state, so that they
    go on from the same step.

    Args:
      folder: where the states lie, the same for all workers.
      keep: how many stay, besides the one with the lowest held-out loss.
      step: holds the weights, the optimizer and what else changes.
      best: see `TrainingLoop`.
      identity: see `TrainingLoop`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        keep: int,
        step: TrainingStep,
        best: BestWeights | None,
        identity: Mapping[str, str],
    ):
        self.folder = folder
        self.keep = keep
        self.step = step
        self.best = best
        self.identity = dict(identity)
        self._cluster = cluster_of(step.strategy)
        self._lowest: dict[str, float | int] | None = None

    def offer(self, number: int, loss: float) -> bool:
        """Says whether a held-out loss is the lowest; its state will stay."""
        if math.isnan(loss) or (
            self._lowest is not None and loss >= self._lowest["loss"]
        ):
            return False
        self._lowest = {"step": number, "loss": loss}
        return True

    def save(self, number: int, window: Mapping[str, float]) -> None:
        """Writes the state after a step; all workers wait until it is there.

        Args:
          number: steps done.
          window: numbers of the steps since the last row of the history.

        Raises:
          UserError: a worker does not see what the first one wrote.
        """
        if self._cluster.is_chief:
            arrays = {k: v.numpy() for k, v in self._variables().items()}
            facts = {
                "window": dict(window),
                "identity": self.identity,
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
        """Goes on from the newest whole state, if there is one.

        Returns:
          The steps it had done, and what `save` was given besides.

        Raises:
          UserError: every state is damaged, or they are of another run.
        """
        state = self._chosen()
        if state is None:
            return 0, {}
        self._refuse_others(state)
        arrays, best = split_off_best(state.arrays)
        for name, variable in self._variables().items():
            variable.assign(arrays[name])
        if self.best is not None:
            self.best.restore(state.facts["best"], best)
        self._lowest = state.facts["lowest"]
        return state.step, dict(state.facts["window"])

    def _chosen(self) -> TrainingState | None:
        """The newest whole state that the first worker sees."""
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
        """Waits until this worker sees what the first one wrote."""
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
        """All that changes in training, by a name that is stable."""
        named = {}
        for index, variable in enumerate(self.step.variables):
            named[f"weights/{index:04d}.{variable.name}"] = variable
        for index, variable in enumerate(self.step.optimizer.variables):
            named[f"optimizer/{index:04d}"] = variable
        for remedy in self.step.remedies:
            for variable in remedy.variables:
                named[f"{type(remedy).__name__}/{variable.name}"] = variable
        return named

    def _refuse_others(self, state: TrainingState) -> None:
        """Raises `UserError` where a state is of another run."""
        before = state.facts["identity"]
        changed = [k for k, v in self.identity.items() if before.get(k) != v]
        if changed:
            raise UserError(
                f"{self.folder}: the run so far had another "
                f"{' and '.join(changed)}; choose another `output_dir`, or "
                "put back what was changed."
            )
        variables = self._variables()
        arrays, _ = split_off_best(state.arrays)
        for name in sorted(variables.keys() | arrays.keys()):
            mine = getattr(variables.get(name), "shape", None)
            theirs = getattr(arrays.get(name), "shape", None)
            if mine is None or theirs is None or tuple(mine) != tuple(theirs):
                raise UserError(
                    f"{self.folder}: the training state is of another model "
                    f"or optimizer ({name} is {theirs}, this run has {mine})."
                )
