import dataclasses

import numpy as np
import pytest

from bert_tf.architectures.electra import ElectraConfig
from bert_tf.checkpoints import Checkpoint
from bert_tf.checkpoints.resize import replace_vocabulary, resize_positions
from bert_tf.errors import UserError
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from tests.hugging_face_models import random_arrays, tiny_config

WORDS = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"
POSITIONS = "bert/embeddings/position_embeddings"
TOKENS = (*SPECIAL_TOKENS, "a", "b", "##c", "d")
HEADS = ("pooler", "masked_lm", "next_sentence")


def checkpoint(heads=HEADS, rows=9):
    config = tiny_config(
        vocab_size=rows, max_position_embeddings=6, initializer_range=0.04
    )
    return Checkpoint(
        config, random_arrays(config, heads), Vocabulary(TOKENS), True
    )


def test_embeddings_that_are_narrower_than_the_layers():
    config = dataclasses.replace(
        ElectraConfig.from_size("1/8/2", 9),
        embedding_size=6,
        max_position_embeddings=6,
    )
    arrays = random_arrays(config, ())
    old = Checkpoint(config, arrays, Vocabulary(TOKENS), True)
    words = Vocabulary([*TOKENS, "new"])
    new, _ = replace_vocabulary(old, words, seed=1)
    new, _ = resize_positions(new, 7, seed=1)
    for name, rows in ((WORDS, 10), (POSITIONS, 7)):
        assert new.arrays[name].shape == (rows, 6)
        np.testing.assert_array_equal(
            new.arrays[name][: rows - 1], arrays[name]
        )
        assert np.abs(new.arrays[name][-1]).min() > 0


def test_rows_are_copied_by_token():
    old = checkpoint()
    tokens = (*SPECIAL_TOKENS, "d", "new", "##c", "acc", "[b]", "a", "##dc")
    new, line = replace_vocabulary(old, Vocabulary(tokens), seed=1)
    assert new.vocabulary.tokens == tokens
    assert new.config == dataclasses.replace(old.config, vocab_size=12)
    assert new.lower_case is True
    for name in (WORDS, BIAS):
        made = new.arrays[name]
        assert made.dtype == np.float32
        assert made.shape == (12, *old.arrays[name].shape[1:])
        assert new.arrays.shapes[name] == made.shape
        for number, token in enumerate(tokens):
            if token in TOKENS:
                np.testing.assert_array_equal(
                    made[number], old.arrays[name][TOKENS.index(token)]
                )
        # "##d" is no piece, so that "##dc" takes the row of "d".
        rows = old.arrays[name]
        a, c, d = (rows[TOKENS.index(token)] for token in ("a", "##c", "d"))
        np.testing.assert_allclose(made[8], (a + c + c) / 3, rtol=1e-6)
        np.testing.assert_allclose(made[11], (d + c) / 2, rtol=1e-6)
    drawn = new.arrays[WORDS][[6, 9]]
    assert len(np.unique(drawn)) == drawn.size
    np.testing.assert_array_equal(new.arrays[BIAS][[6, 9]], 0)
    for name in old.arrays:
        if name not in (WORDS, BIAS):
            assert new.arrays[name] is old.arrays[name]
    for part in (
        *("8 of 12 rows copied", " 2 new ones are the mean", " 2 drawn ("),
        *("deviation 0.04, seed 1)", " 1 of the old 9 dropped"),
    ):
        assert part in line


def test_a_piece_within_a_word_comes_first():
    config = tiny_config(vocab_size=8, max_position_embeddings=6)
    tokens = [*SPECIAL_TOKENS, "a", "##a", "##b"]
    old = Checkpoint(
        config, random_arrays(config, HEADS), Vocabulary(tokens), True
    )
    new, _ = replace_vocabulary(old, Vocabulary([*tokens, "##ab", "ab"]))
    for name in (WORDS, BIAS):
        a, within, b = old.arrays[name][5:]
        np.testing.assert_allclose(
            new.arrays[name][8:], [(within + b) / 2, (a + b) / 2], rtol=1e-6
        )


def test_rows_without_a_token_are_dropped():
    """A table may be longer than its vocabulary; no head is made."""
    old = checkpoint(("pooler",), rows=12)
    new, line = replace_vocabulary(old, Vocabulary([*TOKENS, "e"]))
    assert new.config.vocab_size == 10
    np.testing.assert_array_equal(new.arrays[WORDS][:9], old.arrays[WORDS][:9])
    assert (new.arrays[WORDS][9] != old.arrays[WORDS][9]).all()
    assert "9 of 10 rows" in line
    assert "3 of the old 12 dropped" in line
    assert new.heads == ("pooler",)


def test_new_rows_are_those_of_the_seed_and_of_the_initializer():
    old = checkpoint()
    wide = Vocabulary([*TOKENS, *(f"w{i}" for i in range(4000))])

    def drawn(seed):
        return replace_vocabulary(old, wide, seed)[0].arrays[WORDS][9:]

    rows = drawn(0)
    np.testing.assert_array_equal(rows, drawn(0))
    assert (rows != drawn(1)).mean() > 0.99
    # A normal distribution cut at two deviations: 0.8796 of its deviation.
    assert np.abs(rows).max() <= 0.08
    assert np.abs(rows).max() > 0.079
    assert rows.std() == pytest.approx(0.04 * 0.8796, rel=0.02)
    assert abs(rows.mean()) < 1e-3


def test_positions_are_shortened():
    old = checkpoint()
    new, line = resize_positions(old, 4)
    assert new.config.max_position_embeddings == 4
    assert new.arrays.shapes[POSITIONS] == (4, 8)
    np.testing.assert_array_equal(
        new.arrays[POSITIONS], old.arrays[POSITIONS][:4]
    )
    assert line == "positions: the first 4 of 6 kept"
    assert new.arrays[WORDS] is old.arrays[WORDS]


def test_positions_are_extended():
    old = checkpoint()
    new, line = resize_positions(old, 500, seed=2)
    made = new.arrays[POSITIONS]
    assert made.dtype == np.float32
    assert made.shape == new.arrays.shapes[POSITIONS] == (500, 8)
    np.testing.assert_array_equal(made[:6], old.arrays[POSITIONS])
    np.testing.assert_array_equal(made, new.arrays[POSITIONS])
    assert np.abs(made[6:]).max() <= 0.08
    assert made[6:].std() == pytest.approx(0.04 * 0.8796, rel=0.05)
    assert (resize_positions(old, 500, 3)[0].arrays[POSITIONS] != made).any()
    # Not the rows that words would get.
    words = Vocabulary([*TOKENS, *(f"w{i}" for i in range(494))])
    other = replace_vocabulary(old, words, 2)[0].arrays[WORDS]
    assert (other[9:] != made[6:]).all()
    assert line.startswith("positions: 6 copied, 494 new ones drawn (")
    assert "deviation 0.04, seed 2); train" in line


def test_nothing_is_read_before_it_is_asked_for():
    read = []
    old = checkpoint()
    arrays = dict(old.arrays)

    def reader(name):
        read.append(name)
        return arrays[name]

    shapes = {name: array.shape for name, array in arrays.items()}
    lazy = dataclasses.replace(old, arrays=LazyArrays(shapes, reader))
    changed, _ = replace_vocabulary(lazy, Vocabulary([*TOKENS, "e"]))
    changed, _ = resize_positions(changed, 3)
    assert read == []
    _ = changed.arrays[POSITIONS]
    assert read == [POSITIONS]


def test_a_checkpoint_without_a_vocabulary():
    bare = dataclasses.replace(checkpoint(), vocabulary=None, source="there")
    with pytest.raises(UserError, match="there: has no vocabulary"):
        replace_vocabulary(bare, Vocabulary(TOKENS))


@pytest.mark.parametrize("length", [0, 1_000_001, 100_000_000_000])
def test_a_length_that_no_table_has(length):
    message = f"`max_position_embeddings`={length}: give .* from 1 to 1000000"
    with pytest.raises(UserError, match=message):
        resize_positions(checkpoint(), length)
