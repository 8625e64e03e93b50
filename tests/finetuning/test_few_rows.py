"""The settings that few rows get, and the head that is fitted first."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.families.task_model import (
    LOSS,
    ClassesObjective,
    MultiLabelObjective,
    RegressionObjective,
    TaskModel,
)
from bert_tf.families.text_classification.few_rows import complete
from bert_tf.families.text_classification.recipe import (
    SentenceRecipe,
    UserTableRecipe,
)
from bert_tf.finetuning.head_start import fit_head
from bert_tf.models import bert_classifier
from tests.finetuning.sentence_runs import FixedRows, model_folder
from tests.model_helpers import encoder_inputs

CHOSEN = (
    *("num_train_epochs", "train_batch_size", "learning_rate"),
    *("classifier_pooling", "head_start"),
)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return load_checkpoint(
        model_folder(
            tmp_path_factory.mktemp("start") / "model", num_hidden_layers=1
        )
    )


def chosen(start, rows, width=384, new_head=True, recipe=None, **config):
    config = dataclasses.replace(start.config, hidden_size=width, **config)
    initial = dataclasses.replace(start, config=config)
    examples = [None] * rows
    found = complete(recipe or UserTableRecipe(), examples, initial, new_head)
    return tuple(getattr(found, name) for name in CHOSEN)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"rows": 16}, (20.0, 16, 1e-4, "mean", "fitted")),
        ({"rows": 200, "width": 768}, (20.0, 16, 5e-5, "mean", "fitted")),
        ({"rows": 200, "width": 1024}, (20.0, 16, 5e-5, "mean", "fitted")),
        ({"rows": 400, "width": 128}, (10.0, 16, 3e-4, "mean", "fitted")),
        ({"rows": 1333}, (3.0, 16, 1e-4, "mean", "fitted")),
        ({"rows": 1334}, (3.0, 32, 5e-5, "cls", "given")),
        ({"rows": 10**6}, (3.0, 32, 5e-5, "cls", "given")),
        # A head that was trained before goes on as it is.
        ({"rows": 16, "new_head": False}, (20.0, 16, 1e-4, "cls", "given")),
        ({"rows": 16, "bilstm": True}, (20.0, 16, 1e-4, "cls", "given")),
    ],
)
def test_the_number_of_rows_decides(start, capsys, how, expected) -> None:
    assert chosen(start, **how) == expected
    line = capsys.readouterr().out
    if how["rows"] > 1333:
        assert not line
    else:
        assert line.startswith(f"few rows ({how['rows']:,}), so num_train")
        assert line.count("\n") == 1


def test_what_is_set_stays(start, capsys) -> None:
    every = dict(zip(CHOSEN, (2.5, 4, 1e-3, "cls", "given"), strict=True))
    recipe = UserTableRecipe(**every)
    assert chosen(start, 16, recipe=recipe) == tuple(every.values())
    assert not capsys.readouterr().out
    for name, value in every.items():
        found = chosen(start, 16, recipe=UserTableRecipe(**{name: value}))
        assert found[CHOSEN.index(name)] == value
        assert f"{name}=" not in capsys.readouterr().out
    # Tasks of the paper have its settings, however few their rows.
    expected = (3.0, 32, 5e-5, "", "given")
    assert chosen(start, 16, recipe=SentenceRecipe()) == expected
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("objective", "outputs"),
    [
        (RegressionObjective(), 1),
        (ClassesObjective(), 3),
        (ClassesObjective([1.0, 2.0, 0.5]), 3),
        (MultiLabelObjective(), 3),
    ],
)
def test_the_head_fits_the_rows(start, objective, outputs) -> None:
    random = np.random.default_rng(2)
    labels = {
        "label_values": random.normal(2, 1, 40).astype("float32"),
        "label_ids": random.integers(0, 3, 40).astype("int32"),
        "label_sets": random.integers(0, 2, (40, 3)).astype("float32"),
    }
    name, weights = objective.label_name, random.uniform(0.5, 1, 40)
    values = {
        **encoder_inputs(start.config, rows=40, length=12, seed=1),
        "example_weights": weights.astype("float32"),
        name: labels[name],
    }
    rows = FixedRows(values)
    encoder = BertEncoder(start.config)
    encoder.load_arrays(
        {k: v for k, v in start.arrays.items() if k in encoder.to_arrays()}
    )
    model = TaskModel(bert_classifier(encoder, outputs))
    before = encoder.to_arrays()
    fit_head(model, "classifier", rows, objective, batch_size=1)
    for key, array in encoder.to_arrays().items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)
    batch = rows.batch(tf.range(40))
    inputs = encoder(batch, pooled_only=True)["pooled_output"].numpy()
    head = model.network.get_layer("classifier")
    kernel, bias = (v.numpy().astype("float64") for v in head.weights)
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
    standard = (inputs - mean) / scale
    penalty = 0.25 * inputs.shape[1] / 40
    if outputs == 1:
        # The normal equations of weighted ridge regression.
        weights = values["example_weights"].astype("float64")
        weights /= weights.sum()
        columns = np.c_[standard, np.ones(40)].astype("float64")
        ridge = np.diag([penalty / 2] * inputs.shape[1] + [0.0])
        solved = np.linalg.solve(
            columns.T * weights @ columns + ridge,
            columns.T * weights @ labels["label_values"],
        )
        np.testing.assert_allclose(kernel[:, 0] * scale, solved[:-1], atol=2e-4)
        np.testing.assert_allclose(bias + mean @ kernel, solved[-1], atol=2e-4)
        return
    # At the minimum the slopes of loss and penalty cancel.
    with tf.GradientTape() as tape:
        of_standard = tf.Variable(kernel * scale[:, None], dtype=tf.float32)
        shift = tf.Variable(bias + mean @ kernel, dtype=tf.float32)
        logits = tf.matmul(standard, of_standard) + shift
        sums, _ = objective({"logits": logits}, batch)
        loss = objective.normalise(sums, objective.loss_weights(batch))[LOSS]
    slopes = tape.gradient(loss, (of_standard, shift))
    assert np.abs(of_standard).max() > 0.05
    np.testing.assert_allclose(slopes[0], -penalty * of_standard, atol=1e-4)
    np.testing.assert_allclose(slopes[1], 0, atol=1e-4)
