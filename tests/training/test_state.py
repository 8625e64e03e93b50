import json
import os
import types

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.training.saved_states import (
    SavedStates,
    TrainingState,
    newest_state,
    save_state,
)


def state(step: int) -> TrainingState:
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3) * step,
        "b": np.array(step, np.int64),
    }
    return TrainingState(step, arrays, {"window": {"loss": 0.1 + step}})


def test_round_trip_to_the_last_bit(tmp_path):
    save_state(tmp_path, state(3), keep=2)
    loaded, damaged = newest_state(tmp_path)
    assert damaged == []
    assert loaded.step == 3
    assert loaded.facts == {"window": {"loss": 3.1}}
    for name, array in state(3).arrays.items():
        np.testing.assert_array_equal(loaded.arrays[name], array)
        assert loaded.arrays[name].dtype == array.dtype
        assert loaded.arrays[name].shape == array.shape


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step in (10, 20, 40, 30):
        save_state(tmp_path, state(step), keep=2, best=10)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["step-00000010", "step-00000030", "step-00000040"]
    save_state(tmp_path, state(50), keep=2)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["step-00000040", "step-00000050"]


def test_no_state_at_all(tmp_path):
    assert newest_state(tmp_path / "absent") == (None, [])


@pytest.mark.parametrize("harm", ["flip", "cut", "no_facts", "bad_facts"])
def test_a_damaged_state_is_skipped_and_named(tmp_path, harm):
    save_state(tmp_path, state(1), keep=3)
    newest = save_state(tmp_path, state(2), keep=3)
    arrays = newest / "state.safetensors"
    content = bytearray(arrays.read_bytes())
    if harm == "flip":
        content[-1] ^= 1
        arrays.write_bytes(content)
    elif harm == "cut":
        arrays.write_bytes(content[:-4])
    elif harm == "no_facts":
        (newest / "state.json").unlink()
    else:
        (newest / "state.json").write_text('{"step": 2, "crc')
    loaded, damaged = newest_state(tmp_path)
    assert loaded.step == 1
    assert len(damaged) == 1
    assert "step-00000002" in damaged[0]


def test_all_damaged_is_an_error(tmp_path):
    newest = save_state(tmp_path, state(2), keep=3)
    (newest / "state.json").unlink()
    with pytest.raises(UserError, match="every training state is damaged"):
        newest_state(tmp_path)


def test_a_failing_write_leaves_the_state_before(tmp_path, monkeypatch):
    save_state(tmp_path, state(1), keep=1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bert_tf.training.saved_states.sync", full)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path, state(2), keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert newest_state(tmp_path)[0].step == 1


def test_what_a_killed_writer_left_is_ignored_and_removed(tmp_path):
    torn = tmp_path / ".step-00000009.1.partial"
    torn.mkdir()
    (torn / "state.json").write_text(json.dumps({"step": 9}))
    assert newest_state(tmp_path) == (None, [])
    save_state(tmp_path, state(1), keep=1)
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_of_equal_held_out_losses_the_first_is_the_lowest():
    states = types.SimpleNamespace(_lowest=None)
    losses = [2.0, float("nan"), 1.5, 1.5, 1.75, 1.25]
    kept = [SavedStates.offer(states, n, loss) for n, loss in enumerate(losses)]
    assert kept == [True, False, True, False, False, True]
    assert states._lowest == {"step": 5, "loss": 1.25}
