"""Served span models against plain rules: windows, spans, texts, shares."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from tests.families.question_answering.reference_squad import (
    Reference,
    question,
    split,
)
from tests.inference import serving_models as models
from tests.model_helpers import small_config

# Window, stride, question, answer, n best.
SMALL = (40, 12, 10, 12, 5)
INPUTS = ("input_ids", "input_mask", "segment_ids")


@functools.cache
def made_up(kind: str):
    """A forward pass of exact numbers out of the ids and their places.

    Kinds: "far" has scores that are all different, "ties" many equal ones.
    """

    @tf.function(
        input_signature=[
            {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
        ]
    )
    def forward(inputs):
        ids = inputs["input_ids"]
        place = tf.range(tf.shape(ids)[1])
        found = {}
        for name, by_id, by_place in (
            ("start_logits", 7919, 10473),
            ("end_logits", 3931, 7717),
        ):
            code = (ids * by_id + place * by_place + ids[:, 1:2] * 577) % 10007
            score = tf.cast(code, tf.float32) / 1250 - 4
            found[name] = tf.round(score) if kind == "ties" else score
        return found

    return forward


def served(tokenizer, forward, settings, threshold):
    """The signature of a model with this forward pass."""
    config = small_config(
        vocab_size=len(tokenizer.vocabulary), max_position_embeddings=400
    )
    model = bert_tf.bert_span_labeler(bert_tf.BertEncoder(config))
    names = ("max_seq_length", "doc_stride", "max_query_length")
    names += ("max_answer_length", "n_best_size")
    model = models.span_model(
        model,
        tokenizer,
        **dict(zip(names, settings, strict=True)),
        with_null=threshold is not None,
        null_threshold=threshold or 0.0,
    )
    model.forward = forward
    return model.signatures()["serving_default"]


def expected_answers(asked, reference, forward, settings, threshold):
    """The best answers with their shares, the share of none, the answer."""
    *lengths, longest, n_best = settings
    _, windows = reference.windows(asked, *lengths)
    logits = []
    for window in windows:
        ids = tf.constant([window["ids"]])
        found = forward(dict.fromkeys(INPUTS, ids))
        logits.append([v.numpy()[0].tolist() for v in found.values()])
    with_null = threshold is not None
    best, shares, odds = reference.decode(
        asked, logits, lengths, n_best, longest, with_null
    )
    named = [
        (text, share)
        for (text, score), share in zip(best, shares, strict=True)
        # Where no span may be an answer, run_squad.py has a placeholder.
        if text and (with_null or score != (0.0, 0.0))
    ]
    none = sum(s for (t, _), s in zip(best, shares, strict=True) if not t)
    answered = named and (not with_null or odds <= threshold)
    return named, none, named[0][0] if answered else ""


def assert_as_reference(questions, tokenizer, forward, settings, threshold):
    """All outputs are those of the plain rules."""
    function = served(tokenizer, forward, settings, threshold)
    tokens = tokenizer.vocabulary.tokens
    reference = Reference(tokens, tokenizer.lower_case)
    found = models.ask(
        function,
        question=[q.question for q in questions],
        context=[q.context for q in questions],
    )
    answers = models.strings(found["answer"])
    for row, asked in enumerate(questions):
        named, none, answer = expected_answers(
            asked, reference, forward, settings, threshold
        )
        assert answers[row] == answer
        best = models.strings(found["n_best_answers"][row])
        assert [text for text in best if text] == [text for text, _ in named]
        shares = np.zeros(len(best))
        shares[: len(named)] = [share for _, share in named]
        for key, value in (
            ("n_best_scores", shares),
            ("no_answer_probability", none),
            ("score", shares[0] if answer else none),
        ):
            np.testing.assert_allclose(found[key][row], value, atol=1e-6)
        places = zip(
            [answer, *best],
            [found["start"][row], *found["n_best_starts"][row]],
            [found["end"][row], *found["n_best_ends"][row]],
            strict=True,
        )
        for text, begin, end in places:
            if text:
                assert " ".join(split(asked.context[begin:end])[0]) == text
            else:
                assert (begin, end) == (-1, -1)
    return answers


@pytest.mark.parametrize(
    ("kind", "threshold", "lower_case", "n_best_size"),
    [("far", None, True, 5), ("ties", 1.5, True, 5), ("far", -2.0, False, 1)],
)
def test_answers_are_those_of_the_rules(
    kind, threshold, lower_case, n_best_size
):
    contexts = [*models.texts(40, 60, 1), *models.texts(40, 9, 2)]
    questions = [
        question(context, asked)
        for context, asked in zip(
            contexts, models.texts(80, 14, 3), strict=True
        )
        if context.strip()
    ]
    settings = (*SMALL[:4], n_best_size)
    tokenizer = models.tokenizer(lower_case)
    answers = assert_as_reference(
        questions, tokenizer, made_up(kind), settings, threshold
    )
    if kind == "ties":
        # Some have an answer and others have none.
        assert 5 < answers.count("") < 75


def test_all_candidates_are_tried_where_many_have_one_text():
    """Of one word, whose 400 best spans have few texts, or of several."""
    contexts = ["the " * 300 + "ferry", "the " * 20, "the sea is", "a ferry"]
    questions = [question(context, "is") for context in contexts]
    tokenizer, settings = models.tokenizer(True), (384, 40, 8, 3, 5)

    def forward(inputs):
        # The last tokens are the least likely by far.
        place = tf.range(tf.shape(inputs["input_ids"])[1])
        scores = -1 - 0.01 * tf.cast(place % 20, tf.float32)
        scores += tf.zeros_like(inputs["input_ids"], tf.float32)
        return {"start_logits": scores, "end_logits": scores}

    assert_as_reference(questions, tokenizer, forward, settings, None)


def test_odd_contexts():
    function = models.KINDS["span"]().signatures()["serving_default"]
    contexts = [b"", b"\xff\xfe", b"the \xff\xffferry \xf0\x9f", b"\x00", b"?"]
    found = models.ask(
        function,
        question=[b"", b"is", b"\xffis", b"a", b""],
        context=contexts,
    )
    assert found["answer"][0] == b""
    assert (found["start"][0], found["end"][0]) == (-1, -1)
    assert found["no_answer_probability"][0] == 1
    answer = found["answer"][2].decode()
    context = contexts[2].decode(errors="replace")
    assert context[found["start"][2] : found["end"][2]] == answer
