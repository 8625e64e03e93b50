"""Added tokens are found in text as transformers' BertTokenizer does."""

import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import UserError
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_files import AddedToken

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "added_tokens"


def rows_of(name: str) -> list[dict]:
    lines = (GOLDEN / name / "ids.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module", params=["uncased", "cased"])
def folder(request) -> pathlib.Path:
    return GOLDEN / request.param


@pytest.fixture(scope="module")
def subject(folder) -> BertTokenizer:
    return BertTokenizer.from_checkpoint(folder)


OTHER = re.compile("[\\u0300-\\u036f\\u200b-\\u200d\\u4e00-\\u9fff\\x00\\x01]")


def has_special(text: str) -> bool:
    return any(token in text for token in SPECIAL_TOKENS)


def has_long_word(text: str) -> bool:
    """Words of 101 to 200 characters are [UNK] for transformers."""
    return max(map(len, text.split()), default=0) > 100


def test_ids_and_offsets_of_transformers(folder, subject) -> None:
    finder = BertTokenizer.from_checkpoint(folder, split_special_tokens=False)
    ids_of, tokens = finder.vocabulary.ids, finder.config.added_tokens
    added = {ids_of[token.content] for token in tokens}
    assert len(added) == 18
    rows = rows_of(folder.name)
    texts = [row["text"] for row in rows]
    ids, starts, ends = (
        values.to_list() for values in finder.tokenize_with_offsets(texts)
    )
    assert finder.tokenize(texts).to_list() == ids
    by_words = subject.data.worker()
    lines = [text.encode() for text in [*texts, "some ascii " * 999]]
    sizes = np.array([len(line) for line in lines], np.int64)
    looked_up, lengths = by_words.tokenize(b"\n".join([*lines, b""]), sizes)
    exact = subject.tokenize(lines)
    np.testing.assert_array_equal(looked_up, exact.flat_values)
    np.testing.assert_array_equal(lengths, exact.row_lengths())
    compared = 0
    for row, *found in zip(rows, ids, starts, ends, strict=True):
        if has_long_word(row["text"]):
            continue
        assert found[0] == row["ids"], row["text"]
        for number, *span, expected in zip(*found, row["offsets"], strict=True):
            # What is dropped behind a piece belongs to it, here.
            # Blanks that transformers puts beside ideographs have offsets.
            if row["text"].isascii() or (
                number in added and not OTHER.search(row["text"])
            ):
                assert span == expected, row["text"]
                compared += 1
    assert compared > 700


def test_special_tokens_in_text_are_split_unless_asked(folder, subject) -> None:
    rows = rows_of(folder.name)
    rows = [row for row in rows if not has_long_word(row["text"])]
    found = subject.tokenize([row["text"] for row in rows]).to_list()
    special = {subject.vocabulary.ids[token] for token in SPECIAL_TOKENS[2:]}
    split = 0
    for row, ids in zip(rows, found, strict=True):
        assert not special & set(ids)
        if has_special(row["text"]):
            split += 1
        else:
            assert ids == row["ids"], row["text"]
    assert split > 30
    ids = subject.tokenize("[E1][MASK]").numpy()
    letters = "m ##a ##s ##k" if subject.lower_case else "M ##A ##S ##K"
    expected = ["[E1]", "[", *letters.split(), "]"]
    assert [subject.vocabulary.tokens[number] for number in ids] == expected


PARTS = [
    *("newword", "two words", "cat", "<l>", "<r>", "[E1]", "lr", "COVID-19"),
    *(" ", "\u00a0", "a", "é", "É", "中国", "Σ", "\u0301", "\x01", "\ufffd"),
]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=9), max_size=4))
def test_a_batch_is_what_its_texts_are_alone(subject, parts) -> None:
    texts = ["".join(part) for part in parts]
    data = tf.constant([text.encode() for text in texts], tf.string)
    ids, starts, ends = subject.tokenize_with_offsets(data)
    for number, text in enumerate(texts):
        alone = [v.numpy() for v in subject.tokenize_with_offsets(text)]
        for left, right in zip(alone, (ids, starts, ends), strict=True):
            np.testing.assert_array_equal(left, right[number])
        assert (alone[1] < alone[2]).all()
        assert (np.diff(alone[1]) >= 0).all()
        assert alone[2].max(initial=0) <= len(text)


def test_bytes_that_are_not_utf8(subject) -> None:
    for data in (b"cat\xff newword\xc3", b"\xe4\xb8cat <l>\xff", b"\xff"):
        text = data.decode(errors="replace")
        found = subject.tokenize_with_offsets(tf.constant(data))
        expected = subject.tokenize_with_offsets(text)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(left, right)


def test_many_tokens() -> None:
    words = [f"id{number:04}" for number in range(3000)]
    tokens = [*SPECIAL_TOKENS, "a", *words]
    added = [AddedToken(word) for word in words]
    subject = BertTokenizer(tokens, added_tokens=added)
    found = subject.tokenize("a ID0007id2999 id300").numpy().tolist()
    assert found == [5, 6 + 7, 6 + 2999, 1]


def test_a_piece_of_words_is_no_added_token() -> None:
    """WordPiece does not know it, and finds it where single_word forbids."""
    tokens = [*SPECIAL_TOKENS, "n", "##e", "##w", "##s", "new"]
    added = [AddedToken("new", single_word=True)]
    subject = BertTokenizer(tokens, added_tokens=added)
    assert subject.tokenize("new news").numpy().tolist() == [9, 5, 6, 7, 8]
    subject = BertTokenizer(tokens)
    assert subject.tokenize("new news").numpy().tolist() == [9, 9, 8]


@pytest.mark.parametrize("token", ["other", "\u0301"])
def test_tokens_that_will_not_do(token) -> None:
    tokens = [*SPECIAL_TOKENS, "a", "\u0301"]
    with pytest.raises(UserError, match=f"`added_tokens`: .*'{token}'"):
        BertTokenizer(tokens, added_tokens=[AddedToken(token)])


def test_blanks_next_to_a_token_belong_to_it() -> None:
    spans = {
        "x<r>  y": [(0, 1), (1, 6), (6, 7)],
        "<r> <r>  y": [(0, 4), (4, 9), (9, 10)],
        "x  <l>y": [(0, 1), (1, 6), (6, 7)],
        # Blanks between both belong to the first.
        "x<r>  <l>y": [(0, 1), (1, 6), (6, 9), (9, 10)],
    }
    added = [AddedToken("<r>", rstrip=True), AddedToken("<l>", lstrip=True)]
    tokens = [*SPECIAL_TOKENS, "x", "y", *(token.content for token in added)]
    subject = BertTokenizer(tokens, added_tokens=added)
    found = (v.to_list() for v in subject.tokenize_with_offsets([*spans]))
    for text, ids, starts, ends in zip(spans, *found, strict=True):
        pieces = "".join(tokens[number] for number in ids)
        assert pieces == text.replace(" ", "")
        assert [*zip(starts, ends, strict=True)] == spans[text]
