"""The devices of a run, and its workers as TF_CONFIG names them."""

import dataclasses
import json
import os
import socket
import time
from typing import Self

from bert_tf.errors import UserError
from bert_tf.sharding import Shard


@dataclasses.dataclass(frozen=True)
class Devices:
    """Settings of the devices, which do not change what a run computes.

    Attributes:
      logical_cpus: number of devices to split the CPU into, which lets
        "mirrored" run without GPUs; 0 for no split. Takes effect only before
        TensorFlow first uses its devices.
      tpu: name or address of the TPU; "local" on a TPU VM.
      worker_timeout: seconds to wait for the other workers of a run.
    """

    logical_cpus: int = 0
    tpu: str = ""
    worker_timeout: float = 600.0


DEFAULT_DEVICES = Devices()

_VARIABLE = "TF_CONFIG"
_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
_SECONDS_BETWEEN_CALLS = 0.2


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a run.

    Attributes:
      workers: host:port of each; the first one, the chief, writes the files.
      index: index of this process.
    """

    workers: tuple[str, ...] = ("",)
    index: int = 0

    @classmethod
    def from_environment(cls) -> Self:
        """Reads TF_CONFIG.

        Raises:
          UserError: it is missing, not JSON, or describes no cluster of
            workers with this process in it.
        """
        text = os.environ.get(_VARIABLE, "")
        if not text.strip():
            raise UserError(
                f"`strategy`=multi_worker: {_VARIABLE} is not set; set it on "
                f"every worker, the index counting up: {_EXAMPLE}."
            )
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise _malformed(
                f"is not JSON ({error.msg}, column {error.colno})"
            ) from None
        cluster, task = _entry(content, "cluster"), _entry(content, "task")
        other = sorted(set(cluster) - {"chief", "worker"})
        if other:
            raise _malformed(
                f"has tasks of type {other[0]!r}; all are of type worker, and "
                "at most one is the chief"
            )
        chiefs = _addresses(cluster.get("chief", []), "chief")
        workers = _addresses(cluster.get("worker", []), "worker")
        if len(chiefs) > 1:
            raise _malformed(f"names {len(chiefs)} chiefs; there is one")
        everyone = (*chiefs, *workers)
        if not everyone:
            raise _malformed("names no worker")
        twice = [name for name in everyone if everyone.count(name) > 1]
        if twice:
            raise _malformed(f"names {twice[0]} more than once")
        kind, index = task.get("type"), task.get("index", 0)
        addresses = {"chief": chiefs, "worker": workers}
        if kind not in addresses:
            raise _malformed(f"has task type {kind!r}, not worker or chief")
        if type(index) is not int or not 0 <= index < len(addresses[kind]):
            raise _malformed(
                f"has task index {index!r}, but {len(addresses[kind])} of type "
                f"{kind}"
            )
        return cls(everyone, index + (kind == "worker") * len(chiefs))

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.index == 0

    @property
    def shard(self) -> Shard:
        """This worker's part of every batch."""
        return Shard(self.index, len(self.workers))

    def name(self, index: int) -> str:
        """Returns the name of a worker in messages."""
        return f"worker {index} ({self.workers[index]})"

    def wait_for_all(self, seconds: float) -> None:
        """Waits until every worker answers at its address.

        TensorFlow would wait silently and forever. Meanwhile this process
        listens at its own address.

        Raises:
          UserError: this worker's address is in use or not of this machine, or
            a worker did not start in time.
        """
        deadline = time.monotonic() + seconds
        missing = set(range(len(self.workers))) - {self.index}
        with self._listen():
            while missing:
                missing -= {i for i in missing if answers(self.workers[i])}
                if not missing:
                    return
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{self.name(self.index)} waited {seconds:g} s for "
                        f"{' and '.join(map(self.name, sorted(missing)))}; "
                        f"start it, or correct its address in {_VARIABLE} "
                        "(`worker_timeout` sets how long to wait)."
                    )
                time.sleep(_SECONDS_BETWEEN_CALLS)

    def _listen(self) -> socket.socket:
        own = _host_and_port(self.workers[self.index])
        assert own is not None
        _, port = own
        both = socket.has_dualstack_ipv6()
        try:
            return socket.create_server(
                ("", port),
                family=socket.AF_INET6 if both else socket.AF_INET,
                backlog=len(self.workers) + 8,
                dualstack_ipv6=both,
            )
        except OSError as error:
            raise UserError(
                f"{self.name(self.index)}: cannot listen at port {port} "
                f"({error.strerror}); end the process that does, or choose "
                f"another port in {_VARIABLE} on every worker."
            ) from None


def _malformed(what: str) -> UserError:
    return UserError(f"{_VARIABLE}: {what}; an example is {_EXAMPLE}.")


def _entry(content: object, name: str) -> dict[str, object]:
    value = content.get(name) if isinstance(content, dict) else None
    if not isinstance(value, dict):
        raise _malformed(f"has no object {name!r}")
    return value


def _addresses(value: object, kind: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _malformed(f"{kind} is no list of addresses")
    for address in value:
        if not isinstance(address, str) or _host_and_port(address) is None:
            raise _malformed(f"{address!r} of {kind} is not host:port")
    return tuple(value)


def _host_and_port(address: str) -> tuple[str, int] | None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return None
    return host.strip("[]"), int(port)


def answers(address: str) -> bool:
    """Returns whether a process listens at host:port."""
    host_and_port = _host_and_port(address)
    assert host_and_port is not None
    try:
        # Two seconds suffice between continents.
        socket.create_connection(host_and_port, timeout=2).close()
    except OSError:
        return False
    return True
