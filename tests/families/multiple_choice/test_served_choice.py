"""Served models that choose, against the Python path."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.families.multiple_choice.answers import ChoiceModel
from bert_tf.families.multiple_choice.files import (
    SWAG_COLUMNS,
    ChoiceExample,
    read_choices,
)
from bert_tf.families.multiple_choice.task import (
    choice_predictions,
    encode_choices,
)
from tests.inference import serving_models as models


@functools.cache
def signatures(start: bool = False):
    served = ChoiceModel(models.chooser(), models.tokenizer(), 24, start=start)
    return served.signatures()


def examples_of(counts, seed=0):
    contexts = models.texts(len(counts), 12, seed)
    starts = models.texts(len(counts), 2, seed + 1)
    endings = models.texts(2 * sum(counts), 8, seed + 2)
    endings = iter([text for text in endings if text.strip()])
    return [
        ChoiceExample(
            context, start, tuple(next(endings) for _ in range(n)), 0, "", 1
        )
        for context, start, n in zip(contexts, starts, counts, strict=True)
    ]


def python_answers(examples):
    data = encode_choices(examples, models.tokenizer(), 24)
    batch = data.batch(np.arange(len(data)))
    mask = batch.pop("choice_mask")
    logits = models.chooser()(batch, training=False).numpy()
    shares = tf.nn.softmax(np.where(mask > 0, logits, -np.inf)).numpy()
    best = choice_predictions(logits, data.counts).values
    chosen = [e.choices[k] for e, k in zip(examples, best, strict=True)]
    return shares, chosen


def inputs_of(examples, start):
    most = max(len(example.choices) for example in examples)
    inputs = {
        "text": [example.context for example in examples],
        "choices": [
            [*e.choices, *[""] * (most - len(e.choices))] for e in examples
        ],
    }
    if start:
        inputs["start"] = [example.start for example in examples]
    return inputs


@pytest.mark.parametrize("start", [False, True])
def test_choices_are_those_of_the_python_path(start):
    examples = examples_of([4, 2, 3, 4, 1, 6, 2, 5] * 4)
    if not start:
        examples = [example._replace(start="") for example in examples]
    shares, chosen = python_answers(examples)
    found = models.ask(
        signatures(start)["serving_default"], **inputs_of(examples, start)
    )
    np.testing.assert_allclose(found["probabilities"], shares, atol=1e-4)
    assert models.strings(found["choice"]) == chosen
    places = {e.choices.index(c) for e, c in zip(examples, chosen, strict=True)}
    assert len(places) > 2


def test_what_fills_up_may_stand_anywhere():
    function = signatures()["serving_default"]
    full = models.ask(
        function, text=["the ferry"], choices=[["is a", "smith", "x"]]
    )
    holes = models.ask(
        function,
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
    function = signatures()["serving_default"]
    refused = tf.errors.InvalidArgumentError
    with pytest.raises(refused, match="choices: row 1 has none"):
        models.ask(function, text=["a", "b"], choices=[["c", ""], ["", ""]])


def test_swag_is_answered_alike(shared_data):
    path = shared_data / "swag" / "val_subset350.csv"
    examples = read_choices(str(path), SWAG_COLUMNS)[:100]
    shares, chosen = python_answers(examples)
    found = models.ask(
        signatures(True)["serving_default"], **inputs_of(examples, True)
    )
    np.testing.assert_allclose(found["probabilities"], shares, atol=1e-3)
    # The model is a made one: two endings may be as good as equal.
    second, first = np.sort(shares, axis=1)[:, -2:].T
    clear = first - second > 2e-3
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(
        np.array(models.strings(found["choice"]))[clear],
        np.array(chosen)[clear],
    )
