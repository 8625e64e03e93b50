"""Files that a runtime keeps beside a model, damaged or unsafe to load."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.features import ENCODER_INPUTS
from bert_tf.runtimes import openvino_file, runtime
from tests.model_helpers import small_config


@pytest.fixture
def network():
    """A table of words, whose rows are summed up."""
    config = small_config()
    table = np.random.default_rng(0).normal(size=(config.vocab_size, 4))
    return runtime.Network(config, [tf.Variable(table, dtype="float32")], 16)


@pytest.fixture
def opened(network, tmp_path):
    """Opens the network by OpenVINO, and returns what it computes."""

    def function(tensors):
        (table,) = network.weights
        words = tf.gather(tf.convert_to_tensor(table), tensors["input_ids"])
        return {"sums": tf.reduce_sum(words, 1)}

    rows = {each.name: np.int32([[3, 7, 5]]) for each in ENCODER_INPUTS}

    def run(kind="openvino", folder=tmp_path):
        opened = runtime.Runtime(kind, folder)
        compiled = opened.compiled(function, "row_outputs", network)
        if compiled is None:
            return None
        tensors = {name: tf.constant(row) for name, row in rows.items()}
        np.testing.assert_allclose(
            compiled(tensors)["sums"], function(tensors)["sums"], rtol=1e-5
        )
        return compiled

    return run


def kept(folder: pathlib.Path) -> pathlib.Path:
    (found,) = (folder / ".runtimes").iterdir()
    return found


def halve(path: pathlib.Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def zero_the_end(path: pathlib.Path) -> None:
    """Most rows of the table, which a few compared rows do not use."""
    content = path.read_bytes()
    path.write_bytes(content[:64] + bytes(len(content) - 64))


def flip_a_bit(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: pathlib.Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.bin", zero_the_end),
        ("model.bin", halve),
        ("model.bin", pathlib.Path.unlink),
        ("model.xml", flip_a_bit),
        ("digests.json", empty),
        ("digests.json", lambda path: path.write_bytes(b"\xff\xfe\xff")),
        ("digests.json", lambda path: path.write_text("[" * 10_000)),
        ("digests.json", pathlib.Path.unlink),
    ],
)
def test_damaged_files_are_converted_again(
    opened, tmp_path, name, damage, capfd
):
    opened()
    weights = (kept(tmp_path) / "model.bin").read_bytes()
    damage(kept(tmp_path) / name)
    capfd.readouterr()
    opened()
    (line,) = capfd.readouterr().err.splitlines()
    assert str(kept(tmp_path)) in line
    assert line.endswith("the model is converted again.")
    assert (kept(tmp_path) / "model.bin").read_bytes() == weights
    opened()
    assert capfd.readouterr().err == ""


def test_a_file_that_cannot_be_opened_is_converted_again(
    opened, tmp_path, capfd
):
    """Its digests are right: it was damaged before they were taken."""
    opened()
    place = kept(tmp_path)
    halve(place / "model.bin")
    stated = json.loads((place / "digests.json").read_text())
    files = [place / "model.bin", place / "model.xml"]
    stated["files"] = runtime.file_digests(files)
    (place / "digests.json").write_text(json.dumps(stated))
    capfd.readouterr()
    opened()
    assert "cannot be opened; the model is converted" in capfd.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", [".", "model.xml", "digests.json"])
def test_files_that_others_may_change_are_not_opened(
    opened, tmp_path, name, capfd
):
    opened()
    path = kept(tmp_path) / name
    os.chown(path, 12345, -1)
    capfd.readouterr()
    opened()
    assert "belongs to another user" in capfd.readouterr().err
    path = kept(tmp_path) / name
    path.chmod(path.stat().st_mode | 0o002)
    opened()
    assert "may be changed by other users" in capfd.readouterr().err
    # Whoever may change the model's weights can do no more by its files.
    path.chmod(path.stat().st_mode | 0o002)
    tmp_path.chmod(0o777)
    opened()
    assert capfd.readouterr().err == ""


def test_a_link_is_not_followed(opened, tmp_path, capfd):
    opened()
    file = kept(tmp_path) / "model.xml"
    file.rename(tmp_path / "elsewhere.xml")
    file.symlink_to(tmp_path / "elsewhere.xml")
    capfd.readouterr()
    opened()
    assert "may be changed by other users" in capfd.readouterr().err
    assert not file.is_symlink()


def full_disk(path, graph, source):
    del graph, source
    path.write_bytes(b"half")
    # What openvino.save_model raises on a full disk.
    raise RuntimeError("Exception from src/core/x.cpp:1:\nCannot write\n")


def test_a_disk_that_fills_up(opened, tmp_path, monkeypatch, capfd):
    """The model is converted in a temporary folder; nothing is left."""
    write = openvino_file.write_model

    def fails_beside_the_model(path, graph, source):
        full = tmp_path in path.parents
        (full_disk if full else write)(path, graph, source)

    monkeypatch.setattr(openvino_file, "write_model", fails_beside_the_model)
    opened()
    (line,) = capfd.readouterr().err.splitlines()
    assert "cannot be written (Cannot write)" in line
    assert list((tmp_path / ".runtimes").iterdir()) == []


def test_where_openvino_fails_auto_takes_keras(
    opened, tmp_path, monkeypatch, capfd
):
    def fails(*arguments, **settings):
        raise RuntimeError("Exception from src/x.cpp:1:\nno such processor\n")

    monkeypatch.setattr(openvino_file, "Runner", fails)
    with pytest.raises(UserError, match="OpenVINO cannot open") as caught:
        opened()
    assert "(no such processor); give keras" in str(caught.value)
    capfd.readouterr()
    assert opened("auto") is None
    printed = capfd.readouterr().err
    assert "computed by Keras: `runtime`=openvino" in printed


def test_a_copied_model_keeps_its_files(opened, tmp_path, capfd):
    opened()
    shutil.copytree(tmp_path / ".runtimes", tmp_path / "copy" / ".runtimes")
    capfd.readouterr()
    opened(folder=tmp_path / "copy")
    assert capfd.readouterr().err == ""
