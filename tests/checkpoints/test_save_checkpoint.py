"""What save_checkpoint refuses before it writes anything."""

import dataclasses

import numpy as np
import pytest
from test_folder import CONFIG, arrays

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.errors import UserError
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

WORDS = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"


def changed(**changes: np.ndarray | None) -> Checkpoint:
    """A pre-trained model some of whose arrays are others, or missing."""
    given = arrays("pooler", "masked_lm")
    for name, array in changes.items():
        name = {"words": WORDS, "bias": BIAS}.get(name, name)
        given.pop(name, None)
        if array is not None:
            given[name] = array
    return Checkpoint(dataclasses.replace(CONFIG, causal=False), given)


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1", "hugging_face"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": None}, f"missing: {WORDS} "),
        ({"words": np.zeros((3, 3), np.float32)}, r"word_emb.* is \[3, 3\]"),
        ({"words": np.zeros((7, 4), np.int32)}, "word_embeddings holds int32"),
        ({"bias": None}, f"missing: {BIAS} "),
        ({"foo": np.zeros(2, np.float32)}, r"unexpected: foo \[2\]"),
    ],
)
def test_arrays_that_do_not_fit(to, changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        save_checkpoint(tmp_path / "new", changed(**changes), to=to)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1", "hugging_face"])
def test_what_belongs_to_the_arrays(to, tmp_path):
    config = dataclasses.replace(CONFIG, causal=False)
    model = Checkpoint(config, arrays("pooler", "classifier", labels=3))
    tokens = Vocabulary([*SPECIAL_TOKENS, "a", "b", "c"])
    for changes, message in (
        ({"vocabulary": tokens}, "has 8 tokens, but vocab_size is 7"),
        ({"labels": ("a", "b")}, "names 2 labels, but its head has 3"),
        (
            {"labels": ("a",), "arrays": arrays()},
            "names 1 labels, but has no head for labels",
        ),
    ):
        wrong = dataclasses.replace(model, **changes)
        with pytest.raises(UserError, match=message):
            save_checkpoint(tmp_path / "new", wrong, to=to)
    assert list(tmp_path.iterdir()) == []


def test_half_precision_is_written_as_float32(tmp_path):
    given = {k: v.astype(np.float16) for k, v in arrays().items()}
    save_checkpoint(tmp_path, Checkpoint(CONFIG, given))
    for name, array in load_checkpoint(tmp_path).arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, given[name].astype(np.float32))


def test_a_folder_that_holds_a_model(tmp_path):
    config = dataclasses.replace(CONFIG, causal=False)
    labelled = Checkpoint(
        config, arrays("pooler", "classifier"), labels=("a", "b", "c")
    )
    save_checkpoint(tmp_path, labelled)
    # Ours is replaced whole, labels included.
    plain = Checkpoint(config, arrays("pooler"))
    save_checkpoint(tmp_path, plain)
    loaded = load_checkpoint(tmp_path)
    assert loaded.heads == ("pooler",)
    assert loaded.labels is None
    before = sorted(p.name for p in tmp_path.iterdir())
    for to in ("google_tf1", "hugging_face"):
        with pytest.raises(UserError, match="holds weights of bert_tf already"):
            save_checkpoint(tmp_path, plain, to=to)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    save_checkpoint(tmp_path / "theirs", plain, to="hugging_face")
    with pytest.raises(UserError, match="holds weights of hugging_face"):
        save_checkpoint(tmp_path / "theirs", plain, to="hugging_face")
