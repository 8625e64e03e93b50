"""Runs of a tiny model: a kill, best weights, freezing, errors."""

import dataclasses
import json
import os
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import (
    CLASSIFIER,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
)
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.model_folder import load_model
from bert_tf.families.task_model import TaskModel
from bert_tf.families.text_classification.kinds import (
    MultiLabelTask,
    RegressionTask,
    SentenceTask,
)
from bert_tf.families.text_classification.task import class_weights_of
from bert_tf.finetuning import report_files
from bert_tf.finetuning.evaluation import Predictor
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import (
    freeze,
    lr_multipliers,
    open_initial,
    prepare_training,
)
from bert_tf.models import bert_classifier
from bert_tf.report import figures
from bert_tf.training.step import TrainingStep
from tests.checkpoints.arrays import assert_same_arrays
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import (
    TOKENS,
    data,
    model_folder,
    numbers,
    small_recipe,
    texts,
)
from tests.run_folders import (
    answer_lines,
    assert_same_run,
    history,
    stop_at,
    weights,
)
from tests.user_errors import error_of

# 24 rows in batches of 8: an epoch, and an evaluation, has 3 steps.
TASK = SentenceTask(name="mood", data=data(train=24))
WRITE_LEARNING_CURVE = figures.write_learning_curve
EMBEDDINGS = "bert/embeddings/word_embeddings"


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("start") / "model"
    return model_folder(folder, num_hidden_layers=1)


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("two_layers") / "model")


@pytest.fixture(scope="module")
def recipe(start):
    return small_recipe(start, num_train_epochs=1.0, save_checkpoints_steps=2)


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory) -> pathlib.Path:
    """The folder of a finished run of three steps."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with quickly():
        run_finetuning(TASK, recipe, folder, ["train"])
    return folder


def test_what_a_finished_run_records(whole):
    """Besides what tests/contracts/test_tasks.py asserts of every family."""
    names = {path.name for path in whole.iterdir()}
    assert names >= {"labels.json", "checkpoints", "tensorboard", "last"}
    results = json.loads((whole / "results.json").read_text())
    assert results["num_train_steps"] == results["best_step"] == 3
    assert results["examples"] == {"train": 24, "dev": 13}
    assert results["labels"] == ["negative", "positive"]
    assert load_checkpoint(whole).labels == ("negative", "positive")
    assert [r["step"] for r in history(whole) if "eval_loss" in r] == [3]
    for line, example in zip(answer_lines(whole), texts(13, 2), strict=True):
        assert line["text_a"] == example.text_a
        assert line["label"] == example.label
        best = int(np.argmax(line["probabilities"]))
        assert line["prediction"] == results["labels"][best]
        assert sum(line["probabilities"]) == pytest.approx(1, rel=1e-5)


@pytest.mark.witness("a fine-tuning that was killed ends as if it had not been")
def test_killed_it_is_resumed(whole, recipe, tmp_path, monkeypatch, quick):
    """tests/training/test_resuming.py interrupts a cheaper run in every way."""
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert not (tmp_path / "task.json").exists()
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    assert_same_run(tmp_path, whole)


def test_a_report_that_fails_is_a_warning(
    whole, recipe, tmp_path, quick, monkeypatch, capfd
):
    """The model, its scores and the predictions are written all the same."""

    def fail(*_: object) -> None:
        raise IsADirectoryError("report.html")

    folder = shutil.copytree(whole, tmp_path / "run")
    written = ("task.json", "results.json", "dev_predictions.jsonl")
    for name in written:
        (folder / name).unlink()
    monkeypatch.setattr(report_files, "write_report", fail)
    monkeypatch.setattr(figures, "write_learning_curve", fail)
    modes = ["train", "eval", "predict"]
    assert set(run_finetuning(TASK, recipe, folder, modes)) == set(modes)
    for name in (*written, "predictions_test.tsv"):
        assert (folder / name).is_file()
    printed = capfd.readouterr().err
    assert "warning: the report could not" in printed
    assert "(IsADirectoryError" in printed
    assert "warning: the learning curve could not" in printed


@pytest.mark.parametrize(
    ("scores", "passes"), [([0.2, 0.9, 0.5], 4), ([0.2, 0.9], 2)]
)
def test_the_best_and_the_last_model(
    scores, passes, recipe, tmp_path, monkeypatch, quick
):
    """Dev is answered once an evaluation, and again if the last is not best.

    Of four steps, early stopping leaves out the last.
    """
    left, asked = iter(scores), []
    monkeypatch.setattr(
        SentenceTask, "metrics", lambda *_: {"accuracy": next(left, 0.0)}
    )
    outputs = Predictor.outputs
    monkeypatch.setattr(
        Predictor,
        "outputs",
        lambda self, rows: asked.append(rows) or outputs(self, rows),
    )
    steps = 4 if len(scores) == 3 else 2
    recipe = recipe.override(
        [f"num_train_epochs={steps / 3 + 0.01}", "save_checkpoints_steps=1"]
        + ["eval_steps=1", "early_stopping=1"]
    )
    results = run_finetuning(TASK, recipe, tmp_path, ["train"])["train"]
    assert len(asked) == passes
    assert results["num_train_steps"] == steps
    assert results["best_step"] == 2
    assert results["stopped_early"] == (len(scores) == 3)
    assert history(tmp_path)[-1]["step"] == len(scores)
    kept = weights(tmp_path)[EMBEDDINGS]
    change = np.abs(kept - weights(tmp_path / "last")[EMBEDDINGS]).max()
    assert (change > 1e-4) == (len(scores) == 3)
    state = tmp_path / "checkpoints" / "step-00000002"
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


def test_frozen_layers_stay_and_others_move_at_their_rates(
    recipe, two_layers, tmp_path, quick
):
    """Adam's first step has the size of the rate, whatever the gradient."""
    recipe = recipe.override(
        [f"init_from={two_layers}", "freeze_layers=1", "layer_decay=0.5"]
        + ["num_train_epochs=0.4", "warmup_proportion=0", "weight_decay_rate=0"]
    )
    run_finetuning(TASK, recipe, tmp_path, ["train"])
    before = load_checkpoint(two_layers).arrays
    moved = {
        name: np.abs(array - before[name])
        for name, array in weights(tmp_path / "last").items()
        if name in before
    }
    for name, change in moved.items():
        stays = "bert/embeddings" in name or "layer_0/" in name
        assert (change.max() == 0) == stays, name
    pooler = np.median(moved["bert/pooler/dense/kernel"])
    upper = np.median(moved["bert/encoder/layer_1/output/dense/kernel"])
    assert upper / pooler == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    ("layers", "frozen"),
    [(-1, []), (0, ["embeddings"]), (2, ["embeddings", "layer_0", "layer_1"])],
)
def test_what_is_frozen(layers, frozen, two_layers):
    for reads_pooler in (True, False):
        encoder = BertEncoder.from_checkpoint(two_layers)
        freeze(encoder, layers, reads_pooler)
        parts = [*frozen, *([] if reads_pooler else ["pooler"])]
        for variable in encoder.weights:
            stays = any(part in variable.path for part in parts)
            trained = any(variable is v for v in encoder.trainable_weights)
            assert trained != stays, variable.path


def test_rate_factors_fall_towards_the_embeddings(two_layers):
    encoder = BertEncoder.from_checkpoint(two_layers)
    model = TaskModel(bert_classifier(encoder, 2))
    variables = model.trainable_variables
    factors = {"embeddings": 0.125, "layer_0/": 0.25, "layer_1/": 0.5}
    found = lr_multipliers(encoder, variables, 0.5)
    for variable, factor in zip(variables, found, strict=True):
        parts = [part for part in factors if part in variable.path]
        assert factor == (factors[parts[0]] if parts else 1), variable.path
    assert len(set(found)) == 4
    # A BiLSTM learns as the head does: three weights a direction, and two.
    config = dataclasses.replace(encoder.config, bilstm=True)
    encoder = BertEncoder(config)
    freeze(encoder, config.num_hidden_layers, reads_pooler=False)
    model = TaskModel(bert_classifier(encoder, 2))
    found = lr_multipliers(encoder, model.trainable_variables, 0.5)
    assert found == [1.0] * 8


def test_a_frozen_run_resumes_on_its_own_weights_only(
    recipe, start, tmp_path, monkeypatch, quick
):
    copy = shutil.copytree(start, tmp_path / "copy")
    recipe = recipe.override(
        ["freeze_layers=1", f"init_from={copy}", "save_checkpoints_steps=1"]
    )
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            run_finetuning(TASK, recipe, tmp_path / "run", ["train"])
    checkpoint = load_checkpoint(copy)
    arrays = {k: np.array(v) for k, v in checkpoint.arrays.items()}
    arrays[EMBEDDINGS][7, 3] += 1
    save_checkpoint(copy, dataclasses.replace(checkpoint, arrays=arrays))
    with pytest.raises(UserError, match="another set of frozen weights"):
        run_finetuning(TASK, recipe, tmp_path / "run", ["train"])


def test_class_weights(recipe):
    targets = np.array([0, 0, 0, 1], np.int32)
    labels = ["a", "b"]
    balanced = class_weights_of("balanced", targets, labels)
    assert balanced == pytest.approx([4 / 6, 2.0])
    assert class_weights_of("1, 2.5", targets, labels) == [1.0, 2.5]
    for wrong in ("1", "1,2,3", "1,x", "1,-1", "0,1", "1,nan"):
        with pytest.raises(UserError, match="2 numbers above 0"):
            class_weights_of(wrong, targets, labels)
    # And the loss of a run has them.
    recipe = recipe.override(["class_weights=1,9"])
    train = TASK.load("train", recipe)
    objective = TASK.loss(recipe, train, TASK.configure(recipe, train))
    assert objective.class_weights == [1.0, 9.0]


def test_a_head_of_other_labels_starts_fresh(classes, recipe, tmp_path, capfd):
    def prepared(task, recipe):
        init_from = {"init_from": str(classes.folder)}
        recipe = dataclasses.replace(recipe, **init_from)
        initial, tokenizer = open_initial(recipe)
        task = task.resolve(recipe)
        return prepare_training(task, recipe, initial, tokenizer, tmp_path)

    found = prepared(classes.task, classes.recipe)
    assert found.fresh == ()
    expected = load_checkpoint(classes.folder).arrays
    assert_same_arrays(found.initial.arrays, expected)
    capfd.readouterr()
    task = RegressionTask(name="mood", data=numbers(TASK.data))
    assert prepared(task, recipe).fresh == (CLASSIFIER,)
    message = "is for other labels (2 outputs, where a number takes 1)"
    assert capfd.readouterr().err.count(message) == 1


@pytest.mark.witness("fine-tuning in bfloat16, in one graph for all lengths")
def test_bfloat16_in_one_graph_for_all_lengths(recipe, tmp_path, monkeypatch):
    forward, traced = TrainingStep._outputs, []

    def counted(self, batch, counter):
        traced.append(tuple(batch["input_ids"].shape))
        return forward(self, batch, counter)

    monkeypatch.setattr(TrainingStep, "_outputs", counted)
    recipe = recipe.override(["precision=mixed_bfloat16", "num_train_epochs=3"])
    task = SentenceTask(name="mood", data=data())
    with quickly(graphs=True):
        done = run_finetuning(task, recipe, tmp_path, ["train"])
    assert done["train"]["dev"]["dev"]["accuracy"] > 0.8
    assert all(a.dtype == np.float32 for a in weights(tmp_path).values())
    assert traced == [(8, None)]


REGRESSION = RegressionTask(name="mood", data=numbers(data()))
SEVERAL = MultiLabelTask(name="mood", data=data())


@pytest.mark.parametrize(
    ("task", "mode", "settings", "message"),
    [
        (TASK, "train", "init_from=", "`init_from`: name the model"),
        (TASK, "train", "max_seq_length=41", "longest_input of"),
        (TASK, "train", "freeze_layers=2", "to 1 .num_hidden_layers of"),
        (TASK, "train", "gradient_accumulation_steps=3", "multiple"),
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
    task, mode, settings, message, recipe, tmp_path, quick
):
    recipe = recipe.override(settings.split())
    modes = mode.split(",") if mode else []
    line = error_of(run_finetuning, task, recipe, tmp_path / "new", modes)
    assert re.search(message, line), line
    assert not (tmp_path / "new").exists()


LARGER = len(TOKENS) + 128


@pytest.mark.parametrize(
    ("changes", "lost", "message"),
    [
        ({}, "vocab.txt", "holds no vocabulary; put the vocab"),
        ({"vocab_size": LARGER}, "", "tokens, but vocab_size is"),
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


def test_names_that_are_not_utf_8(start, tmp_path, quick, monkeypatch):
    """Such bytes in a path are lone surrogates in Python."""
    copy = shutil.copytree(start, tmp_path / os.fsdecode(b"m\xff"))
    recipe = small_recipe(copy, num_train_epochs=0.4)
    monkeypatch.setattr(figures, "write_learning_curve", WRITE_LEARNING_CURVE)
    run_finetuning(TASK, recipe, tmp_path / "run", ["train"])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["model"] == str(copy)
    assert (tmp_path / "run" / "learning_curve.png").exists()


def test_the_test_rows_are_read_before_training(recipe, tmp_path):
    rows, broken = data(), data()

    def refuse(split, recipe, labelled):
        if split == "test":
            raise UserError("test.tsv, row 3: is broken.")
        return rows.splits[split]

    broken.read = refuse
    task = SentenceTask(name="mood", data=broken)
    with pytest.raises(UserError, match="test.tsv, row 3"):
        run_finetuning(task, recipe, tmp_path / "new", ["train", "predict"])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("mode", ["train", "check"])
def test_rows_that_cannot_be_learned(mode, recipe, tmp_path, quick):
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


def test_a_model_of_single_texts_takes_no_pairs(classes, recipe, tmp_path):
    task = SentenceTask(name="sentence", data=data(pairs=True))
    recipe = recipe.override([f"init_from={classes.folder}"])
    with pytest.raises(UserError, match=r"rows of 2 text\(s\), but the model"):
        run_finetuning(task, recipe, tmp_path / "new", ["predict"])


def test_a_folder_with_other_work(recipe, start, tmp_path, quick):
    with pytest.raises(UserError, match="holds a bert_config.json that no run"):
        run_finetuning(TASK, recipe, start, ["train"])
    (tmp_path / "recipe.json").write_text('{"size": "tiny"}')
    with pytest.raises(UserError, match="a run of another command"):
        run_finetuning(TASK, recipe, tmp_path, ["train"])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "results.json").write_text("{}")
    with pytest.raises(UserError, match="holds a results.json that no run"):
        run_finetuning(TASK, recipe, tmp_path / "own", ["train"])
