"""The training loop of every binary: resume, evaluate, log, stop on NaN."""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.progress import Progress
from bert_tf.training.best_weights import BestWeights, split_off_best
from bert_tf.training.history import History
from bert_tf.training.sentinel import (
    NonFiniteError,
    explain,
    ids_outside,
    save_batch,
)
from bert_tf.training.speed import Speed
from bert_tf.training.state import TrainingState, newest_state, save_state
from bert_tf.training.step import Batch, EvaluationStep, TrainingStep


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of a run on one source of batches.

    Attributes:
      num_steps: optimizer steps.
      batch_size: rows of a step's batch, over all replicas and slices.
      batches: start step of the phase to an endless data set of batches;
        batch k is the same whatever the start.
      held_out: makes the data set to evaluate on; None where there is none.
    """

    num_steps: int
    batch_size: int
    batches: Callable[[int], tf.data.Dataset]
    held_out: Callable[[], tf.data.Dataset] | None


@dataclasses.dataclass(frozen=True)
class LoopSettings:
    """How often the loop does what.

    Attributes:
      log_steps: steps between two rows of training numbers.
      eval_steps: steps between two evaluations.
      save_checkpoints_steps: steps between two training states.
      keep_checkpoint_max: training states kept.
    """

    log_steps: int
    eval_steps: int
    save_checkpoints_steps: int
    keep_checkpoint_max: int


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What the loop needs to explain a step that was not finite.

    Attributes:
      limits: feature name to the number its ids must stay below.
      forward: batch to (name, tensor) of the forward pass, in order.
    """

    limits: Mapping[str, int]
    forward: Callable[[Batch], Sequence[tuple[str, object]]]


class TrainingLoop:
    """Runs the phases from wherever the newest training state stands.

    Args:
      step: the training step.
      evaluation: the evaluation step; None where `best` scores the model.
      phases: the stretches of the run, in order.
      output_dir: holds checkpoints/, tensorboard/ and history.jsonl.
      settings: how often what is done.
      diagnosis: for steps that are not finite.
      reading: context that turns damaged input into a `UserError`.
      identity: what a resumed run must share with the run it resumes, such as
        digests of its data, by name.
      best: scores the model in place of `evaluation`, and keeps the weights
        that were best; may end the run before its last step.
    """

    def __init__(
        self,
        step: TrainingStep,
        evaluation: EvaluationStep | None,
        phases: Sequence[Phase],
        output_dir: str | pathlib.Path,
        settings: LoopSettings,
        diagnosis: Diagnosis,
        reading: Callable[[], contextlib.AbstractContextManager],
        identity: Mapping[str, str],
        best: BestWeights | None = None,
    ):
        self.step = step
        self.evaluation = evaluation
        self.phases = phases
        self.output_dir = pathlib.Path(output_dir)
        self.settings = settings
        self.diagnosis = diagnosis
        self.reading = reading
        self.identity = dict(identity)
        self.best = best
        self.total = sum(phase.num_steps for phase in phases)
        self._window: dict[str, float] = {}
        self._speed = Speed()

    def run(self) -> History:
        """Trains to the end and returns the run's numbers.

        Raises:
          NonFiniteError: a loss or gradient was not finite.
          UserError: damaged records or states, or states of another model.
        """
        done = self._restore()
        history = History(self.output_dir / "history.jsonl", until=done)
        if done == self.total or self._stopped():
            print(f"already finished: {done:,} of {self.total:,} steps done")
            return history
        if done:
            print(f"resuming from step {done:,} of {self.total:,}")
        writer = tf.summary.create_file_writer(
            str(self.output_dir / "tensorboard")
        )
        progress = Progress("training", self.total, done, " steps")
        with progress, writer.as_default():
            if done == 0:
                self._save(0)
            for phase, batch, number in self._batches(done):
                self._train(phase, batch, number, progress, history)
                if self._due(number, self.settings.eval_steps):
                    self._evaluate(phase, number, progress, history)
                if (
                    self._due(number, self.settings.save_checkpoints_steps)
                    or self._stopped()
                ):
                    started = time.monotonic()
                    self._save(number)
                    self._speed.pause(time.monotonic() - started)
                if self._stopped():
                    progress.say(
                        f"stopping at step {number:,}: no evaluation was "
                        f"better than that of step {self.best.step:,}"
                    )
                    break
        return history

    def _stopped(self) -> bool:
        """Whether the run ended before its last step."""
        return self.best is not None and self.best.exhausted

    def _due(self, number: int, interval: int) -> bool:
        return number % interval == 0 or number == self.total

    def _batches(self, done: int) -> Iterator[tuple[Phase, Batch, int]]:
        """The distributed batches still to train on, numbered from 1."""
        start = 0
        for phase in self.phases:
            end = start + phase.num_steps
            if done < end:
                batches = self._distribute(phase.batches(done - start))
                self.step.expect(batches.element_spec)
                with self.reading():
                    for batch in batches:
                        done += 1
                        yield phase, batch, done
                        if done == end:
                            break
                self._speed.expect_tracing()
            start = end

    def _distribute(self, dataset: tf.data.Dataset) -> object:
        strategy = self.step.strategy
        if strategy.num_replicas_in_sync == 1:
            return dataset
        return strategy.experimental_distribute_dataset(dataset)

    def _train(
        self,
        phase: Phase,
        batch: Batch,
        number: int,
        progress: Progress,
        history: History,
    ) -> None:
        # An id outside the table is an obscure error on a CPU and a row of
        # zeros on a GPU.
        self._check_ids(batch, number)
        result = self.step(batch)
        if not bool(result.finite):
            self._not_finite(batch, number, result, progress)
            progress.update(1, "float16 overflow, step not applied")
            return
        losses = {name: float(v) for name, v in result.losses.items()}
        loss = sum(losses.values())
        self._collect({"steps": 1, "loss": loss, **losses})
        for name, (total, weight) in result.metrics.items():
            self._collect({f"sum/{name}": float(total)})
            self._collect({f"weight/{name}": float(weight)})
        self._speed.advance(phase.batch_size, float(result.tokens))
        progress.update(1, f"loss {loss:.3f}, {self._speed}")
        if self._window and self._due(number, self.settings.log_steps):
            row = self._close_window()
            row |= {
                "learning_rate": float(self.step.optimizer.learning_rate),
                "gradient_norm": float(result.gradient_norm),
            }
            self._record(
                {"step": number, **row, **self._speed.rates()}, history
            )

    def _collect(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._window[name] = self._window.get(name, 0.0) + value

    def _close_window(self) -> dict[str, float]:
        """Means since the last row."""
        window, self._window = self._window, {}
        steps = window.pop("steps")
        row = {}
        for name, total in window.items():
            kind, _, metric = name.partition("/")
            if kind == "sum":
                row[metric] = total / max(window[f"weight/{metric}"], 1e-9)
            elif kind != "weight":
                row[name] = total / steps
        return row

    def _record(self, row: Mapping[str, float], history: History) -> None:
        history.add(row)
        for name, value in row.items():
            if name != "step":
                tf.summary.scalar(name, value, step=int(row["step"]))

    def _evaluate(
        self, phase: Phase, number: int, progress: Progress, history: History
    ) -> None:
        if phase.held_out is None and self.best is None:
            return
        started = time.monotonic()
        row = {"step": number}
        scores = (
            self.evaluate(phase) if self.best is None else self.best.score()
        )
        row |= {f"eval_{name}": value for name, value in scores.items()}
        self._record(row, history)
        shown = ", ".join(
            f"{name.removeprefix('eval_')} {value:.4f}"
            for name, value in row.items()
            if name != "step"
        )
        if self.best is not None and self.best.offer(number, scores):
            shown += ", the best so far"
        progress.say(f"step {number:,}, held-out: {shown}")
        self._speed.pause(time.monotonic() - started)

    def evaluate(self, phase: Phase) -> dict[str, float]:
        """Mean losses and metrics over a phase's held-out data."""
        total = None
        with self.reading():
            for batch in self._distribute(phase.held_out()):
                sums = tf.nest.map_structure(float, self.evaluation(batch))
                if total is None:
                    total = sums
                else:
                    total = tf.nest.map_structure(
                        lambda a, b: a + b, total, sums
                    )
        losses, weights, metrics = total
        means = self.evaluation.objective.normalise(losses, weights)
        row = {name: float(value) for name, value in means.items()}
        row["loss"] = sum(row.values())
        for name, (value, weight) in metrics.items():
            row[name] = value / max(weight, 1e-9)
        return row

    def _check_ids(self, batch: Batch, number: int) -> None:
        whole = self._whole_batch(batch)
        outside = ids_outside(whole, self.diagnosis.limits)
        if outside:
            raise UserError(
                f"step {number}: {outside}: the records do not belong to this "
                f"model; the batch is in {self._keep(whole, number)}."
            )

    def _keep(self, whole: dict[str, np.ndarray], number: int) -> pathlib.Path:
        path = self.output_dir / f"bad_batch_step_{number}.npz"
        save_batch(path, whole)
        return path

    def _not_finite(
        self, batch: Batch, number: int, result: object, progress: Progress
    ) -> None:
        """Stops the run, unless a smaller float16 loss scale may help."""
        scale = self.step.loss_scale
        if scale is not None and not scale.exhausted():
            progress.say(
                f"step {number:,}: float16 overflow, not applied; loss scale "
                f"is now {float(scale.value):g}"
            )
            return
        whole = self._whole_batch(batch)
        kept = self._keep(whole, number)
        why = explain(
            self.step.model,
            whole,
            self.diagnosis.limits,
            self.diagnosis.forward,
            result.gradient_norms.numpy(),
        )
        raise NonFiniteError(
            f"step {number}: loss or gradient is not finite; {why}. The step "
            f"was not applied, its batch is in {kept}, and the last training "
            f"state in {self.output_dir / 'checkpoints'} is good."
        )

    def _whole_batch(self, batch: Batch) -> dict[str, np.ndarray]:
        local = self.step.strategy.experimental_local_results
        return {
            name: np.concatenate([part.numpy() for part in local(value)])
            for name, value in batch.items()
        }

    def _variables(self) -> dict[str, object]:
        """All that changes in training, by a name that is stable."""
        named = {}
        for index, variable in enumerate(self.step.variables):
            named[f"weights/{index:04d}.{variable.name}"] = variable
        for index, variable in enumerate(self.step.optimizer.variables):
            named[f"optimizer/{index:04d}"] = variable
        if self.step.loss_scale is not None:
            for variable in self.step.loss_scale.variables:
                named[f"loss_scale/{variable.name}"] = variable
        return named

    def _save(self, number: int) -> None:
        arrays = {k: v.numpy() for k, v in self._variables().items()}
        facts = {"window": self._window, "identity": self.identity}
        if self.best is not None:
            arrays |= self.best.arrays()
            facts["best"] = self.best.facts()
        save_state(
            self.output_dir / "checkpoints",
            TrainingState(number, arrays, facts),
            self.settings.keep_checkpoint_max,
        )

    def _restore(self) -> int:
        """Loads the newest whole state; returns the steps it had done."""
        folder = self.output_dir / "checkpoints"
        state, damaged = newest_state(folder)
        for line in damaged:
            print(f"warning: {line}", flush=True)
        if state is None:
            return 0
        before = state.facts["identity"]
        changed = [k for k, v in self.identity.items() if before.get(k) != v]
        if changed:
            raise UserError(
                f"{folder}: the run so far had another "
                f"{' and '.join(changed)}; choose another --output_dir, or "
                "put back what was changed."
            )
        variables = self._variables()
        arrays, best = split_off_best(state.arrays)
        for name in sorted(variables.keys() | arrays.keys()):
            mine = getattr(variables.get(name), "shape", None)
            theirs = getattr(arrays.get(name), "shape", None)
            if mine is None or theirs is None or tuple(mine) != tuple(theirs):
                raise UserError(
                    f"{folder}: the training state is of another model or "
                    f"optimizer ({name} is {theirs}, this run has {mine})."
                )
        for name, variable in variables.items():
            variable.assign(arrays[name])
        if self.best is not None:
            self.best.restore(state.facts["best"], best)
        self._window = dict(state.facts["window"])
        return state.step
