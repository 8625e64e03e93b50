"""Whole fine-tunings on choices: learning, resume, answers, scores."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.errors import UserError
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.model_folder import load_model, read_config
from bert_tf.finetuning.multiple_choice.task import UserChoiceTask
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.task import Split
from bert_tf.training.strategies import make_strategy
from tests.finetuning.multiple_choice.choice_runs import (
    rows,
    small_recipe,
    written,
)
from tests.finetuning.sentence_runs import model_folder
from tests.run_folders import answer_lines, history, weights

TASK = UserChoiceTask(name="choice")


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> pathlib.Path:
    return model_folder(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def recipe(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return small_recipe(folder, init_from=str(start))


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    modes = ["train", "eval", "predict"]
    return folder, run_finetuning(TASK, recipe, folder, modes)


def model_of(folder, recipe):
    """A task's model, and what it computes of examples."""
    task = TASK.resolve(recipe)
    model, tokenizer, facts = load_model(folder, task)
    predictor = Predictor([model], make_strategy("one_device"), 4)

    def answers(examples):
        split = Split(examples, task.encode(examples, tokenizer, facts))
        outputs = predictor.outputs(split.rows)
        return task.decode(outputs, split, tokenizer, facts)

    return task, answers


def test_it_learns(finished):
    folder, done = finished
    results = done["train"]
    assert results["dev"]["dev"]["accuracy"] >= 0.9
    assert results["majority"]["dev"]["accuracy"] < 0.7
    assert results["labels"] == []
    assert results["examples"] == {"train": 64, "dev": 14}
    losses = [row["loss"] for row in history(folder) if "loss" in row]
    assert losses[-1] < losses[0] * 0.7
    assert done["eval"] == {"dev": pytest.approx(results["dev"]["dev"])}
    assert (folder / "report.html").is_file()
    facts = json.loads((folder / "task.json").read_text())
    assert facts == {
        "task": "choice",
        "labels": [],
        "max_seq_length": 32,
        "has_start": True,
    }
    assert "multiple_choice" in load_checkpoint(folder).heads


def test_dev_predictions_hold_every_row(finished):
    folder, done = finished
    lines = answer_lines(folder)
    wanted = rows(14, 3)
    assert len(lines) == 14
    nll = []
    for number, (line, row) in enumerate(zip(lines, wanted, strict=True)):
        assert set(line) == {
            "identifier",
            "row",
            "context",
            "start",
            "choices",
            "label",
            "prediction",
            "probabilities",
        }
        assert (line["identifier"], line["row"]) == (str(number), number + 1)
        assert (line["context"], line["start"]) == (row["text"], row["start"])
        assert (line["choices"], line["label"]) == (
            row["options"],
            row["answer"],
        )
        shares = line["probabilities"]
        assert len(shares) == len(row["options"])
        assert sum(shares) == pytest.approx(1)
        assert line["prediction"] == int(np.argmax(shares))
        nll.append(-np.log(shares[line["label"]]))
    loss = done["train"]["dev_loss"]["dev"]
    assert loss == pytest.approx(np.mean(nll), rel=1e-4)


def test_predictions_of_test_rows(finished):
    folder, _ = finished
    lines = (folder / "predictions_test.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    found = [int(line.split("\t")[1]) for line in lines[1:]]
    right = [row["answer"] for row in rows(8, 5)]
    assert np.mean(np.equal(found, right)) >= 0.75


def test_a_run_on_other_choices_is_refused(finished, recipe, tmp_path):
    """The digests know the choices, not their texts end to end alone."""
    copy = tmp_path / "copy"
    shutil.copytree(finished[0], copy)
    changed = rows(64, 1)
    changed[0]["options"] = changed[0]["options"][::-1]
    other = recipe.override(
        [f"train_file={written(tmp_path / 'train.jsonl', changed)}"]
    )
    with pytest.raises(UserError):
        run_finetuning(TASK, other, copy, ["train"])


def test_permuting_choices_permutes_probabilities(finished, recipe):
    task, answers = model_of(finished[0], recipe)
    examples = task.load("dev", recipe)
    order = [
        np.random.default_rng(3).permutation(len(e.choices)) for e in examples
    ]
    permuted = [
        e._replace(choices=tuple(e.choices[k] for k in places))
        for e, places in zip(examples, order, strict=True)
    ]
    first, second = answers(examples), answers(permuted)
    for number, places in enumerate(order):
        count = len(places)
        np.testing.assert_allclose(
            second.probabilities(number, count),
            np.array(first.probabilities(number, count))[places],
            atol=1e-5,
        )
        assert places[second.values[number]] == first.values[number]


def test_padding_changes_nothing(finished, recipe):
    """Neither that of rows nor that of choices: alone as in a batch."""
    task, answers = model_of(finished[0], recipe)
    examples = task.load("dev", recipe)
    together = answers(examples)
    assert {len(e.choices) for e in examples} == {2, 3, 4, 5}
    for number in (0, 5, 9):
        alone = answers(examples[number : number + 1])
        count = len(examples[number].choices)
        np.testing.assert_allclose(
            alone.probabilities(0, count),
            together.probabilities(number, count),
            atol=1e-5,
        )


@pytest.mark.parametrize("form", ["number_from_1", "letter", "text"])
def test_files_name_choices_as_they_were_given(
    finished, recipe, tmp_path, form
):
    named = rows(14, 3)
    for row in named:
        row["answer"] = {
            "number_from_1": str(row["answer"] + 1),
            "letter": "ABCDE"[row["answer"]],
            "text": row["options"][row["answer"]],
        }[form]
    path = written(tmp_path / "dev.jsonl", named)
    other = recipe.override([f"label_form={form}", f"dev_file={path}"])
    other = other.override([f"init_from={finished[0]}"])
    run_finetuning(TASK, other, tmp_path / "out", ["eval"])
    task = TASK.resolve(other)
    file = tmp_path / "out" / "predictions_dev.tsv"
    cells = [line.split("\t")[1] for line in file.read_text().splitlines()[1:]]
    for cell, row in zip(cells, named, strict=True):
        if form == "text":
            assert cell in row["options"]
        else:
            assert cell in ("12345" if form == "number_from_1" else "ABCDE")
    assert task.score_file(other, path, str(file)) == finished[1]["eval"]["dev"]


@pytest.mark.slow
def test_a_head_of_another_task_serves(finished, recipe, tmp_path, capsys):
    """SWAG's model goes on with other choices: its head has no labels."""
    other = recipe.override(
        [
            f"init_from={finished[0]}",
            "learning_rate=1e-9",
            "num_train_epochs=0.2",
        ]
    )
    named = UserChoiceTask(name="quiz")
    done = run_finetuning(named, other, tmp_path, ["train"])
    assert "starts fresh" not in capsys.readouterr().err
    assert done["train"]["dev"] == finished[1]["train"]["dev"]


def test_models_that_do_not_fit(finished, recipe, start, tmp_path):
    nameless = recipe.override(["start_column="])
    with pytest.raises(UserError, match="fine-tuned with a start_column"):
        run_finetuning(TASK, nameless, finished[0], ["eval"])
    with pytest.raises(UserError, match="fine-tuned for choice, not quiz"):
        read_config(finished[0], UserChoiceTask(name="quiz").resolve(recipe))
    one = model_folder(tmp_path / "one", type_vocab_size=1)
    short = recipe.override([f"init_from={one}"])
    with pytest.raises(UserError, match="type_vocab_size is 1"):
        run_finetuning(TASK, short, tmp_path / "out", ["train"])
    assert not (tmp_path / "out" / "task.json").exists()


@pytest.mark.slow
def test_two_replicas_and_accumulation_give_one_result(
    recipe, tmp_path, monkeypatch
):
    from bert_tf import models

    model_folder(
        tmp_path / "model",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    make = models.bert_multiple_choice
    monkeypatch.setattr(
        models, "bert_multiple_choice", lambda encoder: make(encoder, 0.0)
    )
    recipe = recipe.override(
        [
            f"init_from={tmp_path / 'model'}",
            "learning_rate=0.001",
            "num_train_epochs=1",
        ]
    )
    run_finetuning(TASK, recipe, tmp_path / "one", ["train"])
    other = recipe.override(
        ["strategy=mirrored", "gradient_accumulation_steps=2"]
    )
    run_finetuning(TASK, other, tmp_path / "two", ["train"])
    theirs = weights(tmp_path / "two" / "last")
    # Softmax does not feel the bias, so that its gradient is rounding alone.
    del theirs["cls/multiple_choice/output_bias"]
    ours = weights(tmp_path / "one" / "last")
    for name, array in theirs.items():
        np.testing.assert_allclose(array, ours[name], atol=2e-5)
