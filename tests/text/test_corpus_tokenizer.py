"""Ids by looking words up; `check` of test_tokenizer.py tries any text."""

import pathlib

import numpy as np
import pytest

from bert_tf.text import corpus_tokenizer
from bert_tf.text.corpus_tokenizer import CorpusTokenizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tokenizer"
VOCABULARY = GOLDEN / "vocab.txt"


@pytest.fixture(scope="module")
def tokenizers() -> dict[bool, BertTokenizer]:
    return {case: BertTokenizer(VOCABULARY, case) for case in (True, False)}


def check(subject: CorpusTokenizer, exact: BertTokenizer, texts) -> None:
    texts = [x if isinstance(x, bytes) else x.encode() for x in texts]
    sizes = np.array([len(text) for text in texts], np.int64)
    ids, lengths = subject.tokenize(b"\n".join([*texts, b""]), sizes)
    expected = exact.tokenize(texts)
    np.testing.assert_array_equal(lengths, expected.row_lengths())
    np.testing.assert_array_equal(ids, expected.flat_values)
    assert (ids.dtype, lengths.dtype) == (np.uint16, np.int64)


EDGES = [
    ["ΑΣ'Α ΑΣ. ΑΣ", "and a Σ'A"],
    ["x" * n for n in (1, 7, 8, 9, 15, 16, 17, 24, 199, 200, 201)],
    # The same first sixteen bytes.
    ["characterization", "characterizationist", "characterizatione"],
    ["", "  \t ", "a", ""],
    ["one\ntwo\rthree", "nul\x00l by\x00te\x7f"],
    # What is looked up by its bytes, zeros behind them.
    ["nul nul\0 nul\0\0", "\0 \0nul \0\0\0\0\0\0\0\0nul", "nul\0."],
    # Case that depends on other letters, and marks on ASCII ones.
    ["I\u0307 i\u0307 ÉCOLE École éCOLE", "AΣ aΣ AΣB aΣb \u0130I K\u212a"],
    [b"caf\xc3\xa9 \xff\xfe broken \xc3", b"\xe4\xb8"],
    ["!\u0301 .\u0301a \u0301", "x\u00a0y\u2028z"],
    ["[MASK] ##ing [UNK]", "don't U.S.A. 3.14%"],
]


@pytest.mark.parametrize("lower_case", [True, False])
def test_edges(tokenizers, lower_case) -> None:
    exact = tokenizers[lower_case]
    for texts in EDGES:
        subject = CorpusTokenizer(exact.vocabulary, exact.config)
        check(subject, exact, texts)
        # Among so much ASCII that words are looked up.
        for _ in range(2):
            check(subject, exact, [*texts, "some ascii " * 99])


def test_no_sentence(tokenizers) -> None:
    ids, lengths = CorpusTokenizer(
        tokenizers[True].vocabulary, TokenizerConfig.of()
    ).tokenize(b"", np.zeros(0, np.int64))
    assert (ids.tolist(), lengths.tolist()) == ([], [])


def words(seed: int) -> list[str]:
    """Sentences of words that hardly repeat."""
    random = np.random.default_rng(seed)
    letters = random.integers(97, 123, (50, 300)).astype(np.uint8)
    letters[random.random(letters.shape) < 0.2] = ord(" ")
    return [row.tobytes().decode() for row in letters]


@pytest.mark.parametrize(
    ("name", "value"),
    [("_MAX_WORDS", 100), ("_MAX_LONG_WORDS", 3), ("_MAX_IDS", 500)],
)
def test_what_is_forgotten_is_learnt_again(
    tokenizers, monkeypatch, name, value
) -> None:
    monkeypatch.setattr(corpus_tokenizer, name, value)
    subject = CorpusTokenizer(tokenizers[True].vocabulary, TokenizerConfig.of())
    for seed in (1, 2, 1):
        texts = [f"{text} é{seed} {'z' * 20}{text[:9]}" for text in words(seed)]
        check(subject, tokenizers[True], texts)
        check(subject, tokenizers[True], texts)
    assert subject._words.count < 5000


def test_words_that_collide(tokenizers, monkeypatch) -> None:
    def same_slot(low, high):
        # At the end of the table, so that the search goes on at its start.
        return np.full(len(low), corpus_tokenizer._SLOTS - 2)

    monkeypatch.setattr(
        corpus_tokenizer._WordTable, "_first_slots", staticmethod(same_slot)
    )
    subject = CorpusTokenizer(tokenizers[True].vocabulary, TokenizerConfig.of())
    texts = words(3)[:8]
    for _ in range(2):
        check(subject, tokenizers[True], texts)
        texts += words(4)[:2]
