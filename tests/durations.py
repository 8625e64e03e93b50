"""Writes tests/durations.json of what a session measured (`make durations`).

    python -m tests.durations FOLDER

FOLDER has the files that pytest wrote for --measure. Files of tests that exist
and were not measured keep their records. `merge_lane` has what the tests of a
room use in the merge lane, and `accepted` what it may be: a room's figure there
is changed by hand, with the reason in the commit's message.
"""

import json
import pathlib
import platform
import subprocess
import sys
import time
from collections import defaultdict

from tests.lanes import DURATIONS, LIMIT, RECORDED, ROOT, room_of


def main(folder: str) -> None:
    """Renews the records by the measurements in a folder."""
    measured: dict[str, tuple[float, bool]] = {}
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, used, witness = json.loads(line)
            measured[name] = used, witness
    before = json.loads(DURATIONS.read_text(encoding="utf-8"))
    before["seconds"] = {
        path: tests
        for path, tests in before["seconds"].items()
        if (ROOT / path).exists()
    }
    renewed = record(measured, before)
    DURATIONS.write_text(f"{json.dumps(renewed, indent=1)}\n")
    lane = sum(renewed["merge_lane"].values())
    total = sum(used for used, _ in measured.values())
    print(
        f"{len(measured)} tests took {total:.0f} processor seconds; the merge "
        f"lane {lane:.0f}; ten million additions {renewed['loop']} s"
    )


def record(measured: dict[str, tuple[float, bool]], before: dict) -> dict:
    """Returns the contents of tests/durations.json.

    Args:
      measured: processor seconds of each test, and whether it is a witness.
      before: the present contents.
    """
    seconds = dict(before.get("seconds", {}))
    merge_lane = dict(before.get("merge_lane", {}))
    rooms: dict[str, float] = defaultdict(float)
    for path in {name.split("::")[0] for name in measured}:
        seconds[path] = {}
    for name, (used, witness) in sorted(measured.items()):
        path, _, test = name.partition("::")
        if used >= RECORDED:
            seconds[path][test] = used
        rooms[room_of(name)] += used * (witness or used < LIMIT)
    merge_lane |= {room: round(used, 1) for room, used in rooms.items()}
    return {
        "commit": subprocess.check_output(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, text=True
        ).strip(),
        "machine": _processor(),
        "loop": additions(),
        "accepted": merge_lane | before.get("accepted", {}),
        "merge_lane": dict(sorted(merge_lane.items())),
        "seconds": {
            path: tests for path, tests in sorted(seconds.items()) if tests
        },
    }


def additions() -> float:
    """Returns the seconds of ten million additions in a Python loop.

    Its variables are global, as those of a script's loop.
    """
    start = time.process_time()
    exec("total = 0\nfor number in range(10_000_000):\n    total += number", {})
    return round(time.process_time() - start, 2)


def _processor() -> str:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        (name,) = {
            line.partition(":")[2].strip()
            for line in text.splitlines()
            if line.startswith("model name")
        }
    except (OSError, ValueError):
        name = platform.processor()
    return name


if __name__ == "__main__":
    main(sys.argv[1])
