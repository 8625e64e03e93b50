"""A fine-tuning with rematerialize=true is the same training."""

import dataclasses

import numpy as np
import pytest

from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.text_classification.kinds import SentenceTask
from tests.finetuning.sentence_runs import data, model_folder, small_recipe
from tests.run_folders import history, weights


@pytest.mark.slow
def test_a_run_is_the_same(tmp_path) -> None:
    task = SentenceTask(name="mood", data=data())
    recipe = small_recipe(model_folder(tmp_path / "start"))
    for again in (False, True):
        changed = dataclasses.replace(
            recipe, rematerialize=again, gradient_accumulation_steps=2
        )
        run_finetuning(task, changed, tmp_path / str(again), ["train"])
    losses = [
        [row["loss"] for row in history(tmp_path / str(again)) if "loss" in row]
        for again in (False, True)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    plain, again = (weights(tmp_path / str(x)) for x in (False, True))
    for name, value in plain.items():
        np.testing.assert_allclose(again[name], value, atol=1e-3)
