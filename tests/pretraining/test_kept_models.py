"""Models kept every few steps: those of the run, whatever breaks it off."""

import json
import pathlib
import time

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.pretraining import run
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from bert_tf.training import loop
from bert_tf.training.run_folder import claim
from bert_tf.training.saved_states import SavedStates, load_state
from tests.run_folders import history, weights


@pytest.fixture(scope="module")
def recipe(records, config_file) -> PretrainingRecipe:
    return PretrainingRecipe(
        data_dir=str(records),
        config_file=str(config_file),
        train_batch_size=8,
        num_train_steps=12,
        learning_rate=1e-2,
        log_steps=5,
        eval_steps=12,
        save_checkpoints_steps=4,
        keep_model_steps=2,
    )


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory) -> pathlib.Path:
    """A run in which each model takes a quarter of an hour to write."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    save, clock, written = run.save_checkpoint, time.monotonic, []

    def slow(folder, checkpoint):
        written.append(1000)
        save(folder, checkpoint)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "save_checkpoint", slow)
        patch.setattr(loop.time, "monotonic", lambda: clock() + sum(written))
        run_pretraining(recipe, folder)
    return folder


def kept(folder: pathlib.Path) -> list[int]:
    """The steps whose models are in a run's folder."""
    names = sorted(path.name for path in (folder / "models").iterdir())
    return [int(name.removeprefix("step-")) for name in names]


def contents(model: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in model.iterdir()}


def test_they_are_the_models_of_the_run(finished):
    assert kept(finished) == [2, 4, 6, 8, 10, 12]
    last = contents(finished / "models" / "step-00000012")
    assert last == {name: (finished / name).read_bytes() for name in last}
    for step in (4, 8):
        folder = finished / "models" / f"step-{step:08d}"
        assert contents(folder).keys() == last.keys()
        config = bert_tf.load_checkpoint(folder).config
        model = bert_tf.BertPretrainer(bert_tf.BertEncoder(config))
        state = load_state(finished / "checkpoints" / folder.name)
        found = sorted(n for n in state.arrays if n.startswith("weights/"))
        for name, variable in zip(
            found, model.trainable_variables, strict=True
        ):
            variable.assign(state.arrays[name])
        expected = model.to_arrays()
        arrays = weights(folder)
        assert arrays.keys() == expected.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[name])
    # A tool takes it as it takes any model folder.
    tokenizer = bert_tf.BertTokenizer.from_checkpoint(folder)
    pack = bert_tf.SentencePacker(tokenizer, 16)
    encoder = bert_tf.BertEncoder.from_checkpoint(folder)
    output = encoder(pack(["a function call"]))["sequence_output"]
    assert np.isfinite(keras.ops.convert_to_numpy(output)).all()


def test_the_numbers_stay_and_keeping_takes_no_training_time(
    finished, recipe, tmp_path
):
    run_pretraining(recipe.override(["keep_model_steps=0"]), tmp_path)
    assert not (tmp_path / "models").exists()
    assert history(tmp_path) == history(finished)
    for name, array in weights(tmp_path).items():
        np.testing.assert_array_equal(array, weights(finished)[name])
    lines = (finished / "history.jsonl").read_text().splitlines()
    speeds = [json.loads(r).get("sequences_per_second") for r in lines]
    # Eight rows in a quarter of an hour would be less.
    assert min(filter(None, speeds)) > 0.1


def test_what_breaks_off_comes_to_the_same_models(
    finished, recipe, tmp_path, monkeypatch
):
    """Before a model is written, and between a model and its state."""
    keep, save = run._keep_model, SavedStates.save

    def broken(*arguments):
        if arguments[-1] == 8:
            raise KeyboardInterrupt
        keep(*arguments)

    def killed(self, number, window):
        if number == 8:
            raise KeyboardInterrupt
        save(self, number, window)

    for owner, name, stand_in, left in (
        (run, "_keep_model", broken, [2, 4, 6]),
        (SavedStates, "save", killed, [2, 4, 6, 8]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stand_in)
            with pytest.raises(KeyboardInterrupt):
                run_pretraining(recipe, tmp_path)
        assert kept(tmp_path) == left
        states = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
        assert states == ["step-00000000", "step-00000004"]
    # Step 8 is done again, and its model written again.
    run_pretraining(recipe, tmp_path)
    assert kept(tmp_path) == kept(finished)
    for model in (finished / "models").iterdir():
        assert contents(tmp_path / "models" / model.name) == contents(model)


def test_models_go_with_the_run_that_kept_them(recipe, tmp_path):
    """A folder of models alone is somebody's; a run that never trained not."""
    model = tmp_path / "models" / "step-00000002"
    model.mkdir(parents=True)
    with pytest.raises(UserError, match="holds a models/step-00000002 that no"):
        claim(tmp_path, recipe)
    model.rmdir()
    other = tmp_path / "models" / "mine"
    other.mkdir()
    claim(tmp_path, recipe)
    (tmp_path / "checkpoints" / "step-00000000").mkdir(parents=True)
    model.mkdir()
    claim(tmp_path, recipe.override(["seed=2"]))
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["mine"]
    (tmp_path / "checkpoints" / "step-00000004").mkdir(parents=True)
    model.mkdir()
    claim(tmp_path, recipe.override(["seed=2", "keep_model_steps=7"]))
    assert model.exists()
