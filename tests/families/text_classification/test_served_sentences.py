"""Served sentence models against the Python path."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.families.data.examples import Example
from bert_tf.families.requests import example_bytes, string_array
from bert_tf.families.text_classification.answers import SentenceModel
from bert_tf.families.text_classification.task import encode
from tests.inference import serving_models as models

LABELS = ["bad", "fair", "gut ü"]


@functools.cache
def signatures(**settings):
    served = SentenceModel(
        models.classifier(), models.tokenizer(), 24, LABELS, **settings
    )
    return served.signatures()


def example(text_a, text_b=None):
    values = {"text_a": text_a, "text_b": text_b, "label": None, "row": 1}
    names = Example._fields
    return Example(**{name: values.get(name, "") for name in names})


def python_logits(columns, long_inputs="cut", doc_stride=64):
    """The mean logits of the rows of `encoding.encode`."""
    examples = [example(*row) for row in zip(*columns, strict=True)]
    rows = encode(
        examples, models.tokenizer(), 24, long_inputs, doc_stride=doc_stride
    )
    batch = rows.batch(np.arange(len(rows)))
    logits = models.classifier()(batch, training=False).numpy()
    total = np.zeros((len(examples), 3))
    np.add.at(total, rows.example, logits * rows.weights[:, None])
    return total


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("long_inputs", ["cut", "windows"])
def test_logits_are_those_of_the_python_path(pairs, long_inputs):
    columns = [models.texts(60, 14, seed) for seed in range(1 + pairs)]
    names = ["text", "text_b"][: len(columns)]
    found = models.ask(
        signatures(pairs=pairs, long_inputs=long_inputs, doc_stride=7)[
            "serving_default"
        ],
        **dict(zip(names, columns, strict=True)),
    )
    wanted = python_logits(columns, long_inputs, 7)
    np.testing.assert_allclose(found["logits"], wanted, atol=2e-4)
    shares = tf.nn.softmax(wanted).numpy()
    np.testing.assert_allclose(found["probabilities"], shares, atol=1e-4)
    best = wanted.argmax(1)
    assert models.strings(found["label"]) == [LABELS[k] for k in best]
    assert models.strings(found["labels"]) == [LABELS] * 60
    assert len(set(best)) > 1


@pytest.mark.parametrize("pairs", [False, True])
def test_classify_takes_examples(pairs):
    columns = {"text": string_array(["the ferry", "is é"])}
    if pairs:
        columns["text_b"] = string_array(["smith", ""])
    functions = signatures(pairs=pairs)
    wanted = models.ask(
        functions["serving_default"],
        **{name: list(values) for name, values in columns.items()},
    )
    found = models.ask(
        functions["classify"], inputs=list(example_bytes(columns))
    )
    assert set(found) == {"classes", "scores"}
    np.testing.assert_array_equal(found["classes"], wanted["labels"])
    np.testing.assert_allclose(
        found["scores"], wanted["probabilities"], atol=1e-6
    )


def test_a_regression_gives_scores():
    served = SentenceModel(models.classifier(1), models.tokenizer(), 24)
    functions = served.signatures()
    text = ["the ferry", "cafe is", ""]
    found = models.ask(functions["serving_default"], text=text)
    assert set(found) == {"score"}
    assert found["score"].shape == (3,)
    assert len(set(found["score"].round(5))) == 3
    examples = example_bytes({"text": string_array(text)})
    regressed = models.ask(functions["regress"], inputs=list(examples))
    np.testing.assert_allclose(regressed["outputs"], found["score"], atol=1e-6)
    assert served.method == "regress"


def test_several_labels_hold_above_the_threshold():
    text = models.texts(30, 8, 5)
    found = models.ask(
        signatures(threshold=0.6, separator="|")["serving_default"], text=text
    )
    scores = 1 / (1 + np.exp(-found["logits"]))
    np.testing.assert_allclose(found["scores"], scores, atol=1e-6)
    np.testing.assert_array_equal(found["holds"], scores > 0.6)
    wanted = ["|".join(np.array(LABELS)[row > 0.6].tolist()) for row in scores]
    assert models.strings(found["label"]) == wanted
    assert len({len(row.split("|")) for row in wanted}) > 1


def test_rows_are_padded_to_the_longest_alone(monkeypatch):
    served = SentenceModel(models.classifier(), models.tokenizer(), 70, LABELS)
    seen = []
    forward = served.forward

    def spy(inputs):
        seen.append(inputs["input_ids"].shape)
        return forward(inputs)

    served.forward = spy
    for text, length in (("a", 3), ("a " * 30, 32), ("a " * 31, 33)):
        served._from_text(tf.constant([text, "b"]))
        assert seen.pop() == (2, length)
    served._from_text(tf.constant(["a " * 900]))
    assert seen.pop() == (1, 70)
    # Long and short rows do not share their padding.
    served._from_text(tf.constant(["a"] * 60 + ["a " * 60] * 40))
    assert [tuple(s) for s in seen] == [(33, 62), (33, 62), (34, 3)]


def test_examples_without_the_text_are_refused():
    examples = example_bytes({"txt": string_array(["a"])})
    with pytest.raises(tf.errors.InvalidArgumentError, match="text"):
        models.ask(signatures()["classify"], inputs=list(examples))
