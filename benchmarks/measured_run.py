"""A command's time, and the memory of each of its processes."""

import dataclasses
import os
import pathlib
import resource
import subprocess
import threading
import time
from collections.abc import Sequence

from bert_tf.errors import UserError

_SECONDS_BETWEEN_LOOKS = 0.2


@dataclasses.dataclass
class Measured:
    """What a command took.

    Attributes:
      seconds: from start to end, the start of Python included.
      cpu_seconds: user and system time of all its processes.
      output: what it printed on standard output.
      peaks: largest resident memory of each process in MB, by process id.
      trace: seconds since the start, resident MB of the largest process and
        of all together.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    output: str = ""
    peaks: dict[int, float] = dataclasses.field(default_factory=dict)
    trace: list[tuple[float, float, float]] = dataclasses.field(
        default_factory=list
    )

    @property
    def largest_peak(self) -> float:
        """MB of the largest process at its peak."""
        return max(self.peaks.values(), default=0.0)


def _family(process: int) -> list[int]:
    """A process and what it started."""
    found = [process]
    try:
        path = pathlib.Path(f"/proc/{process}/task/{process}/children")
        # Workers are started by the main thread.
        for child in path.read_text().split():
            found += _family(int(child))
    except OSError:
        pass
    return found


def _memory(process: int) -> tuple[float, float]:
    """Resident MB now and at the peak; zeros for a process that ended."""
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    values = dict(line.split(":", 1) for line in lines)
    return tuple(
        int(values.get(name, "0 kB").split()[0]) / 1e3
        for name in ("VmRSS", "VmHWM")
    )


def _watch(process: subprocess.Popen, measured: Measured) -> None:
    started = time.perf_counter()
    while process.poll() is None:
        now = []
        for member in _family(process.pid):
            resident, peak = _memory(member)
            now.append(resident)
            measured.peaks[member] = max(measured.peaks.get(member, 0.0), peak)
        measured.trace.append(
            (time.perf_counter() - started, max(now), sum(now))
        )
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def run(
    command: Sequence[str], cores: int | None = None, watch: bool = False
) -> Measured:
    """Runs a command to its end.

    Args:
      command: what to run.
      cores: how many processors it may use; None for all.
      watch: whether to look at its memory.
    """
    allowed = sorted(os.sched_getaffinity(0))[-(cores or 0) :]
    measured = Measured()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, allowed)), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watcher = threading.Thread(target=_watch, args=(process, measured))
    if watch:
        watcher.start()
    measured.output, errors = process.communicate()
    measured.seconds = time.perf_counter() - started
    if watch:
        watcher.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured.cpu_seconds = sum(
        getattr(after, name) - getattr(before, name)
        for name in ("ru_utime", "ru_stime")
    )
    if process.returncode:
        raise UserError(f"{' '.join(command)}: {errors[-2000:]}")
    return measured
