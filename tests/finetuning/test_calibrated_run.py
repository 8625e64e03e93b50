"""A training that ends with a calibration."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.families.calibration import fit_temperature
from bert_tf.families.text_classification.kinds import SentenceTask
from bert_tf.families.text_classification.report import sections
from bert_tf.finetuning.run import run_finetuning
from bert_tf.report.sections import merged_numbers
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import (
    Rows,
    model_folder,
    small_recipe,
    texts,
)
from tests.run_folders import answer_lines
from tests.user_errors import error_of


def mislabelled(count, seed):
    """Texts, of which some have the wrong label."""
    rows = texts(count, seed)
    return [
        row._replace(label="negative") if number % 6 == 0 else row
        for number, row in enumerate(rows)
    ]


def test_the_temperature_of_a_run(tmp_path):
    splits = {"train": texts(24, 1), "dev": mislabelled(50, 2)}
    task = SentenceTask(name="mood", data=Rows(splits))
    recipe = small_recipe(
        model_folder(tmp_path / "start", num_hidden_layers=1),
        num_train_epochs=1.0,
        calibrate=True,
        eval_batch_size=16,
    )
    folder = tmp_path / "run"
    few = SentenceTask(name="mood", data=Rows(splits | {"dev": texts(9, 2)}))
    line = error_of(run_finetuning, few, recipe, folder, ["train"])
    assert "`calibrate`=true: the dev split has 9 examples" in line
    assert not (folder / "checkpoints").exists()
    with quickly():
        run_finetuning(task, recipe, folder, ["train"])
    results = json.loads((folder / "results.json").read_text())
    temperature = results["calibration_temperature"]
    stored = json.loads((folder / "task.json").read_text())
    assert stored["calibration_temperature"] == temperature != 1
    lines = answer_lines(folder)
    logits = np.array([line["logits"] for line in lines])
    targets = [results["labels"].index(line["label"]) for line in lines]
    assert temperature == pytest.approx(
        fit_temperature(logits, np.array(targets)), rel=1e-6
    )
    shown = sections(lines, results)
    numbers = merged_numbers(shown)
    before, after = numbers["calibration_before"], numbers["calibration"]
    key = "negative_log_likelihood"
    assert after[key] < before[key]
    assert before[key] == pytest.approx(results["dev_loss"]["dev"], rel=1e-4)
    (parts,) = (each.parts for each in shown if each.name == "calibration")
    assert [each.caption[:19] for each in parts[:2]] == [
        *("Before calibration.", "After calibration.")
    ]
    assert "The logits are divided" in parts[-1].lines[1]
    # The offer of a run that is not calibrated.
    del results["calibration_temperature"]
    results["recipe"]["calibrate"] = False
    (parts,) = (
        each.parts
        for each in sections(lines, results)
        if each.name == "calibration"
    )
    assert "bert-tf finetune --calibrate" in parts[-1].lines[1]
    model = bert_tf.load(folder)
    # Tracing takes longer than the answers.
    model._function = model._function.python_function
    assert model.facts["calibration_temperature"] == temperature
    answers = model([line["text_a"] for line in lines[:3]])
    for answer, line in zip(answers, lines, strict=False):
        shares = [*answer["probabilities"].values()]
        assert shares == pytest.approx(line["probabilities"], abs=1e-5)
        scaled = np.exp(np.array(line["logits"]) / temperature)
        assert shares == pytest.approx(scaled / scaled.sum(), abs=1e-5)
        assert answer["label"] == line["prediction"]
    explained = model.explain(lines[0]["text_a"], method="occlusion")
    share = answers[0]["probability"]
    assert explained.score == pytest.approx(
        np.log(share / (1 - share)), abs=1e-4
    )
