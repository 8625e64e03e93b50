"""Several seeds: each is a run of its own, the best is kept."""

import json
import shutil
import statistics

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.families.text_classification.kinds import SentenceTask
from bert_tf.finetuning import report_files
from bert_tf.finetuning.run import _print_table, run_finetuning, summary
from tests.checkpoints.arrays import assert_same_arrays
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import data, model_folder, small_recipe
from tests.run_folders import assert_same_run, history, weights
from tests.sharing.cards import read_card, table

TASK = SentenceTask(
    name="mood",
    data=data(train=24),
    paper={"accuracy": {"bert_base": 0.9, "bert_large": 0.95}},
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "model"
    start = model_folder(folder, num_hidden_layers=1)
    return small_recipe(start, num_train_epochs=1.0, log_steps=1)


@pytest.fixture(scope="module")
def two_seeds(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    written = ("write_report", "write_card")
    writers = {name: getattr(report_files, name) for name in written}
    with quickly(), pytest.MonkeyPatch.context() as patch:
        for name, writer in writers.items():
            patch.setattr(report_files, name, writer)
        two = recipe.override(["seeds=2"])
        run_finetuning(TASK, two, folder, ["train"])
    return two, folder


@pytest.mark.witness("of several seeds, the best model is kept")
def test_each_seed_is_a_run_and_the_best_is_kept(two_seeds, capsys):
    _, folder = two_seeds
    results = json.loads((folder / "results.json").read_text())
    assert [(row["seed"], row["folder"]) for row in results["seeds"]] == [
        (12345, "seed_1"),
        (12346, "seed_2"),
    ]
    scores = [row["dev"]["accuracy"] for row in results["seeds"]]
    best = results["seeds"][int(np.argmax(scores))]
    assert [row["best"] for row in results["seeds"]].count(True) == 1
    assert best["best"]
    assert results["dev"]["dev"] == best["dev"]
    assert_same_arrays(weights(folder), weights(folder / best["folder"]))
    one, two = weights(folder / "seed_1"), weights(folder / "seed_2")
    assert (one["output_weights"] != two["output_weights"]).any()
    part = results["summary"]["accuracy"]
    assert part["mean"] == pytest.approx(statistics.fmean(scores))
    head, _, first, *_ = table(read_card(folder), "Scores")
    cells = dict(zip(head, first, strict=True))
    assert [cells["split"], cells["metric"]] == ["dev", "accuracy"]
    mean = float(cells["mean of 2 seeds"])
    assert mean == pytest.approx(100 * part["mean"], abs=0.05)
    majority = results["majority"]["dev"]["accuracy"]
    for row in results["seeds"]:
        assert row["degenerate"] == (row["dev"]["accuracy"] <= majority)
    report = json.loads((folder / "report.json").read_text())
    series = report["curves"]["training_loss"]
    assert [each["seed"] for each in series] == ["12345", "12346"]
    for file in ("task.json", "dev_predictions.jsonl"):
        kept = (folder / best["folder"] / file).read_bytes()
        assert (folder / file).read_bytes() == kept
    _print_table(results, results["seeds"], folder)
    printed = capsys.readouterr().out
    for part in ("seed 12345", "seed 12346", "mean", "median", "standard dev"):
        assert part in printed
    lines = [line.split() for line in printed.splitlines()]
    assert ["paper,", "bert", "base", "90.00", "-"] in lines
    assert printed.splitlines()[-1] == f"the best model is in {folder}"


def test_it_is_resumed_and_may_grow(two_seeds, tmp_path, capsys, quick):
    """What is finished is not trained again."""
    recipe, whole = two_seeds
    folder = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(folder / "seed_2")
    more = recipe.override(["seeds=3"])
    run_finetuning(TASK, more, folder, ["train"])
    assert capsys.readouterr().out.count("already finished: 3 of 3") == 1
    for part in ("seed_1", "seed_2"):
        assert_same_run(folder / part, whole / part)
    results = json.loads((folder / "results.json").read_text())
    assert len(results["seeds"]) == 3


def test_the_lowest_is_best_where_lower_is_better(recipe, tmp_path, quick):
    def cost(labels, predictions):
        return (3 * (predictions > labels) + (predictions < labels)).mean()

    task = SentenceTask(
        name="mood",
        data=data(train=24),
        scores={"cost": cost},
        main_metric="cost",
        lower_is_better=("cost",),
    )
    two = recipe.override(["seeds=2", "eval_steps=1", "learning_rate=3e-2"])
    done = run_finetuning(task, two, tmp_path, ["train"])["train"]
    costs = []
    for seed, row in enumerate(done["seeds"], start=1):
        rows = history(tmp_path / f"seed_{seed}")
        values = [r["eval_cost"] for r in rows if "eval_cost" in r]
        assert row["dev"]["cost"] == min(values) < max(values)
        majority = done["majority"]["dev"]["cost"]
        assert row["degenerate"] == (min(values) >= majority)
        costs.append(min(values))
    assert done["dev"]["dev"]["cost"] == min(costs)


def test_one_training_and_several_do_not_mix(two_seeds, recipe):
    two, folder = two_seeds
    with pytest.raises(UserError, match="trainings with several seeds"):
        run_finetuning(TASK, recipe, folder, ["train"])
    with pytest.raises(UserError, match="holds one training"):
        run_finetuning(TASK, two, folder / "seed_1", ["train"])


def test_summary():
    found = summary([{"f1": 0.5}, {"f1": 0.7}, {"f1": 0.9}])["f1"]
    assert found == pytest.approx(
        {
            "mean": 0.7,
            "median": 0.7,
            "standard_deviation": 0.2,
            "least": 0.5,
            "most": 0.9,
        }
    )
