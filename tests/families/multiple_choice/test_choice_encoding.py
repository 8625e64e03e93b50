"""Rows of choices against `SentencePacker`, and their batches."""

import numpy as np
import pytest

from bert_tf.families.multiple_choice.files import (
    SWAG_COLUMNS,
    ChoiceExample,
    read_choices,
)
from bert_tf.families.multiple_choice.task import (
    choice_predictions,
    encode_choices,
)
from bert_tf.text.packing_graph import SentencePacker
from bert_tf.text.tokenizer import BertTokenizer
from tests.finetuning.sentence_runs import FILLER, GOOD, tokenizer

TOKENIZER = tokenizer()
WORDS = [*FILLER, *GOOD]


def text(random, longest):
    return " ".join(random.choice(WORDS, random.integers(1, longest)))


def examples_of(counts, seed=0):
    random = np.random.default_rng(seed)
    return [
        ChoiceExample(
            context=text(random, 14),
            start=text(random, 3) if row % 2 else "",
            choices=tuple(text(random, 9) for _ in range(count)),
            label=0,
            identifier=str(row),
            row=row + 2,
        )
        for row, count in enumerate(counts)
    ]


def row_of(rows, number):
    return rows.ids[rows.starts[number] : rows.starts[number + 1]].tolist()


def test_a_row_by_hand():
    example = ChoiceExample(
        "the film was", "it", ("was good", "bad"), 0, "0", 2
    )
    data = encode_choices([example], TOKENIZER, 16)
    found = [
        b" ".join(TOKENIZER.id_to_token(row_of(data.rows, k)).numpy()).decode()
        for k in range(2)
    ]
    assert found == [
        "[CLS] the film was [SEP] it was good [SEP]",
        "[CLS] the film was [SEP] it bad [SEP]",
    ]
    assert data.rows.first.tolist() == [5, 5]
    assert len(data) == 1


@pytest.mark.parametrize("length", [5, 8, 13, 40])
def test_rows_are_those_of_the_packer(length):
    examples = examples_of([4, 2, 3, 7, 4])
    data = encode_choices(examples, TOKENIZER, length)
    assert data.starts.tolist() == [0, 4, 6, 9, 16, 20]
    assert data.counts.tolist() == [4, 2, 3, 7, 4]
    pack = SentencePacker(TOKENIZER, length)
    for number, example in enumerate(examples):
        second = [f"{example.start} {choice}" for choice in example.choices]
        packed = pack([example.context] * len(second), second)
        sizes = packed["input_mask"].numpy().sum(axis=1)
        assert data.lengths[number] == sizes.max()
        for k, size in enumerate(sizes):
            row = data.starts[number] + k
            ids = packed["input_ids"][k].numpy()[:size].tolist()
            assert row_of(data.rows, row) == ids
            segments = packed["segment_ids"][k].numpy()[:size]
            assert data.rows.first[row] == (segments == 0).sum()


def test_a_batch_of_equal_numbers_of_choices():
    data = encode_choices(examples_of([3, 3, 3]), TOKENIZER, 32)
    chosen = np.array([2, 0])
    batch = data.batch(chosen)
    longest = data.lengths[chosen].max()
    for name in ("input_ids", "input_mask", "segment_ids"):
        assert batch[name].shape == (2, 3, longest)
        assert batch[name].dtype == np.int32
    np.testing.assert_array_equal(
        batch["choice_mask"], np.ones((2, 3), np.float32)
    )
    for place, number in enumerate(chosen):
        for k in range(3):
            row = row_of(data.rows, data.starts[number] + k)
            size, first = len(row), data.rows.first[data.starts[number] + k]
            assert batch["input_ids"][place, k, :size].tolist() == row
            assert not batch["input_ids"][place, k, size:].any()
            assert batch["input_mask"][place, k].sum() == size
            segments = np.zeros(longest)
            segments[first:size] = 1
            np.testing.assert_array_equal(
                batch["segment_ids"][place, k], segments
            )


def test_fewer_choices_are_padded_and_masked():
    data = encode_choices(examples_of([2, 4]), TOKENIZER, 32)
    batch = data.batch(np.array([0, 1]))
    assert batch["choice_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    ids = batch["input_ids"][0]
    np.testing.assert_array_equal(ids[2], ids[0])
    np.testing.assert_array_equal(ids[3], ids[0])
    assert (ids[1] != ids[0]).any()
    # What pads is never chosen.
    logits = np.array([[-3.0, -2.0, 5.0, 6.0], [0.5, 0.1, 0.9, -1.0]])
    assert choice_predictions(logits, data.counts).values == [1, 2]
    alone = data.batch(np.array([0]))
    assert alone["choice_mask"].tolist() == [[1, 1]]


def test_which_choices_belong_together_decides_a_digest():
    """The rows of both are the same, one after the other."""

    def arrays(*choices):
        examples = [
            ChoiceExample("the film", "", each, 0, str(row), row)
            for row, each in enumerate(choices)
        ]
        return encode_choices(examples, TOKENIZER, 16).arrays

    one = arrays(("good", "bad", "so"), ("it", "was"))
    other = arrays(("good", "bad"), ("so", "it", "was"))
    np.testing.assert_array_equal(one[0], other[0])
    assert any(
        not np.array_equal(a, b) for a, b in zip(one, other, strict=True)
    )


def test_real_rows(shared_data):
    path = shared_data / "swag" / "val_subset350.csv"
    vocabulary = shared_data / "vocab" / "bert-base-uncased" / "vocab.txt"
    real = BertTokenizer(vocabulary, lower_case=True)
    examples = read_choices(str(path), SWAG_COLUMNS)
    data = encode_choices(examples, real, 128)
    assert len(data.rows) == 4 * len(data) == 1400
    for number in range(0, 350, 50):
        example = examples[number]
        for k, choice in enumerate(example.choices):
            sides = [
                real.tokenize(part).numpy().tolist()
                for part in (example.context, example.start, choice)
            ]
            assert row_of(data.rows, 4 * number + k) == [
                101,
                *sides[0],
                102,
                *sides[1],
                *sides[2],
                102,
            ]
