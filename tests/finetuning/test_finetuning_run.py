"""Whole fine-tunings of a tiny model: exact resume, best, freezing, errors."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint, read_arrays, save_checkpoint
from bert_tf.errors import UserError
from bert_tf.finetuning.batches import epoch_batches
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.model_folder import load_model, read_config
from bert_tf.finetuning.recipe import MultiLabelRecipe
from bert_tf.finetuning.report.make import make_report
from bert_tf.finetuning.rows import EXAMPLE_WEIGHTS
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import lr_multipliers
from bert_tf.finetuning.task_model import ClassesObjective, TaskModel
from bert_tf.finetuning.text_classification.kinds import (
    MultiLabelTask,
    RegressionTask,
    SentenceTask,
    class_weights_of,
)
from bert_tf.finetuning.text_classification.task import encode
from bert_tf.models import bert_classifier
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.saved_states import SavedStates
from bert_tf.training.sentinel import NonFiniteError
from tests.finetuning.sentence_runs import (
    TOKENS,
    data,
    model_folder,
    numbers,
    small_recipe,
    texts,
    tokenizer,
)
from tests.run_folders import (
    history,
    press_ctrl_c,
    stop_at,
    weights,
)

TASK = SentenceTask(name="mood", data=data())
EMBEDDINGS = "bert/embeddings/word_embeddings"


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> pathlib.Path:
    return model_folder(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def recipe(start):
    return small_recipe(start)


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    modes = ["train", "eval", "predict"]
    return folder, run_finetuning(TASK, recipe, folder, modes)


def assert_same_run(first, second):
    assert history(first) == history(second)
    for part in (".", "last"):
        theirs = weights(second / part)
        for name, array in weights(first / part).items():
            np.testing.assert_array_equal(array, theirs[name])
    for name in ("dev_predictions.jsonl", "eval_dev.json", "task.json"):
        assert (first / name).read_text() == (second / name).read_text()


def test_the_folder_of_a_finished_run(finished, recipe):
    folder, done = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "bert_config.json",
        "bert_model.safetensors",
        "checkpoints",
        "dev_predictions.jsonl",
        "eval_dev.json",
        "history.jsonl",
        "labels.json",
        "last",
        "learning_curve.png",
        "predictions_test.tsv",
        "recipe.json",
        "report.html",
        "report.json",
        "results.json",
        "task.json",
        "tensorboard",
        "vocab.txt",
    }
    results = json.loads((folder / "results.json").read_text())
    assert results == json.loads(json.dumps(done["train"]))
    # 92 rows in batches of 8, three times.
    assert results["num_train_steps"] == 34
    assert results["examples"] == {"train": 92, "dev": 13}
    assert results["labels"] == ["negative", "positive"]
    assert load_checkpoint(folder).labels == ("negative", "positive")
    evaluated = [r["step"] for r in history(folder) if "eval_accuracy" in r]
    assert evaluated == [12, 24, 34]
    assert done["eval"] == {"dev": pytest.approx(results["dev"]["dev"])}
    assert (folder / "predictions_test.tsv").read_text().count("\n") == 8


def test_it_learns_and_beats_the_majority(finished):
    folder, done = finished
    results = done["train"]
    assert results["dev"]["dev"]["accuracy"] == 1.0
    assert results["majority"]["dev"]["accuracy"] < 0.8
    losses = [row["loss"] for row in history(folder) if "loss" in row]
    assert losses[-1] < losses[0] * 0.7


def test_predictions_are_those_of_the_answers(finished):
    folder, _ = finished
    lines = (folder / "predictions_test.tsv").read_text().splitlines()
    test = TASK.data.splits["test"]
    wanted = [e.label for e in texts(7, 5)]
    found = [line.split("\t")[1] for line in lines[1:]]
    assert len(test) == len(found)
    assert found == wanted


def test_dev_predictions_hold_every_row(finished):
    folder, _ = finished
    lines = (folder / "dev_predictions.jsonl").read_text().splitlines()
    dev = TASK.data.splits["dev"]
    for line, example in zip(map(json.loads, lines), dev, strict=True):
        assert line["text_a"] == example.text_a
        assert line["label"] == example.label
        place = int(np.argmax(line["probabilities"]))
        assert line["prediction"] == ("negative", "positive")[place]
        assert sum(line["probabilities"]) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("step", [7, pytest.param(30, marks=pytest.mark.slow)])
def test_interrupted_is_uninterrupted(
    step, finished, recipe, tmp_path, monkeypatch, capsys
):
    stop_at(monkeypatch, step)
    with pytest.raises(KeyboardInterrupt):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    monkeypatch.undo()
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    before = step // 4 * 4
    assert f"resuming from step {before} of 34" in capsys.readouterr().out
    assert_same_run(tmp_path, finished[0])


@pytest.mark.parametrize("step", [5, 34])
def test_ctrl_c_saves_and_goes_on_exactly(
    step, finished, recipe, tmp_path, monkeypatch, capsys
):
    """In Python too; the last step is one like the others."""
    press_ctrl_c(monkeypatch, step)
    line = f"stopped at step {step} of 34, whose state is saved"
    with pytest.raises(KeyboardInterrupt, match=line):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert not (tmp_path / "task.json").exists()
    assert (tmp_path / "checkpoints" / f"step-{step:08}").is_dir()
    monkeypatch.undo()
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert_same_run(tmp_path, finished[0])


def test_a_second_ctrl_c_stops_at_once(recipe, tmp_path, monkeypatch):
    save = SavedStates.save

    def interrupted(self, number, window):
        if number:
            signal.raise_signal(signal.SIGINT)
        save(self, number, window)

    press_ctrl_c(monkeypatch, 3)
    monkeypatch.setattr(SavedStates, "save", interrupted)
    with pytest.raises(KeyboardInterrupt, match="^$"):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    states = tmp_path / "checkpoints"
    assert [path.name for path in states.iterdir()] == ["step-00000000"]


def test_the_files_of_a_run_give_its_report_again(finished, tmp_path):
    """What the run hands over in memory is what it has written."""
    whole = finished[0]
    for name in ("results.json", "recipe.json", "history.jsonl"):
        shutil.copy(whole / name, tmp_path)
    shutil.copy(whole / "dev_predictions.jsonl", tmp_path)
    make_report(tmp_path)
    for name in ("report.html", "report.json"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_a_report_that_fails_is_a_warning(finished, recipe, tmp_path, capfd):
    """The model, its scores and the predictions are there all the same."""
    folder = tmp_path / "copy"
    shutil.copytree(finished[0], folder)
    for name in ("predictions_test.tsv", "results.json"):
        (folder / name).unlink()
    for name in ("report.html", "report.json", "learning_curve.png"):
        (folder / name).unlink()
        (folder / name).mkdir()
    done = run_finetuning(TASK, recipe, folder, ["train", "eval", "predict"])
    assert set(done) == {"train", "eval", "predict"}
    for name in ("predictions_test.tsv", "eval_dev.json"):
        assert (folder / name).read_text() == (finished[0] / name).read_text()
    results = json.loads((folder / "results.json").read_text())
    assert results["dev"] == finished[1]["train"]["dev"]
    printed = capfd.readouterr().err
    assert "warning: the report could not be made (IsADirectoryError" in printed
    assert "warning: the learning curve could not be made" in printed


def test_a_finished_run_says_so_and_stays(finished, recipe, tmp_path, capsys):
    """And what a killed run left, on whichever machine, is gone."""
    copy = tmp_path / "copy"
    shutil.copytree(finished[0], copy)
    (copy / "bert_model.safetensors").unlink()
    left = [
        copy / ".bert_model.safetensors.999999999.partial",
        copy
        / ".last.0123abcd-7-123.partial"
        / ".vocab.txt.0123abcd-7-1.partial",
        copy / "last" / ".task.json.0123abcd-7-123.partial",
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    run_finetuning(TASK, recipe, copy, ["train"])
    assert "already finished: 34 of 34" in capsys.readouterr().out
    assert not list(copy.rglob("*.partial"))
    assert_same_run(copy, finished[0])


@pytest.mark.slow
def test_the_best_and_the_last_model(recipe, tmp_path, monkeypatch):
    """With a score that is best in the middle, the best is not the last."""
    scores = iter([0.2, 0.9, 0.5])
    monkeypatch.setattr(
        SentenceTask, "label_scores", lambda *_: {"accuracy": next(scores, 0.0)}
    )
    recipe = recipe.override(["keep_checkpoint_max=9"])
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["best_step"] == 24
    states = tmp_path / "checkpoints"
    at_best = read_arrays(states / "step-00000024" / "state.safetensors")
    best = weights(tmp_path)[EMBEDDINGS]
    last = weights(tmp_path / "last")[EMBEDDINGS]
    name = next(n for n in at_best if n.endswith("word_embeddings"))
    np.testing.assert_array_equal(at_best[name], best)
    assert np.abs(best - last).max() > 1e-4


@pytest.mark.parametrize(
    ("scores", "passes"), [([0.2, 0.9], 2), ([0.9, 0.2], 3)]
)
def test_dev_is_answered_again_only_by_other_weights(
    scores, passes, recipe, tmp_path, monkeypatch
):
    """Once an evaluation, and once more if the last one was not the best."""
    left, asked = iter(scores), []
    monkeypatch.setattr(
        SentenceTask, "label_scores", lambda *_: {"accuracy": next(left, 0.0)}
    )
    outputs = Predictor.outputs

    def counted(self, rows):
        asked.append(rows)
        return outputs(self, rows)

    monkeypatch.setattr(Predictor, "outputs", counted)
    recipe = recipe.override(["num_train_epochs=2"])
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert len(asked) == passes
    # What was kept is what the model in the folder answers.
    lines = (tmp_path / "dev_predictions.jsonl").read_text().splitlines()
    kept = [json.loads(line)["probabilities"] for line in lines]
    model, own, facts = load_model(tmp_path, TASK, "float32")
    dev = TASK.load("dev", recipe)
    rows = TASK.resolve(recipe).encode(dev, own, facts)
    predictor = Predictor([model], tf.distribute.get_strategy(), 16)
    logits = outputs(predictor, rows)["logits"]
    np.testing.assert_allclose(kept, tf.nn.softmax(logits), atol=1e-5)


@pytest.mark.slow
def test_early_stopping_and_its_resume(recipe, tmp_path, monkeypatch, capsys):
    recipe = recipe.override(["early_stopping=2", "eval_steps=2"])
    scores = {2: 0.5, 4: 0.7, 6: 0.7, 8: 0.1}

    def score(self, references, values, labels):
        return {"accuracy": scores.get(current[0], 0.0)}

    current = [0]
    train = TrainingLoop._train

    def follow(self, phase, batch, number, progress, history):
        current[0] = number
        train(self, phase, batch, number, progress, history)

    monkeypatch.setattr(SentenceTask, "label_scores", score)
    monkeypatch.setattr(TrainingLoop, "_train", follow)
    run_finetuning(TASK, recipe, tmp_path / "whole", ["train"])
    assert history(tmp_path / "whole")[-1]["step"] == 8
    results = json.loads((tmp_path / "whole" / "results.json").read_text())
    assert results["best_step"] == 4
    assert results["stopped_early"]
    printed = capsys.readouterr().out
    assert "no evaluation was better than that of step 4" in printed
    run_finetuning(TASK, recipe, tmp_path / "whole", ["train"])
    assert "already finished" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            run_finetuning(TASK, recipe, tmp_path / "killed", ["train"])
    run_finetuning(TASK, recipe, tmp_path / "killed", ["train"])
    assert history(tmp_path / "killed") == history(tmp_path / "whole")
    np.testing.assert_array_equal(
        weights(tmp_path / "killed")[EMBEDDINGS],
        weights(tmp_path / "whole")[EMBEDDINGS],
    )


@pytest.fixture(scope="module")
def without_dropout(tmp_path_factory):
    """A recipe without dropout, whose masks differ between replicas."""
    folder = tmp_path_factory.mktemp("without_dropout")
    start = model_folder(
        folder / "model",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return small_recipe(start, num_train_epochs=1.0, learning_rate=1e-3)


@pytest.fixture
def head_without_dropout(monkeypatch):
    from bert_tf import models

    classifier = models.bert_classifier
    monkeypatch.setattr(
        models,
        "bert_classifier",
        lambda encoder, num, **others: classifier(
            encoder, num, dropout=0.0, **others
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["strategy=mirrored"],
        ["gradient_accumulation_steps=4"],
        ["strategy=mirrored", "gradient_accumulation_steps=2"],
    ],
)
def test_strategies_and_accumulation_give_one_result(
    settings, without_dropout, head_without_dropout, tmp_path
):
    run_finetuning(TASK, without_dropout, tmp_path / "one", ["train"])
    other = without_dropout.override(settings)
    run_finetuning(TASK, other, tmp_path / "two", ["train"])
    theirs = weights(tmp_path / "two" / "last")
    for name, array in weights(tmp_path / "one" / "last").items():
        np.testing.assert_allclose(array, theirs[name], atol=2e-5)


@pytest.mark.parametrize("layers", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_frozen_layers_stay_and_others_move(layers, recipe, start, tmp_path):
    recipe = recipe.override([f"freeze_layers={layers}", "num_train_epochs=1"])
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    before = load_checkpoint(start).arrays
    frozen = ["bert/embeddings", *(f"layer_{i}/" for i in range(layers))]
    for name, array in weights(tmp_path / "last").items():
        if name in before:
            stays = any(part in name for part in frozen)
            assert np.array_equal(array, before[name]) == stays, name


@pytest.mark.slow
def test_a_frozen_run_resumes_on_its_own_weights_only(
    recipe, start, tmp_path, monkeypatch
):
    recipe = recipe.override(["freeze_layers=1"])
    copy = tmp_path / "copy"
    shutil.copytree(start, copy)
    recipe = recipe.override([f"init_from={copy}"])
    stop_at(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        run_finetuning(TASK, recipe, tmp_path / "run", ["train"])
    monkeypatch.undo()
    checkpoint = load_checkpoint(copy)
    arrays = {k: np.array(v) for k, v in checkpoint.arrays.items()}
    arrays[EMBEDDINGS][7, 3] += 1
    save_checkpoint(copy, dataclasses.replace(checkpoint, arrays=arrays))
    with pytest.raises(UserError, match="another set of frozen weights"):
        run_finetuning(TASK, recipe, tmp_path / "run", ["train"])


def test_rate_factors_fall_towards_the_embeddings(start):
    from bert_tf.encoder import BertEncoder

    encoder = BertEncoder.from_checkpoint(start)
    model = TaskModel(bert_classifier(encoder, 2))
    factors = dict(
        zip(
            [v.path for v in model.trainable_variables],
            lr_multipliers(encoder, model.trainable_variables, 0.5),
            strict=True,
        )
    )
    for path, factor in factors.items():
        if "embeddings" in path:
            assert factor == 0.125, path
        elif "layer_0/" in path:
            assert factor == 0.25, path
        elif "layer_1/" in path:
            assert factor == 0.5, path
        else:
            assert factor == 1, path
    assert len(set(factors.values())) == 4


@pytest.mark.slow
def test_layer_decay_scales_the_first_step(recipe, start, tmp_path):
    """Adam's first step has the size of the rate, whatever the gradient."""
    settings = ["num_train_epochs=0.1", "warmup_proportion=0"]
    recipe = recipe.override([*settings, "weight_decay_rate=0"])
    before = load_checkpoint(start).arrays
    moved = {}
    for decay in (1.0, 0.5):
        folder = tmp_path / str(decay)
        one = recipe.override([f"layer_decay={decay}"])
        assert run_finetuning(TASK, one, folder, ["train"])
        after = weights(folder / "last")
        moved[decay] = {
            name: np.median(np.abs(after[name] - before[name]))
            for name in before
        }
    for name, factor in (
        ("bert/pooler/dense/kernel", 1.0),
        ("bert/encoder/layer_1/output/dense/kernel", 0.5),
        ("bert/encoder/layer_0/attention/self/query/kernel", 0.25),
        ("bert/embeddings/LayerNorm/beta", 0.125),
    ):
        ratio = moved[0.5][name] / moved[1.0][name]
        assert ratio == pytest.approx(factor, rel=0.01), name


def test_class_weights():
    targets = np.array([0, 0, 0, 1], np.int32)
    labels = ["a", "b"]
    assert class_weights_of("", targets, labels) is None
    balanced = class_weights_of("balanced", targets, labels)
    assert balanced == pytest.approx([4 / 6, 2.0])
    assert np.mean(np.array(balanced)[targets]) == pytest.approx(1)
    assert class_weights_of("1, 2.5", targets, labels) == [1.0, 2.5]
    for wrong in ("1", "1,2,3", "1,x", "1,-1", "0,1", "1,nan"):
        with pytest.raises(UserError, match="2 numbers above 0"):
            class_weights_of(wrong, targets, labels)


@pytest.mark.slow
def test_class_weights_change_the_training(recipe, tmp_path):
    recipe = recipe.override(["num_train_epochs=0.4"])
    run_finetuning(TASK, recipe, tmp_path / "plain", ["train"])
    weighted = recipe.override(["class_weights=1,9"])
    run_finetuning(TASK, weighted, tmp_path / "weighted", ["train"])
    first = [
        history(tmp_path / name)[0]["loss"] for name in ("plain", "weighted")
    ]
    assert abs(first[0] - first[1]) > 1e-3


@pytest.mark.slow
def test_regression(recipe, tmp_path):
    task = RegressionTask(name="mood", data=numbers(data(pairs=True)))
    run_finetuning(task, recipe, tmp_path, ["train", "predict"])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["labels"] == []
    losses = [row["loss"] for row in history(tmp_path) if "loss" in row]
    assert losses[-1] < losses[0] * 0.7
    with pytest.raises(UserError, match="class_weights"):
        run_finetuning(
            task,
            recipe.override(["class_weights=balanced"]),
            tmp_path / "other",
            ["train"],
        )


@pytest.mark.slow
def test_several_labels(recipe, tmp_path):
    def labelled(example):
        names = [example.label] * (example.label == "positive")
        names += ["film"] * ("film" in example.text_a)
        return example._replace(label=tuple(sorted(names)))

    both = data()
    for split in ("train", "dev"):
        both.splits[split] = [labelled(e) for e in both.splits[split]]
    task = MultiLabelTask(name="mood", data=both)
    with pytest.raises(UserError, match="takes a MultiLabelRecipe, not a Sen"):
        run_finetuning(task, recipe, tmp_path, ["train"])
    recipe = MultiLabelRecipe(**recipe.to_dict(), threshold=0.45)
    run_finetuning(task, recipe, tmp_path, ["train", "predict"])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["labels"] == ["film", "positive"]
    assert results["dev"]["dev"]["micro_f1"] > 0.55
    assert results["threshold"] == 0.45
    assert read_config(tmp_path, task).threshold == 0.45


@pytest.mark.slow
def test_windows_train_and_their_logits_are_averaged(recipe, tmp_path):
    recipe = recipe.override(
        ["max_seq_length=9", "long_inputs=windows", "doc_stride=5"]
    )
    done = run_finetuning(TASK, recipe, tmp_path, ["train", "eval"])
    assert done["eval"]["dev"]["accuracy"] > 0.8
    model, tokens, facts = load_model(tmp_path, TASK)
    assert facts.long_inputs == "windows"
    dev = TASK.data.splits["dev"]
    rows = encode(dev, tokens, 9, "windows", 5)
    predictor = Predictor([model], tf.distribute.get_strategy(), 4)
    made = TASK.resolve(recipe).encode(dev, tokens, facts)
    found = predictor.outputs(made)["logits"]
    for number in range(len(dev)):
        mine = np.flatnonzero(rows.example == number)
        alone = model(rows.batch(mine))["logits"].numpy()
        np.testing.assert_allclose(found[number], alone.mean(0), atol=1e-5)


def test_bucketed_batches_have_the_loss_of_padded_ones(start):
    from bert_tf.encoder import BertEncoder

    model = TaskModel(bert_classifier(BertEncoder.from_checkpoint(start), 2))
    rows = encode(TASK.data.splits["train"], tokenizer(), 32)
    labels = np.arange(92, dtype=np.int32) % 2
    objective = ClassesObjective()
    total = {"bucketed": 0.0, "padded": 0.0}
    for chosen in epoch_batches(len(rows), 4, 1, 0):
        batch = {**rows.batch(chosen), EXAMPLE_WEIGHTS: rows.weights[chosen]}
        wide = {
            name: np.pad(value, [(0, 0), (0, 32 - value.shape[1])])
            if value.ndim == 2
            else value
            for name, value in batch.items()
        }
        for name, inputs in (("bucketed", batch), ("padded", wide)):
            answers = {**inputs, "label_ids": labels[chosen]}
            losses, _ = objective(model(inputs), answers)
            total[name] += float(losses["loss"])
    assert total["bucketed"] == pytest.approx(total["padded"], rel=1e-5)
    assert wide["input_ids"].shape != batch["input_ids"].shape


@pytest.mark.slow
def test_a_few_widths_are_traced_once(recipe, tmp_path, monkeypatch):
    from bert_tf.training.step import TrainingStep

    traced = []
    forward = TrainingStep._forward

    def count(self, batch, counter):
        traced.append(batch["input_ids"].shape)
        return forward(self, batch, counter)

    monkeypatch.setattr(TrainingStep, "_forward", count)
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert [tuple(shape) for shape in traced] == [(8, None)]


@pytest.mark.slow
def test_a_head_of_other_labels_starts_fresh(finished, recipe, tmp_path, capfd):
    folder, _ = finished
    settings = [f"init_from={folder}", "num_train_epochs=0.1"]
    again = recipe.override([*settings, "learning_rate=1e-9"])
    same = run_finetuning(TASK, again, tmp_path / "same", ["train"])
    assert same["train"]["dev"]["dev"]["accuracy"] == 1.0
    assert "starts fresh" not in capfd.readouterr().err
    other = numbers(data())
    task = RegressionTask(name="mood", data=other)
    run_finetuning(task, again, tmp_path / "other", ["train"])
    told = "its classifier is of another task (mood); starts fresh."
    assert capfd.readouterr().err.count(told) == 1


@pytest.mark.slow
def test_bfloat16(recipe, tmp_path):
    recipe = recipe.override(["precision=mixed_bfloat16"])
    done = run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert done["train"]["dev"]["dev"]["accuracy"] > 0.8
    assert all(a.dtype == np.float32 for a in weights(tmp_path).values())


@pytest.mark.slow
def test_a_learning_rate_that_is_too_high(recipe, tmp_path):
    recipe = recipe.override(
        ["learning_rate=1e30", "max_grad_norm=0", "warmup_proportion=0"]
    )
    with pytest.raises(NonFiniteError, match="loss or gradient is not finite"):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert not (tmp_path / "bert_model.safetensors").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["init_from="], "`init_from`: name the model"),
        (["strategy=tpu"], "batches of different lengths, which TPUs cannot"),
        (["max_seq_length=41"], "is above max_position_embeddings 40"),
        (["freeze_layers=3"], "has 2 layers; choose at most that"),
        (["train_batch_size=6", "gradient_accumulation_steps=4"], "multiple"),
        (["num_train_epochs=0.08"], "do not fill one batch"),
        (["class_weights=0,1"], "2 numbers above 0 for the labels"),
        (["class_weights=1,2,3"], "2 numbers above 0 for the labels"),
    ],
)
def test_settings_that_do_not_fit(settings, message, recipe, tmp_path):
    with pytest.raises(UserError, match=message) as caught:
        run_finetuning(
            TASK, recipe.override(settings), tmp_path / "new", ["train"]
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_names_that_are_not_utf_8(start, tmp_path):
    """Such bytes in a path are lone surrogates in Python."""
    copy = tmp_path / os.fsdecode(b"m\xff")
    shutil.copytree(start, copy)
    recipe = small_recipe(copy, num_train_epochs=0.1)
    run_finetuning(TASK, recipe, tmp_path / "run", ["train", "eval"])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["model"] == str(copy)
    assert (tmp_path / "run" / "learning_curve.png").exists()


def test_a_checkpoint_without_a_vocabulary(start, recipe, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(start, copy)
    (copy / "vocab.txt").unlink()
    recipe = recipe.override([f"init_from={copy}"])
    with pytest.raises(UserError, match="holds no vocabulary; put the vocab"):
        run_finetuning(TASK, recipe, tmp_path / "new", ["train"])


def test_a_checkpoint_of_another_vocabulary(recipe, tmp_path):
    start = model_folder(tmp_path / "model", vocab_size=len(TOKENS) + 128)
    recipe = recipe.override([f"init_from={start}"])
    told = f"vocabulary has {len(TOKENS)} tokens, but the model has vocab_size"
    with pytest.raises(UserError, match=told):
        run_finetuning(TASK, recipe, tmp_path / "new", ["check"])


def test_a_number_trained_and_scored(start, tmp_path):
    task = RegressionTask(name="mood", data=numbers(data()))
    recipe = small_recipe(start, num_train_epochs=1.0)
    modes = ["train", "eval", "predict"]
    done = run_finetuning(task, recipe, tmp_path, modes)
    assert done["eval"] == done["train"]["dev"]
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert not (tmp_path / "labels.json").exists()
    answers = done["predict"]["test"].read_text().splitlines()
    assert [len(line.split("\t")) for line in answers] == [2] * 8


def test_the_test_rows_are_read_before_training(recipe, tmp_path):
    rows = data()

    def refuse(split, recipe, labelled):
        if split == "test":
            raise UserError("test.tsv, row 3: is broken.")
        return rows.splits[split]

    broken = data()
    broken.read = refuse
    task = SentenceTask(name="mood", data=broken)
    with pytest.raises(UserError, match="test.tsv, row 3"):
        run_finetuning(task, recipe, tmp_path / "new", ["train", "predict"])
    assert not (tmp_path / "new").exists()


def test_check_finds_what_training_would_refuse(recipe, tmp_path):
    wrong = data()
    wrong.splits["dev"][4] = wrong.splits["dev"][4]._replace(label="neither")
    task = SentenceTask(name="mood", data=wrong)
    with pytest.raises(UserError, match="row 6: unknown label 'neither'"):
        run_finetuning(task, recipe, tmp_path / "new", ["check"])
    alike = data()
    alike.splits["train"] = [
        e._replace(label="positive") for e in alike.splits["train"]
    ]
    task = SentenceTask(name="mood", data=alike)
    with pytest.raises(UserError, match="every row has the label 'positive'"):
        run_finetuning(task, recipe, tmp_path / "new", ["check"])


def test_a_model_of_single_texts_takes_no_pairs(finished, recipe, tmp_path):
    folder, _ = finished
    task = SentenceTask(name="mood", data=data(pairs=True))
    recipe = recipe.override([f"init_from={folder}"])
    with pytest.raises(UserError, match=r"rows of 2 text\(s\), but the model"):
        run_finetuning(task, recipe, tmp_path / "new", ["predict"])


def test_pairs_need_two_segments(recipe, tmp_path):
    start = model_folder(tmp_path / "model", type_vocab_size=1)
    task = SentenceTask(name="mood", data=data(pairs=True))
    recipe = recipe.override([f"init_from={start}"])
    with pytest.raises(UserError, match="type_vocab_size is 1"):
        run_finetuning(task, recipe, tmp_path / "new", ["train"])


def test_an_unknown_label_in_dev(recipe, tmp_path):
    wrong = data()
    wrong.splits["dev"][4] = wrong.splits["dev"][4]._replace(label="neither")
    task = SentenceTask(name="mood", data=wrong)
    with pytest.raises(UserError, match="row 6: unknown label 'neither'"):
        run_finetuning(task, recipe, tmp_path / "new", ["train"])


def test_a_folder_with_other_work(finished, recipe, start, tmp_path):
    other = recipe.override(["learning_rate=1e-4"])
    with pytest.raises(UserError, match="learning_rate was 0.01 and is now"):
        run_finetuning(TASK, other, finished[0], ["train"])
    with pytest.raises(UserError, match="holds a bert_config.json that no run"):
        run_finetuning(TASK, recipe, start, ["train"])
    (tmp_path / "recipe.json").write_text('{"size": "tiny"}')
    with pytest.raises(UserError, match="a run of another command"):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "results.json").write_text("{}")
    with pytest.raises(UserError, match="holds a results.json that no run"):
        run_finetuning(TASK, recipe, tmp_path / "own", ["train"])


def test_other_rows_do_not_resume(finished, recipe, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished[0], copy)
    task = SentenceTask(name="mood", data=data(train=93))
    with pytest.raises(UserError, match="another set of training rows"):
        run_finetuning(task, recipe, copy, ["train"])


def test_eval_of_a_model_elsewhere(finished, recipe, start, tmp_path):
    moved = recipe.override([f"init_from={finished[0]}"])
    done = run_finetuning(TASK, moved, tmp_path / "new", ["eval"])
    assert done["eval"]["dev"]["accuracy"] == 1.0
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert written == {"eval_dev.json", "predictions_dev.tsv"}
    with pytest.raises(UserError, match="holds no fine-tuned model"):
        run_finetuning(TASK, recipe, tmp_path / "none", ["eval"])
    other = SentenceTask(name="other", data=data())
    with pytest.raises(UserError, match="fine-tuned for mood, not other; give"):
        run_finetuning(other, recipe, finished[0], ["predict"])


def test_check_reads_and_writes_nothing(recipe, tmp_path, capsys):
    done = run_finetuning(TASK, recipe, tmp_path / "new", ["check"])
    assert done["check"]
    assert "train: 92 rows" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_unknown_modes(recipe, tmp_path):
    for modes in (["train", "tune"], []):
        with pytest.raises(UserError, match="takes one or more of train, ev"):
            run_finetuning(TASK, recipe, tmp_path, modes)


@pytest.mark.slow
def test_an_empty_text_is_a_row_too(recipe, tmp_path):
    more = data()
    more.splits["dev"].append(Example("", None, "negative", "13", 15))
    task = SentenceTask(name="mood", data=more)
    recipe = recipe.override(["num_train_epochs=0.1"])
    done = run_finetuning(task, recipe, tmp_path, ["train"])
    assert done["train"]["examples"]["dev"] == 14
