import pytest

from bert_tf import progress
from bert_tf.progress import Progress


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
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


def test_short_work_leaves_a_last_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress("writing", 3, 0, " files") as bar:
        bar.update(3)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("writing: 100%")
    with Progress("writing", 3, 0, " files", shown=False) as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""


def test_a_part_of_other_work_is_shown_when_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
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


def test_a_terminal_gets_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    with Progress("reading", 2000, 0, "B") as bar:
        bar.update(2000)
    assert "2.00k/2.00k" in capsys.readouterr().err
