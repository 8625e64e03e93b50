"""Which tests CI runs, and when."""

import json
import pathlib
import subprocess
import sys
import time

import pytest

from tests import durations, import_graph, lanes

pytest_plugins = ["pytester"]
ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = json.loads(lanes.DURATIONS.read_text(encoding="utf-8"))
# Measurements of a room differ by as much, in processor seconds.
NOISE = 5.0


@pytest.mark.parametrize("room", RECORDS["accepted"])
def test_no_room_grows_by_more_than_a_fifth(room):
    """More time in the merge lane needs a new figure in `accepted`."""
    used, accepted = (RECORDS[key][room] for key in ("merge_lane", "accepted"))
    assert used <= 1.2 * accepted + NOISE, (
        f"the tests of {room} take {used} processor seconds in the merge lane, "
        f"{accepted} are accepted: make them cheaper, or change durations.json"
    )


def test_records_are_of_tests_that_exist():
    """`make durations` renews the records of files that are gone."""
    paths = {test.split("::")[0] for test in lanes.seconds_by_test()}
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    rooms = {lanes.room_of(f"{path}::test") for path in paths}
    assert rooms <= set(RECORDS["accepted"])


def test_quarters_are_of_similar_length_and_have_every_file():
    seconds = {f"tests/test_{n}.py": 40.0 / (n + 1) for n in range(40)}
    quarter = lanes.quarters(seconds)
    assert set(quarter) == set(seconds)
    totals = [
        sum(seconds[path] for path in seconds if quarter[path] == number)
        for number in (1, 2, 3, 4)
    ]
    assert max(totals) < 1.1 * min(totals)
    shuffled = dict(reversed(seconds.items()))
    assert lanes.quarters(shuffled) == quarter


def test_durations_renew_measured_files_and_keep_what_is_accepted():
    before = {
        "accepted": {"text": 3.0},
        "merge_lane": {"text": 3.0, "layers": 1.0},
        "seconds": {
            "tests/text/test_a.py": {"test_gone": 3.0},
            "tests/layers/test_b.py": {"test_other": 1.0},
        },
    }
    measured = {
        "tests/text/test_a.py::test_x[a::b]": (1.9, False),
        "tests/text/test_a.py::test_short": (0.4, False),
        "tests/text/test_a.py::test_long": (9.0, False),
        "tests/test_top.py::test_witness": (8.0, True),
    }
    after = durations.record(measured, before)
    assert after["seconds"] == {
        "tests/layers/test_b.py": {"test_other": 1.0},
        "tests/test_top.py": {"test_witness": 8.0},
        "tests/text/test_a.py": {"test_long": 9.0, "test_x[a::b]": 1.9},
    }
    lane = {"layers": 1.0, "test_top.py": 8.0, "text": 2.3}
    assert after["merge_lane"] == lane
    assert after["accepted"] == lane | {"text": 3.0}


TESTS = """
    import pytest

    def test_short(): pass
    @pytest.mark.witness("kept")
    def test_witness(): pass
    def test_long(): pass
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """Runs pytest on two files with the plugin, and returns what it prints."""
    for name in ("one", "two"):
        pytester.makepyfile(**{f"tests/test_{name}": TESTS})
    records = {
        "seconds": {
            "tests/test_one.py": {"test_long": 9.0, "test_witness": 9.0},
            "tests/test_two.py": {"test_long": 20.0},
        }
    }
    path = pytester.path / "durations.json"
    path.write_text(json.dumps(records))
    monkeypatch.setattr(lanes, "DURATIONS", path)

    def run(*options: str) -> list[str]:
        result = pytester.inline_run("-p", "tests.lanes", *options)
        passed, skipped, failed = result.listoutcomes()
        assert (skipped, failed) == ([], [])
        return [report.nodeid.partition("_")[2] for report in passed]

    return run


@pytest.mark.parametrize(
    ("lane", "expected"),
    [
        ("all", ["two.py::test_short", "two.py::test_witness"]),
        ("merge", ["one.py::test_short", "one.py::test_witness"]),
        ("rest", ["two.py::test_long", "one.py::test_long"]),
        ("short", ["two.py::test_short", "two.py::test_witness"]),
    ],
)
def test_a_lane_runs_its_tests_the_longest_file_first(session, lane, expected):
    assert session(f"--lane={lane}")[:2] == expected


def test_quarters_run_every_test_of_the_rest_once(session):
    found = [session("--lane=rest", f"--quarter={n}") for n in (1, 2, 3, 4)]
    assert found == [["two.py::test_long"], ["one.py::test_long"], [], []]


def test_tests_that_may_end_too_late_are_not_started(session, capsys):
    started = session(f"--until={time.time() + 15}")
    assert "two.py::test_long" not in started
    assert len(started) == 5
    printed = capsys.readouterr().out
    assert "not started" in printed
    assert "tests/test_two.py::test_long" in printed


def test_measured_seconds_have_those_of_child_processes():
    before = lanes.process_seconds()
    code = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert 0.4 < lanes.process_seconds() - before < 5.0


@pytest.mark.parametrize(
    ("changed", "chosen", "others"),
    [
        (
            "bert_tf/sharing/push.py",
            ["tests/sharing/test_push.py"],
            ["tests/text/test_unigram.py", "tests/server/test_rest.py"],
        ),
        # Imported by name from the list of architectures.
        (
            "bert_tf/encoders/modernbert.py",
            ["tests/contracts/test_architectures.py"],
            ["tests/records/test_masking.py"],
        ),
        # Commands and tasks are named in strings.
        (
            "tasks/mrpc.py",
            ["tests/contracts/test_tasks.py"],
            ["tests/layers/test_attention.py"],
        ),
        (
            "docs/serving.md",
            ["tests/inference/test_serving_docs.py"],
            ["tests/server/test_rest.py"],
        ),
        # A file of data is a change of the modules beside it.
        (
            "bert_tf/server/page/page.js",
            ["tests/server/test_page.py"],
            ["tests/text/test_unigram.py"],
        ),
        ("tests/relatives.py", ["tests/test_relatives.py"], []),
        # Imported by its name.
        (
            "bert_tf/families/text_classification/checks.py",
            ["tests/families/test_checks.py"],
            [],
        ),
    ],
)
def test_a_change_chooses_the_tests_that_depend_on_it(changed, chosen, others):
    found = import_graph.affected_tests([changed])
    assert set(chosen) <= found
    assert not set(others) & found


def test_changed_files_are_those_of_the_commits_since():
    head = subprocess.check_output(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, text=True
    ).strip()
    assert isinstance(import_graph.changed_files(head), list)
    assert import_graph.changed_files("0" * 40) is None
