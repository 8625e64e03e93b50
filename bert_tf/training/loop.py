"""The training loop: resumes, evaluates, logs, saves and stops cleanly."""

import contextlib
import dataclasses
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

import tensorflow as tf

from bert_tf.compat import has_accelerator
from bert_tf.errors import RunStopped
from bert_tf.progress import Progress, log
from bert_tf.training.history import HISTORY_FILE, History
from bert_tf.training.recipe import TrainingRecipe
from bert_tf.training.run_folder import CHECKPOINTS, RunFolders
from bert_tf.training.saved_states import BestWeights, SavedStates
from bert_tf.training.sentinel import Sentinel
from bert_tf.training.step import (
    Batch,
    EvaluationStep,
    StepResult,
    TrainingStep,
    read_results,
)
from bert_tf.training.strategies import (
    check_agreement,
    cluster_of,
    distribute,
)


class Speed:
    """Measures the throughput of training.

    The first step, and the first after `expect_tracing`, traces the graph;
    the clock starts after it.
    """

    def __init__(self):
        self.expect_tracing()

    def expect_tracing(self) -> None:
        """Restarts the clock after the next step."""
        self.started = False
        self._sequences = self._tokens = self._paused = 0.0

    def advance(self, sequences: float, tokens: float) -> None:
        """Counts one step."""
        if not self.started:
            self.started = True
            self._since = time.monotonic()
        else:
            self._sequences += sequences
            self._tokens += tokens

    def pause(self, seconds: float) -> None:
        """Excludes time, for example that of an evaluation."""
        self._paused += seconds

    def rates(self) -> dict[str, float]:
        """Returns sequences and tokens (without padding) per second."""
        if not self._sequences:
            return {"sequences_per_second": 0.0, "tokens_per_second": 0.0}
        seconds = time.monotonic() - self._since - self._paused
        return {
            "sequences_per_second": self._sequences / seconds,
            "tokens_per_second": self._tokens / seconds,
        }

    def __str__(self) -> str:
        rates = self.rates()
        return (
            f"{rates['sequences_per_second']:,.1f} sequences/s, "
            f"{rates['tokens_per_second']:,.0f} tokens/s"
        )


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a run that reads one source of batches.

    Attributes:
      num_steps: optimizer steps.
      batch_size: rows per step, over all workers, replicas and slices.
      batches: returns an endless data set of this worker's part of the
        batches from a step of the phase on; batch k does not depend on it.
      held_out: returns the data set to evaluate on, this worker's part of its
        batches; None for no evaluation.
      row_sequences: mean number of sequences per row.
    """

    num_steps: int
    batch_size: int
    batches: Callable[[int], tf.data.Dataset]
    held_out: Callable[[], tf.data.Dataset] | None
    row_sequences: float = 1.0


class TrainingLoop:
    """Trains a model phase by phase, resuming from the newest training state.

    Args:
      step: the training step.
      evaluation: the evaluation step; None if `best` scores the model.
      phases: the phases of the run, in order.
      run_dirs: the folder of the run, which receives tensorboard/,
        history.jsonl, checkpoints/ and the batches of non-finite steps.
      recipe: the intervals between logged numbers and saved states.
      eval_steps: steps between two evaluations.
      reading: context that turns damaged input into a `UserError`.
      fingerprint: name to digest of data and settings that must not change
        when a run is resumed.
      best: scores the model instead of `evaluation`, stores the best weights
        and may stop the run early.
      keep_model: writes the current model, given the number of the step;
        called by the first worker only.
      keep_model_steps: steps between two calls of `keep_model`; 0 for none.
    """

    def __init__(
        self,
        step: TrainingStep,
        evaluation: EvaluationStep | None,
        phases: Sequence[Phase],
        run_dirs: RunFolders,
        recipe: TrainingRecipe,
        eval_steps: int,
        reading: Callable[[], contextlib.AbstractContextManager],
        fingerprint: Mapping[str, str],
        best: BestWeights | None = None,
        keep_model: Callable[[int], None] | None = None,
        keep_model_steps: int = 0,
    ):
        self.step = step
        self.evaluation = evaluation
        self.phases = phases
        self.output_dir = run_dirs.own
        self.recipe = recipe
        self.eval_steps = eval_steps
        self.reading = reading
        self.fingerprint = dict(fingerprint)
        self.best = best
        self.keep_model = keep_model
        self.keep_model_steps = keep_model_steps
        self.cluster = cluster_of(step.strategy)
        self._states = SavedStates(
            run_dirs.shared / CHECKPOINTS,
            recipe.keep_checkpoint_max,
            step,
            best,
            fingerprint,
        )
        self._sentinel = Sentinel(step, run_dirs.shared)
        self._ends = list(
            itertools.accumulate(phase.num_steps for phase in phases)
        )
        self.total = self._ends[-1]
        # Reading a result synchronises the host with an accelerator.
        self._reads_each_step = not has_accelerator()
        self._done = 0
        # Results of steps that have not been read yet.
        self._results: list[StepResult] = []
        # Sums since the last row of the history.
        self._window: dict[str, float] = {}
        self._held_out_batches: dict[int, Iterable[Batch]] = {}
        self._speed = Speed()
        self._request = StopRequest()
        self._any_worker_stops = False

    def run(self) -> History:
        """Trains to the end and returns the history of the run.

        Raises:
          NonFiniteError: a loss or gradient was not finite.
          RunStopped: a worker received SIGTERM; the state is saved.
          KeyboardInterrupt: Ctrl-C; after the first one the state is saved.
          UserError: damaged records or states, states of another model, or
            workers with different settings or files.
        """
        check_agreement(self.step.strategy, self.fingerprint)
        done, self._window = self._states.restore()
        history = History(self.output_dir / HISTORY_FILE, until=done)
        if done == self.total or self._early_stop():
            print(f"already finished: {done:,} of {self.total:,} steps done")
            return history
        if done:
            print(f"resuming from step {done:,} of {self.total:,}", flush=True)
        self._states.demand_space()
        writer = tf.summary.create_file_writer(
            str(self.output_dir / "tensorboard")
        )
        progress = Progress(
            "training", self.total, done, " steps", self.cluster.is_chief
        )
        number = done
        with (
            progress,
            writer.as_default(),
            self._request,
            self._saved_at_once(done),
        ):
            for phase, batch, number in self._batches(done):
                self._train(phase, batch, number, progress, history)
                if self._results or self._done < number:
                    continue
                lowest = False
                if self._due(number, self.eval_steps):
                    lowest = self._evaluate(phase, number, progress, history)
                # Before the state, since a resumed run continues after it.
                self._keep_model(number)
                # Read once, since a signal may arrive at any time.
                stop = self._stop_requested()
                early_stop = self._early_stop()
                if (
                    self._due(number, self.recipe.save_checkpoints_steps)
                    or lowest
                    or early_stop
                    or stop
                ):
                    with self._untimed():
                        self._states.save(number, self._window)
                if early_stop and self.best is not None:
                    progress.log(
                        f"stopping at step {number:,}: no evaluation was "
                        f"better than that of step {self.best.step:,}"
                    )
                if early_stop or stop:
                    break
            # The signal may have arrived while the last state was saved.
            if self._stop_requested():
                raise self._stopped(number)
        return history

    @contextlib.contextmanager
    def _saved_at_once(self, begun: int) -> Iterator[None]:
        """Saves the state of a run that stops between two steps."""
        try:
            yield
        except _StopAtOnceError:
            if self._done > begun:
                self._states.save(self._done, self._window)
            raise self._stopped(self._done) from None

    def _stopped(self, number: int) -> BaseException:
        """Returns the exception of a run that stopped after a step."""
        line = (
            f"stopped at step {number:,} of {self.total:,}, whose "
            "state is saved; the same command resumes it."
        )
        if not number:
            line = "stopped before the first step; the same command begins it."
        if self._request.interrupted:
            return KeyboardInterrupt(line)
        return RunStopped(line)

    def _stop_requested(self) -> bool:
        """Returns whether to stop; all workers stop after the same step."""
        alone = len(self.cluster.workers) == 1
        return self._request.made if alone else self._any_worker_stops

    def _early_stop(self) -> bool:
        return self.best is not None and self.best.exhausted

    @contextlib.contextmanager
    def _untimed(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._speed.pause(time.monotonic() - started)

    def _due(self, number: int, interval: int) -> bool:
        return number % interval == 0 or number == self.total

    def _batches(
        self, done: int
    ) -> Iterator[tuple[Phase, Batch | Iterator[Batch], int]]:
        """Yields the distributed batches after step `done`, numbered from 1.

        If `_done` is set back, continues with the batch after it. If several
        steps are one call, yields the iterator and the number of the last step.
        """
        self._done = done
        for phase, end in zip(self.phases, self._ends, strict=True):
            while self._done < end:
                with self._interruptible():
                    batches = self._batches_from(phase, self._done)
                    self.step.expect(batches.element_spec)
                    iterator, number = iter(batches), self._done
                with self.reading():
                    while self._done == number < end:
                        if self.step.takes_several:
                            steps = itertools.count(number + 1)
                            number = next(filter(self._reads_after, steps))
                            yield phase, iterator, number
                        else:
                            number += 1
                            yield phase, next(iterator), number
            self._speed.expect_tracing()

    def _interruptible(self) -> contextlib.AbstractContextManager[None]:
        """Allows a request to stop to end a block that changes no state."""
        if len(self.cluster.workers) > 1:
            # All workers stop after the same step.
            return contextlib.nullcontext()
        return self._request.at_once()

    def _batches_from(self, phase: Phase, done: int) -> Any:
        """Returns the distributed batches of a phase after step `done`."""
        end = self._ends[self.phases.index(phase)]
        start = end - phase.num_steps
        return distribute(self.step.strategy, phase.batches(done - start))

    def _train(
        self,
        phase: Phase,
        batch: Batch | Iterator[Batch],
        number: int,
        progress: Progress,
        history: History,
    ) -> None:
        stop = self._request.made
        if isinstance(batch, Iterator):
            self._results = self.step.several(batch, number - self._done, stop)
        else:
            halted = self._results[-1].halted if self._results else False
            self._results.append(self.step(batch, stop, halted))
        self._done = number
        if self._reads_after(number):
            self._read(phase, progress, history)

    def _reads_after(self, number: int) -> bool:
        """Returns whether to read the results so far after a step."""
        intervals = (
            self.recipe.log_steps,
            self.recipe.save_checkpoints_steps,
            self.eval_steps,
            self.keep_model_steps,
        )
        return (
            self._reads_each_step
            or not self._speed.started
            or number in self._ends
            or any(n and number % n == 0 for n in intervals)
            or self._stop_requested()
        )

    def _read(self, phase: Phase, progress: Progress, history: History) -> None:
        """Reads the results of steps; sets `_done` back to a halted one."""
        results, self._results = read_results(self._results), []
        first = self._done - len(results) + 1
        for number, result in enumerate(results, first):
            self._any_worker_stops = result.stop > 0
            if result.finite:
                self._count(phase, number, result, progress, history)
                continue
            if result.halted:
                # The steps after it changed nothing.
                self._done = number
                with self.reading():
                    batch = next(iter(self._batches_from(phase, number - 1)))
                progress.log(self._sentinel.explain(batch, number, result))
            else:
                progress.log(f"step {number:,}: {self.step.loss_scale}")
            progress.update(1, "not finite, step not applied")
            if result.halted:
                break

    def _count(
        self,
        phase: Phase,
        number: int,
        result: StepResult,
        progress: Progress,
        history: History,
    ) -> None:
        """Adds the losses and metrics of an applied step to the window."""
        losses = {name: float(v) for name, v in result.losses.items()}
        loss = sum(losses.values())
        numbers = {"steps": 1.0, "loss": loss, **losses}
        for name, (total, weight) in result.metrics.items():
            numbers[f"sum/{name}"] = float(total)
            numbers[f"weight/{name}"] = float(weight)
        for name, value in numbers.items():
            self._window[name] = self._window.get(name, 0.0) + value
        sequences = phase.batch_size * phase.row_sequences
        self._speed.advance(sequences, float(result.tokens))
        progress.update(1, f"loss {loss:.3f}, {self._speed}")
        if self._due(number, self.recipe.log_steps):
            row = {
                "step": number,
                **self._window_means(),
                "learning_rate": float(self.step.optimizer.learning_rate),
                "gradient_norm": float(result.gradient_norm),
                **self._speed.rates(),
            }
            self._record(row, history)

    def _window_means(self) -> dict[str, float]:
        """Returns the means since the last row, and starts a new window."""
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
    ) -> bool:
        """Evaluates; returns whether to save a state for its lowest loss."""
        if phase.held_out is None and self.best is None:
            return False
        with self._untimed():
            scores = (
                self.evaluate(phase) if self.best is None else self.best.score()
            )
            row = {f"eval_{name}": value for name, value in scores.items()}
            self._record({"step": number, **row}, history)
            line = ", ".join(f"{n} {value:.4f}" for n, value in scores.items())
            if self.best is not None and self.best.offer(number, scores):
                line += ", the best so far"
            progress.log(f"step {number:,}, held-out: {line}")
        return self.best is None and self._states.offer(number, scores["loss"])

    def _keep_model(self, number: int) -> None:
        """Writes the model if it is due."""
        steps = self.keep_model_steps
        if not steps or number % steps or not self.cluster.is_chief:
            return
        assert self.keep_model is not None
        with self._untimed():
            self.keep_model(number)

    def _held_out(self, phase: Phase) -> Iterable[Batch]:
        """Returns the distributed held-out batches, built once per phase."""
        assert phase.held_out is not None
        number = self.phases.index(phase)
        if number not in self._held_out_batches:
            self._held_out_batches[number] = distribute(
                self.step.strategy, phase.held_out()
            )
        return self._held_out_batches[number]

    def evaluate(self, phase: Phase) -> dict[str, float]:
        """Returns mean losses and metrics over a phase's held-out data."""
        assert self.evaluation is not None
        with self.reading():
            return self.evaluation.means(self._held_out(phase))


class _StopAtOnceError(BaseException):
    """A request to stop, made in a block of `StopRequest.at_once`."""


class StopRequest:
    """Records SIGTERM and the first Ctrl-C during a training.

    The first Ctrl-C restores the previous handler, so that the second one
    raises a KeyboardInterrupt. A custom handler of SIGINT stays in place, and
    so does an ignored SIGINT, as shells set it for background jobs. Outside the
    main thread Python handles no signals, and none are recorded.

    Attributes:
      made: whether to stop the training.
      interrupted: whether Ctrl-C was the first request.
    """

    def __init__(self) -> None:
        self.made = False
        self.interrupted = False
        self._raises = False
        self._before: dict[int, Any] = {}

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Raises an exception in its block where a request is or was made.

        The block may take long, such as tracing a graph, and changes no state.
        """
        self._raises = True
        try:
            if self.made:
                raise _StopAtOnceError
            yield
        finally:
            self._raises = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGTERM]
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                numbers.append(signal.SIGINT)
            for number in numbers:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT:
            self._restore(number)
        if self.made:
            return
        self.made = True
        if number == signal.SIGINT:
            self.interrupted = True
            line = "interrupted: saving after this step; again stops at once"
        else:
            line = "received SIGTERM: stopping after this step"
        # The signal may interrupt another write to the same stream.
        with contextlib.suppress(RuntimeError):
            log(line)
        if self._raises:
            raise _StopAtOnceError

    def _restore(self, number: int) -> None:
        signal.signal(number, self._before.pop(number) or signal.SIG_DFL)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in list(self._before):
            self._restore(number)
