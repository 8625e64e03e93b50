"""Windows of words against a slow layout, and their properties."""

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.conll_files import TaggedWords
from bert_tf.families.token_classification.recipe import TagRecipe
from bert_tf.families.token_classification.task import (
    ConllFolder,
    TokenClassificationTask,
)
from bert_tf.families.token_classification.windows import encode_words
from bert_tf.text.tokenizer import BertTokenizer
from tests.as_numpy import as_numpy

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [f"{mark}{letter}" for mark in ("", "##") for letter in "abcdé"]
TOKENS = [*SPECIAL, *LETTERS, ".", "σ", "ς", "Α", "##σ", "##ς", "##Α"]
TOKENIZER = BertTokenizer(TOKENS, lower_case=False)
UNCASED = BertTokenizer(TOKENS, lower_case=True)
CLS, SEP, UNK = (TOKENS.index(name) for name in ("[CLS]", "[SEP]", "[UNK]"))
# Of one sub-token, of several, unknown, and words that normalisation removes.
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


def lists(values, max_size):
    return st.lists(values, min_size=1, max_size=max_size)


documents_strategy = lists(lists(lists(st.sampled_from(WORDS), 9), 4), 3)


def slow_rows(documents, room, context, stride):
    """Rows: ids, the (position, word) pairs predicted, and the sentence."""
    rows = []
    number, index = 0, -1
    for document in documents:
        stream, firsts, bounds = [], [], []
        for sentence in document:
            begin, positions = len(stream), []
            for word in sentence:
                positions.append(len(stream))
                stream += pieces_of(word)
            firsts.append(positions)
            bounds.append((begin, len(stream)))
        for positions, (begin, end) in zip(firsts, bounds, strict=True):
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
            for position in positions:
                sides = [
                    min(position - o, min(o + room, last) - 1 - position)
                    for o in offsets
                ]
                best = offsets[int(np.argmax(sides))]
                asked[best].append((position - best + 1, number))
                number += 1
            for offset in offsets:
                if asked[offset]:
                    window = stream[offset : min(offset + room, last)]
                    rows.append(([CLS, *window, SEP], asked[offset], index))
    return rows


@settings(max_examples=50)
@given(
    documents=documents_strategy,
    length=st.integers(3, 24),
    context=st.sampled_from(["document", "sentence"]),
    stride=st.integers(0, 30),
)
def test_rows_are_those_of_a_slow_layout(documents, length, context, stride):
    windows = encode(words_of(documents), length, context, stride)
    room = length - 2
    stride = min(stride or max(room // 2, 1), room)
    expected = slow_rows(documents, room, context, stride)
    assert len(windows.rows) == len(expected)
    row, position, word = as_numpy(windows.words(np.arange(len(expected))))
    assert word.tolist() == [*range(len(windows.position))]
    for number, (ids, asked, sentence) in enumerate(expected):
        assert row_of(windows.rows, number) == ids
        assert windows.rows.example[number] == sentence
        own = row == number
        assert list(zip(position[own], word[own], strict=True)) == asked


def test_a_file_without_document_marks_is_told_of_once(capsys):
    sentences = [["a"] * 6, ["b"] * 3]
    template = TokenClassificationTask(name="names", data=ConllFolder("", {}))
    for documents, context, expected in (
        ([[part] for part in sentences], "document", 1),
        ([[part] for part in sentences], "sentence", 0),
        ([sentences], "document", 0),
    ):
        data = dataclasses.replace(words_of(documents), marks=0)
        config = TokenClassificationConfig("names", (), 40, context, 0)
        # Training, dev, and dev again, in one run.
        task = template.resolve(TagRecipe())
        for _ in range(3):
            windows = task.encode(data, TOKENIZER, config)
        notices = capsys.readouterr().err
        assert notices.count("words.txt: has no -DOCSTART- lines") == expected
        alone = windows.rows.lengths.numpy().tolist() == [8, 5]
        assert alone is (len(documents) == 2)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, UNCASED])
@settings(max_examples=40)
@given(
    lists(
        st.text(
            st.characters(exclude_categories=["Z", "Cs", "Cc"])
            | st.sampled_from("aabé.σςΑ\u0301\u200b\u4e2d"),
            min_size=1,
            max_size=6,
        ),
        6,
    )
)
def test_words_have_the_ids_that_they_have_in_a_text(tokenizer, words):
    """Alone or joined by blanks; [UNK] stands for a word that vanishes."""
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
    assert batch["tag_ids"].dtype == np.int32
    assert batch["tag_weights"].dtype == np.float32
    row, position, word = as_numpy(windows.words(chosen))
    weights = np.zeros(batch["input_ids"].shape)
    weights[row, position] = 1
    np.testing.assert_array_equal(batch["tag_weights"], weights)
    tags = np.zeros(weights.shape)
    tags[row, position] = numbers[word]
    np.testing.assert_array_equal(batch["tag_ids"], tags)


@settings(max_examples=30)
@given(documents=documents_strategy, length=st.integers(4, 12))
def test_outputs_return_to_their_words(documents, length):
    """Rows in any order, in batches whose last one is padded."""
    data = words_of(documents)
    windows = encode(data, length)
    count = len(windows.rows)
    order = np.random.default_rng(2).permutation(count)
    outputs = np.random.default_rng(3).normal(size=(count, length, 3))

    def batches():
        for chosen in np.split(order, range(4, count, 4)):
            padded = np.concatenate([chosen, order[: 4 - len(chosen)]])
            yield chosen, {"logits": outputs[padded]}

    found = windows.gather(batches())["logits"]
    assert found.shape == (len(data.words), 3)
    row, position, word = as_numpy(windows.words(np.arange(count)))
    expected = outputs[row, position].astype(np.float32)
    np.testing.assert_array_equal(found[word], expected)
