"""Processes on the loopback that run one command together."""

import json
import pathlib
import socket
import time

from tests.commands import Command


def free_addresses(count: int) -> list[str]:
    """Addresses on this machine at which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for one in sockets:
        one.close()
    return addresses


class Workers:
    """The workers of a run, each a process.

    Args:
      count: how many.
      arguments: module and flags that every worker gets.
      log_dir: takes what each prints, in worker_N.log.
    """

    def __init__(self, count: int, arguments: list[str], log_dir: pathlib.Path):
        self.addresses = free_addresses(count)
        self.arguments = arguments
        self.log_dir = log_dir
        log_dir.mkdir(parents=True, exist_ok=True)
        self.processes: dict[int, Command] = {}

    def start(self, index: int, *more: str) -> None:
        """Starts a worker, or starts it again, with further flags."""
        config = {
            "cluster": {"worker": self.addresses},
            "task": {"type": "worker", "index": index},
        }
        self.processes[index] = Command(
            *self.arguments,
            *more,
            log=self._log(index),
            environment={"TF_CONFIG": json.dumps(config)},
        )

    def start_all(self) -> None:
        """Starts every worker."""
        for index in range(len(self.addresses)):
            self.start(index)

    def wait(self, seconds: float = 240.0) -> dict[int, int]:
        """Waits for all to end; worker to exit code."""
        deadline = time.monotonic() + seconds
        try:
            return {
                index: process.wait(max(deadline - time.monotonic(), 0.1))
                for index, process in self.processes.items()
            }
        finally:
            self.stop()

    def stop(self) -> None:
        """Kills what still runs."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _log(self, index: int) -> pathlib.Path:
        return self.log_dir / f"worker_{index}.log"

    def printed(self, index: int) -> str:
        """What a worker printed so far."""
        return self._log(index).read_text(encoding="utf-8", errors="replace")
