"""Served span models against the Python path: windows, spans, texts."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.question_answering.answers import SpanModel
from bert_tf.families.question_answering.decoding import decode_answers
from bert_tf.families.question_answering.squad_files import (
    Question,
    read_questions,
    split_words,
)
from bert_tf.families.question_answering.windows import make_windows
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


def python_answers(questions, tokenizer, forward, settings, threshold):
    """The answers of the Python path."""
    *lengths, max_answer_length, n_best_size = settings
    windows = make_windows(questions, tokenizer, *lengths)
    starts = np.zeros(windows.rows.ids.shape, np.float32)
    ends = np.zeros_like(starts)
    for begin in range(0, len(windows), 64):
        chosen = np.arange(begin, min(begin + 64, len(windows)))
        batch = windows.batch(chosen)
        found = forward({name: tf.constant(batch[name]) for name in INPUTS})
        for row, window in enumerate(chosen):
            own = slice(*windows.rows.starts[window : window + 2])
            size = own.stop - own.start
            starts[own] = found["start_logits"][row, :size]
            ends[own] = found["end_logits"][row, :size]
    return decode_answers(
        windows,
        tokenizer,
        starts,
        ends,
        threshold is not None,
        n_best_size,
        max_answer_length,
    )


def served_answers(questions, function, batch=32):
    found = []
    for begin in range(0, len(questions), batch):
        rows = questions[begin : begin + batch]
        found.append(
            models.ask(
                function,
                question=[q.question for q in rows],
                context=[q.context for q in rows],
            )
        )
    return {
        name: np.concatenate([part[name] for part in found])
        for name in found[0]
    }


def served(tokenizer, forward, settings, threshold):
    """The signature of a model with this forward pass."""
    config = small_config(
        vocab_size=len(tokenizer.vocabulary), max_position_embeddings=400
    )
    model = bert_tf.bert_span_labeler(bert_tf.BertEncoder(config))
    model = SpanModel(model, tokenizer, *settings, threshold)
    model.forward = forward
    return model.signatures()["serving_default"]


def assert_same(
    questions, tokenizer, forward, settings, threshold, function=None
):
    given = tokenizer, forward, settings, threshold
    function = function or served(*given)
    found = served_answers(questions, function)
    answers = python_answers(questions, *given)
    # Where no span at all may be an answer, the Python path has a placeholder.
    expected = [
        "" if begin < 0 else text
        for text, (begin, _) in zip(
            answers.texts(threshold or 0.0), answers.spans, strict=True
        )
    ]
    assert models.strings(found["answer"]) == expected
    spans = np.where(np.array(expected)[:, None] == "", -1, answers.spans)
    places = np.stack([found["start"], found["end"]], axis=1)
    np.testing.assert_array_equal(places, spans)
    for row, entries in enumerate(answers.n_best):
        there = entries[0][2:] != (0.0, 0.0) or threshold is not None
        named = [e for e in entries if e.text and there]
        best = models.strings(found["n_best_answers"][row])
        assert [text for text in best if text] == [e.text for e in named]
        bounds = zip(
            found["n_best_starts"][row].tolist(),
            found["n_best_ends"][row].tolist(),
            strict=True,
        )
        for text, (begin, end) in zip(best, bounds, strict=True):
            if text:
                stretch = questions[row].context[begin:end]
                assert " ".join(split_words(stretch)) == text
            else:
                assert (begin, end) == (-1, -1)
        shares = np.zeros(len(best))
        shares[: len(named)] = [e.probability for e in named]
        np.testing.assert_allclose(
            found["n_best_scores"][row], shares, atol=1e-6
        )
        none = sum(e.probability for e in entries if not e.text)
        np.testing.assert_allclose(
            found["no_answer_probability"][row], none, atol=1e-6
        )
        score = shares[0] if expected[row] else none
        np.testing.assert_allclose(found["score"][row], score, atol=1e-6)
        begin, end = places[row]
        text = questions[row].context[max(begin, 0) : max(end, 0)]
        assert " ".join(split_words(text)) == expected[row]
    return expected


def asked(contexts, questions):
    return [
        Question(str(number), "", question, context, (), False)
        for number, (context, question) in enumerate(
            zip(contexts, questions, strict=True)
        )
    ]


@pytest.mark.parametrize(
    ("kind", "threshold", "lower_case", "n_best_size"),
    [("far", None, True, 5), ("ties", 1.5, True, 5), ("far", -2.0, False, 1)],
)
def test_answers_are_those_of_the_python_path(
    kind, threshold, lower_case, n_best_size
):
    contexts = [*models.texts(40, 60, 1), *models.texts(40, 9, 2), "", " \n"]
    questions = asked(contexts, models.texts(82, 14, 3))
    settings = (*SMALL[:4], n_best_size)
    tokenizer = models.tokenizer(lower_case)
    expected = assert_same(
        questions, tokenizer, made_up(kind), settings, threshold
    )
    assert expected[-2:] == ["", ""]
    if kind == "ties":
        # Some have an answer and others have none.
        assert 5 < sum(text == "" for text in expected) < 75


TRAPS = [
    "(Steve  Smith's) a",
    "Café's.",
    "Cafe\u0301's. Cafe\u0301 Steve's",
    "a\u200b b. aA's",
    "A-a-b a-A-a",
    "xyz's b \u2603's",
    "a\u00a0b's",
    "a\n\n b\u202fc.",
    "İstanbul'da ﬁn ß 각각's",
    "東京A東京a京",
    "b\U0001f600a's \U00020000\U00020001",
    "banaNana ferryferRY-ferry",
    "##a a##b [UNK] [unk]'s ##",
]


@pytest.mark.parametrize("lower_case", [True, False])
def test_texts_full_of_traps_are_cut_alike(lower_case):
    """Short spans all over the contexts are best answers in turn."""
    tokenizer, settings = models.tokenizer(lower_case), (80, 20, 8, 6, 4)
    shift = tf.Variable(0)

    def forward(inputs):
        place = tf.range(tf.shape(inputs["input_ids"])[1])
        scores = tf.cast((place * 7 + shift) % 23, tf.float32)
        scores += tf.zeros_like(inputs["input_ids"], tf.float32)
        return {"start_logits": scores, "end_logits": -scores}

    given = tokenizer, forward, settings, None
    function = served(*given)
    questions = asked(TRAPS, ["is"] * len(TRAPS))
    answers = set()
    for value in range(0, 23, 2):
        shift.assign(value)
        answers.update(assert_same(questions, *given, function))
    assert len(answers) > 50


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "threshold", "settings"),
    [
        ("far", None, (384, 128, 64, 30, 20)),
        ("ties", 0.0, (120, 40, 20, 12, 5)),
    ],
)
def test_squad_is_answered_alike(shared_data, kind, threshold, settings):
    vocabulary = shared_data / "vocab" / "bert-base-uncased" / "vocab.txt"
    tokenizer = bert_tf.BertTokenizer(vocabulary)
    questions = read_questions(str(shared_data / "squad" / "dev-v2.0.json"))
    chosen = np.random.default_rng(1).choice(len(questions), 500, replace=False)
    questions = [questions[number] for number in sorted(chosen)]
    assert_same(questions, tokenizer, made_up(kind), settings, threshold)
