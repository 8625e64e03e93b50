"""A vocabulary with what a text needs besides."""

import json
import re

import pytest

from bert_tf.corpora.vocabulary import train_vocab
from bert_tf.errors import UserError
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary

PIECES = "the cell ##s pro ##te ##in kin ##ase a ##a b ##b of . ##n".split()
UNUSED = ["[unused1]", "[unused2]"]
BASE = Vocabulary(["[PAD]", *UNUSED, *SPECIAL_TOKENS[1:], *PIECES])
# Pieces that a token would save: kinase 9, protein 8, proteins 9, aab 6.
TEXT = "\n".join(
    ["the kinase of the cell ."] * 9
    + ["protein of cells ."] * 4
    + ["proteins ."] * 3
    + ["aab ."] * 3
    + ["bab once ."]
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    BASE.save(tmp_path / "base" / "vocab.txt")
    return tmp_path


def extend(folder, vocab_size, **settings):
    return train_vocab(
        [folder / "text.txt"],
        vocab_size,
        extend=folder / "base" / "vocab.txt",
        **{"held_out": 0.0, **settings},
    )


def test_old_tokens_stay_and_new_ones_fill_up_and_follow(folder):
    """Letters first: "o", "r", "c" and so on are none of the old tokens."""
    found = extend(folder, 51, min_frequency=1).tokens
    kept = [n for n, token in enumerate(BASE.tokens) if token not in UNUSED]
    assert [found[n] for n in kept] == [BASE.tokens[n] for n in kept]
    assert not set(found) & set(UNUSED)
    new = [*found[1:3], *found[len(BASE) :]]
    letters = sorted(set(TEXT) - set("ab .\n"))
    assert new[: len(letters)] == letters
    more = [f"##{c}" for c in letters if f"##{c}" not in BASE.ids]
    assert new[len(letters) :][: len(more)] == more
    assert {"kinase", "proteins"} <= set(new[len(letters) + len(more) :])


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_the_words_that_save_most_come_first(folder, behind):
    # With all letters there, words alone are added.
    letters = sorted(set(TEXT) - set(" \n"))
    spelled = [*letters, *(f"##{c}" for c in letters)]
    tokens = list(dict.fromkeys([*BASE.tokens, *spelled]))
    Vocabulary(tokens).save(folder / "base" / "vocab.txt")
    found = extend(folder, len(tokens) + behind)
    ranked = ["kinase", "proteins", "protein", "aab", "cells"]
    new = [*found.tokens[1:3], *found.tokens[len(tokens) :]]
    assert new == ranked[: 2 + behind]
    assert found.report.new_tokens == 2 + behind


def test_text_is_split_into_fewer_pieces(folder):
    # A line that is held out, by its checksum.
    (folder / "text.txt").write_text(f"{TEXT}\nthe protein of a kinase .")
    found = extend(folder, 51, held_out=0.22, min_frequency=1)
    assert found.report.held_out_words == 6
    # Before, "protein" were three pieces and "kinase" two.
    assert found.report.pieces_per_word_before == 9 / 6
    assert found.report.pieces_per_word == 1
    assert "1.000 pieces per word (before, 1.500)" in str(found.report)
    before, after = (
        BertTokenizer(vocabulary, lower_case=True)
        for vocabulary in (BASE, found.vocabulary)
    )
    known = "the cell of a . b"
    ids = [each.tokenize(known).numpy().tolist() for each in (before, after)]
    assert ids[0] == ids[1]
    # A word that begins with a new one is split behind it.
    pieces = after.id_to_token(after.tokenize("kinases")).numpy().ravel()
    assert pieces.tolist() == [b"kinase", b"##s"]


def test_what_contradicts_the_vocabulary(folder):
    config = folder / "base" / "tokenizer_config.json"
    for values, settings, message in (
        ({"do_lower_case": False}, {}, "pass `lower_case`=False"),
        (
            {"do_lower_case": True, "strip_accents": False},
            {},
            "strip_accents is True, but False .*; pass `strip_accents`=False",
        ),
        (
            {"do_lower_case": True},
            {"tokenize_chinese_chars": False},
            "pass `tokenize_chinese_chars`=True",
        ),
        ({}, {"google_layout": True}, "leave out `google_layout` or `extend`"),
    ):
        config.write_text(json.dumps(values))
        with pytest.raises(UserError, match=message):
            extend(folder, 51, **settings)


@pytest.mark.parametrize(
    ("vocab_size", "message"),
    [
        (len(BASE) - 1, "at least"),
        (len(BASE), f"for the {len(BASE)} tokens of the vocabulary that is "),
    ],
)
def test_sizes_that_cannot_be(folder, vocab_size, message):
    with pytest.raises(UserError, match=f"`vocab_size`={vocab_size}: ") as one:
        extend(folder, vocab_size)
    assert message in str(one.value)
    # What the message asks for is enough.
    number = re.search(r"at least (\d+)", str(one.value))[1]
    assert len(extend(folder, int(number)).tokens) == int(number)


def test_a_text_with_fewer_words(folder, capsys):
    found = extend(folder, 500)
    most = len(found.tokens)
    assert f"=500: this text gives {most} tokens; " in capsys.readouterr().err
    assert found.tokens == extend(folder, most).tokens
    assert len(BASE) < most < 500
