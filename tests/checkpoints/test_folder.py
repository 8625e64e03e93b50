import errno

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    read_arrays,
    save_checkpoint,
    write_arrays,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

CONFIG = BertConfig.from_size("tiny", 10).override(["causal=true"])


def arrays():
    return {
        "bert/a": np.arange(6, dtype=np.float32).reshape(3, 2).T,
        "bert/b": np.array(2.5, np.float32),
        "cls/c": np.zeros((0, 4), np.float32),
    }


def test_round_trip(tmp_path):
    save_checkpoint(tmp_path, Checkpoint(CONFIG, arrays()))
    loaded = load_checkpoint(tmp_path)
    assert loaded.config == CONFIG
    assert loaded.arrays.keys() == arrays().keys()
    for name, array in arrays().items():
        np.testing.assert_array_equal(loaded.arrays[name], array)
        assert loaded.arrays[name].shape == array.shape
    # Others may read what a user trains.
    mode = (tmp_path / "bert_model.safetensors").stat().st_mode
    assert mode & 0o444 == 0o444


def test_folders_that_are_none(tmp_path):
    with pytest.raises(UserError, match="no such model folder"):
        load_checkpoint(tmp_path / "absent")
    with pytest.raises(UserError, match="holds no bert_config.json"):
        load_checkpoint(tmp_path)
    CONFIG.save(tmp_path / "bert_config.json")
    with pytest.raises(UserError, match="holds no bert_model.safetensors"):
        load_checkpoint(tmp_path)


def test_torn_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    write_arrays(path, arrays())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match="w.safetensors: damaged"):
        read_arrays(path)
    with pytest.raises(UserError, match="no such file"):
        read_arrays(tmp_path / "absent")


def test_a_full_disk_is_an_error_of_the_system(tmp_path, monkeypatch):
    def full(*_):
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_arrays(tmp_path / "w.safetensors", arrays())
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
