import errno
import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    read_arrays,
    recognise,
    save_checkpoint,
    write_arrays,
)
from bert_tf.checkpoints import own as own_family
from bert_tf.checkpoints.layout import encoder_shapes, head_shapes
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

CONFIG = BertConfig(
    vocab_size=7,
    hidden_size=4,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=5,
    causal=True,
)


def arrays(*heads, config=CONFIG, labels=3):
    """Distinct random values for the encoder and some heads."""
    random = np.random.default_rng(len(heads))
    shapes = encoder_shapes(config)
    for head in heads:
        shapes |= head_shapes(config)[head]
    return {
        name: random.normal(
            size=[labels if n is None else n for n in shape]
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def test_round_trip(tmp_path):
    given = arrays("pooler", "masked_lm", "classifier")
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a", "A"])
    checkpoint = Checkpoint(
        CONFIG, given, vocabulary, True, labels=("no", "ja", "\u4e0d")
    )
    save_checkpoint(tmp_path / "new", checkpoint)
    loaded = load_checkpoint(tmp_path / "new")
    assert loaded.config == CONFIG
    assert loaded.vocabulary == vocabulary
    assert loaded.lower_case is True
    assert loaded.labels == checkpoint.labels
    assert loaded.heads == ("pooler", "masked_lm", "classifier")
    assert loaded.arrays.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(loaded.arrays[name], array)
        assert loaded.arrays[name].shape == array.shape
    # Others may read what a user trains.
    mode = (tmp_path / "new" / "bert_model.safetensors").stat().st_mode
    assert mode & 0o444 == 0o444
    assert recognise(tmp_path / "new") == "bert_tf"


def test_arrays_of_any_shape_come_back(tmp_path):
    given = {
        "a": np.arange(6, dtype=np.float32).reshape(3, 2).T,
        "b": np.array(2.5, np.float32),
        "c": np.zeros((0, 4), np.float32),
    }
    write_arrays(tmp_path / "w.safetensors", given)
    loaded = read_arrays(tmp_path / "w.safetensors")
    for name, array in given.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].shape == array.shape


def test_a_vocabulary_must_fit(tmp_path):
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a", "b", "c"])
    save_checkpoint(tmp_path, Checkpoint(CONFIG, arrays()))
    vocabulary.save(tmp_path / "vocab.txt")
    with pytest.raises(UserError, match="has 8 tokens, but vocab_size is 7"):
        load_checkpoint(tmp_path)
    Vocabulary(SPECIAL_TOKENS).save(tmp_path / "vocab.txt")
    assert len(load_checkpoint(tmp_path).vocabulary) == 5


def refused(source):
    with pytest.raises(UserError) as caught:
        load_checkpoint(source)
    line = str(caught.value)
    assert "\n" not in line
    assert str(source) in line
    return line


def test_folders_that_are_none(tmp_path):
    assert "no such model folder" in refused(tmp_path / "absent")
    line = refused(tmp_path)
    assert "not a model folder; it holds no weights of bert_tf, " in line

    CONFIG.save(tmp_path / "bert_config.json")
    line = refused(tmp_path)
    assert "bert_config.json is there, but neither bert_model.safetens" in line
    (tmp_path / "bert_config.json").rename(tmp_path / "config.json")
    line = refused(tmp_path)
    assert "config.json is there, but neither model.safetensors" in line

    (tmp_path / "weights.pkl").write_bytes(b"\x80\x04.")
    assert "weights.pkl is a pickle, which may hold any" in refused(tmp_path)


def test_weights_without_a_configuration(tmp_path):
    save_checkpoint(tmp_path, Checkpoint(CONFIG, arrays()))
    (tmp_path / "bert_config.json").unlink()
    assert "weights of bert_tf, but no bert_config.json" in refused(tmp_path)


def test_a_folder_of_two_families(tmp_path):
    save_checkpoint(tmp_path, Checkpoint(CONFIG, arrays()))
    (tmp_path / "model.weights.h5").write_bytes(b"")
    line = refused(tmp_path)
    assert "holds weights of bert_tf and of keras_hub; put each" in line


def test_a_file_in_place_of_its_folder(tmp_path):
    save_checkpoint(tmp_path, Checkpoint(CONFIG, arrays()))
    line = refused(tmp_path / "bert_model.safetensors")
    assert line.endswith(f"is a file; give its folder, {tmp_path}")
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"")
    line = refused(tmp_path / "bert_model.ckpt")
    assert line.endswith(f"of a checkpoint; give its folder, {tmp_path}")


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


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a", "A"])
    checkpoint = Checkpoint(
        CONFIG,
        arrays("pooler", "classifier"),
        vocabulary,
        True,
        ("a", "b", "c"),
    )
    # The labels come after the weights.
    monkeypatch.setattr(
        own_family, "write_arrays", lambda path, _: full(path, "")
    )
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path / "new", checkpoint)
    assert list(tmp_path.iterdir()) == []
    # In a folder that is there, what was there stays.
    monkeypatch.undo()
    save_checkpoint(tmp_path / "old", checkpoint)
    before = {p.name: p.read_bytes() for p in (tmp_path / "old").iterdir()}
    monkeypatch.setattr(
        own_family, "write_arrays", lambda path, _: full(path, "")
    )
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path / "old", Checkpoint(CONFIG, arrays()))
    after = {p.name: p.read_bytes() for p in (tmp_path / "old").iterdir()}
    assert after == before


def test_a_layout_that_is_none(tmp_path):
    with pytest.raises(UserError, match="to=onnx: unknown layout; it takes"):
        save_checkpoint(tmp_path / "x", Checkpoint(CONFIG, arrays()), to="onnx")
    with pytest.raises(UserError, match="to=keras_hub: unknown layout"):
        save_checkpoint(
            tmp_path / "x", Checkpoint(CONFIG, arrays()), to="keras_hub"
        )
    assert not (tmp_path / "x").exists()


def test_a_source_of_a_hub_is_read_like_its_folder(tmp_path, monkeypatch):
    import huggingface_hub

    save_checkpoint(tmp_path, Checkpoint(CONFIG, arrays("pooler")))
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path)
    )
    loaded = load_checkpoint("hf://somebody/something")
    np.testing.assert_array_equal(
        loaded.arrays["bert/pooler/dense/kernel"],
        arrays("pooler")["bert/pooler/dense/kernel"],
    )


def test_labels_that_are_none(tmp_path):
    save_checkpoint(
        tmp_path, Checkpoint(CONFIG, arrays("pooler", "classifier"))
    )
    for labels in ("yes", ["yes", 1]):
        (tmp_path / "labels.json").write_text(json.dumps(labels))
        refused_line = refused_labels(tmp_path)
        assert "labels.json" in refused_line


def refused_labels(folder):
    with pytest.raises(UserError) as caught:
        load_checkpoint(folder)
    return str(caught.value)
