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
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.model_folder import load_model
from bert_tf.families.rows import EXAMPLE_WEIGHTS
from bert_tf.families.task_model import ClassesObjective, TaskModel
from bert_tf.families.text_classification.kinds import (
    MultiLabelTask,
    RegressionTask,
    SentenceTask,
)
from bert_tf.families.text_classification.task import class_weights_of, encode
from bert_tf.finetuning.batches import epoch_batches
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import freeze, lr_multipliers
from bert_tf.models import bert_classifier
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.saved_states import SavedStates
from bert_tf.training.sentinel import NonFiniteError
from bert_tf.training.step import TrainingStep
from tests.as_numpy import as_numpy
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
    answer_lines,
    assert_same_run,
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
        "README.md",
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
    # Those of the texts that the test rows are.
    lines = (folder / "predictions_test.tsv").read_text().splitlines()
    answers = [line.split("\t")[1] for line in lines[1:]]
    assert answers == [e.label for e in texts(7, 5)]
    dev = TASK.data.splits["dev"]
    for line, example in zip(answer_lines(folder), dev, strict=True):
        assert line["text_a"] == example.text_a
        assert line["label"] == example.label
        place = int(np.argmax(line["probabilities"]))
        assert line["prediction"] == ("negative", "positive")[place]
        assert sum(line["probabilities"]) == pytest.approx(1, rel=1e-5)


@pytest.mark.slow
def test_interrupted_is_uninterrupted(
    finished, recipe, tmp_path, monkeypatch, capsys
):
    """By a kill, and by Ctrl-C as Python has it, at the last step too."""
    stop_at(monkeypatch, 30)
    with pytest.raises(KeyboardInterrupt):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    for step in (31, 34):
        monkeypatch.undo()
        press_ctrl_c(monkeypatch, step)
        line = f"stopped at step {step} of 34, whose state is saved"
        with pytest.raises(KeyboardInterrupt, match=line):
            run_finetuning(TASK, recipe, tmp_path, ["train"])
        assert not (tmp_path / "task.json").exists()
        assert (tmp_path / "checkpoints" / f"step-{step:08}").is_dir()
    monkeypatch.undo()
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    printed = capsys.readouterr().out
    for line in ("resuming from step 28 of 34", "resuming from step 31 of 34"):
        assert line in printed
    assert "already finished: 34 of 34" in printed
    assert_same_run(tmp_path, finished[0])


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("scores", "best", "passes"),
    [
        ([0.2, 0.9, 0.5], 24, 4),
        pytest.param([0.2, 0.9], 23, 2, marks=pytest.mark.slow),
    ],
)
def test_the_best_and_the_last_model(
    scores, best, passes, recipe, tmp_path, monkeypatch
):
    """Dev is answered once an evaluation, and again if the last is not best."""
    left, asked, traced = iter(scores), [], []
    monkeypatch.setattr(
        SentenceTask, "metrics", lambda *_: {"accuracy": next(left, 0.0)}
    )
    outputs, forward = Predictor.outputs, TrainingStep._forward

    def counted(self, rows):
        asked.append(rows)
        return outputs(self, rows)

    def traced_forward(self, batch, counter):
        traced.append(tuple(batch["input_ids"].shape))
        return forward(self, batch, counter)

    monkeypatch.setattr(Predictor, "outputs", counted)
    monkeypatch.setattr(TrainingStep, "_forward", traced_forward)
    recipe = recipe.override(
        [f"num_train_epochs={len(scores)}", "keep_checkpoint_max=9"]
    )
    done = run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert len(asked) == passes
    # One graph for all lengths.
    assert traced == [(8, None)]
    assert done["train"]["best_step"] == best
    kept = weights(tmp_path)[EMBEDDINGS]
    change = np.abs(kept - weights(tmp_path / "last")[EMBEDDINGS]).max()
    assert (change > 1e-4) == (best == 24)
    if best == 24:
        state = tmp_path / "checkpoints" / "step-00000024"
        arrays = read_arrays(state / "state.safetensors")
        (name,) = (n for n in arrays if n.endswith("word_embeddings"))
        np.testing.assert_array_equal(arrays[name], kept)
    # What is written is what the model in the folder answers.
    written = [line["probabilities"] for line in answer_lines(tmp_path)]
    model, own, config = load_model(tmp_path, TASK, "float32")
    rows = TASK.encode(TASK.load("dev", recipe), own, config)
    predictor = Predictor([model], tf.distribute.get_strategy(), 16)
    logits = outputs(predictor, rows)["logits"]
    np.testing.assert_allclose(written, tf.nn.softmax(logits), atol=1e-5)


@pytest.mark.slow
def test_early_stopping_and_its_resume(recipe, tmp_path, monkeypatch, capsys):
    recipe = recipe.override(["early_stopping=2", "eval_steps=2"])
    scores = {2: 0.5, 4: 0.7, 6: 0.7, 8: 0.1}

    def score(self, references, values, labels=()):
        return {"accuracy": scores.get(current[0], 0.0)}

    current = [0]
    train = TrainingLoop._train

    def follow(self, phase, batch, number, progress, history):
        current[0] = number
        train(self, phase, batch, number, progress, history)

    monkeypatch.setattr(SentenceTask, "metrics", score)
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
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


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
def test_strategies_and_accumulation_give_one_result(
    head_without_dropout, tmp_path
):
    # Masks of dropout differ between replicas.
    start = model_folder(
        tmp_path / "model",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    one = small_recipe(start, num_train_epochs=1.0, learning_rate=1e-3)
    other = one.override(["strategy=mirrored", "gradient_accumulation_steps=2"])
    for recipe in (one, other):
        run_finetuning(TASK, recipe, tmp_path / recipe.strategy, ["train"])
    theirs = weights(tmp_path / "mirrored" / "last")
    for name, array in weights(tmp_path / "one_device" / "last").items():
        np.testing.assert_allclose(array, theirs[name], atol=2e-5)


def test_frozen_layers_stay_and_others_move(recipe, start, tmp_path):
    recipe = recipe.override(["freeze_layers=1", "num_train_epochs=1"])
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    before = load_checkpoint(start).arrays
    for name, array in weights(tmp_path / "last").items():
        if name in before:
            stays = "bert/embeddings" in name or "layer_0/" in name
            assert np.array_equal(array, before[name]) == stays, name


@pytest.mark.parametrize(
    ("layers", "frozen"),
    [(-1, []), (0, ["embeddings"]), (2, ["embeddings", "layer_0", "layer_1"])],
)
def test_what_is_frozen(layers, frozen, start):
    for reads_pooler in (True, False):
        encoder = BertEncoder.from_checkpoint(start)
        freeze(encoder, layers, reads_pooler)
        parts = [*frozen, *([] if reads_pooler else ["pooler"])]
        for variable in encoder.weights:
            stays = any(part in variable.path for part in parts)
            trained = any(variable is v for v in encoder.trainable_weights)
            assert trained != stays, variable.path


def test_rate_factors_fall_towards_the_embeddings(start):
    encoder = BertEncoder.from_checkpoint(start)
    model = TaskModel(bert_classifier(encoder, 2))
    variables = model.trainable_variables
    factors = {"embeddings": 0.125, "layer_0/": 0.25, "layer_1/": 0.5}
    found = lr_multipliers(encoder, variables, 0.5)
    for variable, factor in zip(variables, found, strict=True):
        parts = [part for part in factors if part in variable.path]
        assert factor == (factors[parts[0]] if parts else 1), variable.path
    assert len(set(found)) == 4


def test_a_bilstm_learns_as_the_head_does(start):
    config = load_checkpoint(start).config
    encoder = BertEncoder(dataclasses.replace(config, bilstm=True))
    freeze(encoder, config.num_hidden_layers, reads_pooler=False)
    model = TaskModel(bert_classifier(encoder, 2))
    factors = lr_multipliers(encoder, model.trainable_variables, 0.5)
    # Both directions' three weights, and the head's two.
    assert factors == [1.0] * 8


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


def test_class_weights(recipe):
    targets = np.array([0, 0, 0, 1], np.int32)
    labels = ["a", "b"]
    balanced = class_weights_of("balanced", targets, labels)
    assert balanced == pytest.approx([4 / 6, 2.0])
    assert np.mean(np.array(balanced)[targets]) == pytest.approx(1)
    assert class_weights_of("1, 2.5", targets, labels) == [1.0, 2.5]
    for wrong in ("1", "1,2,3", "1,x", "1,-1", "0,1", "1,nan"):
        with pytest.raises(UserError, match="2 numbers above 0"):
            class_weights_of(wrong, targets, labels)
    # And the loss of a run has them.
    recipe = recipe.override(["class_weights=1,9"])
    train = TASK.load("train", recipe)
    objective = TASK.loss(recipe, train, TASK.configure(recipe, train))
    assert objective.class_weights == [1.0, 9.0]


def test_bucketed_batches_have_the_loss_of_padded_ones(start):
    model = TaskModel(bert_classifier(BertEncoder.from_checkpoint(start), 2))
    rows = encode(TASK.data.splits["train"], tokenizer(), 32)
    labels = np.arange(92, dtype=np.int32) % 2
    objective = ClassesObjective()
    total = {"bucketed": 0.0, "padded": 0.0}
    for chosen in epoch_batches(len(rows), 4, 1, 0):
        batch = as_numpy(rows.batch(chosen))
        batch[EXAMPLE_WEIGHTS] = np.ones(len(chosen), np.float32)
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
def test_a_head_of_other_labels_starts_fresh(finished, recipe, tmp_path, capfd):
    folder, _ = finished
    settings = [f"init_from={folder}", "num_train_epochs=0.1"]
    again = recipe.override([*settings, "learning_rate=1e-9"])
    same = run_finetuning(TASK, again, tmp_path / "same", ["train"])
    assert same["train"]["dev"]["dev"]["accuracy"] == 1.0
    assert "initialized randomly" not in capfd.readouterr().err
    other = numbers(data())
    task = RegressionTask(name="mood", data=other)
    run_finetuning(task, again, tmp_path / "other", ["train"])
    told = "is for other labels (2 outputs, where a number takes 1)"
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


REGRESSION = RegressionTask(name="mood", data=numbers(data()))
SEVERAL = MultiLabelTask(name="mood", data=data())


@pytest.mark.parametrize(
    ("task", "mode", "settings", "message"),
    [
        (TASK, "train", "init_from=", "`init_from`: name the model"),
        (TASK, "train", "max_seq_length=41", "longest_input of"),
        (TASK, "train", "freeze_layers=3", "to 2 .num_hidden_layers of"),
        (
            TASK,
            "train",
            "train_batch_size=6 gradient_accumulation_steps=4",
            "multiple",
        ),
        (TASK, "train", "num_train_epochs=0.08", "do not fill one batch"),
        (TASK, "train", "class_weights=0,1", "2 numbers above 0 for the labe"),
        (REGRESSION, "train", "class_weights=balanced", "class_weights"),
        (SEVERAL, "train", "", "takes a MultiLabelRecipe, not a SentenceRec"),
        (TASK, "train,tune", "", "takes one or more of train, eval"),
        (TASK, "", "", "takes one or more of train, eval"),
        (TASK, "eval", "", "holds no fine-tuned model"),
    ],
)
def test_settings_that_do_not_fit(
    task, mode, settings, message, recipe, tmp_path
):
    recipe = recipe.override(settings.split())
    modes = mode.split(",") if mode else []
    with pytest.raises(UserError, match=message) as caught:
        run_finetuning(task, recipe, tmp_path / "new", modes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changes", "lost", "message"),
    [
        ({}, "vocab.txt", "holds no vocabulary; put the vocab"),
        (
            {"vocab_size": len(TOKENS) + 128},
            "",
            f"vocabulary has {len(TOKENS)} tokens, but vocab_size is",
        ),
        ({"type_vocab_size": 1}, "", "type_vocab_size is 1"),
    ],
)
def test_models_that_do_not_fit(changes, lost, message, recipe, tmp_path):
    start = model_folder(tmp_path / "model", **changes)
    if lost:
        (start / lost).unlink()
    task = SentenceTask(name="mood", data=data(pairs=True))
    recipe = recipe.override([f"init_from={start}"])
    with pytest.raises(UserError, match=message):
        run_finetuning(task, recipe, tmp_path / "new", ["train"])
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


@pytest.mark.parametrize("mode", ["train", "check"])
def test_rows_that_cannot_be_learned(mode, recipe, tmp_path):
    wrong, alike = data(), data()
    wrong.splits["dev"][4] = wrong.splits["dev"][4]._replace(label="neither")
    alike.splits["train"] = [
        e._replace(label="positive") for e in alike.splits["train"]
    ]
    for rows, message in (
        (wrong, "row 6: unknown label 'neither'"),
        (alike, "every row has the label 'positive'"),
    ):
        task = SentenceTask(name="mood", data=rows)
        with pytest.raises(UserError, match=message):
            run_finetuning(task, recipe, tmp_path / "new", [mode])


def test_a_model_of_single_texts_takes_no_pairs(finished, recipe, tmp_path):
    folder, _ = finished
    task = SentenceTask(name="mood", data=data(pairs=True))
    recipe = recipe.override([f"init_from={folder}"])
    with pytest.raises(UserError, match=r"rows of 2 text\(s\), but the model"):
        run_finetuning(task, recipe, tmp_path / "new", ["predict"])


def test_a_folder_with_other_work(recipe, start, tmp_path):
    with pytest.raises(UserError, match="holds a bert_config.json that no run"):
        run_finetuning(TASK, recipe, start, ["train"])
    (tmp_path / "recipe.json").write_text('{"size": "tiny"}')
    with pytest.raises(UserError, match="a run of another command"):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "results.json").write_text("{}")
    with pytest.raises(UserError, match="holds a results.json that no run"):
        run_finetuning(TASK, recipe, tmp_path / "own", ["train"])
