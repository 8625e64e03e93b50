"""Ids by looking words up; `check` of test_tokenizer.py tries any text."""

import pathlib
import sys
import unicodedata

import numpy as np
import pytest

from bert_tf.text import corpus_tokenizer
from bert_tf.text.corpus_tokenizer import CorpusTokenizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.word_table import WordTable

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
        subject = exact.data.worker()
        check(subject, exact, texts)
        # Among so much ASCII that it is read byte by byte.
        for _ in range(2):
            check(subject, exact, [*texts, "some ascii " * 99])


def test_no_sentence(tokenizers) -> None:
    worker = tokenizers[True].data.worker()
    ids, lengths = worker.tokenize(b"", np.zeros(0, np.int64))
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
    subject = tokenizers[True].data.worker()
    for seed in (1, 2, 1):
        texts = [f"{text} é{seed} {'z' * 40}{text[:9]}" for text in words(seed)]
        check(subject, tokenizers[True], texts)
        check(subject, tokenizers[True], texts)


def test_a_full_table_still_gives_ids(tokenizers, monkeypatch) -> None:
    monkeypatch.setattr(corpus_tokenizer, "_SLOT_BITS", 6)
    subject = tokenizers[True].data.worker()
    for seed in (1, 2, 1):
        check(subject, tokenizers[True], words(seed))


def test_every_character_between_letters(tokenizers) -> None:
    """All that is assigned, as itself, and beside a mark and a sigma."""
    characters = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")
    ]
    for exact in tokenizers.values():
        subject = exact.data.worker()
        for pattern in ("жa{}ж", "Σ{}\u302eж {}"):
            texts = [pattern.replace("{}", char) for char in characters]
            for first in range(0, len(texts), 20_000):
                check(subject, exact, texts[first : first + 20_000])


def random_keys(seed: int, count: int, parts: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        random.choice(1 << 30, count, replace=False).astype(np.uint64) + 1
        for _ in range(parts)
    ]


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("collide", [False, True])
def test_word_table(monkeypatch, parts, collide) -> None:
    table = WordTable(parts, 10)
    if collide:
        # At the end of the table, so that the search goes on at its start.
        monkeypatch.setattr(
            WordTable,
            "_first_slots",
            lambda self, keys: np.full(len(keys[0]), 1022),
        )
    keys = random_keys(1, 600, parts)
    # Keys that differ in one part alone.
    keys[-1][1] = keys[-1][0] + 1
    for part in keys[:-1]:
        part[1] = part[0]
    for first in range(0, 600, 150):
        part = [values[first : first + 150] for values in keys]
        assert len(table.find(part)[0]) == 0
        table.add(part, np.arange(first, first + 150))
    # Half of the slots are used, and the rest was not added.
    places, numbers = table.find(keys)
    assert table.count == len(places) == 512
    np.testing.assert_array_equal(places, np.arange(512))
    np.testing.assert_array_equal(numbers, places)
    assert len(table.find(random_keys(2, 99, parts))[0]) == 0
    table.clear()
    assert len(table.find(keys)[0]) == 0
