"""Span models that take text answer as the decoding of a split does."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.question_answering.windows import (
    decode_answers,
    make_windows,
)
from tests.as_numpy import as_numpy
from tests.families.question_answering.reference_squad import question
from tests.inference import serving_models as models


def made_up(inputs):
    """Logits computed exactly from ids and positions."""
    ids = inputs["input_ids"]
    position = tf.range(tf.shape(ids)[1])
    found = {}
    for name, by_id, by_position in (
        ("start_logits", 7919, 10473),
        ("end_logits", 3931, 7717),
    ):
        code = ids * by_id + position * by_position + ids[:, 1:2] * 577
        found[name] = tf.cast(code % 10007, tf.float32) / 1250 - 4
    return found


@pytest.mark.parametrize("threshold", [None, -2.0])
@pytest.mark.usefixtures("eagerly")
def test_answers_are_those_of_a_split(threshold):
    texts = [*models.texts(30, 60, 1), *models.texts(30, 9, 2)]
    questions = [
        question(context, asked)
        for context, asked in zip(texts, models.texts(60, 14, 3), strict=True)
    ]
    lengths = (40, 12, 10)
    names = ("max_seq_length", "doc_stride", "max_query_length")
    model = models.span_model(
        bert_tf.bert_span_labeler(models.new_encoder()),
        models.tokenizer(),
        **dict(zip(names, lengths, strict=True)),
        max_answer_length=12,
        n_best_size=5,
        with_null=threshold is not None,
        null_threshold=threshold or 0.0,
    )
    model.forward = made_up
    found = as_numpy(
        model.answers(
            tf.constant([q.question for q in questions]),
            tf.constant([q.context for q in questions]),
        )
    )
    windows = make_windows(questions, models.tokenizer(), *lengths)
    every = np.arange(len(windows))
    outputs = as_numpy(made_up(windows.batch(every)))
    expected = decode_answers(
        windows,
        models.tokenizer(),
        **windows.gather([(every, outputs)]),
        with_null=threshold is not None,
        n_best_size=5,
        max_answer_length=12,
    )
    answers = models.strings(found["answer"])
    for row, answer in enumerate(expected.texts(threshold or 0.0)):
        best = [e for e in expected.n_best[row] if e.text and e[2:] != (0, 0)]
        assert answers[row] == (answer if best else "")
        texts = models.strings(found["n_best_answers"][row])
        assert [text for text in texts if text] == [e.text for e in best]
        shares = np.zeros(5)
        shares[: len(best)] = [e.probability for e in best]
        none = sum(e.probability for e in expected.n_best[row] if not e.text)
        for key, value in (
            ("n_best_scores", shares),
            ("no_answer_probability", none),
            ("score", shares[0] if answers[row] else none),
        ):
            np.testing.assert_allclose(found[key][row], value, atol=1e-6)
        ends = found["n_best_starts"][row, 0], found["n_best_ends"][row, 0]
        assert ends == tuple(expected.spans[row])
        place = (found["start"][row], found["end"][row])
        assert place == (ends if answers[row] else (-1, -1))
    if threshold:
        # Some have an answer and others have none.
        assert 5 < answers.count("") < 55


def test_odd_contexts():
    model = models.KINDS["span"]()
    contexts = [b"", b"the \xff\xffferry \xf0\x9f"]
    asked = tf.constant([b"", b"\xffis"])
    found = as_numpy(model.answers(asked, tf.constant(contexts)))
    assert found["answer"][0] == b""
    assert (found["start"][0], found["end"][0]) == (-1, -1)
    assert found["no_answer_probability"][0] == 1
    context, answer = contexts[1].decode(errors="replace"), found["answer"][1]
    assert context[found["start"][1] : found["end"][1]] == answer.decode()
