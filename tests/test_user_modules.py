"""A user's file runs as a program would; what fails is one line."""

import dataclasses
import pathlib
import sys

import pytest

from bert_tf.user_modules import run_user_module
from tests.user_errors import error_of

HINT = "objectives come from bert_tf.pretraining"


@pytest.fixture(autouse=True)
def _import_path(monkeypatch):
    """The folders of the tests are forgotten."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def run(path):
    return run_user_module(path, "objective", "mlm or a file", HINT)


def test_it_imports_what_lies_beside_it(tmp_path):
    (tmp_path / "rates_of_mine.py").write_text("RATE = 0.4\n")
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "import dataclasses\n"
        "from rates_of_mine import RATE\n"
        "@dataclasses.dataclass\n"
        "class Rates:\n    rate: float = RATE\n"
    )
    module = run(tmp_path / "mine.py")
    assert dataclasses.asdict(module.Rates()) == {"rate": 0.4}
    assert sys.modules[module.Rates.__module__] is module


def test_files_of_one_name_are_two_modules(tmp_path):
    modules = []
    for number in range(2):
        path = tmp_path / f"{number}" / "mine.py"
        path.parent.mkdir()
        path.write_text(f"NUMBER = {number}\n")
        modules.append(run(path))
    assert [module.NUMBER for module in modules] == [0, 1]
    for module in modules:
        assert sys.modules[module.__name__] is module


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("\nTASK = (\n", ", line 2: '(' was never closed."),
        (
            "import json\n\nTASK = undefined\n",
            ", line 3: NameError: name 'undefined'",
        ),
        (
            "import no_such_module\n",
            ", line 1: ModuleNotFoundError: ",
        ),
        (
            "from bert_tf.no_such_room import X\n",
            f"'bert_tf.no_such_room'; {HINT}",
        ),
        (
            "import json\njson.loads('{')\n",
            ", line 2: JSONDecodeError: ",
        ),
        ("raise ValueError('a\\nb')\n", ", line 1: ValueError: a b"),
        ("import broken\n", ", line 1: SyntaxError: "),
        ("x = '\udcff'\n", ", line 1: (unicode error) "),
    ],
)
def test_a_file_that_fails(code, expected, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("\n\nx = (\n")
    path = tmp_path / "mine.py"
    path.write_text(code, encoding="utf-8", errors="surrogateescape")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    for given in (path, pathlib.Path("mine.py")):
        line = error_of(run, given)
        assert line.startswith(f"`objective`={given}, line ")
        assert expected in line
    assert {n for n in sys.modules if "mine" in n} <= before


def test_what_is_no_python_file(tmp_path):
    path = tmp_path / "mine.txt"
    line = error_of(run, path)
    assert line.startswith(f"`objective`={path}: no such file; ")
    assert "mlm or a file" in line
    path.write_text("x = 1\n")
    line = error_of(run, str(path))
    assert line.startswith(f"`objective`={path}: is no Python file")
