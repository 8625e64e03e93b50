"""Signatures of text classifiers against the model called on rows."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.families.data.examples import Example
from bert_tf.families.requests import example_bytes, string_array
from bert_tf.families.text_classification.task import encode
from tests.inference import serving_models as models

LABELS = models.text_config().labels


@functools.cache
def signatures(**changes):
    served = models.text_model(
        models.classifier(), max_seq_length=24, **changes
    )
    return served.signatures()


@pytest.mark.parametrize("pairs", [False, True])
def test_logits_are_the_means_over_the_windows(pairs):
    columns = [models.texts(60, 14, seed) for seed in range(1 + pairs)]
    names = ["text", "text_b"][: len(columns)]
    usage = {"num_texts": 1 + pairs, "long_inputs": "windows", "doc_stride": 7}
    served = signatures(**usage)
    found = models.ask(
        served["serving_default"], **dict(zip(names, columns, strict=True))
    )
    examples = [
        Example(row[0], row[1] if pairs else None, None, "", 1)
        for row in zip(columns[0], columns[-1], strict=True)
    ]
    rows = encode(
        examples,
        models.tokenizer(),
        models.text_config(max_seq_length=24, **usage),
    )
    batch = rows.batch(np.arange(len(rows)))
    logits = models.classifier()(batch, training=False).numpy()
    means = [logits[rows.example.numpy() == n].mean(0) for n in range(60)]
    assert len(rows) > 60
    np.testing.assert_allclose(found["logits"], means, atol=2e-4)
    shares = tf.nn.softmax(means).numpy()
    np.testing.assert_allclose(found["probabilities"], shares, atol=1e-4)
    best = np.argmax(means, 1)
    assert models.strings(found["label"]) == [LABELS[k] for k in best]
    assert models.strings(found["labels"]) == [[*LABELS]] * 60
    assert len(set(best)) > 1


@pytest.mark.parametrize("pairs", [False, True])
def test_classify_takes_examples(pairs):
    columns = {"text": string_array(["the ferry", "is é"])}
    if pairs:
        columns["text_b"] = string_array(["smith", ""])
    functions = signatures(num_texts=1 + pairs)
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
    served = models.text_model(
        models.classifier(1), label_kind="regression", labels=()
    )
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
        signatures(
            label_kind="multi_label", threshold=0.6, label_separator="|"
        )["serving_default"],
        text=text,
    )
    scores = 1 / (1 + np.exp(-found["logits"]))
    np.testing.assert_allclose(found["scores"], scores, atol=1e-6)
    np.testing.assert_array_equal(found["holds"], scores > 0.6)
    wanted = ["|".join(np.array(LABELS)[row > 0.6].tolist()) for row in scores]
    assert models.strings(found["label"]) == wanted
    assert len({len(row.split("|")) for row in wanted}) > 1


def test_rows_are_padded_to_the_longest_alone(monkeypatch):
    served = models.text_model(models.classifier(), max_seq_length=70)
    seen = []
    forward = served.forward

    def spy(inputs):
        seen.append(inputs["input_ids"].shape)
        return forward(inputs)

    served.forward = spy
    for text, length in (("a", 3), ("a " * 30, 32), ("a " * 31, 33)):
        served.answers(tf.constant([text, "b"]))
        assert seen.pop() == (2, length)
    served.answers(tf.constant(["a " * 900]))
    assert seen.pop() == (1, 70)
    # Long and short rows do not share their padding.
    served.answers(tf.constant(["a"] * 60 + ["a " * 60] * 40))
    assert [tuple(s) for s in seen] == [(33, 62), (33, 62), (34, 3)]


def test_examples_without_the_text_are_refused():
    examples = example_bytes({"txt": string_array(["a"])})
    with pytest.raises(tf.errors.InvalidArgumentError, match="text"):
        models.ask(signatures(num_texts=1)["classify"], inputs=list(examples))
