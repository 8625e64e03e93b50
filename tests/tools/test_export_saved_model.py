"""The command that exports: folder, versions, one line for each mistake."""

import pathlib
import re
import subprocess

import pytest

from tests import commands
from tests.finetuning.sentence_runs import model_folder

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def export(*flags: str) -> subprocess.CompletedProcess:
    return commands.run("tools.export_saved_model", *flags)


@pytest.mark.slow
def test_versions_count_up(tmp_path):
    start = model_folder(tmp_path / "model")
    flags = [f"--model={start}", f"--output_dir={tmp_path / 'served'}"]
    done = export(*flags)
    assert done.returncode == 0, done.stderr
    assert re.search(r"served/1: embed, serving_default, tokens; ", done.stdout)
    files = {
        str(path.relative_to(tmp_path / "served" / "1"))
        for path in (tmp_path / "served" / "1").rglob("*")
        if path.is_file()
    }
    assert files >= {
        "saved_model.pb",
        "assets/vocab.txt",
        "assets.extra/model.json",
        "assets.extra/tf_serving_warmup_requests",
    }
    again = export(*flags, "--version=1")
    assert again.returncode == 1
    assert "exists already; 2 would be the next one" in again.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output_dir=x"], "--model"),
        (["--model=nowhere", "--output_dir=x"], "nowhere"),
    ],
)
def test_mistakes(flags, message, tmp_path):
    done = export(*flags)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not pathlib.Path("x").exists()
