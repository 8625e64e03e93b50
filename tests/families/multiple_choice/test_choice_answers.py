"""Rows of choices and the answers to them, against one pair at a time."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.families.multiple_choice.answers import (
    choice_answers,
)
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.multiple_choice.files import (
    SWAG_COLUMNS,
    ChoiceExample,
    SwagFiles,
    read_choices,
)
from bert_tf.families.multiple_choice.task import MultipleChoiceTask
from bert_tf.families.recipe import ChoiceRecipe
from bert_tf.text.sentence_packer import SentencePacker
from bert_tf.text.tokenizer import BertTokenizer
from tests.as_numpy import as_numpy
from tests.finetuning.sentence_runs import tokenizer
from tests.inference import serving_models as models

TASK = MultipleChoiceTask(name="swag", data=SwagFiles())
INPUTS = ("input_ids", "input_mask", "segment_ids")
COUNTS = (4, 2, 3, 4, 6, 2, 5)


def examples_of(counts, start=True):
    contexts = models.texts(len(counts), 12)
    starts = models.texts(len(counts), 2, 1)
    endings = models.texts(2 * sum(counts), 8, 2)
    endings = iter([text for text in endings if text.strip()])
    return [
        ChoiceExample(
            context,
            text if start else "",
            tuple(next(endings) for _ in range(count)),
            0,
            "",
            1,
        )
        for context, text, count in zip(contexts, starts, counts, strict=True)
    ]


def encode(examples, tokens, length, start=True):
    config = MultipleChoiceConfig("swag", (), length, start)
    return TASK.encode(examples, tokens, config)


def packed(example, length, tokens):
    """The choices of an example as `SentencePacker` packs each pair."""
    second = [f"{example.start} {choice}" for choice in example.choices]
    pack = SentencePacker(tokens, length)
    rows = pack([example.context] * len(second), second)
    return {name: values.numpy() for name, values in rows.items()}


@functools.cache
def signature(start):
    served = models.choice_model(24, start)
    return served.signatures()["serving_default"]


def test_a_row_by_hand():
    example = ChoiceExample(
        "the film was", "it", ("was good", "bad"), 0, "0", 2
    )
    rows = encode([example], tokenizer(), 16)
    batch = as_numpy(rows.batch([0]))
    tokens = tokenizer().id_to_token(batch["input_ids"][0])
    assert [b" ".join(row).decode() for row in tokens.numpy()] == [
        "[CLS] the film was [SEP] it was good [SEP]",
        "[CLS] the film was [SEP] it bad [SEP] [PAD]",
    ]
    assert batch["segment_ids"][0].tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 1, 1, 1, 0],
    ]


@pytest.mark.parametrize("length", [5, 8, 13, 40])
def test_a_batch_holds_the_rows_of_the_packer(length):
    """What a row lacks of choices is filled up by its first, and masked."""
    examples = examples_of(COUNTS)
    rows = encode(examples, models.tokenizer(), length)
    alone = [packed(each, length, models.tokenizer()) for each in examples]
    longest = [each["input_mask"].sum(1).max() for each in alone]
    assert rows.lengths.tolist() == longest
    chosen = np.array([2, 4, 1])
    batch = as_numpy(rows.batch(chosen))
    np.testing.assert_array_equal(
        batch["choice_mask"], np.arange(6) < np.array([[3], [6], [2]])
    )
    assert batch["choice_mask"].dtype == np.float32
    width = max(longest[number] for number in chosen)
    for place, number in enumerate(chosen):
        of_choice = [k if k < COUNTS[number] else 0 for k in range(6)]
        for name in INPUTS:
            assert batch[name].dtype == np.int32
            expected = alone[number][name][of_choice, :width]
            np.testing.assert_array_equal(batch[name][place], expected)
    assert rows.batch([1])["choice_mask"].numpy().tolist() == [[1, 1]]


def test_which_choices_belong_together_decides_a_digest():
    """The rows of both are the same, one after the other."""

    def arrays(*choices):
        examples = [
            ChoiceExample("the film", "", each, 0, str(row), row)
            for row, each in enumerate(choices)
        ]
        return encode(examples, tokenizer(), 16).arrays

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
    examples = read_choices(str(path), SWAG_COLUMNS, ChoiceRecipe())
    rows = encode(examples, real, 128)
    assert len(rows) == 350
    for number in range(0, 350, 50):
        example = examples[number]
        ids = rows.batch([number])["input_ids"][0].numpy()
        for row, choice in zip(ids.tolist(), example.choices, strict=True):
            sides = [
                real.tokenize(part).numpy().tolist()
                for part in (example.context, example.start, choice)
            ]
            expected = [101, *sides[0], 102, *sides[1], *sides[2], 102]
            assert row[: len(expected)] == expected
            assert not any(row[len(expected) :])


def test_answers_by_hand():
    none = -np.inf
    logits = [[1.0, 3.0, none], [2.0, -2.0, 0.0], [none, 1e4, -1e4]]
    found = choice_answers(tf.constant(logits))
    assert found["best"].numpy().tolist() == [1, 0, 1]
    first = 1 / (1 + np.exp(-2.0))
    exponentials = np.exp([2.0, -2.0, 0.0])
    np.testing.assert_allclose(
        found["probabilities"],
        [
            [1 - first, first, 0],
            exponentials / exponentials.sum(),
            [0, 1, 0],
        ],
        rtol=1e-6,
    )


@pytest.mark.parametrize("start", [False, True])
def test_answers_are_those_to_each_pair_alone(start):
    examples = examples_of([*COUNTS, 1] * 4, start)
    most = max(len(example.choices) for example in examples)
    inputs = {
        "text": [example.context for example in examples],
        "choices": [
            [*e.choices, *[""] * (most - len(e.choices))] for e in examples
        ],
    }
    if start:
        inputs["start"] = [example.start for example in examples]
    found = models.ask(signature(start), **inputs)
    places = set()
    for number, example in enumerate(examples):
        rows = packed(example, 24, models.tokenizer())
        alone = {name: rows[name][:, np.newaxis] for name in INPUTS}
        logits = models.chooser()(alone, training=False).numpy()[:, 0]
        shares = np.exp(logits - logits.max())
        shares = np.append(shares, np.zeros(most - len(shares)))
        np.testing.assert_allclose(
            found["probabilities"][number], shares / shares.sum(), atol=1e-4
        )
        best = int(logits.argmax())
        places.add(best)
        assert found["choice"][number].decode() == example.choices[best]
    assert len(places) > 2


def test_what_fills_up_may_stand_anywhere():
    full = models.ask(
        signature(False), text=["the ferry"], choices=[["is a", "smith", "x"]]
    )
    holes = models.ask(
        signature(False),
        text=["the ferry"],
        choices=[["", "is a", "", "smith", "x", ""]],
    )
    np.testing.assert_allclose(
        holes["probabilities"][0, [1, 3, 4]],
        full["probabilities"][0],
        atol=1e-5,
    )
    assert (holes["probabilities"][0, [0, 2, 5]] == 0).all()
    assert holes["choice"] == full["choice"]


def test_rows_without_a_choice_are_refused():
    refused = tf.errors.InvalidArgumentError
    with pytest.raises(refused, match="choices: row 1 has none"):
        models.ask(
            signature(False), text=["a", "b"], choices=[["c", ""], ["", ""]]
        )
