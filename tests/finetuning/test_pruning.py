"""Importances and what is cut, against the reference model with masks."""

import dataclasses

import numpy as np
import pytest

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.checkpoints.pruned import keep_parts
from bert_tf.encoders import BertEncoder
from bert_tf.families.recipe import PruningSettings
from bert_tf.families.task_model import ClassesObjective, TaskModel
from bert_tf.finetuning.importance import importances_of, most_important
from bert_tf.finetuning.pruning import prune
from bert_tf.finetuning.run import run_finetuning
from bert_tf.models import bert_classifier, restore
from tests.as_numpy import as_numpy
from tests.checkpoints.arrays import assert_same_arrays
from tests.contracts.task_cases import CASES
from tests.finetuning.sentence_runs import FixedRows
from tests.model_helpers import encoder_inputs, fill, numpy, small_config
from tests.reference_bert import ReferenceBert, softmax
from tests.user_errors import error_of

CONFIG = small_config()
LAYERS, HEADS, COLUMNS = 2, 3, 40
ROWS = 5


class MaskedBert(ReferenceBert):
    """What each head and each column gives is multiplied by a number."""

    def __init__(self, config, arrays):
        super().__init__(config, arrays)
        heads, columns = config.num_attention_heads, config.intermediate_size
        self.heads = np.ones((config.num_hidden_layers, heads))
        self.columns = np.ones((config.num_hidden_layers, columns))

    def dense(self, x, name):
        if "/layer_" in name:
            layer = int(name.split("/layer_")[1].partition("/")[0])
            if name.endswith("/attention/output/dense"):
                size = x.shape[-1] // self.heads.shape[1]
                x = x * np.repeat(self.heads[layer], size)
            elif name.endswith("/output/dense"):
                x = x * self.columns[layer]
        return super().dense(x, name)

    def logits(self, batch):
        weights = self.arrays["output_weights"]
        return (
            self(batch)["pooled_output"] @ weights.T
            + self.arrays["output_bias"]
        )

    def losses(self, batch):
        shares = softmax(self.logits(batch))
        labels = batch["label_ids"]
        return -np.log(shares[np.arange(len(labels)), labels])


def classifier(config=CONFIG, scale: float = 0.25) -> TaskModel:
    return TaskModel(
        fill(bert_classifier(BertEncoder(config), 3, 0.5), 4, scale)
    )


def some_rows(seed: int = 2) -> FixedRows:
    labels = np.random.default_rng(seed).integers(0, 3, ROWS)
    weights = np.ones(ROWS, np.float32)
    inputs = encoder_inputs(CONFIG, ROWS, 7, seed)
    return FixedRows(
        {
            **inputs,
            "label_ids": labels.astype(np.int32),
            "example_weights": weights,
        }
    )


def test_importances_are_those_of_masks(quick) -> None:
    model, rows = classifier(), some_rows()
    found = importances_of(model, ClassesObjective(), rows, 100, seed=1)
    assert found.heads.shape == (LAYERS, HEADS)
    assert found.columns.shape == (LAYERS, COLUMNS)
    plain, step = MaskedBert(CONFIG, model.arrays()), 1e-4

    def slope(masks, layer, part) -> float:
        """The mean of absolute central differences."""
        both = []
        for value in (1 + step, 1 - step):
            masks[layer, part] = value
            both.append(plain.losses(rows.values))
        masks[layer, part] = 1.0
        return abs((both[0] - both[1]) / (2 * step)).mean()

    for layer in range(LAYERS):
        for masks, values, parts in (
            (plain.heads, found.heads, range(HEADS)),
            (plain.columns, found.columns, (0, 7, 23, 39)),
        ):
            wanted = [slope(masks, layer, part) for part in parts]
            assert min(wanted) > 1e-5
            np.testing.assert_allclose(
                values[layer, list(parts)], wanted, rtol=1e-3, atol=1e-6
            )
    # The mean of absolute values is no sum of gradients of a batch.
    alone = [
        importances_of(
            model,
            ClassesObjective(),
            FixedRows(as_numpy(rows.batch([row]))),
            1,
            seed=1,
        ).heads
        for row in range(ROWS)
    ]
    np.testing.assert_allclose(found.heads, np.mean(alone, axis=0), rtol=1e-5)
    # The task decides, and so do the rows that are looked at.
    weighted = importances_of(
        model, ClassesObjective([1.0, 5.0, 0.1]), rows, 100, seed=1
    )
    assert not np.allclose(weighted.heads, found.heads, rtol=0.05)
    fewer = importances_of(model, ClassesObjective(), rows, 2, seed=1)
    assert not np.allclose(fewer.heads, found.heads, rtol=0.05)


def test_what_is_left_computes_as_with_masks() -> None:
    model, rows = classifier(), some_rows()
    arrays = model.arrays()
    heads = np.array([[0, 2], [1, 2]])
    columns = np.sort(
        np.stack(
            [np.random.default_rng(k).permutation(40)[:25] for k in (1, 2)]
        )
    )
    left = keep_parts(Checkpoint(CONFIG, arrays), heads, columns)
    assert left.config == dataclasses.replace(
        CONFIG,
        num_attention_heads=2,
        attention_head_size=8,
        intermediate_size=25,
    )
    smaller = classifier(left.config)
    restore(smaller.network, left)
    found = numpy(smaller(rows.values)["logits"])
    for wrong in (False, True):
        plain = MaskedBert(CONFIG, arrays)
        for layer in range(LAYERS):
            plain.heads[layer] = np.isin(np.arange(HEADS), heads[layer])
            plain.columns[layer] = np.isin(np.arange(COLUMNS), columns[layer])
        if wrong:
            plain.heads[1] = [1, 1, 0]
        wanted = plain.logits(rows.values)
        difference = np.abs(found - wanted).max()
        assert (difference > 1e-3) if wrong else (difference < 1e-5)


def test_all_is_the_same_model() -> None:
    arrays = classifier().arrays()
    everything = [
        np.tile(np.arange(count), (LAYERS, 1)) for count in (HEADS, COLUMNS)
    ]
    whole = Checkpoint(CONFIG, arrays)
    same = keep_parts(whole, *everything)
    assert same.config == CONFIG
    assert_same_arrays(same.arrays, arrays)
    # What is pruned may be pruned again.
    once = keep_parts(whole, everything[0][:, :2], everything[1][:, :9])
    twice = keep_parts(once, everything[0][:, :1], everything[1][:, :4])
    direct = keep_parts(whole, everything[0][:, :1], everything[1][:, :4])
    assert twice.config == direct.config
    assert_same_arrays(twice.arrays, direct.arrays)


def test_the_most_important_keep_their_order() -> None:
    importances = np.array([[0.1, 3.0, 0.0, 2.0], [5.0, 1.0, 1.0, 1.0]])
    found = most_important(importances, 2)
    np.testing.assert_array_equal(found, [[1, 3], [0, 1]])


def test_folders_that_do_not_go(start, tmp_path) -> None:
    task, recipe = CASES["classes"].make(tmp_path / "files", start)
    new = tmp_path / "new"
    line = error_of(prune, task, recipe, start, new, PruningSettings())
    assert line.startswith(f"{start}: has no task.json")
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    line = error_of(prune, task, recipe, start, full, PruningSettings())
    assert line.startswith(f"`output_dir`={full}: is not empty; name")
    assert not new.exists()
    assert [path.name for path in full.iterdir()] == ["mine.txt"]


def test_an_adapter_becomes_a_whole_model_that_is_trained_on(
    start, tmp_path, capsys, quick
) -> None:
    task, recipe = CASES["classes"].make(tmp_path / "files", start)
    recipe = recipe.override(["num_train_epochs=0.12"])
    lora = recipe.override(["lora_rank=2"])
    trained = run_finetuning(task, lora, tmp_path / "lora", ["train"])
    half, again = tmp_path / "half", tmp_path / "again"
    settings = PruningSettings(0.5, 0.5, num_rows=4)
    found = prune(task, lora, tmp_path / "lora", half, settings)
    expected = trained["train"]["dev"]["dev"]
    assert found.before.scores == pytest.approx(expected)
    left = load_checkpoint(half)
    assert (left.config.lora_rank, left.config.attention_size) == (0, 8)
    capsys.readouterr()
    further = dataclasses.replace(recipe, init_from=str(half))
    run_finetuning(task, further, again, ["train"])
    assert "fresh" not in capsys.readouterr().err
    assert load_checkpoint(again).config == left.config
    line = error_of(save_checkpoint, tmp_path / "hf", left, "hugging_face")
    assert "has no place for 1 attention heads of 8" in line
