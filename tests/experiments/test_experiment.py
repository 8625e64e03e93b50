"""A whole experiment by its commands; bad input."""

import json
import pathlib
import shlex

import numpy as np
import pytest

from bert_tf.experiments import run as run_module
from tests.experiments import small_experiment
from tests.user_errors import error_of


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    """Corpus and texts."""
    folder = tmp_path_factory.mktemp("data") / "data"
    small_experiment.write_data(folder)
    return folder


@pytest.mark.slow
def test_cells_are_scores_of_runs(data, tmp_path, capfd):
    small_experiment.run(data, tmp_path, workers=2)
    results = json.loads((tmp_path / "results.json").read_text())
    cells = results["cells"]
    assert [len(cell["values"]) for cell in cells] == [2, 1, 2, 1]
    for cell in cells:
        folder = pathlib.Path(cell["folder"])
        numbers = json.loads((folder / "results.json").read_text())
        if cell["column"] == "Perplexity":
            assert cell["values"] == [numbers["masked_lm_perplexity"]]
        else:
            scores = [100 * s["dev"]["accuracy"] for s in numbers["seeds"]]
            assert cell["values"] == pytest.approx(scores)
            assert cell["mean"] == pytest.approx(np.mean(scores))
    words = shlex.split(cells[3]["command"])
    assert words[:3] == ["python", "-m", "tools.run_pretraining"]
    assert f"--output_dir={cells[3]['folder']}" in words
    assert "84.4" in (tmp_path / "table.md").read_text()
    assert "No NSP" in (tmp_path / "report.html").read_text()
    # Finished runs are not started again.
    capfd.readouterr()
    small_experiment.run(data, tmp_path)
    assert "started" not in capfd.readouterr().err
    assert json.loads((tmp_path / "results.json").read_text()) == results


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
    assert "of something else" in error_of(small_experiment.run, data, other)


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
