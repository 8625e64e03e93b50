import json
import math

from bert_tf.report.figures import history_panels, write_learning_curve
from bert_tf.training.history import History, write_numbers


def test_rows_after_the_resumed_step_are_dropped(tmp_path):
    path = tmp_path / "history.jsonl"
    first = History(path, until=0)
    for step in (10, 20, 30):
        first.add({"step": step, "loss": step / 7})
    with open(path, "a") as file:
        file.write('{"step": 40, "lo')
    second = History(path, until=20)
    second.add({"step": 25, "eval_loss": 1.0})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [
        {"step": 10, "loss": 10 / 7},
        {"step": 20, "loss": 20 / 7},
        {"step": 25, "eval_loss": 1.0},
    ]
    assert second.series("loss") == ([10, 20], [10 / 7, 20 / 7])
    assert second.series("eval_loss") == ([25], [1.0])


def test_the_picture_shows_each_series(tmp_path):
    history = History(tmp_path / "history.jsonl", until=0)

    def draw(name, levels):
        panels = history_panels(history.rows, ["loss"], levels)
        write_learning_curve(tmp_path / name, panels, "t")

    draw("empty.png", {})
    for step in range(1, 9):
        history.add({"step": step, "loss": 1 / step})
        history.add({"step": step, "eval_loss": 2 / step})
    draw("drawn.png", {})
    draw("level.png", {"loss": {"chance": 0.5}})
    pictures = [path.read_bytes() for path in tmp_path.glob("*.png")]
    assert len(pictures) == 3
    assert all(p.startswith(b"\x89PNG") for p in pictures)
    assert len(set(pictures)) == 3


def test_what_is_no_finite_number_becomes_null(tmp_path):
    values = {"a": math.inf, "b": [1.5, math.nan], "c": {"d": 2}}
    write_numbers(tmp_path / "results.json", values)
    found = json.loads((tmp_path / "results.json").read_text())
    assert found == {"a": None, "b": [1.5, None], "c": {"d": 2}}
