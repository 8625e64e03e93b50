"""strip_accents and tokenize_chinese_chars, beside transformers' tokenizers."""

import itertools
import json
import pathlib
import unicodedata

import numpy as np
import pytest
import reference_tokenization as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.text.corpus_tokenizer import CorpusTokenizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tokenizer_settings"
SETTINGS = tuple(itertools.product((True, False), repeat=3))
LINES = (GOLDEN / "ids.jsonl").read_text().splitlines()
ROWS = [json.loads(line) for line in LINES]
TEXTS = [row["text"] for row in ROWS]
VOCABULARY = Vocabulary.from_file(GOLDEN / "vocab.txt")


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def subject(request) -> BertTokenizer:
    return BertTokenizer(VOCABULARY, *request.param)


def settings_of(tokenizer: BertTokenizer) -> tuple[bool, bool, bool]:
    config = tokenizer.config
    return (
        config.lower_case,
        config.strip_accents,
        config.tokenize_chinese_chars,
    )


def of_reference(text: str, tokenizer: BertTokenizer) -> list[list]:
    tokens = set(tokenizer.vocabulary.ids)
    found = reference.tokenize(text, tokens, *settings_of(tokenizer))
    ids = [tokenizer.vocabulary.ids[token.text] for token in found]
    return [ids, [t.start for t in found], [t.end for t in found]]


def marks_change_places(text: str) -> bool:
    """Whether canonical ordering moves a mark that is kept."""
    characters = [c for c, _ in reference.clean(text)]
    parts = "".join(unicodedata.normalize("NFD", c) for c in characters)
    return parts != unicodedata.normalize("NFD", "".join(characters))


def check(tokenizer: BertTokenizer, texts: list[str]) -> None:
    """Ids and offsets, and the ids by looking words up, as the reference's."""
    found = [v.to_list() for v in tokenizer.tokenize_with_offsets(texts)]
    assert tokenizer.tokenize(texts).to_list() == found[0]
    for text, *row in zip(texts, *found, strict=True):
        wanted = of_reference(text, tokenizer)
        if marks_change_places(text):
            assert row[0] == wanted[0], text
        else:
            assert row == wanted, text
    by_words = CorpusTokenizer(tokenizer.vocabulary, tokenizer.config)
    data = [text.encode() for text in texts]
    # Among so much ASCII that words are looked up.
    for batch in (data, [*data, b"some ascii " * 9 * sum(map(len, data))]):
        lines = [line.replace(b"\n", b"\t") for line in batch]
        sizes = np.array([len(line) for line in lines], np.int64)
        ids, _ = by_words.tokenize(b"\n".join([*lines, b""]), sizes)
        wanted = tokenizer.tokenize(lines).flat_values
        np.testing.assert_array_equal(ids, wanted)


def test_offsets_and_looked_up_words(subject) -> None:
    check(subject, TEXTS)


def comparable(text: str) -> bool:
    """Whether transformers' limits and tables have no part in the ids.

    Its words have up to 100 characters. It drops private and unassigned
    characters, and the fast one has older tables.
    """
    words = "".join(c for c, _ in reference.clean(text)).split()
    return max(map(len, words), default=0) <= 100 and not any(
        unicodedata.ucd_3_2_0.category(char) in ("Co", "Cn") for char in text
    )


def test_ids_of_transformers(subject) -> None:
    """But for NFC in the slow one, and the final sigma in the fast one."""
    place = SETTINGS.index(settings_of(subject))
    ids = subject.tokenize(TEXTS).to_list()
    as_fast = as_slow = 0
    for row, found in zip(ROWS, ids, strict=True):
        text = row["text"]
        if not comparable(text):
            continue
        if not (subject.lower_case and "ς" in text.lower()):
            assert found == row["fast"][place], text
            as_fast += 1
        if unicodedata.is_normalized("NFC", text):
            slow = row["slow"].get(str(place), row["fast"][place])
            assert found == slow, text
            as_slow += 1
    assert as_fast > 210
    assert as_slow > 170


def test_the_settings_matter() -> None:
    different = [len({tuple(ids) for ids in row["fast"]}) for row in ROWS]
    assert sum(count > 3 for count in different) > 80


CHARACTERS = sorted(set("".join(TEXTS)) | {"\U000f0000", "\U00100000", "龍"})


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(st.sampled_from(CHARACTERS)), min_size=1))
def test_any_text_as_the_reference(subject, texts) -> None:
    check(subject, texts)


def test_private_characters_of_a_vocabulary_stay_apart_from_ideographs():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += ["中", "\U000f0000", "##國", "中國", "a##", "##\U000f0001", "a"]
    subject = BertTokenizer(tokens, tokenize_chinese_chars=False)
    texts = [
        "中",
        "中國",
        "\U000f0000國",
        "\U000f0001",
        "a中",
        "龍",
        "a\U000f0001",
    ]
    check(subject, [*texts, *(f"{text}!{text}" for text in texts)])
    assert subject.tokenize("中國 龍").numpy().tolist() == [8, 1]


@pytest.mark.parametrize(
    ("name", "lower_case"),
    [("bert-base-uncased", True), ("bert-base-multilingual-cased", False)],
)
def test_the_shared_texts(shared_data, name, lower_case) -> None:
    recorded = shared_data / "tokenizer_golden" / f"{name}.jsonl"
    lines = recorded.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    vocabulary = Vocabulary.from_file(
        shared_data / "vocab" / name / "vocab.txt"
    )
    tokens = set(vocabulary.ids)
    for accents, chinese in ((not lower_case, True), (lower_case, False)):
        rules = (lower_case, accents, chinese)
        subject = BertTokenizer(vocabulary, *rules)
        ids, starts, ends = (
            v.to_list() for v in subject.tokenize_with_offsets(texts)
        )
        assert subject.tokenize(texts).to_list() == ids
        for row, text in enumerate(texts):
            wanted = reference.tokenize(text, tokens, *rules)
            assert ids[row] == [vocabulary.ids[t.text] for t in wanted], text
            if not marks_change_places(text):
                assert starts[row] == [token.start for token in wanted], text
                assert ends[row] == [token.end for token in wanted], text
