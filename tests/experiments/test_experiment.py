"""A whole experiment by its commands, killed and resumed; bad input."""

import json
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_tf.checkpoints import read_arrays
from bert_tf.experiments import run as run_module
from tests.experiments import small_experiment
from tests.user_errors import error_of


def results(folder: pathlib.Path) -> dict:
    """What results.json holds."""
    return json.loads((folder / "results.json").read_text())


def values(folder: pathlib.Path) -> dict:
    """The numbers of each cell."""
    cells = results(folder)["cells"]
    return {(c["row"], c["column"]): c["values"] for c in cells}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    """Corpus and texts."""
    folder = tmp_path_factory.mktemp("data") / "data"
    small_experiment.write_data(folder)
    return folder


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> pathlib.Path:
    """The folder of a finished experiment."""
    folder = tmp_path_factory.mktemp("finished")
    small_experiment.run(data, folder, workers=2)
    return folder


@pytest.mark.slow
def test_cells_are_scores_of_runs(finished):
    found = values(finished)
    assert [len(v) for v in found.values()] == [2, 1, 2, 1]
    for cell in results(finished)["cells"]:
        folder = pathlib.Path(cell["folder"])
        numbers = json.loads((folder / "results.json").read_text())
        if cell["column"] == "Perplexity":
            assert cell["values"] == [numbers["masked_lm_perplexity"]]
        else:
            scores = [100 * s["dev"]["accuracy"] for s in numbers["seeds"]]
            assert cell["values"] == pytest.approx(scores)
            assert cell["mean"] == pytest.approx(np.mean(scores))
    assert "84.4" in (finished / "table.md").read_text()
    assert "No NSP" in (finished / "report.html").read_text()


@pytest.mark.slow
def test_a_run_is_its_command(finished, data, tmp_path):
    cell = results(finished)["cells"][3]
    words = shlex.split(cell["command"])
    assert words[:3] == ["python", "-m", "tools.run_pretraining"]
    again = [
        w.replace(cell["folder"], str(tmp_path / "again")) for w in words[1:]
    ]
    assert again != words[1:]
    subprocess.run([sys.executable, *again], check=True)
    first = read_arrays(pathlib.Path(cell["folder"]) / "bert_model.safetensors")
    second = read_arrays(tmp_path / "again" / "bert_model.safetensors")
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


@pytest.mark.slow
def test_finished_runs_are_not_done_again(finished, data, capfd):
    before = values(finished)
    small_experiment.run(data, finished)
    printed = capfd.readouterr()
    assert "started" not in printed.err
    assert values(finished) == before


@pytest.mark.slow
def test_killed_experiment_comes_to_the_same_numbers(finished, data, tmp_path):
    output = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.experiments.small_experiment"]
    for sign in ("pretraining/*/checkpoints/step-*", "finetuning/*/seed_1"):
        process = subprocess.Popen([*command, str(data), str(output)])
        while not list(output.glob(f"runs/{sign}")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        # And what it had started.
        subprocess.run(["pkill", "-KILL", "-f", str(output)], check=False)
    subprocess.run([*command, str(data), str(output)], check=True)
    assert values(output) == values(finished)


def test_folders_of_other_experiments_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module.Runner, "run", lambda self: None)
    monkeypatch.setattr(run_module, "write_report", lambda *args: None)
    (tmp_path / "table.md").write_text("")
    small_experiment.run(data, tmp_path)
    line = error_of(small_experiment.run, data, tmp_path, scale_name="tiny")
    assert "scale was 'test' and is now 'tiny'" in line
    other = tmp_path / "other"
    other.mkdir()
    (other / "results.json").write_text("{}")
    assert "is of no experiment" in error_of(small_experiment.run, data, other)


def test_a_disk_that_is_too_small_is_told_at_once(data, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "_free_bytes", lambda path: 1000)
    line = error_of(small_experiment.run, data, tmp_path / "new")
    assert "GB are free" in line
    assert not (tmp_path / "new").exists()


def test_dry_run_prints_hours_and_disk(data, tmp_path, capfd):
    small_experiment.run(data, tmp_path / "new", dry_run=True)
    printed = capfd.readouterr().out
    assert "7 runs: 0." in printed
    assert "hours one after the other" in printed
    assert not (tmp_path / "new").exists()
