"""Runs of a plan: order, workers, failures, kills, several machines."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from bert_tf.errors import RunStopped
from bert_tf.experiments import running
from bert_tf.experiments.running import (
    RUNS,
    Plan,
    Run,
    RunFolders,
    Runner,
    duration,
)
from bert_tf.files import lock_now
from tests.user_errors import error_of

# In other processes.
SCRIPT = """
import pathlib, sys
sys.path.insert(0, {root!r})
from tests.experiments.test_running import *
running._POLL_SECONDS = 0.02
runner(plan_of({plan}), pathlib.Path({folder!r})).run()
"""
# A command that resumes: counts to --steps, and keeps the count in its folder.
COUNT = textwrap.dedent(
    """
    import os, pathlib, sys, time
    given = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[2:])
    folder = pathlib.Path(given["output_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    if "fail" in given:
        sys.exit("error: --fail: " + given["fail"])
    count = folder / "count"
    done = int(count.read_text()) if count.exists() else 0
    for number in range(done, int(given["steps"])):
        time.sleep(float(given.get("seconds", 0)))
        (folder / "new").write_text(str(number + 1))
        os.replace(folder / "new", count)
        with open(folder / "starts", "a") as file:
            file.write(f"{done} {number}\\n")
    with open(folder.parent / "order", "a") as file:
        file.write(folder.name + "\\n")
    """
)


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch) -> None:
    monkeypatch.setattr(running, "_POLL_SECONDS", 0.02)


def start(folder: pathlib.Path, plan: str) -> subprocess.Popen:
    """Another process that does the same plan, given as Python."""
    root = str(pathlib.Path.cwd())
    script = SCRIPT.format(root=root, plan=plan, folder=str(folder))
    return subprocess.Popen([sys.executable, "-c", script])


def run(name: str, *needs: str, **flags: object) -> Run:
    """A run of the command above."""
    given = [f"--{key}={value}" for key, value in flags.items()]
    return Run(
        name=name,
        tool="count",
        arguments=(f"--output_dir={RUNS}/{name}", *given),
        needs=needs,
        work=1.0,
    )


def plan_of(*runs: Run) -> Plan:
    """A plan of runs, in their order."""
    return Plan({each.name: each for each in runs}, {})


def runner(
    plan: Plan, folder: pathlib.Path, workers: int = 1, finished=lambda: None
) -> Runner:
    """What does a plan with the command above."""
    return Runner(
        plan,
        RunFolders(folder),
        running.Commands(
            program=[sys.executable, "-c", COUNT],
            this="",
        ),
        workers,
        finished,
    )


def order(folder: pathlib.Path) -> list[str]:
    """The runs in the order in which they ended."""
    return (folder / "order").read_text().split()


@pytest.mark.parametrize("workers", [1, 3])
def test_what_a_run_needs_is_done_before(tmp_path, workers):
    plan = plan_of(
        run("last", "middle", "first", steps=1),
        run("middle", "first", steps=1),
        run("first", steps=2, seconds=0.1),
    )
    calls: list[int] = []
    runner(plan, tmp_path, workers, lambda: calls.append(1)).run()
    assert order(tmp_path) == ["first", "middle", "last"]
    assert len(calls) == 3
    marker = json.loads((tmp_path / "first.json").read_text())
    flags = f"--output_dir={tmp_path}/first --steps=2 --seconds=0.1"
    assert marker["command"] == f"bert-tf count {flags}"
    assert marker["seconds"] >= 0.2
    # Finished runs are skipped.
    more = Plan({**plan.runs, "more": run("more", "last", steps=1)}, {})
    runner(more, tmp_path, workers).run()
    assert order(tmp_path) == ["first", "middle", "last", "more"]


def test_failure_is_one_line_and_others_end(tmp_path):
    plan = plan_of(
        run("slow", steps=4, seconds=0.2),
        run("bad", fail="no such thing."),
        run("after", "bad", steps=1),
    )
    line = error_of(runner(plan, tmp_path, 2).run)
    assert "bad: --fail: no such thing." in line
    assert f"{tmp_path / 'bad.log'}" in line
    assert (tmp_path / "slow.json").is_file()
    assert not (tmp_path / "bad.json").exists()
    assert not (tmp_path / "after").exists()


def test_a_damaged_marker_names_its_file(tmp_path):
    (tmp_path / "first.json").write_text("{}")
    line = error_of(runner, plan_of(run("first", steps=1)), tmp_path)
    assert str(tmp_path / "first.json") in line


def test_sigterm_is_passed_on_and_the_rest_resumes(tmp_path):
    plan = plan_of(run("first", steps=40, seconds=0.02), run("then", steps=1))
    doing = runner(plan, tmp_path)
    show = doing._show

    def stop_soon() -> None:
        if (tmp_path / "first" / "count").exists():
            os.kill(os.getpid(), signal.SIGTERM)
        show()

    doing._show = stop_soon  # type: ignore[method-assign]
    with pytest.raises(RunStopped, match="2 of 2 runs are left"):
        doing.run()
    before = int((tmp_path / "first" / "count").read_text())
    assert 0 < before < 40
    runner(plan, tmp_path).run()
    starts = (tmp_path / "first" / "starts").read_text().split()
    assert starts[-2:] == [str(before), "39"]
    assert order(tmp_path) == ["first", "then"]


def test_a_killed_runner_leaves_its_run_the_lock(tmp_path):
    process = start(tmp_path, "run('first', steps=30, seconds=0.05)")
    while not (tmp_path / "first" / "count").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    # Its command continues, and no other process takes the run.
    assert lock_now(tmp_path / "first.lock") is None
    runner(plan_of(run("first", steps=30, seconds=0.05)), tmp_path).run()
    rows = (tmp_path / "first" / "starts").read_text().splitlines()
    assert [int(row.split()[1]) for row in rows] == list(range(30))


def test_two_machines_share_the_runs(tmp_path):
    plan = "*(run(f'run{n}', steps=3, seconds=0.05) for n in range(4))"
    processes = [start(tmp_path, plan) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert sorted(order(tmp_path)) == [f"run{n}" for n in range(4)]


def test_time_left_is_estimated_from_finished_runs(tmp_path):
    plan = plan_of(*(run(f"run{n}", steps=1) for n in range(3)))
    doing = runner(plan, tmp_path)
    assert doing.seconds_left() is None
    marker = {"command": "x", "seconds": 130.0}
    (tmp_path / "run0.json").write_text(json.dumps(marker))
    # Thirty seconds of each are no steps.
    assert runner(plan, tmp_path).seconds_left() == pytest.approx(260.0)
    assert duration(3725) == "1 h 2 min"
    assert duration(65) == "1 min 5 s"
