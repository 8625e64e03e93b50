"""The sizes that tests/budget.json limits."""

import json

import pytest

from bert_tf.errors import first_few
from tests import budget


@pytest.mark.parametrize(
    "measure", [budget.lines_of_rooms, budget.modules_of_import]
)
def test_no_room_and_no_import_grows(measure):
    if growth := budget.growth(measure()):
        pytest.fail(growth, pytrace=False)


@pytest.mark.parametrize("walk", budget.WALKS)
def test_no_walk_grows(walk):
    if growth := budget.growth(budget.figures_of_walk(walk)):
        pytest.fail(growth, pytrace=False)


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    path = tmp_path / "budget.json"
    path.write_text('{"lines of a": 10, "lines of b": 5, "lines of gone": 3}')
    monkeypatch.setattr(budget, "BUDGET", path)
    return path


def test_a_figure_that_grows_or_is_new_is_named_with_the_remedy(recorded):
    present = {"lines of a": 10, "lines of b": 6, "lines of new": 1}
    first, second = budget.growth(present).splitlines()
    assert first.startswith("lines of b: 5 in tests/budget.json, now 6; make")
    assert second.startswith("lines of new: 0 in tests/budget.json, now 1; ")
    assert budget.growth({"lines of a": 9}) == ""


def test_the_command_prints_what_it_changes(recorded, monkeypatch, capsys):
    for name, figures in (
        ("lines_of_rooms", {"lines of a": 10, "lines of b": 6}),
        ("modules_of_import", {"modules loaded by import": 2}),
    ):
        monkeypatch.setattr(budget, name, lambda figures=figures: figures)
    monkeypatch.setattr(budget, "figures_of_walk", lambda name: {name: 1})
    budget.main()
    assert json.loads(recorded.read_text()) == {
        "lines of a": 10,
        "lines of b": 6,
        "modules loaded by import": 2,
        **dict.fromkeys(budget.WALKS, 1),
    }
    assert capsys.readouterr().out.splitlines() == [
        "lines of b: 5 -> 6",
        "lines of gone: 3 -> 0",
        "modules loaded by import: 0 -> 2",
        *(f"{name}: 0 -> 1" for name in ("load", "csv", "convert", "onnx")),
    ]


def test_lines_are_those_of_code_and_templates_in_each_room(tmp_path):
    files = ("bert_tf/a.py", "bert_tf/b.py", "bert_tf/py.typed", "tools/a.py")
    deep = ("layers/a.py", "layers/deep/a.jinja", "server/page/a.js")
    others = ("tests/layers/test_a.py", "tests/golden/a.json", "docs/a.py")
    for name in (*files, *(f"bert_tf/{path}" for path in deep), *others):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first\nsecond\nno newline at the end")
    assert budget.lines_of_rooms(tmp_path) == {
        "lines of bert_tf/*.py": 6,
        "lines of bert_tf/layers": 6,
        "lines of bert_tf/server": 3,
        "lines of tools/*.py": 3,
        "lines of tests/layers": 3,
    }


def test_files_are_entered_by_calls_not_by_imports(tmp_path):
    path = budget.ROOT / "bert_tf" / "errors.py"
    with budget.files_entered() as files:
        exec(compile("value = 1", path.with_name("files.py"), "exec"))
        assert not files
        first_few(["a"])
    assert files == {path}
    assert budget.num_modules(["bert_tf", "bert_tf.errors", "bert_tfx"]) == 2
