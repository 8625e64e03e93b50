import pathlib
import subprocess
import sys

import pytest

from bert_tf import progress
from bert_tf.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What tqdm.auto asks of a process that shows its output in a notebook.
KERNEL = """
import sys, types

def module(name, **values):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(values)

class ZMQInteractiveShell: pass
class Widget:
    def __init__(self, children=(), **values):
        self.children, self.layout = children, types.SimpleNamespace()
        self.style, self.bar_style = types.SimpleNamespace(), ''
        self.__dict__.update(values)

displayed = []
module("ipykernel.zmqshell")
module("IPython", get_ipython=ZMQInteractiveShell)
module("IPython.display", display=displayed.append)
if sys.argv[1] == "widgets":
    module("ipywidgets", HTML=Widget, FloatProgress=Widget, HBox=Widget)
from bert_tf.progress import Progress
with Progress("training", 4, 1, " steps") as bar:
    bar.update(3, "loss 0.1")
    bar.log("in between")
with Progress("unseen", 4, 0, " steps", shown=False) as bar:
    bar.update(4)
for container in displayed:
    left, middle, right = container.children
    print(left.value, middle.max, middle.value, right.value)
"""


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be changed."""
    time = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: time[0])
    return time


def test_a_log_gets_a_line_now_and_then(now, capsys) -> None:
    with Progress("writing", 100, 20, " files") as bar:
        for _ in range(8):
            now[0] += 16.0
            bar.update(10, "all well")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert "writing:  40%" in lines[0]
    assert lines[-1].startswith("writing: 100%")
    assert "100/100" in lines[-1]
    assert "all well" in lines[-1]


def test_the_time_left_is_that_of_the_work_that_follows_too(
    now, capsys
) -> None:
    with progress.followed_by(0.5), Progress("training", 9, 1, " steps") as bar:
        for _ in range(2):
            now[0] += 80.0
            bar.update(2, "all well")
    lines = capsys.readouterr().err.splitlines()
    # 40 seconds a step: 6 steps and half of 8, then 4 steps and half of 8.
    assert "06:40 left in all, all well" in lines[0]
    assert "05:20 left in all, all well" in lines[1]
    with Progress("training", 9, 1, " steps") as bar:
        bar.update(2, "all well")
    assert "in all" not in capsys.readouterr().err


def test_short_work_leaves_a_last_line(capsys) -> None:
    with Progress("writing", 3, 0, " files") as bar:
        bar.update(3)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("writing: 100%")
    with Progress("writing", 3, 0, " files", shown=False) as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""


def test_a_part_of_other_work_is_shown_when_it_takes_long(
    now, monkeypatch, capsys
) -> None:
    for seconds, lines in ((1.0, 0), (20.0, 2)):
        with Progress("answering", 4, 0, " rows", passing=True) as bar:
            for _ in range(4):
                now[0] += seconds
                bar.update(1)
        assert len(capsys.readouterr().err.splitlines()) == lines
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    with Progress("answering", 4, 0, " rows", passing=True) as bar:
        bar.update(4)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch, capsys) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    with Progress("reading", 2000, 0, "B") as bar:
        bar.update(2000)
    assert "2.00k/2.00k" in capsys.readouterr().err


@pytest.mark.parametrize("widgets", ["widgets", "text"])
def test_a_notebook_gets_a_bar(widgets: str) -> None:
    """With ipywidgets one of Jupyter's own, and else one of text."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KERNEL, widgets],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.replace("\u2007", " ").splitlines()
    assert printed[0] == "in between"
    if widgets == "widgets":
        (bar,) = printed[1:]
        assert bar.startswith("training: 100% 4 4  4/4 [")
        assert "loss 0.1" in bar
        assert done.stderr == ""
    else:
        assert "4/4 [" in done.stderr
        assert "Warning" not in done.stderr
        assert "unseen" not in done.stderr
