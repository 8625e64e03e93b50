"""The commands and programs of docs/small_machines.md work as they stand."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.documents import ROOT, blocks
from tests.inference.model_folders import LABELS, make

PAGE = "docs/small_machines.md"


def run(folder: pathlib.Path, *words: str) -> str:
    bin_folder = str(pathlib.Path(sys.executable).parent)
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ
        | {
            "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_answers_by_openvino(tmp_path):
    program, _, _ = blocks(PAGE, "python")
    (tmp_path / "out").mkdir()
    make(tmp_path, "classes").rename(tmp_path / "out" / "stars")
    assert run(tmp_path, "python", "-c", program).strip() in LABELS


@pytest.mark.slow
def test_onnx(tmp_path):
    _, command, *_ = blocks(PAGE, "sh")
    _, program, _ = blocks(PAGE, "python")
    (tmp_path / "out").mkdir()
    make(tmp_path, "classes").rename(tmp_path / "out" / "stars")
    printed = run(tmp_path, "bash", "-ec", command)
    assert printed.startswith("small/stars/model.onnx: ")
    # Without TensorFlow, as on a small machine.
    program = f"import sys; sys.modules['tensorflow'] = None\n{program}"
    assert run(tmp_path, "python", "-c", program).strip() in LABELS


@pytest.mark.slow
def test_litert(tmp_path):
    _, command, *_ = blocks(PAGE, "sh")
    _, _, program = blocks(PAGE, "python")
    (tmp_path / "out").mkdir()
    make(tmp_path, "classes").rename(tmp_path / "out" / "stars")
    run(tmp_path, "bash", "-ec", command.replace("=onnx", "=litert"))
    # TensorFlow's own interpreter, where the other package is not installed.
    name = "ai_edge_litert.interpreter"
    program = (
        "import sys, types; import tensorflow as tf; "
        f"sys.modules['ai_edge_litert'] = types.ModuleType('ai_edge_litert'); "
        f"sys.modules['{name}'] = tf.lite\n{program}"
    )
    assert run(tmp_path, "python", "-c", program).strip() in LABELS


@pytest.mark.slow
def test_int8(finish_case, tmp_path):
    *_, command, ask = blocks(PAGE, "sh")
    shutil.copytree(finish_case("classes").folder, tmp_path / "out" / "mrpc")
    # What was trained on so few rows may be worth less.
    command = command.replace("--max_score_drop=0.01", "--max_score_drop=1")
    printed = run(tmp_path, "bash", "-ec", command)
    assert " in float32, " in printed
    assert " in int8, " in printed
    about = json.loads((tmp_path / "small/mrpc/model.json").read_text())
    assert about["int8"]["metric"] in printed
    (tmp_path / "pairs.csv").write_text("text\na good film\n")
    run(tmp_path, "bash", "-ec", ask)
    assert "label" in json.loads((tmp_path / "answers.jsonl").read_text())
