"""Windows of texts, by their properties."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.families.data.examples import Example
from bert_tf.families.rows import TextRows
from bert_tf.families.text_classification.kinds import SentenceTask
from bert_tf.families.text_classification.task import encode
from tests.as_numpy import as_numpy
from tests.finetuning.sentence_runs import FILLER, GOOD, tokenizer
from tests.inference.serving_models import text_config

TOKENIZER = tokenizer()
WORDS = [*FILLER, *GOOD]


def sentence(random, longest):
    return " ".join(random.choice(WORDS, random.integers(0, longest)))


def examples_of(pairs, count=60, longest=14, seed=0):
    random = np.random.default_rng(seed)
    return [
        Example(
            sentence(random, longest),
            sentence(random, longest) if pairs else None,
            None,
            str(row),
            row,
        )
        for row in range(count)
    ]


def row_of(rows, number):
    ids, starts = rows.arrays
    return ids[starts[number] : starts[number + 1]]


def second_begins(rows):
    return rows.packing.before_second(rows.first.count)


def test_what_fits_is_one_row_in_both_ways():
    for pairs in (False, True):
        examples = examples_of(pairs)
        cut = encode(examples, TOKENIZER, 40)
        windows = encode(examples, TOKENIZER, 40, "windows", 3)
        for mine, other in zip(
            as_numpy([*cut.arrays, cut.lengths, second_begins(cut)]),
            as_numpy(
                [*windows.arrays, windows.lengths, second_begins(windows)]
            ),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, other)


@given(
    count=st.integers(0, 40),
    length=st.integers(4, 12),
    stride=st.integers(1, 15),
)
def test_windows_show_every_word_and_no_more(count, length, stride):
    words = [WORDS[i % len(WORDS)] for i in range(count)]
    other = Example("good", None, None, "1", 2)
    example = Example(" ".join(words), None, None, "0", 1)
    rows = encode([example, other], TOKENIZER, length, "windows", stride)
    mine = np.flatnonzero(rows.example == 0)
    step = min(stride, length - 2)
    whole = TOKENIZER.tokenize(" ".join(words)).numpy()
    end = 0
    for number, row in enumerate(mine):
        window = row_of(rows, row)
        start = number * step
        assert start <= end or count == 0
        np.testing.assert_array_equal(
            window[1:-1], whole[start : start + length - 2]
        )
        assert end < count or count == 0
        end = start + len(window) - 2
    assert end == count
    assert list(rows.example.numpy()).count(1) == 1


def test_windows_of_a_pair_repeat_the_first_text():
    first, second = " ".join(WORDS[:3]), " ".join(WORDS[2:12])
    example = Example(first, second, None, "0", 1)
    rows = encode([example], TOKENIZER, 10, "windows", 3)
    ids = TOKENIZER.tokenize([first, second])
    for number in range(len(rows)):
        row = row_of(rows, number)
        np.testing.assert_array_equal(row[1:4], ids[0].numpy())
        assert second_begins(rows)[number] == 5
        begin = 3 * number
        np.testing.assert_array_equal(
            row[5:-1], ids[1].numpy()[begin : begin + 4]
        )
    assert len(rows) == 3
    task = SentenceTask(name="x", data=None, labels=("a", "b"))
    config = text_config(
        num_texts=2, long_inputs="windows", max_seq_length=10, doc_stride=3
    )
    config = dataclasses.replace(config, labels=task.labels)
    pair = [example._replace(label="b"), Example("a", "b", "a", "1", 2)]
    labelled = task.encode(pair, TOKENIZER, config, labelled=True)
    assert_equal = np.testing.assert_array_equal
    assert_equal(labelled.weights, np.float32([1 / 3, 1 / 3, 1 / 3, 1]))
    assert_equal(labelled.labels["label_ids"], [1, 1, 1, 0])


def test_a_first_text_that_is_too_long_leaves_half_to_the_second():
    example = Example(" ".join(WORDS), " ".join(WORDS), None, "0", 1)
    rows = encode([example], TOKENIZER, 11, "windows", 4)
    assert rows.lengths.numpy().max() == 11
    assert set(second_begins(rows).numpy()) == {6}


def test_no_examples():
    rows = encode([], TOKENIZER, 8)
    assert len(rows) == 0
    assert rows.arrays[0].shape == (0,)


def test_logits_of_windows_are_averaged():
    examples = examples_of(pairs=True, longest=20)
    rows = encode(examples, TOKENIZER, 9, "windows", 2)
    logits = np.random.default_rng(1).normal(size=(len(rows), 3))
    order = np.random.default_rng(2).permutation(len(rows))
    batches = [
        # A batch may be filled up with rows that count for nothing.
        (chosen, {"logits": np.append(logits[chosen], [[9.0] * 3], axis=0)})
        for chosen in np.array_split(order, 5)
    ]
    means = TextRows(rows).gather(batches)["logits"]
    assert len(rows) > len(means) == len(examples)
    for number, mean in enumerate(means):
        mine = logits[rows.example == number]
        np.testing.assert_allclose(mean, mine.mean(axis=0), atol=1e-6)
