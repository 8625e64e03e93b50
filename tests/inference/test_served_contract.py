"""What every kind of served model promises, whatever it answers."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import Settings
from tests.inference import serving_models as models

REFUSED = tf.errors.InvalidArgumentError
# Of each kind: the inputs of a row, and what stands for a text in them.
ROWS = {
    "classes": {"text": "{}", "text_b": "is {}"},
    "regression": {"text": "{}"},
    "several_labels": {"text": "{}"},
    "span": {"question": "is", "context": "{}"},
    "tags": {"text": "{}"},
    "choice": {"text": "a", "choices": ["{}", "b"], "start": ""},
    "pretrained": {"text": "[MASK] {}"},
    "encoder": {"text": "{}"},
}
KINDS = list(ROWS)


def signatures(kind):
    """The signatures without their graphs, which take long to trace."""
    served = models.loaded(kind).served
    functions = served.signatures().items()
    return {name: function.python_function for name, function in functions}


def ask(kind, texts, signature="serving_default"):
    """The answers to rows of one text each, bytes or str."""

    def filled(value, text):
        if isinstance(value, list):
            return [filled(one, text) for one in value]
        before, place, after = value.partition("{}")
        if not place:
            return value.encode()
        text = text if isinstance(text, bytes) else text.encode()
        return before.encode() + text + after.encode()

    inputs = {
        name: tf.constant([filled(value, text) for text in texts], tf.string)
        for name, value in ROWS[kind].items()
    }
    if kind == "choice" and not texts:
        inputs["choices"] = tf.zeros([0, 3], tf.string)
    return models.ask(signatures(kind)[signature], **inputs)


CHOICE = {"text": "a", "choices": [["c"]], "start": "a"}
ODD = [b"", b"\xff\xfe\xf0\x9f", b"\x00\x01", b"A", "é".encode("latin1")]


@pytest.mark.parametrize("kind", KINDS)
def test_odd_texts_are_answered_and_no_rows_have_no_answers(kind):
    answers, none = ask(kind, ODD), ask(kind, [])
    assert set(none) == set(answers)
    for name, values in answers.items():
        assert len(values) == len(ODD), name
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), name
            # What is not UTF-8 is dropped; of choices, it is one.
            if kind != "choice":
                np.testing.assert_allclose(values[1], values[0], atol=1e-5)
        assert len(none[name]) == 0
        assert none[name].dtype == values.dtype
        assert none[name].ndim == values.ndim


@pytest.mark.parametrize("kind", KINDS)
def test_what_else_is_in_the_batch_does_not_matter(kind):
    texts = [text for text in models.texts(12, 14, 3) if text]
    together = ask(kind, texts)
    for row in (0, len(texts) - 1):
        alone = ask(kind, texts[row : row + 1])
        for name, values in alone.items():
            # Rows with more of something are longer.
            same = together[name][(row, *map(slice, values.shape[1:]))]
            if values.dtype.kind == "f":
                np.testing.assert_allclose(values[0], same, atol=1e-4)
            else:
                np.testing.assert_array_equal(values[0], same)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("classes", None),
        ("several_labels", None),
        ("choice", None),
        ("encoder", None),
        ("regression", r"text: the text of row 1 takes \d+ windows.* 128 of"),
        ("tags", r"text: the text of row 1 takes \d+ windows.* most 128 of"),
        ("span", r"context: the text of row 1 takes \d+ windows.* 128 of a"),
        ("pretrained", r"text: row 1 has \d+ tokens besides special ones"),
    ],
)
def test_a_megabyte_is_truncated_or_refused(kind, message):
    texts = ["a", "the ferry " * 105_000]
    if message is None:
        for values in ask(kind, texts).values():
            assert values.dtype.kind != "f" or np.isfinite(values).all()
        return
    with pytest.raises(REFUSED, match=message):
        ask(kind, texts)


@pytest.mark.parametrize(
    ("kind", "inputs", "message"),
    [
        ("classes", {"text": "ab", "text_b": "c"}, "text has 2 rows and tex"),
        ("span", {"question": "a", "context": "bc"}, "question has 1 rows "),
        ("choice", CHOICE | {"choices": [["c"]] * 2}, "1 rows and choices 2"),
        ("choice", CHOICE | {"start": "ab"}, "text has 1 rows and start 2"),
    ],
)
def test_uneven_inputs_are_refused(kind, inputs, message):
    given = {name: [*value] for name, value in inputs.items()}
    with pytest.raises(REFUSED, match=message):
        models.ask(signatures(kind)["serving_default"], **given)


def tokens_of(kind, ids):
    """Inputs of the signature tokens, of which rows end with zeros."""
    ids = tf.constant(ids)
    if kind == "choice":
        ids = tf.stack([ids, tf.where(ids > 4, ids + 1, ids)], axis=1)
    return {
        "input_ids": ids,
        "input_mask": tf.cast(ids > 0, tf.int32),
        "segment_ids": tf.cast(tf.range(tf.shape(ids)[-1]) > 3, tf.int32)
        + tf.zeros_like(ids),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_give_what_the_model_gives(kind):
    network = {
        "classes": models.classifier,
        "regression": lambda: models.classifier(1),
        "several_labels": models.classifier,
        "span": models.span_labeler,
        "tags": models.tagger,
        "choice": models.chooser,
        "pretrained": lambda: models.pretrainer().encoder,
        "encoder": models.encoder,
    }[kind]()
    inputs = tokens_of(kind, [[2, 5, 6, 9, 3, 8, 3], [2, 7, 3, 4, 6, 0, 0]])
    given = models.ask(signatures(kind)["tokens"], **inputs)
    expected = network(inputs, training=False)
    if not isinstance(expected, dict):
        name = "score" if kind == "regression" else "logits"
        expected = {name: tf.reshape(expected, given[name].shape)}
    for name in expected.keys() & given.keys():
        np.testing.assert_allclose(given[name], expected[name], atol=1e-4)
    # Each input is fed to its place.
    changed = {**inputs, "segment_ids": 1 - inputs["segment_ids"]}
    again = models.ask(signatures(kind)["tokens"], **changed)
    compared = sorted(expected.keys() & given.keys())
    assert compared
    name = compared[0]
    assert not np.allclose(again[name], given[name], atol=1e-3, rtol=0)


def test_padding_may_stand_anywhere():
    ids = [[2, 5, 6, 9, 3, 8, 3], [0, 0, 2, 7, 0, 3, 0], [0] * 7]
    inputs = tokens_of("encoder", ids)
    given = models.ask(signatures("encoder")["tokens"], **inputs)
    expected = models.encoder()(inputs, training=False)
    tokens = inputs["input_mask"].numpy() == 1
    np.testing.assert_allclose(
        given["sequence_output"][tokens],
        expected["sequence_output"].numpy()[tokens],
        atol=1e-4,
    )
    assert all(np.isfinite(values).all() for values in given.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[2, 5, 3], [2, 99_999, 3]], r"entry \d+ is 99999; .* from 0 to"),
        ([[2, -1, 3]], "entry 1 is -1"),
        ([[2] * 81], "have 81 positions; this model takes 80"),
    ],
)
def test_bad_tokens_are_refused(kind, ids, message):
    with pytest.raises(REFUSED, match=message):
        models.ask(signatures(kind)["tokens"], **tokens_of(kind, ids))


def sentences(**settings):
    return models.text_model(models.classifier(), **settings)


def tags(labels=models.TAGS, **settings):
    return models.tag_model(models.tagger(), labels, **settings)


def pretrained(network=models.pretrainer, **settings):
    return PretrainedModel(network(), models.tokenizer(), **settings)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (sentences, {"labels": ("a", "b")}, "`labels`: are 2, .* model has 3"),
        (sentences, {"labels": ("a", "b", "a")}, "'a' occurs twice"),
        (sentences, {"long_inputs": "split"}, "long_inputs='split'"),
        (sentences, {"max_seq_length": 90}, "3 to 80"),
        (sentences, {"max_seq_length": 3, "num_texts": 2}, "at least 4"),
        (sentences, {"labels": ()}, "`labels`: are 0"),
        (sentences, {"label_kind": "sets"}, "label_kind='sets'"),
        (models.span_model, {"doc_stride": 0}, "doc_stride`=0"),
        (models.span_model, {"n_best_size": 0}, "n_best_size`=0"),
        (models.span_model, {"max_query_length": 37}, "=40: leaves no room"),
        (tags, {"labels": ("O", "B-X")}, "`labels`: are 2, .* model has 5"),
        (tags, {"doc_stride": -1}, "doc_stride`=-1"),
        (models.choice_model, {"max_seq_length": 4}, "max_seq_length`=4"),
        (pretrained, {"top_k": 0}, "top_k`=0"),
        (pretrained, {"top_k": 10_000}, "top_k`=10000"),
        (pretrained, {"max_masks": 0}, "max_masks`=0"),
        (pretrained, {"settings": Settings(max_seq_length=81)}, "3 to 80"),
        (pretrained, {"network": models.classifier}, "no BertPretrainer"),
    ],
)
def test_settings_that_do_not_fit(make, settings, message):
    with pytest.raises(UserError, match=message):
        make(**settings)
