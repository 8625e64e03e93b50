"""Pre-training with blocks computed anew is the same pre-training."""

import dataclasses
import pathlib

import numpy as np
import pytest

import bert_tf
import bert_tf.encoder
from bert_tf.checkpoints import load_checkpoint
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining


@pytest.fixture
def recipe(records, config_file) -> PretrainingRecipe:
    return PretrainingRecipe(
        data_dir=str(records),
        config_file=str(config_file),
        train_batch_size=8,
        num_train_steps=4,
        eval_steps=4,
        learning_rate=1e-2,
    )


def arrays(folder: pathlib.Path) -> dict[str, np.ndarray]:
    return load_checkpoint(folder).arrays


class ReachedError(Exception):
    """A block would have been computed anew."""


def test_the_setting_reaches_the_encoder(recipe, tmp_path, monkeypatch) -> None:
    def stand_in(*_: object) -> None:
        raise ReachedError

    monkeypatch.setattr(bert_tf.encoder, "rematerialized", stand_in)
    with pytest.raises(ReachedError):
        run_pretraining(
            dataclasses.replace(recipe, rematerialize=True), tmp_path / "run"
        )


@pytest.mark.slow
def test_a_run_is_the_same(recipe, tmp_path) -> None:
    again = dataclasses.replace(recipe, rematerialize=True)
    run_pretraining(recipe, tmp_path / "plain")
    run_pretraining(again, tmp_path / "again")
    found = arrays(tmp_path / "again")
    for name, value in arrays(tmp_path / "plain").items():
        np.testing.assert_allclose(found[name], value, atol=2e-4)
    # A run that did not find enough memory may go on with it.
    run_pretraining(again, tmp_path / "plain")
