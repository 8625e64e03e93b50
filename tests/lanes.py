"""Which tests run: lanes, quarters, the tests of a change, and the time left.

tests/durations.json holds the processor seconds of every test that takes more
than half a second; `make durations` renews it. The merge lane has the tests
below `LIMIT` seconds and those with the mark `witness`, one expensive test for
a promise that no cheap test proves. All other tests are the rest, which CI runs
by quarters. The short tests, without a record, run on other versions of Python.
"""

import contextlib
import json
import os
import pathlib
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests import import_graph

ROOT = pathlib.Path(__file__).resolve().parent.parent
DURATIONS = ROOT / "tests" / "durations.json"
# Processor seconds above which a test leaves the merge lane, and below which it
# is not recorded.
LIMIT, RECORDED = 2.0, 0.5
NUM_QUARTERS = 4
# What a test without a record is taken for, in seconds.
SHORT = 0.05
# A change of these may affect every test.
EVERYTHING = (
    *("bert_tf/text/", "bert_tf/layers/", "bert_tf/recipe.py"),
    *("tests/conftest.py", "tests/lanes.py", "requirements"),
)
_NOTES = pytest.StashKey[dict[str, list[str]]]()


def seconds_by_test() -> dict[str, float]:
    """Returns the recorded processor seconds by the id of the test."""
    files = json.loads(DURATIONS.read_text(encoding="utf-8"))["seconds"]
    return {
        f"{path}::{name}": seconds
        for path, tests in files.items()
        for name, seconds in tests.items()
    }


def room_of(node_id: str) -> str:
    """Returns the folder of tests/ that a test is in, or its file there."""
    return node_id.split("::")[0].split("/")[1]


def quarters(seconds: dict[str, float]) -> dict[str, int]:
    """Divides files into quarters of similar length.

    Args:
      seconds: processor seconds of each file.

    Returns:
      The quarter of each file, from 1 on.
    """
    totals = [0.0] * NUM_QUARTERS
    quarter = {}
    for path in sorted(seconds, key=lambda path: (-seconds[path], path)):
        shortest = totals.index(min(totals))
        totals[shortest] += seconds[path]
        quarter[path] = shortest + 1
    return quarter


def process_seconds() -> float:
    """Returns the processor seconds of this process and all below it."""
    ticks, processes = 0, [os.getpid()]
    while processes:
        folder = pathlib.Path("/proc", str(processes.pop()))
        # A process that has ended meanwhile left its ticks to its parent, and
        # a thread that has ended left its children to another.
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            # User and system time, its own and that of waited-for children.
            ticks += sum(map(int, fields[11:15]))
        for children in folder.glob("task/*/children"):
            with contextlib.suppress(OSError):
                processes += map(int, children.read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options that the Makefile's targets use."""
    group = parser.getgroup("lanes")
    add = group.addoption
    add(
        "--lane",
        choices=("short", "merge", "rest", "all"),
        default="all",
        help="tests of this lane",
    )
    add(
        "--quarter",
        type=int,
        choices=range(1, NUM_QUARTERS + 1),
        help="of these tests, a quarter",
    )
    add(
        "--affected-since",
        metavar="COMMIT",
        help="besides the quarter, tests that changes since may affect",
    )
    add(
        "--until",
        type=float,
        default=float("inf"),
        metavar="TIME",
        help="start no test that may end after it, in seconds since 1970",
    )
    add("--measure", metavar="FOLDER", help="record processor seconds here")
    add("--promises", action="store_true", help="list witnesses, run nothing")


def pytest_configure(config: pytest.Config) -> None:
    """Prepares the notes on this session's tests."""
    config.stash[_NOTES] = {"chosen": [], "not started": []}
    if folder := config.getoption("measure"):
        config.pluginmanager.register(Measurement(pathlib.Path(folder)))
    if config.getoption("until") < float("inf"):
        config.pluginmanager.register(TimeLeft(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves the tests of the lane and quarter, the longest files first."""
    seconds = seconds_by_test()
    if config.getoption("promises"):
        _list_promises(items, seconds)
        items.clear()
        return
    lane = config.getoption("lane")
    chosen = [item for item in items if _is_in(item, lane, seconds)]
    by_file: dict[str, float] = defaultdict(float)
    for item in chosen:
        by_file[_file_of(item)] += seconds.get(item.nodeid, SHORT)
    if config.getoption("quarter"):
        files = _files_of_quarter(config, by_file)
        chosen = [item for item in chosen if _file_of(item) in files]
    ids = {item.nodeid for item in chosen}
    config.hook.pytest_deselected(
        items=[item for item in items if item.nodeid not in ids]
    )
    # Files stay together, since their tests share what they prepare.
    items[:] = sorted(
        chosen, key=lambda item: (-by_file[_file_of(item)], _file_of(item))
    )


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def _is_in(item: pytest.Item, lane: str, seconds: dict[str, float]) -> bool:
    """Returns whether a test is in a lane."""
    if lane in ("merge", "rest"):
        used = seconds.get(item.nodeid, 0.0)
        merged = is_witness(item) or used < LIMIT
        return merged == (lane == "merge")
    return lane == "all" or item.nodeid not in seconds


def is_witness(item: pytest.Item) -> bool:
    """Returns whether a test has the mark `witness`."""
    return item.get_closest_marker("witness") is not None


def _files_of_quarter(
    config: pytest.Config, seconds: dict[str, float]
) -> set[str]:
    """Returns the files of the quarter and those that a change affects."""
    number = config.getoption("quarter")
    quarter = quarters(seconds)
    files = {path for path in seconds if quarter[path] == number}
    chosen = config.stash[_NOTES]["chosen"]
    chosen.append(f"quarter {number} of {NUM_QUARTERS}: {len(files)} files")
    if since := config.getoption("affected_since"):
        changed = import_graph.changed_files(since)
        if changed is None or any(p.startswith(EVERYTHING) for p in changed):
            chosen.append(f"changes since {since} may affect every test")
            return set(seconds)
        affected = import_graph.affected_tests(changed) & set(seconds)
        chosen.append(f"affected by changes since {since}: {len(affected)}")
        chosen += [f"  {path}" for path in sorted(affected)]
        files |= affected
    return files


def _list_promises(items: list[pytest.Item], seconds: dict) -> None:
    for item in items:
        if mark := item.get_closest_marker("witness"):
            used = seconds.get(item.nodeid, 0.0)
            print(f"{mark.args[0]} | {item.nodeid} | {used:.1f}")


class Measurement:
    """Writes the processor seconds of each test in a file of this process."""

    def __init__(self, folder: pathlib.Path):
        self.path = folder / f"{os.getpid()}.jsonl"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measures a test with the fixtures that are set up for it."""
        before = process_seconds()
        result = yield
        used = round(process_seconds() - before, 2)
        with self.path.open("a", encoding="utf-8") as file:
            record = [item.nodeid, used, is_witness(item)]
            file.write(f"{json.dumps(record)}\n")
        return result


class TimeLeft:
    """Starts no test that may end too late, and notes those tests."""

    def __init__(self, config: pytest.Config):
        self.until = config.getoption("until")
        self.seconds = seconds_by_test()
        self.not_started = config.stash[_NOTES]["not started"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Returns True, which means done, for a test that is left out."""
        expected = self.seconds.get(item.nodeid, SHORT)
        if time.time() + expected <= self.until:
            return None
        self.not_started.append(item.nodeid)
        # The test before has left set up what it shares with this one.
        item.session._setupstate.teardown_exact(nextitem)
        return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Sends the notes of a process of pytest-xdist to its parent."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["notes"] = session.config.stash[_NOTES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Takes over the notes of a process of pytest-xdist."""
    notes = node.config.stash[_NOTES]
    of_process = getattr(node, "workeroutput", {}).get("notes", {})
    # All processes choose the same tests.
    notes["chosen"] = of_process.get("chosen", [])
    notes["not started"] += of_process.get("not started", [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints which tests were chosen and which were not started."""
    for title, lines in config.stash[_NOTES].items():
        if lines:
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.line(line)
