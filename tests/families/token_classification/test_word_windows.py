"""Windows of words against a slow layout, and their properties."""

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.families.recipe import TagRecipe
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.conll_files import (
    TaggedWords,
)
from bert_tf.families.token_classification.task import (
    ConllFolder,
    TokenClassificationTask,
)
from bert_tf.families.token_classification.windows import (
    encode_words,
)
from bert_tf.text.tokenizer import BertTokenizer
from tests.as_numpy import as_numpy

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [f"{mark}{letter}" for mark in ("", "##") for letter in "abcdé"]
TOKENS = [*SPECIAL, *LETTERS, ".", "σ", "ς", "Α", "##σ", "##ς", "##Α"]
TOKENIZER = BertTokenizer(TOKENS, lower_case=False)
UNCASED = BertTokenizer(TOKENS, lower_case=True)
CLS, SEP, UNK = (TOKENS.index(name) for name in ("[CLS]", "[SEP]", "[UNK]"))
# Of one sub-token, of several, unknown, and one of which nothing is left.
WORDS = ["a", "b", "cd", "abcde", "d.c", "z", "\x01", "\u200b"]


def words_of(documents):
    """Documents, which are lists of sentences, which are lists of words."""
    sentences = [sentence for document in documents for sentence in document]
    words = [word for sentence in sentences for word in sentence]
    return TaggedWords(
        path="words.txt",
        words=words,
        tags=["O"] * len(words),
        rows=np.arange(len(words)) + 1,
        sentence_starts=np.cumsum([0, *map(len, sentences)]),
        document_starts=np.cumsum([0, *map(len, documents)]),
        marks=len(documents),
    )


def encode(data, length, context="document", stride=0, tokenizer=TOKENIZER):
    config = TokenClassificationConfig("names", (), length, context, stride)
    return encode_words(data, tokenizer, config)


def row_of(rows, number):
    ids, starts = rows.arrays
    return ids[starts[number] : starts[number + 1]].tolist()


@functools.cache
def pieces_of(word):
    return TOKENIZER.tokenize(word).numpy().tolist() or [UNK]


documents_strategy = st.lists(
    st.lists(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=9),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=3,
)


def slow_rows(documents, room, context, stride):
    """Rows: ids, the (place, word) pairs asked for, and the sentence."""
    rows = []
    number, index = 0, -1
    for document in documents:
        stream, firsts, bounds = [], [], []
        for sentence in document:
            begin = len(stream)
            places = []
            for word in sentence:
                places.append(len(stream))
                stream += pieces_of(word)
            firsts.append(places)
            bounds.append((begin, len(stream)))
        for places, (begin, end) in zip(firsts, bounds, strict=True):
            index += 1
            low, high = (0, len(stream))
            if context == "sentence":
                low, high = begin, end
            first, last = begin, end
            if end - begin <= room:
                # A token at a time, to the right first where sides are equal.
                while last - first < room and (first > low or last < high):
                    right = last - end <= begin - first
                    if last < high and (right or first == low):
                        last += 1
                    else:
                        first -= 1
            else:
                first = max(low, begin - room // 2)
                last = min(high, end + room // 2)
            offsets = [first]
            while offsets[-1] + room < last:
                offsets.append(min(offsets[-1] + stride, last - room))
            asked = {offset: [] for offset in offsets}
            for place in places:
                sides = [
                    min(place - o, min(o + room, last) - 1 - place)
                    for o in offsets
                ]
                best = offsets[int(np.argmax(sides))]
                asked[best].append((place - best + 1, number))
                number += 1
            for offset in offsets:
                if asked[offset]:
                    window = stream[offset : min(offset + room, last)]
                    ids = [CLS, *window, SEP]
                    rows.append((ids, asked[offset], index))
    return rows


@given(
    documents=documents_strategy,
    length=st.integers(3, 24),
    context=st.sampled_from(["document", "sentence"]),
    stride=st.integers(0, 30),
)
def test_rows_are_those_of_a_slow_layout(documents, length, context, stride):
    windows = encode(words_of(documents), length, context, stride)
    room = length - 2
    used = min(stride or max(room // 2, 1), room)
    expected = slow_rows(documents, room, context, used)
    assert len(windows.rows) == len(expected)
    for number, (ids, asked, sentence) in enumerate(expected):
        assert row_of(windows.rows, number) == ids
        assert windows.rows.example[number] == sentence
        _, places, words = as_numpy(windows.words([number]))
        assert list(zip(places, words, strict=True)) == asked
    words = windows.words(np.arange(len(expected)))[2].numpy()
    assert words.tolist() == [*range(len(windows.position))]


def test_context_is_as_much_to_both_sides():
    documents = [[["a"] * 6, ["b"] * 3, ["a", "d"] * 3], [["c"] * 20]]
    windows = encode(words_of(documents), 9)
    a, b, c, d = (TOKENS.index(letter) for letter in "abcd")
    # The second sentence has two tokens on each side, the first none before.
    assert row_of(windows.rows, 1) == [CLS, a, a, b, b, b, a, d, SEP]
    assert row_of(windows.rows, 0) == [CLS, *[a] * 6, b, SEP]
    # A row of another document holds nothing of this one.
    assert set(row_of(windows.rows, 3)) == {CLS, SEP, c}
    alone = encode(words_of(documents), 40, "sentence")
    assert row_of(alone.rows, 1) == [CLS, b, b, b, SEP]


def test_a_file_without_document_marks_is_told_of_once(capsys):
    sentences = [["a"] * 6, ["b"] * 3]
    line = "words.txt: has no -DOCSTART- lines, so its sentences stand alone"
    template = TokenClassificationTask(name="names", data=ConllFolder("", {}))
    for documents, context, expected in (
        ([[part] for part in sentences], "document", 1),
        ([[part] for part in sentences], "sentence", 0),
        ([sentences], "document", 0),
    ):
        data = dataclasses.replace(words_of(documents), marks=0)
        facts = TokenClassificationConfig("names", (), 40, context, 0)
        # Training, dev, and dev again, in one run.
        task = template.resolve(TagRecipe())
        for _ in range(3):
            windows = task.encode(data, TOKENIZER, facts)
        assert capsys.readouterr().err.count(line) == expected
        alone = windows.rows.lengths.numpy().tolist() == [8, 5]
        assert alone is (len(documents) == 2)


@pytest.mark.parametrize(
    ("word", "count"), [("a" * 5000, 1), ("a." * 2500, 5000), ("\x01", 1)]
)
def test_a_word_of_5000_characters_and_one_of_none(word, count):
    data = words_of([[["b", word, "c"]]])
    windows = encode(data, 32, "sentence")
    _, place, asked = as_numpy(windows.words(np.arange(len(windows.rows))))
    assert asked.tolist() == [0, 1, 2]
    expected = UNK if count == 1 else TOKENS.index("a")
    ids, starts = windows.rows.arrays
    first = starts[:-1].repeat(np.diff(windows.word_starts))
    assert ids[first + place][1] == expected


@given(
    st.lists(
        st.text(
            st.characters(exclude_categories=["Z", "Cs", "Cc"])
            | st.sampled_from("aabé.σςΑ\u0301\u200b\u4e2d"),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_words_have_the_ids_that_they_have_in_a_text(words):
    """Alone or joined by blanks; of a word that vanishes, [UNK] stands."""
    for tokenizer in (TOKENIZER, UNCASED):
        windows = encode(words_of([[words]]), 4000, tokenizer=tokenizer)
        kept = tokenizer.tokenize(words).row_lengths().numpy() > 0
        joined = tokenizer.tokenize(" ".join(words)).numpy().tolist()
        found = row_of(windows.rows, 0)[1:-1]
        assert len(found) == len(joined) + np.sum(~kept)
        if kept.all():
            assert found == joined


def test_batches_have_tags_at_the_words_asked_for():
    documents = [[["cd", "a"], ["b"] * 30, ["abcde"]], [["d", "\x01"]]]
    data = words_of(documents)
    windows = encode(data, 16)
    numbers = np.random.default_rng(1).integers(1, 9, len(data.words), np.int32)
    chosen = np.array([len(windows.rows) - 1, 0, 3])
    batch = as_numpy(dataclasses.replace(windows, tags=numbers).batch(chosen))
    for name in ("input_ids", "input_mask", "segment_ids", "tag_ids"):
        assert batch[name].dtype == np.int32
    assert batch["tag_weights"].dtype == np.float32
    assert not batch["segment_ids"].any()
    for place, number in enumerate(chosen):
        ids = row_of(windows.rows, number)
        size = len(ids)
        assert batch["input_ids"][place, :size].tolist() == ids
        assert not batch["input_ids"][place, size:].any()
        assert batch["input_mask"][place].sum() == size
        _, places, words = as_numpy(windows.words([number]))
        weights = np.zeros(batch["tag_weights"].shape[1])
        weights[places] = 1
        np.testing.assert_array_equal(batch["tag_weights"][place], weights)
        np.testing.assert_array_equal(
            batch["tag_ids"][place, places], numbers[words]
        )
    np.testing.assert_array_equal(
        batch["tag_ids"] * (1 - batch["tag_weights"]), 0
    )


@given(documents=documents_strategy, length=st.integers(4, 12))
def test_outputs_return_to_their_words(documents, length):
    """Rows in any order, in batches whose last one is filled up."""
    data = words_of(documents)
    windows = encode(data, length)
    count = len(windows.rows)
    order = np.random.default_rng(2).permutation(count)
    outputs = np.random.default_rng(3).normal(size=(count, length, 3))

    def batches():
        for chosen in np.split(order, range(4, count, 4)):
            filled = np.concatenate([chosen, order[: 4 - len(chosen)]])
            yield chosen, {"logits": outputs[filled]}

    found = windows.gather(batches())["logits"]
    assert found.shape == (len(data.words), 3)
    row, place, word = as_numpy(windows.words(np.arange(count)))
    expected = outputs[row, place].astype(np.float32)
    np.testing.assert_array_equal(found[word], expected)
