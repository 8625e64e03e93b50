"""The memory that this process may still use on its machine."""

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from bert_tf.errors import UserError


class _Hierarchy(NamedTuple):
    """How a version of Linux' control groups states memory.

    Attributes:
      folder: its mount point.
      limit, usage: files of the largest and the used bytes of a group.
      cache: the key in memory.stat of the bytes that are freed when needed.
    """

    folder: str
    limit: str
    usage: str
    cache: str


_VERSION_1 = _Hierarchy(
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)
_VERSION_2 = _Hierarchy(
    "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
)


def available_memory(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Returns the bytes that are available to this process.

    They are those of the machine, or less in a container or another control
    group with a limit (Linux, Documentation/admin-guide/cgroup-v1/memory.rst
    and cgroup-v2.rst).

    Args:
      root: the folder of proc and sys.

    Raises:
      UserError: the system does not report it.
    """
    match = re.search(r"MemAvailable:\s*(\d+) kB", _text(root / "proc/meminfo"))
    if match is None:
        raise UserError(
            "this system does not report its free memory; give `memory`."
        )
    return min([1024 * int(match[1]), *_left_in_groups(root)])


def _left_in_groups(root: pathlib.Path) -> Iterator[int]:
    """Yields the bytes left in each control group that has a limit."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            files = _VERSION_2
        elif "memory" in controllers.split(","):
            files = _VERSION_1
        else:
            continue
        top = root / files.folder
        # In a container, the path may be that of the host.
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(top):
                break
            limit, usage = (
                _text(folder / name).strip()
                for name in (files.limit, files.usage)
            )
            if limit.isdigit() and usage.isdigit():
                stated = re.search(
                    rf"^{files.cache} (\d+)$",
                    _text(folder / "memory.stat"),
                    re.MULTILINE,
                )
                cache = int(stated[1]) if stated else 0
                yield max(int(limit) - int(usage) + cache, 0)


def kills_for_memory() -> int | None:
    """Returns how many processes Linux has killed for lack of memory."""
    match = re.search(
        r"^oom_kill (\d+)$", _text(pathlib.Path("/proc/vmstat")), re.M
    )
    return int(match[1]) if match else None


def _text(path: pathlib.Path) -> str:
    """Returns the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
