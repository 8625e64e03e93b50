"""A fine-tuning by LoRA, from the setting to the adapter."""

import dataclasses
import json

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint, read_arrays
from bert_tf.encoders import BertEncoder
from bert_tf.families.task_model import TaskModel
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.setup import lr_multipliers, open_initial
from bert_tf.models import bert_classifier
from tests.contracts.task_cases import CASES
from tests.finetuning.quick import quickly
from tests.finetuning.sentence_runs import small_recipe
from tests.run_folders import answer_lines, weights
from tests.user_errors import error_of

LORA = ["lora_rank=2", "lora_on=all_dense", "learning_rate=2e-2"]


@pytest.fixture(scope="module")
def finished(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    task, recipe = CASES["classes"].make(folder / "files", start)
    recipe = recipe.override([*LORA, "num_train_epochs=3"])
    with quickly(graphs=True):
        done = run_finetuning(task, recipe, folder / "run", ["train", "eval"])
    return task, recipe, folder / "run", done


@pytest.mark.witness("low-rank matrices learn a task, and are what is kept")
def test_what_is_trained_is_what_is_kept(finished, start) -> None:
    _, recipe, folder, done = finished
    scores = done["train"]["dev"]["dev"]
    assert scores["accuracy"] > 0.9
    # Those of the merged model, whose base was read from its own folder.
    assert done["eval"]["dev"] == pytest.approx(scores, abs=1e-5)
    initial, _ = open_initial(recipe)
    lora = {
        name
        for name in BertEncoder(initial.config).named_weights()
        if "lora" in name
    }
    assert len(lora) == 6 * 2
    for part in (folder, folder / "last"):
        assert not (part / "bert_model.safetensors").exists()
        assert len(weights(part)) == len(lora) + 4
        apart = load_checkpoint(part, merge=False)
        for name in lora:
            assert np.abs(apart.arrays[name]).max() > 0
    # The states hold these, two moments of each, and the best.
    trained = sum(array.size for array in weights(folder).values())
    state = max((folder / "checkpoints").glob("step-*")) / "state.safetensors"
    held = read_arrays(state)
    names = [n.split(".")[-1] for n in held if n.startswith("weights/")]
    assert sorted(names) == sorted(
        [*(n for n in names if "lora_" in n), *2 * ["bias", "kernel"]]
    )
    assert len(names) == len(lora) + 4
    assert sum(array.size for array in held.values()) < 4 * trained + 10
    whole = sum(a.size for a in load_checkpoint(start).arrays.values())
    assert whole > 3 * trained


def test_seeds_are_adapters_and_trained_on(start, tmp_path, quick) -> None:
    """Of a task without labels."""
    task, recipe = CASES["questions"].make(tmp_path / "files", start)
    recipe = recipe.override([*LORA, "num_train_epochs=0.12", "seeds=2"])
    folder = tmp_path / "run"
    done = run_finetuning(task, recipe, folder, ["train", "eval"])
    assert done["eval"]["dev"] == pytest.approx(
        done["train"]["dev"]["dev"], nan_ok=True
    )
    # The merged model is whole, and is the base of a further adapter.
    assert load_checkpoint(folder).config == load_checkpoint(start).config
    assert len(answer_lines(folder)) > 1
    further = recipe.override([f"init_from={folder}", "seeds=1"])
    run_finetuning(task, further, tmp_path / "further", ["train"])
    config = json.loads(
        (tmp_path / "further" / "adapter_config.json").read_text()
    )
    assert config["base_model_name_or_path"] == str(folder)


def test_a_layer_s_updates_learn_at_its_rate(start) -> None:
    config = load_checkpoint(start).config
    encoder = BertEncoder(dataclasses.replace(config, lora_rank=2))
    variables = TaskModel(bert_classifier(encoder, 2)).trainable_variables
    factors = lr_multipliers(encoder, variables, 0.5)
    assert factors == [0.5] * 4 + [1.0] * 4


def test_the_setting_is_in_the_configuration_alone(start) -> None:
    initial, _ = open_initial(small_recipe(start, lora_rank=2))
    assert initial.config.lora_rank == 2
    assert initial.arrays.keys() == load_checkpoint(start).arrays.keys()
    recipe = small_recipe(start, lora_rank=17)
    line = error_of(open_initial, recipe)
    assert line.startswith(f"`init_from`={start}: lora_rank is 17; it takes 0")
