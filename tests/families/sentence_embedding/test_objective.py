"""Losses and their gradients against those of sentence-transformers."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import load_checkpoint, read_arrays
from bert_tf.checkpoints.task_file import TASK_FILE
from bert_tf.families.model_folder import build_model, save_model
from bert_tf.families.sentence_embedding.objective import (
    TARGETS,
    VECTORS,
    EmbeddingObjective,
)
from bert_tf.families.sentence_embedding.recipe import EmbeddingRecipe
from bert_tf.families.sentence_embedding.rows import encode_texts
from bert_tf.families.task_model import LOSS
from tests.families.pretrained.sentence_folders import write_folder
from tests.families.sentence_embedding.small_tasks import embedding_task
from tests.golden.sentence_embedding.texts import TEXTS

GOLDEN = pathlib.Path("tests/golden/sentence_embedding")
LOSSES = dict(np.load(GOLDEN / "losses.npz"))
GRADIENTS = dict(np.load(GOLDEN / "gradients.npz"))


def objective_of(name: str, targets: object, dims: str = ""):
    recipe = EmbeddingRecipe(loss=name, matryoshka_dims=dims)
    return EmbeddingObjective(recipe, targets is not None)


def close(found, expected) -> None:
    """To 1e-6 of the largest number."""
    largest = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * largest)


@pytest.mark.parametrize(
    "case", [k[:-8] for k in LOSSES if k.endswith(":vectors")]
)
def test_a_loss_and_its_gradient(case, eagerly):
    name, targets = case.split("/")[0], LOSSES.get(f"{case}:targets")
    batch = {}
    if targets is not None:
        batch[TARGETS] = tf.constant(targets, tf.float32)
        if name == "margin_mse" and targets.ndim == 1:
            batch[TARGETS] = batch[TARGETS][:, tf.newaxis]
    sizes = {
        key.partition("@")[2]
        for key in LOSSES
        if key.startswith(f"{case}:value")
    }
    assert len(sizes) in (1, 4)
    totals = [0.0, 0.0]
    for size in sizes:
        vectors = tf.constant(LOSSES[f"{case}:vectors"])
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            compute = objective_of(name, targets, size)
            losses, _ = compute({VECTORS: vectors}, batch)
        suffix = f"@{size}" if size else ""
        expected = [
            LOSSES[f"{case}:{kind}{suffix}"] for kind in ("value", "gradient")
        ]
        close(losses[LOSS], expected[0])
        close(tape.gradient(losses[LOSS], vectors), expected[1])
        if size:
            totals = [a + b for a, b in zip(totals, expected, strict=True)]
    if len(sizes) == 4:
        # Matryoshka sums over the sizes.
        vectors = tf.constant(LOSSES[f"{case}:vectors"])
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            compute = objective_of(name, targets, "8,5,2")
            losses, _ = compute({VECTORS: vectors}, batch)
        close(losses[LOSS], totals[0])
        close(tape.gradient(losses[LOSS], vectors), totals[1])


# sentence-transformers in float64, bert_tf in float32.
@pytest.mark.witness("losses and gradients of sentence-transformers")
@pytest.mark.parametrize(
    "case", [key for key in GRADIENTS if ":value" in key and "." not in key]
)
def test_the_gradient_by_all_weights(case, tmp_path, eagerly):
    """To 1e-6 of its length.

    Gradients are written as weights, whose files have their names.
    """
    name, _, suffix = case.replace("@", "").partition(":value")
    targets = GRADIENTS.get(f"{name}:targets")
    task, recipe = embedding_task(loss=name)
    source = load_checkpoint(write_folder("dense", tmp_path / "start"))
    config = task.configure(recipe, [])
    model = build_model(task, config, source, "float64", unpadded=False)
    tokenizer = source.make_tokenizer()
    modules = config.modules(source)
    count = 1 if name == "teacher_mse" else 2
    rows = encode_texts(TEXTS[:count], tokenizer, modules)
    batch = rows.batch(np.arange(4))
    if targets is not None:
        batch[TARGETS] = tf.constant(targets, tf.float32)
    dims = f"{modules.width(16)},3" if suffix else ""
    with tf.GradientTape() as tape:
        outputs = model(batch, training=False)
        losses, _ = objective_of(name, targets, dims)(outputs, batch)
    close(losses[LOSS], GRADIENTS[case])
    variables = model.trainable_variables
    gradients = tape.gradient(losses[LOSS], [v.value for v in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        # The pooler has none.
        if gradient is None:
            gradient = tf.zeros_like(variable.value)
        variable.assign(tf.convert_to_tensor(gradient))
    save_model(tmp_path / "written", model, tokenizer, config)
    found = read_arrays(tmp_path / "written/model.safetensors")
    found = {f"0.model.{key}": value for key, value in found.items()}
    dense = read_arrays(tmp_path / "written/2_Dense/model.safetensors")
    found |= {f"2.{key}": value for key, value in dense.items()}
    assert (tmp_path / "written" / TASK_FILE).exists()
    differences, length = [], 0.0
    for key, expected in GRADIENTS.items():
        own, _, weight = key.partition(":")
        weight, _, its_suffix = weight.partition("@")
        if own == name and its_suffix == suffix and "." in weight:
            differences.append(np.sum((found[weight] - expected) ** 2))
            length += np.sum(expected**2)
    assert len(differences) == 39
    assert np.sum(differences) ** 0.5 < 1e-6 * length**0.5
