"""A whole experiment by its commands; bad input."""

import json
import pathlib
import pydoc_data.topics
import shlex
import sys

import numpy as np
import pytest

from bert_tf.experiments import Cell, Experiment, Finetuning, Pretraining
from bert_tf.experiments import run as run_module
from bert_tf.experiments.plan import Sources
from bert_tf.experiments.run import run_experiment
from bert_tf.experiments.running import Commands
from bert_tf.experiments.scales import SCALES, Scale
from tests.user_errors import error_of
from tools.shared_flags import load_task

SCALES["test"] = Scale(
    description="for tests",
    vocab_size=400,
    sizes={"12/768/12": "1/16/2"},
    records={
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "held_out": 0.1,
    },
    pretraining={
        "train_batch_size": 8,
        # As many as models are kept.
        "num_train_steps": 20,
        "eval_batch_size": 128,
    },
    finetuning={"max_seq_length": 32, "num_train_epochs": 1.0},
    tasks={},
    seeds=2,
)
TEXTS = {
    "train_file": "texts.csv",
    "text_columns": "text",
    "label_column": "label",
}
# Starts a command without graphs, whose tracing takes longer than these runs.
EAGERLY = """
import os, runpy
# Otherwise it restarts itself, with graphs.
os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=0"
import tensorflow
tensorflow.config.run_functions_eagerly(True)
runpy.run_module("tools", run_name="__main__", alter_sys=True)
"""
MODELS = {
    "BERT": Pretraining(),
    "No NSP": Pretraining(
        objective="masked_lm", records={"random_next_prob": 0.0}
    ),
}
EXPERIMENT = Experiment(
    title="Two rows",
    cells=[
        Cell(row=row, column=column, run=run, score=score, **more)
        for row, model in MODELS.items()
        for column, run, score, more in (
            (
                "Texts",
                Finetuning(task="sentence", model=model, settings=TEXTS),
                "accuracy",
                {"paper": 84.4},
            ),
            ("Perplexity", model, "masked_lm_perplexity", {"factor": 1.0}),
        )
    ],
    lower_is_better=["Perplexity"],
)


def run(data: pathlib.Path, output_dir: pathlib.Path, **changes) -> None:
    """Runs the experiment as the command does."""
    given = {"scale_name": "test", **changes}
    run_experiment(
        EXPERIMENT,
        "small",
        sources=Sources(
            corpus=f"{data}/corpus/*.txt",
            data_dir=str(data),
            init_from="",
            stand_ins={},
            precision="float32",
            strategy="one_device",
        ),
        output_dir=output_dir,
        runs_dir=output_dir / "runs",
        load_task=load_task,
        commands=Commands(
            program=[sys.executable, "-c", EAGERLY],
            this="bert-tf experiment",
        ),
        **given,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    """A corpus, and texts with labels."""
    folder = tmp_path_factory.mktemp("data") / "data"
    topics = pydoc_data.topics.topics
    text = "\n\n".join(
        "\n".join(" ".join(topics[name].split()).split(". "))
        for name in sorted(topics)[:30]
    )
    (folder / "corpus").mkdir(parents=True)
    (folder / "corpus" / "text.txt").write_text(text + "\n", encoding="utf-8")
    rows = [f"{'good' if n % 2 else 'bad'} text {n},{n % 2}" for n in range(20)]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return folder


def test_cells_are_scores_of_runs(data, tmp_path, capfd):
    run(data, tmp_path, rows=["No NSP"])
    results = json.loads((tmp_path / "results.json").read_text())
    cells = results["cells"]
    assert [len(cell["values"]) for cell in cells] == [0, 0, 2, 1]
    for cell in cells[2:]:
        folder = pathlib.Path(cell["folder"])
        numbers = json.loads((folder / "results.json").read_text())
        if cell["column"] == "Perplexity":
            assert cell["values"] == [numbers["masked_lm_perplexity"]]
        else:
            scores = [100 * s["dev"]["accuracy"] for s in numbers["seeds"]]
            assert cell["values"] == pytest.approx(scores)
            assert cell["mean"] == pytest.approx(np.mean(scores))
    typed = shlex.split(cells[3]["command"])
    assert typed[:2] == ["bert-tf", "pretrain"]
    assert f"--output_dir={cells[3]['folder']}" in typed
    assert "84.4" in (tmp_path / "table.md").read_text()
    assert "No NSP" in (tmp_path / "report.html").read_text()
    # Finished runs are not started again.
    capfd.readouterr()
    run(data, tmp_path, rows=["No NSP"])
    assert "started" not in capfd.readouterr().err
    assert json.loads((tmp_path / "results.json").read_text()) == results


def test_folders_of_other_experiments_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module.Runner, "run", lambda self: None)
    monkeypatch.setattr(run_module, "write_report", lambda *args: None)
    (tmp_path / "table.md").write_text("")
    run(data, tmp_path)
    line = error_of(run, data, tmp_path, scale_name="tiny")
    assert "scale was 'test' and is now 'tiny'" in line
    other = tmp_path / "other"
    other.mkdir()
    (other / "results.json").write_text("{}")
    assert "of something else" in error_of(run, data, other)


def test_a_disk_that_is_too_small_is_told_at_once(data, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "free_bytes", lambda path: 1000)
    line = error_of(run, data, tmp_path / "new")
    assert "GB are free" in line
    assert not (tmp_path / "new").exists()


def test_dry_run_prints_hours_and_disk(data, tmp_path, monkeypatch, capfd):
    def rates(trials, limit):
        return {trial.config: 1e-9 for trial in trials}

    monkeypatch.setattr(run_module, "measured_rates", rates)
    run(data, tmp_path / "new", dry_run=True)
    printed = capfd.readouterr().out
    assert "7 runs: 0." in printed
    assert "hours one after the other" in printed
    assert not (tmp_path / "new").exists()
