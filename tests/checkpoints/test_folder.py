"""Our own folders, and what every family's reading and writing refuses."""

import dataclasses
import errno
import json
import re

import numpy as np
import pytest

from bert_tf.checkpoints import (
    Checkpoint,
    head_shapes,
    load_checkpoint,
    own,
    recognise,
    save_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from tests.checkpoints.arrays import assert_same_arrays
from tests.hugging_face_models import random_arrays
from tests.user_errors import error_of

CONFIG = BertConfig.from_size("2/4/2", 7)
WORDS = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"


def model(*heads, labels=None, **changes):
    """A checkpoint of three labels with some heads."""
    return Checkpoint(
        CONFIG, random_arrays(CONFIG, heads), labels=labels, **changes
    )


LABELLED = model("pooler", "classifier", labels=("no", "maybe", "yes"))


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1"])
def test_round_trip_of_every_head(to, tmp_path):
    heads = tuple(head_shapes(CONFIG))
    given = random_arrays(CONFIG, heads)
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a", "A"])
    checkpoint = Checkpoint(
        CONFIG, given, vocabulary, True, labels=("no", "ja", "\u4e0d")
    )
    save_checkpoint(tmp_path / "new", checkpoint, to)
    loaded = load_checkpoint(tmp_path / "new")
    assert loaded.config == CONFIG
    assert loaded.vocabulary == vocabulary
    assert loaded.lower_case is True
    assert loaded.labels == checkpoint.labels
    assert (loaded.heads, loaded.left_out) == (heads, ())
    assert_same_arrays(loaded.arrays, given)
    assert recognise(tmp_path / "new") == to


def refused(source, message):
    """Loading is one line that names the source and holds the message."""
    line = error_of(load_checkpoint, source)
    assert str(source) in line
    assert message in line


def test_folders_without_a_model(tmp_path):
    refused(tmp_path / "absent", "no such model folder")
    refused(tmp_path, "not a model folder; it holds no weights of bert_tf, ")
    CONFIG.save(tmp_path / "bert_config.json")
    refused(tmp_path, "bert_config.json is there, but neither bert_model.safe")
    (tmp_path / "bert_config.json").rename(tmp_path / "config.json")
    refused(tmp_path, "config.json is there, but neither model.safetensors")
    (tmp_path / "weights.pkl").write_bytes(b"\x80\x04.")
    refused(tmp_path, "weights.pkl is a pickle, which may")


def test_folders_with_other_files(tmp_path):
    save_checkpoint(tmp_path, model())
    refused(tmp_path / "bert_model.safetensors", f"give its folder, {tmp_path}")
    (tmp_path / "ckpt.index").write_bytes(b"")
    refused(tmp_path / "ckpt", f"of a checkpoint; give its folder, {tmp_path}")

    Vocabulary([*SPECIAL_TOKENS, "a", "b", "c"]).save(tmp_path / "vocab.txt")
    refused(tmp_path, "has 8 tokens, but vocab_size is 7")
    Vocabulary(SPECIAL_TOKENS).save(tmp_path / "vocab.txt")
    assert len(load_checkpoint(tmp_path).vocabulary) == 5

    (tmp_path / "labels.json").write_text('["no"]')
    refused(tmp_path, "has no head for labels")
    (tmp_path / "model.weights.h5").write_bytes(b"")
    refused(tmp_path, "holds weights of bert_tf and of keras_hub; put each")
    (tmp_path / "model.weights.h5").unlink()
    (tmp_path / "bert_config.json").unlink()
    refused(tmp_path, "weights of bert_tf, but no bert_config.json")


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1"])
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("yes", "labels.json: labels is 'yes'; it takes a list"),
        (["yes", 1], "labels.json: labels is 1; it takes a text"),
        (["no", "yes"], "names 2 labels, but its head has 3"),
        (["no", "yes", "no"], "labels.json: the label 'no' occurs twice"),
        ({"problem_type": "any"}, "labels.json: problem_type='any': takes one"),
        (
            {"labels": 3, "problem_type": "regression"},
            "labels is 3; it takes a list",
        ),
        (["no", "yes", "\ud800"], r"label 2 is '\ud800', with half of a surr"),
    ],
)
def test_labels_that_do_not_fit(to, labels, words, tmp_path):
    save_checkpoint(tmp_path, LABELLED, to=to)
    assert load_checkpoint(tmp_path).labels == LABELLED.labels
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    refused(tmp_path, words)


def arrays_with(**changes):
    """A masked LM some of whose arrays are others, or missing."""
    arrays = random_arrays(CONFIG, ("pooler", "masked_lm"))
    arrays |= {
        {"words": WORDS, "bias": BIAS}.get(name, name): array
        for name, array in changes.items()
    }
    return {"arrays": {k: v for k, v in arrays.items() if v is not None}}


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1", "hugging_face"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (arrays_with(words=None), f"missing: {WORDS} "),
        (
            arrays_with(words=np.zeros((3, 3), np.float32)),
            r"word.* is \[3, 3\]",
        ),
        (arrays_with(words=np.zeros((7, 4), np.int32)), "word_embeddings hold"),
        (arrays_with(bias=None), f"missing: {BIAS} "),
        (arrays_with(foo=np.zeros(2, np.float32)), r"unexpected: foo \[2\]"),
        (
            {"vocabulary": Vocabulary([*SPECIAL_TOKENS, "a", "b", "c"])},
            "has 8 tokens, but vocab_size is 7",
        ),
        ({"labels": ("a", "b")}, "names 2 labels, but its head has 3"),
        ({"labels": ("a", "b", "a")}, "the label 'a' occurs twice"),
        (
            {"labels": ("a",), "arrays": random_arrays(CONFIG, ())},
            "names 1 labels, but has no head for labels",
        ),
    ],
)
def test_what_cannot_be_written(to, changes, message, tmp_path):
    labels = None if "arrays" in changes else LABELLED.labels
    wrong = dataclasses.replace(LABELLED, **{"labels": labels, **changes})
    line = error_of(save_checkpoint, tmp_path / "new", wrong, to=to)
    assert re.search(message, line), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["onnx", "keras_hub"])
def test_an_unknown_layout(to, tmp_path):
    line = error_of(save_checkpoint, tmp_path / "x", model(), to=to)
    assert f"`to`={to!r}: takes one of" in line
    assert not (tmp_path / "x").exists()


def test_a_folder_that_holds_a_model(tmp_path):
    save_checkpoint(tmp_path, LABELLED)
    # Ours is replaced whole, labels included.
    plain = model("pooler")
    save_checkpoint(tmp_path, plain)
    loaded = load_checkpoint(tmp_path)
    assert loaded.heads == ("pooler",)
    assert loaded.labels is None
    before = sorted(p.name for p in tmp_path.iterdir())
    for to in ("google_tf1", "hugging_face"):
        line = error_of(save_checkpoint, tmp_path, plain, to=to)
        assert "holds weights of bert_tf already" in line
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    theirs = tmp_path / "theirs"
    save_checkpoint(theirs, plain, to="hugging_face")
    line = error_of(save_checkpoint, theirs, plain, to="hugging_face")
    assert "holds weights of hugging_face" in line


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    def full(path, arrays):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    old = tmp_path / "old"
    save_checkpoint(old, LABELLED)
    before = {p.name: p.read_bytes() for p in old.iterdir()}
    monkeypatch.setattr(own, "write_arrays", full)
    for folder in (tmp_path / "new", old):
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(folder, model())
    assert list(tmp_path.iterdir()) == [old]
    assert {p.name: p.read_bytes() for p in old.iterdir()} == before


def test_a_source_of_a_hub_is_read_like_its_folder(tmp_path, monkeypatch):
    import huggingface_hub

    given = model("pooler")
    save_checkpoint(tmp_path, given)
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path)
    )
    loaded = load_checkpoint("hf://somebody/something")
    name = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(loaded.arrays[name], given.arrays[name])
