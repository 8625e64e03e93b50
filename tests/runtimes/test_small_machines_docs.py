"""The commands and programs of docs/small_machines.md work as they stand."""

import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import types

import pytest
import tensorflow as tf

from tests.commands import run_line
from tests.documents import blocks, commands
from tests.finished_runs import finished_run
from tests.inference.model_folders import LABELS, make

PAGE = "docs/small_machines.md"
pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def stars(tmp_path_factory) -> pathlib.Path:
    """The model that the page's programs use."""
    return make(tmp_path_factory.mktemp("page"), "classes")


@pytest.fixture
def folder(stars, tmp_path, monkeypatch) -> pathlib.Path:
    """Where commands and programs run."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(stars, tmp_path / "out" / "stars")
    return tmp_path


def run(block: str, folder: pathlib.Path) -> str:
    """Runs the one command of a block, and returns what it prints."""
    (line,) = commands(block)
    done = run_line(line, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed_by(program: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, {})
    return printed.getvalue().strip()


def test_answers_by_openvino(folder):
    program, _, _ = blocks(PAGE, "python")
    assert printed_by(program) in LABELS
    kept = {path.name for path in (folder / "out/stars/.runtimes").iterdir()}
    # One of the answers, one of the vectors.
    assert len(kept) == 2


def test_onnx(folder):
    _, command, *_ = blocks(PAGE, "sh")
    _, program, _ = blocks(PAGE, "python")
    printed = run(command, folder)
    assert printed.startswith("small/stars/model.onnx: ")
    # Without TensorFlow, as on a small machine.
    program = f"import sys; sys.modules['tensorflow'] = None\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True
    )
    assert done.stdout.decode().strip() in LABELS


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_litert(folder, monkeypatch):
    _, command, *_ = blocks(PAGE, "sh")
    _, _, program = blocks(PAGE, "python")
    run(command.replace("=onnx", "=litert"), folder)
    # TensorFlow's own interpreter, where the other package is not installed.
    name = "ai_edge_litert"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, f"{name}.interpreter", tf.lite)
    assert printed_by(program) in LABELS


def test_int8(tmp_path):
    *_, command, ask = blocks(PAGE, "sh")
    shutil.copytree(
        finished_run("classes", tmp_path).folder, tmp_path / "out" / "mrpc"
    )
    # What was trained on so few rows may be worth less.
    command = command.replace("--max_score_drop=0.01", "--max_score_drop=1")
    printed = run(command, tmp_path)
    assert " in float32, " in printed
    assert " in int8, " in printed
    about = json.loads((tmp_path / "small/mrpc/model.json").read_text())
    assert about["int8"]["metric"] in printed
    (tmp_path / "pairs.csv").write_text("text\na good film\n")
    run(ask, tmp_path)
    (answer,) = map(
        json.loads, (tmp_path / "answers.jsonl").read_text().splitlines()
    )
    assert answer["label"] == "up"
