"""Executes the runs of a plan, concurrently and on several machines.

Next to the folder of a run are NAME.log, the output of its command; NAME.lock,
which the command holds while it runs, even if this process is killed; and
NAME.json, written when the run is finished.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from bert_tf.errors import RunStopped, UserError
from bert_tf.files import lock_now, write_text
from bert_tf.memory.prediction import Workload
from bert_tf.progress import log
from bert_tf.recipe import read_json_object

# Placeholder for the folder of all runs in the arguments of a run.
RUNS = "{runs_dir}"
# Imports, reading, tracing and writing of a command.
OVERHEAD_SECONDS = 30.0
_POLL_SECONDS = 0.5
_SECONDS_BETWEEN_LINES = 60.0
# A progress bar in a log.
_PERCENT = re.compile(r"(\w[\w ]*): +(\d+)%\|")
_TAIL_BYTES = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A command with its own folder.

    Attributes:
      name: its folder below the folder of all runs.
      tool: the name of the command, such as pretrain.
      arguments: its flags; RUNS is replaced by the folder of all runs.
      needs: the names of the runs whose output it reads.
      work: estimated parameters times tokens; 0 without training.
      size: estimated bytes on disk.
      trial: a step for measuring; None without training.
    """

    name: str
    tool: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    work: float = 0.0
    size: float = 0.0
    trial: Workload | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """The runs of an experiment in an order in which they can be executed.

    Attributes:
      runs: by name; each comes after the runs that it needs.
      run_of: row and column to the name of the run of the cell.
    """

    runs: Mapping[str, Run]
    run_of: Mapping[tuple[str, str], str]


class Finished(NamedTuple):
    """The command of a finished run and the duration of all its starts."""

    command: str
    seconds: float


class RunFolders:
    """The folder of all runs.

    Args:
      path: the folder.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def folder(self, run: Run) -> pathlib.Path:
        """The folder of a run."""
        return self.path / run.name

    def sibling(self, run: Run, suffix: str) -> pathlib.Path:
        """A file next to the folder of a run."""
        folder = self.folder(run)
        return folder.with_name(folder.name + suffix)

    def finished(self, run: Run) -> Finished | None:
        """The record of a finished run; None if it is not finished."""
        path = self.sibling(run, ".json")
        if not path.is_file():
            return None
        values = read_json_object(path)
        try:
            return Finished(str(values["command"]), float(values["seconds"]))
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{path}: is damaged; remove it and start again."
            ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commands:
    """How the commands of the runs are started.

    Attributes:
      program: starts the command whose name follows.
      this: the command of the experiment, as a user types it.
    """

    program: Sequence[str]
    this: str


class Runner:
    """Executes the unfinished runs of a plan.

    Several machines may work on one plan: each run is taken by one of them.

    Args:
      plan: the runs.
      folders: their folders.
      commands: how they are started.
      workers: number of concurrent runs.
      finished: called after each finished run.
    """

    def __init__(
        self,
        plan: Plan,
        folders: RunFolders,
        commands: Commands,
        workers: int,
        finished: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.folders = folders
        self.commands = commands
        self.workers = workers
        self.finished = finished
        self.left = {
            name: run
            for name, run in plan.runs.items()
            if folders.finished(run) is None
        }
        self._processes: dict[str, _Process] = {}
        self._stop: int | None = None
        self._last_line = 0.0

    def run(self) -> None:
        """Executes all runs; returns when each is finished, here or elsewhere.

        Raises:
          UserError: a run failed; the other active runs have ended.
          RunStopped: SIGTERM; the active runs have saved their states.
          KeyboardInterrupt: Ctrl-C, likewise.
        """
        total, done = len(self.plan.runs), len(self.plan.runs) - len(self.left)
        log(f"{total} runs, {done} of them finished")
        failed: UserError | None = None
        with self._stopping():
            while self.left and not (failed and not self._processes):
                for name, process in list(self._processes.items()):
                    failed = self._ended(name, process) or failed
                if failed is None and self._stop is None:
                    self._start_some()
                if self._stop is not None and not self._processes:
                    break
                self._show()
                time.sleep(_POLL_SECONDS)
        if failed is not None:
            raise failed
        if self._stop is not None and self.left:
            line = (
                f"stopped: {len(self.left)} of {total} runs are left; the same "
                "command resumes."
            )
            if self._stop == signal.SIGINT:
                raise KeyboardInterrupt(line)
            raise RunStopped(line)

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[None]:
        """Forwards SIGTERM and Ctrl-C to the active runs."""

        def stop(number: int, frame: object) -> None:
            del frame
            self._stop = number
            for process in self._processes.values():
                process.stop(number)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGTERM]
        # Jobs that a shell starts in the background ignore SIGINT.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            numbers.append(signal.SIGINT)
        before = {number: signal.signal(number, stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for process in self._processes.values():
                process.stop(signal.SIGTERM)

    def _start_some(self) -> None:
        """Starts runs whose needs are finished, up to the number of workers."""
        for name, run in list(self.left.items()):
            if len(self._processes) >= self.workers:
                return
            if name in self._processes or not self.left.keys().isdisjoint(
                run.needs
            ):
                continue
            if self.folders.finished(run) is not None:
                self._has_finished(name, "finished elsewhere")
                continue
            folder = self.folders.folder(run)
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = lock_now(self.folders.sibling(run, ".lock"))
            if lock is None:
                continue
            # Another process may have finished it a moment ago.
            if self.folders.finished(run) is not None:
                lock.close()
                continue
            runs_dir = str(self.folders.path)
            arguments = [a.replace(RUNS, runs_dir) for a in run.arguments]
            self._processes[name] = _Process(
                run,
                self.folders,
                lock,
                [*self.commands.program, run.tool, *arguments],
                f"bert-tf {run.tool} {shlex.join(arguments)}",
            )
            log(f"{self._counted()} started {name}")

    def _ended(self, name: str, process: "_Process") -> UserError | None:
        """Handles a run that may have ended; returns the error if it failed."""
        code = process.popen.poll()
        if code is None:
            return None
        del self._processes[name]
        if code:
            process.note_seconds()
        else:
            took = process.note_finished()
            self._has_finished(name, f"finished in {duration(took)}")
        process.lock.close()
        if self._stop is None and code:
            return UserError(
                f"{name}: {process.last_error()} (exit code {code}); its log "
                f"is {process.log_file}, and the same command resumes."
            )
        return None

    def _has_finished(self, name: str, how: str) -> None:
        del self.left[name]
        log(f"{self._counted()} {name}: {how}")
        self.finished()

    def _counted(self) -> str:
        total = len(self.plan.runs)
        return f"[{total - len(self.left)}/{total}]"

    def _show(self) -> None:
        """Logs once a minute the active runs and the remaining time."""
        if time.monotonic() - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        self._last_line = time.monotonic()
        for process in self._processes.values():
            process.note_seconds()
        running = ", ".join(
            f"{name} ({process.status()})"
            for name, process in self._processes.items()
        )
        left = self.seconds_left()
        time_left = "" if left is None else f", about {duration(left)} left"
        log(
            f"{self._counted()} running: {running or 'only elsewhere'}; "
            f"{len(self.left) - len(self._processes)} to come{time_left}"
        )

    def seconds_left(self) -> float | None:
        """Remaining time, from the speed of finished runs; None if unknown."""
        seconds = work = 0.0
        for run in self.plan.runs.values():
            record = self.folders.finished(run)
            if record is not None and run.work:
                seconds += max(record.seconds - OVERHEAD_SECONDS, 1.0)
                work += run.work
        if not work:
            return None
        elapsed = {name: p.seconds() for name, p in self._processes.items()}
        left = sum(
            max(
                OVERHEAD_SECONDS
                + run.work * seconds / work
                - elapsed.get(name, 0.0),
                0.0,
            )
            for name, run in self.left.items()
        )
        return left / max(self.workers, 1)


class _Process:
    """An active run.

    Args:
      run: the run.
      folders: the folder of all runs.
      lock: its lock; also held by the command.
      words: the command line.
      shown: the command as a user types it.
    """

    def __init__(
        self,
        run: Run,
        folders: RunFolders,
        lock: IO,
        words: Sequence[str],
        shown: str,
    ) -> None:
        self.log_file = folders.sibling(run, ".log")
        self._marker = folders.sibling(run, ".json")
        self._seconds_file = folders.sibling(run, ".seconds")
        self.lock = lock
        self._shown = shown
        self._before = 0.0
        if self._seconds_file.is_file():
            with contextlib.suppress(ValueError):
                text = self._seconds_file.read_text(encoding="utf-8")
                self._before = float(text)
        self._began = time.monotonic()
        with open(self.log_file, "a", encoding="utf-8") as log_file:
            log_file.write(f"$ {shown}\n")
            log_file.flush()
            self.popen = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                # The command keeps the lock if this process is killed.
                pass_fds=(lock.fileno(),),
                # Ctrl-C reaches it once, from this process.
                start_new_session=True,
            )

    def seconds(self) -> float:
        """Seconds of all its starts."""
        return self._before + time.monotonic() - self._began

    def stop(self, number: int) -> None:
        """Sends a signal."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(number)

    def note_seconds(self) -> None:
        """Stores the duration so far, for its next start."""
        write_text(self._seconds_file, f"{self.seconds():.0f}\n")

    def note_finished(self) -> float:
        """Stores that it is finished; returns its duration."""
        took = self.seconds()
        values = {"command": self._shown, "seconds": round(took, 1)}
        write_text(self._marker, json.dumps(values, indent=1) + "\n")
        self._seconds_file.unlink(missing_ok=True)
        return took

    def _tail(self) -> str:
        """The last lines of its log."""
        with open(self.log_file, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")

    def last_error(self) -> str:
        """The error line of its log."""
        lines = [x.strip() for x in self._tail().splitlines() if x.strip()]
        errors = [x for x in lines if x.startswith("error: ")]
        return (errors or lines or ["it failed"])[-1].removeprefix("error: ")

    def status(self) -> str:
        """Its progress, from the last progress bar in its log."""
        found = _PERCENT.findall(self._tail())
        return f"{found[-1][0]} {found[-1][1]} %" if found else "starting"


def duration(seconds: float) -> str:
    """A duration as text: 1 h 2 min, 2 min 5 s or 5 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
