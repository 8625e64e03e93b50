"""Rows of choices, answers to them and the loss, against plain computations."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.families.multiple_choice.answers import choice_answers
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.multiple_choice.files import ChoiceExample, SwagFiles
from bert_tf.families.multiple_choice.task import MultipleChoiceTask
from bert_tf.families.task_model import ChoicesObjective
from bert_tf.text.layout import SentencePacker
from tests.as_numpy import as_numpy
from tests.finetuning.sentence_runs import tokenizer
from tests.inference import serving_models as models

TASK = MultipleChoiceTask(name="swag", data=SwagFiles())
INPUTS = ("input_ids", "input_mask", "segment_ids")
COUNTS = (4, 2, 3, 4, 6, 2, 5)


def examples_of(counts):
    contexts = models.texts(len(counts), 12)
    starts = models.texts(len(counts), 2, 1)
    endings = models.texts(2 * sum(counts), 8, 2)
    endings = iter([text for text in endings if text.strip()])
    return [
        ChoiceExample(context, start, tuple(choices), 0, "", 1)
        for context, start, choices in zip(
            contexts,
            starts,
            ([next(endings) for _ in range(count)] for count in counts),
            strict=True,
        )
    ]


def encode(examples, tokens, length):
    config = MultipleChoiceConfig("swag", (), length, True)
    return TASK.encode(examples, tokens, config)


def packed(example, length):
    """The choices of an example as `SentencePacker` packs each pair."""
    second = [f"{example.start} {choice}" for choice in example.choices]
    pack = SentencePacker(models.tokenizer(), length)
    return as_numpy(pack([example.context] * len(second), second))


@functools.cache
def model(has_start):
    return models.choice_model(24, has_start)


def ask(has_start, **columns):
    return as_numpy(
        model(has_start).answers(*map(tf.constant, columns.values()))
    )


def test_a_row_by_hand():
    example = ChoiceExample(
        "the film was", "it", ("was good", "bad"), 0, "0", 2
    )
    batch = as_numpy(encode([example], tokenizer(), 16).batch([0]))
    tokens = tokenizer().id_to_token(batch["input_ids"][0])
    assert [b" ".join(row).decode() for row in tokens.numpy()] == [
        "[CLS] the film was [SEP] it was good [SEP]",
        "[CLS] the film was [SEP] it bad [SEP] [PAD]",
    ]
    assert batch["segment_ids"][0].tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 1, 1, 1, 0],
    ]


@pytest.mark.parametrize("length", [5, 13, 40])
def test_a_batch_holds_the_rows_of_the_packer(length):
    """Padding repeats the first choice and is masked."""
    examples = examples_of(COUNTS)
    rows = encode(examples, models.tokenizer(), length)
    alone = [packed(each, length) for each in examples]
    longest = [each["input_mask"].sum(1).max() for each in alone]
    assert rows.lengths.tolist() == longest
    batch = as_numpy(rows.batch(chosen := np.array([2, 4, 1])))
    np.testing.assert_array_equal(
        batch["choice_mask"], np.arange(6) < np.array([[3], [6], [2]])
    )
    width = max(longest[number] for number in chosen)
    for row, number in enumerate(chosen):
        of_choice = [k if k < COUNTS[number] else 0 for k in range(6)]
        for name in INPUTS:
            assert batch[name].dtype == np.int32
            expected = alone[number][name][of_choice, :width]
            np.testing.assert_array_equal(batch[name][row], expected)
    assert rows.batch([1])["choice_mask"].numpy().tolist() == [[1, 1]]


def test_which_choices_belong_together_decides_a_digest():
    """The rows of both are the same, one after the other."""

    def arrays(*choices):
        examples = [
            ChoiceExample("the film", "", each, 0, "", 1) for each in choices
        ]
        return encode(examples, tokenizer(), 16).arrays

    one = arrays(("good", "bad", "so"), ("it", "was"))
    other = arrays(("good", "bad"), ("so", "it", "was"))
    np.testing.assert_array_equal(one[0], other[0])
    pairs = zip(one, other, strict=True)
    assert not all(np.array_equal(*pair) for pair in pairs)


def test_answers_by_hand():
    none = -np.inf
    logits = [[1.0, 3.0, none], [2.0, -2.0, 0.0], [none, 1e4, -1e4]]
    answers = choice_answers(tf.constant(logits))
    assert answers["best"].numpy().tolist() == [1, 0, 1]
    first = 1 / (1 + np.exp(-2.0))
    exponentials = np.exp([2.0, -2.0, 0.0])
    np.testing.assert_allclose(
        answers["probabilities"],
        [[1 - first, first, 0], exponentials / exponentials.sum(), [0, 1, 0]],
        rtol=1e-6,
    )


@pytest.mark.usefixtures("eagerly")
def test_answers_are_those_to_each_pair_alone():
    examples = examples_of([*COUNTS, 1] * 4)
    most = max(COUNTS)
    answers = ask(
        True,
        text=[example.context for example in examples],
        choices=[
            [*e.choices, *[""] * (most - len(e.choices))] for e in examples
        ],
        start=[example.start for example in examples],
    )
    chosen = set()
    for number, example in enumerate(examples):
        rows = packed(example, 24)
        alone = {name: rows[name][:, np.newaxis] for name in INPUTS}
        logits = models.chooser()(alone, training=False).numpy()[:, 0]
        shares = np.exp(logits - logits.max())
        shares = np.append(shares, np.zeros(most - len(shares)))
        np.testing.assert_allclose(
            answers["probabilities"][number], shares / shares.sum(), atol=1e-4
        )
        best = int(logits.argmax())
        chosen.add(best)
        assert answers["choice"][number].decode() == example.choices[best]
    assert len(chosen) > 2


@pytest.mark.usefixtures("eagerly")
def test_padding_may_stand_anywhere():
    full = ask(False, text=["the ferry"], choices=[["is a", "smith", "x"]])
    holes = ask(
        False, text=["the ferry"], choices=[["", "is a", "", "smith", "x", ""]]
    )
    np.testing.assert_allclose(
        holes["probabilities"][0, [1, 3, 4]],
        full["probabilities"][0],
        atol=1e-5,
    )
    assert (holes["probabilities"][0, [0, 2, 5]] == 0).all()
    assert holes["choice"] == full["choice"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 1 has none"):
        ask(False, text=["a", "b"], choices=[["c", ""], ["", ""]])


def test_the_loss_by_hand():
    """A mean over examples; padding has no gradient."""
    logits = tf.Variable([[1.0, 2.0, 99.0], [0.5, -1.0, 3.0]])
    batch = {
        "label_ids": np.int32([1, 0]),
        "choice_mask": np.float32([[1, 1, 0], [1, 1, 1]]),
        "example_weights": np.ones(2, np.float32),
    }
    objective = ChoicesObjective()
    with tf.GradientTape() as tape:
        losses, metrics = objective({"logits": logits}, batch)
    first = np.log(1 + np.exp(-1.0))
    second = -0.5 + np.log(np.exp([0.5, -1.0, 3.0]).sum())
    assert float(losses["loss"]) == pytest.approx(first + second, rel=1e-6)
    mean = objective.normalise(losses, objective.loss_weights(batch))
    assert float(mean["loss"]) == pytest.approx((first + second) / 2, rel=1e-6)
    right, count = metrics["accuracy"]
    assert (float(right), float(count)) == (1.0, 2.0)
    gradient = tape.gradient(losses["loss"], logits).numpy()
    assert gradient[0, 2] == 0
    assert (np.abs(np.delete(gradient.ravel(), 2)) > 0.01).all()
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-6)
