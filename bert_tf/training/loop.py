"""The training loop of every binary: resume, evaluate, log, end in order."""

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
    """Counts what is done in training time.

    The first step, and the first after `expect_tracing`, traces the graph and
    takes many times its share; the clock starts after it.
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
        """Takes time out, such as that of an evaluation."""
        self._paused += seconds

    def rates(self) -> dict[str, float]:
        """Sequences and tokens (padding left out) a second."""
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
    """A stretch of a run on one source of batches.

    Attributes:
      num_steps: optimizer steps.
      batch_size: rows of a step's batch, over all workers, replicas and
        slices.
      batches: start step of the phase to an endless data set of this worker's
        part of the batches; batch k is the same whatever the start.
      held_out: makes the data set to evaluate on, this worker's part of its
        batches; None where there is none.
      row_sequences: sequences that a row holds on average.
    """

    num_steps: int
    batch_size: int
    batches: Callable[[int], tf.data.Dataset]
    held_out: Callable[[], tf.data.Dataset] | None
    row_sequences: float = 1.0


class TrainingLoop:
    """Runs the phases from wherever the newest training state stands.

    Args:
      step: the training step.
      evaluation: the evaluation step; None where `best` scores the model.
      phases: the stretches of the run, in order.
      run_dirs: the folder of the run takes tensorboard/, history.jsonl,
        checkpoints/ and the batches of bad steps.
      recipe: says how often numbers and states are written.
      eval_steps: steps between two evaluations.
      reading: context that turns damaged input into a `UserError`.
      fingerprint: what a resumed run must share with the run it resumes, such
        as digests of its data, by name.
      best: scores the model in place of `evaluation`, and keeps the weights
        that were best; may end the run before its last step.
      keep_model: writes the model as it is after a step, whose number it
        takes; called by the first worker alone.
      keep_model_steps: steps between two calls of it; 0 for none.
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
        # Reading a number makes the host wait for an accelerator, and that
        # for the host.
        self._looks_each_step = not has_accelerator()
        self._done = 0
        # Of the steps that nobody has looked at yet.
        self._results: list[StepResult] = []
        self._window: dict[str, float] = {}
        self._held_out_batches: dict[int, Iterable[Batch]] = {}
        self._speed = Speed()
        self._request = StopRequest()
        # Whether any worker was asked to stop.
        self._asked = False

    def run(self) -> History:
        """Trains to the end and returns the run's numbers.

        Raises:
          NonFiniteError: a loss or gradient was not finite.
          RunStopped: a worker was asked to stop; the state is saved.
          KeyboardInterrupt: Ctrl-C; after the first one the state is saved.
          UserError: damaged records or states, states of another model, or
            workers that are not about to do the same.
        """
        check_agreement(self.step.strategy, self.fingerprint)
        done, self._window = self._states.restore()
        history = History(self.output_dir / HISTORY_FILE, until=done)
        if done == self.total or self._out_of_patience():
            print(f"already finished: {done:,} of {self.total:,} steps done")
            return history
        if done:
            print(f"resuming from step {done:,} of {self.total:,}", flush=True)
        writer = tf.summary.create_file_writer(
            str(self.output_dir / "tensorboard")
        )
        progress = Progress(
            "training", self.total, done, " steps", self.cluster.is_chief
        )
        with progress, writer.as_default(), self._request:
            if done == 0:
                self._states.save(0, self._window)
            for phase, batch, number in self._batches(done):
                self._train(phase, batch, number, progress, history)
                if self._results or self._done < number:
                    continue
                lowest = False
                if self._due(number, self.eval_steps):
                    lowest = self._evaluate(phase, number, progress, history)
                # Before a state from which this step is not done again.
                self._keep_model(number)
                # Once, as it may be asked at any time.
                asked = self._asked_to_stop()
                if (
                    self._due(number, self.recipe.save_checkpoints_steps)
                    or lowest
                    or self._out_of_patience()
                    or asked
                ):
                    started = time.monotonic()
                    self._states.save(number, self._window)
                    self._speed.pause(time.monotonic() - started)
                if self.best is not None and self.best.exhausted:
                    progress.log(
                        f"stopping at step {number:,}: no evaluation was "
                        f"better than that of step {self.best.step:,}"
                    )
                    break
                if asked:
                    break
            # Perhaps asked while the last state was saved.
            if self._asked_to_stop():
                line = (
                    f"stopped at step {number:,} of {self.total:,}, whose "
                    "state is saved; the same command goes on from there."
                )
                if self._request.interrupted:
                    raise KeyboardInterrupt(line)
                raise RunStopped(line)
        return history

    def _asked_to_stop(self) -> bool:
        """Whether to end here; several workers end after the same step."""
        alone = len(self.cluster.workers) == 1
        return self._request.made if alone else self._asked

    def _out_of_patience(self) -> bool:
        """Whether the run ends before its last step."""
        return self.best is not None and self.best.exhausted

    def _due(self, number: int, interval: int) -> bool:
        return number % interval == 0 or number == self.total

    def _batches(
        self, done: int
    ) -> Iterator[tuple[Phase, Batch | Iterator[Batch], int]]:
        """The distributed batches still to train on, numbered from 1.

        Goes on with the batch after step `_done`, which may be set back. Where
        several steps are one call, the iterator of those up to a number.
        """
        self._done = done
        for phase, end in zip(self.phases, self._ends, strict=True):
            while self._done < end:
                batches = self._batches_from(phase, self._done)
                self.step.expect(batches.element_spec)
                iterator, number = iter(batches), self._done
                with self.reading():
                    while self._done == number < end:
                        if self.step.takes_several:
                            number = self._next_look(number)
                            yield phase, iterator, number
                        else:
                            number += 1
                            yield phase, next(iterator), number
            self._speed.expect_tracing()

    def _batches_from(self, phase: Phase, done: int) -> Any:
        """The distributed batches of a phase from that after step `done`."""
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
        if self._is_time_to_look(number):
            self._look(phase, progress, history)

    def _next_look(self, done: int) -> int:
        """The first step after some whose number is time to look."""
        return next(filter(self._is_time_to_look, itertools.count(done + 1)))

    def _is_time_to_look(self, number: int) -> bool:
        """Whether what the device has done since the last look is read now."""
        intervals = (
            self.recipe.log_steps,
            self.recipe.save_checkpoints_steps,
            self.eval_steps,
            self.keep_model_steps,
        )
        return (
            self._looks_each_step
            or not self._speed.started
            or number in self._ends
            or any(n and number % n == 0 for n in intervals)
            or self._asked_to_stop()
        )

    def _look(self, phase: Phase, progress: Progress, history: History) -> None:
        """Reads what the steps gave, and sets back to a bad one."""
        results, self._results = read_results(self._results), []
        first = self._done - len(results) + 1
        for number, result in enumerate(results, first):
            self._asked = result.stop > 0
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
        """Takes the numbers of a step that was applied."""
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
        if self._window and self._due(number, self.recipe.log_steps):
            row = self._close_window()
            row |= {
                "learning_rate": float(self.step.optimizer.learning_rate),
                "gradient_norm": float(result.gradient_norm),
            }
            self._record(
                {"step": number, **row, **self._speed.rates()}, history
            )

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
    ) -> bool:
        """Scores the model; says whether a new lowest loss is to be kept."""
        if phase.held_out is None and self.best is None:
            return False
        started = time.monotonic()
        row: dict[str, float] = {"step": number}
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
        progress.log(f"step {number:,}, held-out: {shown}")
        self._speed.pause(time.monotonic() - started)
        return self.best is None and self._states.offer(number, scores["loss"])

    def _keep_model(self, number: int) -> None:
        """Has the model written where that is due."""
        steps = self.keep_model_steps
        if not steps or number % steps or not self.cluster.is_chief:
            return
        assert self.keep_model is not None
        started = time.monotonic()
        self.keep_model(number)
        self._speed.pause(time.monotonic() - started)

    def _held_out(self, phase: Phase) -> Iterable[Batch]:
        """The distributed batches to evaluate on, made once a phase."""
        assert phase.held_out is not None
        number = self.phases.index(phase)
        if number not in self._held_out_batches:
            self._held_out_batches[number] = distribute(
                self.step.strategy, phase.held_out()
            )
        return self._held_out_batches[number]

    def evaluate(self, phase: Phase) -> dict[str, float]:
        """Mean losses and metrics over a phase's held-out data."""
        assert self.evaluation is not None
        with self.reading():
            return self.evaluation.means(self._held_out(phase))


class StopRequest:
    """Notes SIGTERM and the first Ctrl-C while a training runs.

    After the first Ctrl-C the handler from before is back, so that the second
    one ends the training at once, by a KeyboardInterrupt. Who has set a handler
    for it, or has it ignored, as a shell does for jobs in the background, keeps
    that. Outside the main thread, where Python takes no signals, nothing is
    noted.

    Attributes:
      made: whether the training is to end.
      interrupted: whether Ctrl-C asked for it first.
    """

    def __init__(self) -> None:
        self.made = False
        self.interrupted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before[signal.SIGTERM] = signal.signal(
                signal.SIGTERM, self._note
            )
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before[signal.SIGINT] = signal.signal(
                    signal.SIGINT, self._note
                )
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT:
            self._put_back(number)
        if self.made:
            return
        self.made = True
        if number == signal.SIGINT:
            self.interrupted = True
            line = "interrupted: saving after this step; again stops at once"
        else:
            line = "asked to stop (SIGTERM): ending after this step"
        # A handler may come in the middle of another write.
        with contextlib.suppress(RuntimeError):
            log(line)

    def _put_back(self, number: int) -> None:
        signal.signal(number, self._before.pop(number) or signal.SIG_DFL)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in list(self._before):
            self._put_back(number)
