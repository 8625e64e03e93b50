"""Answers from logits, and how they are cut from the original text."""

import json

import numpy as np
import pytest
import reference_tokenization
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_tf
from bert_tf.errors import UserError
from bert_tf.families.question_answering.answer_texts import (
    Candidates,
    ContextCharacters,
    answer_texts,
)
from bert_tf.families.question_answering.prediction_files import (
    read_null_odds,
    read_predictions,
    write_answers,
)
from bert_tf.families.question_answering.squad_files import read_questions
from bert_tf.families.question_answering.windows import (
    decode_answers,
    make_windows,
)
from bert_tf.text.vocabulary import Vocabulary
from tests.as_numpy import as_numpy
from tests.families.question_answering.reference_squad import (
    LETTERS,
    question,
    span_config,
    split,
    tools,
    written,
)
from tests.inference import serving_models as models
from tests.relatives import ALBERT_UNIGRAM, BYTES, UNIGRAM

TOKENIZER, REFERENCE = tools()
LENGTHS = (384, 128, 64)


def decode(questions, logits, lengths=LENGTHS, **kinds):
    """Decodes with the given logits at context tokens and -9 elsewhere.

    Logits: for each question, {token: (start, end)}; token None is [CLS].
    """
    config = span_config(*lengths, **kinds)
    windows = make_windows(questions, TOKENIZER, config)
    starts, ends = (
        np.full(windows.rows.arrays[0].shape, -9, np.float32) for _ in range(2)
    )
    before = windows.rows.packing.before_second
    first = before(windows.rows.first.count).numpy()
    for number, index in enumerate(windows.rows.example.numpy()):
        begin = windows.rows.arrays[1][number]
        for token, (start, end) in logits[index].items():
            # Of one window.
            place = 0 if token is None else token + first[number]
            starts[begin + place], ends[begin + place] = start, end
    return decode_answers(windows, both(starts, ends), config)


def both(starts, ends):
    return {"start_logits": starts, "end_logits": ends}


def cut(contexts, spans, tokenizer):
    """The texts of spans, and where they are in their contexts.

    Spans: for each, context, first and last token.
    """
    tokens = tokenizer.tokenize_with_offsets(contexts)
    characters = ContextCharacters(tokenizer)(tf.constant(contexts), *tokens)
    context, *ends = tf.unstack(tf.constant(spans, tf.int32), axis=1)
    before = tf.gather(tf.cast(tokens[0].row_starts(), tf.int32), context)
    ends = [end + before for end in ends]
    logits = (tf.zeros(context.shape),) * 2
    kept = characters.with_text(Candidates(context, *ends, *logits))
    first, last = characters.spans(kept.first, kept.last)
    texts = answer_texts(characters, first, last)
    row_begin = tf.gather(characters.words.row_begin, kept.question)
    begin, end = (
        (tf.gather(characters.solid, each) - row_begin).numpy()
        for each in (first, last)
    )
    decoded = [text.decode() for text in texts.numpy()]
    return list(zip(decoded, begin, end + 1, strict=True))


@pytest.mark.parametrize("data", [BYTES, UNIGRAM, ALBERT_UNIGRAM])
def test_subwords_are_cut_at_their_offsets(data):
    """Without the blanks that belong to the next piece."""
    context = "tea in \t Lion\u2019s (the  rich) caf\u00e9 \u5317\u4eac 12,5. "
    tokenizer = data.tokenizer()
    _, begins, ends = map(np.array, tokenizer.tokenize_with_offsets(context))
    pairs = [(i, j) for i in range(len(ends)) for j in range(i, len(ends))]
    expected = []
    for i, j in pairs:
        given = context[begins[i] : ends[j]]
        if text := given.strip():
            start = begins[i] + given.index(text)
            text = " ".join(text.split())
            expected.append((text, start, start + len(given.strip())))
    assert len(expected) < len(pairs)
    spans = [(0, *pair) for pair in pairs]
    assert cut([context], spans, tokenizer) == expected


@pytest.mark.parametrize(
    ("context", "tokens", "text"),
    [
        # The rest of a word is left away where it can be.
        ("(Steve  Smith's) a", (1, 2), "Steve Smith"),
        ("Café's.", (0, 0), "Café"),
        # Written apart, the accent is one character more: the whole word.
        ("Cafe\u0301's.", (0, 0), "Cafe\u0301's."),
        # Control characters are dropped in normalised text, too.
        ("a\u200b b.", (1, 1), "b"),
        # The first place where the text is found counts.
        ("a-a-b", (2, 2), "a"),
        ("A-a-b", (2, 2), "A"),
        # What is unknown cannot be found.
        ("xyz's b", (0, 0), "xyz's"),
        # Blanks that divide no words leave the characters uneven.
        ("a\u00a0b's", (0, 0), "a\u00a0b's"),
        ("a\n\n b\u202fc.", (0, 2), "a b c"),
    ],
)
def test_answers_are_cut_from_the_original(context, tokens, text):
    ((answer, begin, end),) = cut([context], [(0, *tokens)], TOKENIZER)
    words, (window,) = REFERENCE.windows(question(context), *LENGTHS)
    before = window["first"]
    expected = REFERENCE.text_of(
        words, window, *(before + token for token in tokens)
    )
    assert (answer, expected) == (text, text)
    assert " ".join(split(context[begin:end])[0]) == text


def assert_cut_as_reference(contexts, pair, random, count):
    """Random spans of contexts give the texts that the rules give."""
    tokenizer, reference = pair
    spans, expected = [], []
    for number, context in enumerate(contexts):
        words, windows = reference.windows(question(context, ""), 1 << 20, 1, 1)
        if not windows:
            continue
        total = len(windows[0]["words"])
        firsts = random.integers(0, total, count)
        lasts = np.minimum(firsts + random.integers(0, 12, count), total - 1)
        for first, last in zip(firsts, lasts, strict=True):
            spans.append((number, first, last))
            expected.append(
                reference.text_of(words, windows[0], first + 2, last + 2)
            )
    found = cut(contexts, spans, tokenizer) if spans else []
    assert [answer for answer, _, _ in found] == expected
    for (number, *_), (_, begin, end), text in zip(
        spans, found, expected, strict=True
    ):
        assert " ".join(split(contexts[number][begin:end])[0]) == text


TRAPS = [
    "A-a-b a-A-a aA's",
    "xyz's b \u2603's",
    "İstanbul'da ﬁn ß 각각's",
    "東京A東京a京",
    "b\U0001f600a's \U00020000\U00020001",
    "banaNana ferryferRY-ferry",
    "##a a##b [UNK] [unk]'s ##",
]


@pytest.mark.parametrize("lower_case", [True, False])
def test_texts_full_of_traps_are_cut_as_by_the_reference(lower_case):
    pair = tools(lower_case, reference_tokenization.golden_vocabulary())
    random = np.random.default_rng(3)
    texts = reference_tokenization.GOLDEN_TEXTS
    texts = [*texts, " ".join(texts), "\n".join(texts[::-1]), *TRAPS]
    assert_cut_as_reference(texts, pair, random, 20)


TEXT = st.text(alphabet="abBé'-.\u0301\u200b\u00a0ßİ中𝔼x \n", max_size=40)


@settings(max_examples=10)
@given(st.lists(TEXT, min_size=1, max_size=10), st.integers(0, 99))
def test_any_text_is_cut_as_by_the_reference(contexts, seed):
    random = np.random.default_rng(seed)
    assert_cut_as_reference(contexts, (TOKENIZER, REFERENCE), random, 10)


@pytest.mark.parametrize(
    ("name", "vocabulary", "lower_case", "step"),
    [
        ("dev-v1.1.json", "bert-base-uncased", True, 160),
        ("xquad/xquad.zh.json", "bert-base-multilingual-cased", False, 60),
    ],
)
def test_real_contexts_are_cut_as_by_the_reference(
    name, vocabulary, lower_case, step, shared_data
):
    vocabulary = shared_data / "vocab" / vocabulary / "vocab.txt"
    pair = tools(lower_case, Vocabulary.from_file(vocabulary).tokens)
    rows = read_questions(str(shared_data / "squad" / name))
    contexts = list(dict.fromkeys(row.context for row in rows))
    random = np.random.default_rng(5)
    assert_cut_as_reference(contexts[::step], pair, random, 20)


def test_a_case_worked_by_hand():
    asked = question("Steve Smith's a b")
    (tokens,) = [{0: (5, 1), 1: (3, 4), 4: (-8, 2), None: (2, 3)}]
    answers = decode([asked], [tokens], n_best_size=5)
    # Of 5 starts and 5 ends: 0 to 1 is 9, 0 to 4 is 7, 1 to 1 is 7 (equal,
    # but its start is less), 0 to 0 is 6, 1 to 4 is 5.
    (best,) = answers.n_best
    assert [entry.text for entry in best] == [
        *["Steve Smith", "Steve Smith's a", "Smith", "Steve", "Smith's a"]
    ]
    assert [entry.start_logit + entry.end_logit for entry in best] == [
        *[9, 7, 7, 6, 5]
    ]
    odds = np.exp([9.0, 7, 7, 6, 5])
    np.testing.assert_allclose(
        [entry.probability for entry in best], odds / odds.sum()
    )
    assert answers.texts() == answers.best == ("Steve Smith",)
    assert answers.null_odds is None
    assert answers.spans.tolist() == [[0, 11]]


def test_null_odds_and_the_threshold():
    asked = question("Steve Smith's a b")
    tokens = {0: (5, 1), 1: (3, 4), None: (6, 5)}
    answers = decode([asked], [tokens], with_null=True, n_best_size=2)
    (best,) = answers.n_best
    assert [entry.text for entry in best] == ["", "Steve Smith"]
    assert answers.null_odds.tolist() == [11 - 9]
    assert answers.texts() == ("",)
    assert answers.texts(1.9) == ("",)
    assert answers.texts(2.0) == ("Steve Smith",)
    assert answers.best == ("Steve Smith",)
    # The empty answer is among the best even as the worst.
    asked = question("a b c d")
    tokens = {i: (i, i) for i in range(4)} | {None: (-9, -9)}
    answers = decode([asked], [tokens], with_null=True, n_best_size=3)
    texts = [entry.text for entry in answers.n_best[0]]
    assert texts == ["d", "c d", "c", ""]
    assert answers.null_odds.tolist() == [-18 - 6]


def test_where_nothing_can_be_answered_nothing_fails():
    asked = [question("a b"), question(" "), question("c")]
    # Only [CLS] is among the one best start and end.
    logits = [{None: (9, 9)}, {}, {0: (5, 5)}]
    answers = decode(asked, logits, n_best_size=1)
    assert answers.texts() == ("empty", "empty", "c")
    assert answers.n_best[0][0][1:] == (1.0, 0.0, 0.0)
    assert answers.spans.tolist() == [[-1, -1], [-1, -1], [0, 1]]
    answers = decode(asked, logits, n_best_size=1, with_null=True)
    assert answers.texts(1e9) == ("", "", "c")
    assert answers.null_odds.tolist() == [18.0, 0.0, -28.0]


def assert_decoded_as_reference(questions, lengths, logits_of, **kinds):
    config = span_config(*lengths, **kinds)
    windows = make_windows(questions, TOKENIZER, config)
    starts, ends = logits_of(windows.rows.arrays[0].shape)
    found = decode_answers(windows, both(starts, ends), config)
    split_at = windows.rows.arrays[1][1:-1]
    pairs = list(
        zip(np.split(starts, split_at), np.split(ends, split_at), strict=True)
    )
    for index, asked in enumerate(questions):
        own = [
            (start.tolist(), end.tolist())
            for (start, end), example in zip(
                pairs, windows.rows.example.numpy(), strict=False
            )
            if example == index
        ]
        best, shares, odds = REFERENCE.decode(
            asked,
            own,
            lengths,
            kinds["n_best_size"],
            kinds["max_answer_length"],
            kinds["with_null"],
        )
        assert [e.text for e in found.n_best[index]] == [t for t, _ in best]
        assert [e[2:] for e in found.n_best[index]] == [s for _, s in best]
        np.testing.assert_allclose(
            [e.probability for e in found.n_best[index]], shares, rtol=1e-9
        )
        if odds is not None:
            np.testing.assert_allclose(found.null_odds[index], odds)
        begin, end = found.spans[index]
        if begin >= 0:
            of_context = split(asked.context[begin:end])[0]
            assert " ".join(of_context) == found.best[index]


@pytest.mark.parametrize(
    ("with_null", "ties", "lengths"),
    [
        (False, True, (384, 128, 64)),
        (True, False, (12, 3, 4)),
        (True, True, (9, 6, 2)),
        (False, False, (9, 6, 2)),
    ],
)
def test_random_logits_decode_as_by_the_reference(with_null, ties, lengths):
    random = np.random.default_rng(11)
    words = [*LETTERS, "Steve", "Smith's", "(a", "b)", "Café", "xx-a", "aB."]
    questions = [
        question(
            " ".join(random.choice(words, random.integers(1, 40))), "who ? a"
        )
        for _ in range(12)
    ]

    def logits(shape):
        pair = random.normal(0, 3, (2, *shape)).astype(np.float32)
        return np.round(pair) if ties else pair

    for n_best, longest in ((20, 30), (4, 3), (1, 5)):
        assert_decoded_as_reference(
            questions,
            lengths,
            logits,
            n_best_size=n_best,
            max_answer_length=longest,
            with_null=with_null,
        )


def test_all_candidates_are_tried_where_many_have_one_text():
    """Of one word, whose 400 best spans have few texts, or of several."""
    contexts = ["a " * 300 + "b", "a " * 20, "a b c", "c b"]

    def logits(shape):
        return np.broadcast_to(
            np.float32(-1 - 0.01 * (np.arange(*shape) % 20)), (2, *shape)
        )

    assert_decoded_as_reference(
        [question(context, "a") for context in contexts],
        (384, 40, 8),
        logits,
        n_best_size=5,
        max_answer_length=3,
        with_null=False,
    )


def test_blocks_of_windows_change_nothing(monkeypatch):
    questions = [question("a b c d e f g" * (1 + i % 3)) for i in range(5)]
    config = span_config(9, 2, 2, with_null=True)
    windows = make_windows(questions, TOKENIZER, config)
    random = np.random.default_rng(2)
    logits = random.normal(size=(2, len(windows.rows.arrays[0]))).astype(
        np.float32
    )
    arguments = (windows, both(*logits), config)
    whole = decode_answers(*arguments)
    for size in (1, 7):
        monkeypatch.setattr(
            "bert_tf.families.question_answering.windows._PAIRS", 400 * size
        )
        parts = decode_answers(*arguments)
        for found, expected in zip(parts.n_best, whole.n_best, strict=True):
            assert [e._replace(probability=0) for e in found] == [
                e._replace(probability=0) for e in expected
            ]
            # Vectors and what is left of them have exponentials of their own.
            np.testing.assert_allclose(
                [e.probability for e in found],
                [e.probability for e in expected],
                rtol=1e-14,
            )
        np.testing.assert_array_equal(parts.null_odds, whole.null_odds)


@pytest.mark.parametrize("name", ["start_logits", "end_logits"])
def test_logits_that_are_not_finite_are_refused(name):
    config = span_config()
    windows = make_windows([question("a b c", "who ?")], TOKENIZER, config)
    logits = {"start_logits": np.zeros(8), "end_logits": np.zeros(8)}
    logits[name][3] = np.nan
    with pytest.raises(UserError, match=f"{name}: are not all finite"):
        decode_answers(windows, logits, config)


def test_the_files_hold_what_was_answered(tmp_path):
    asked = [
        question("Café's a", identifier='1"'),
        question("b c", identifier="2"),
    ]
    logits = [{0: (5, 5), None: (1, 0)}, {0: (1, 1), None: (2, 3)}]
    answers = decode(asked, logits, with_null=True)
    write_answers(asked, answers, tmp_path, threshold=1.0)
    predictions = read_predictions(str(tmp_path / "predictions.json"))
    assert predictions == {'1"': "Café", "2": ""}
    odds = read_null_odds(str(tmp_path / "null_odds.json"))
    assert odds == {'1"': -9.0, "2": 3.0}
    n_best = json.loads((tmp_path / "nbest_predictions.json").read_text())
    assert list(n_best) == ['1"', "2"]
    assert n_best["2"][0] == answers.n_best[1][0]._asdict()
    assert list(n_best["2"][0]) == [
        *["text", "probability", "start_logit", "end_logit"]
    ]
    # Without null there are no odds.
    answers = decode(asked, [{0: (5, 5)}] * 2)
    write_answers(asked, answers, tmp_path, prefix="v1_")
    assert sorted(file.name for file in tmp_path.glob("v1*")) == [
        *["v1_nbest_predictions.json", "v1_predictions.json"]
    ]


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_predictions, "{", "is not JSON"),
        (read_predictions, "[]", "is not laid out as one object"),
        (read_predictions, '{"a": null}', "'a' is None; it must be a text"),
        (read_predictions, '{"a": [{"text": "b"}]}', "it must be a text"),
        (read_predictions, '{"a": "b", "a": "c"}', "the id 'a' occurs twice"),
        (read_null_odds, '{"a": "1"}', "'a' is '1'; it must be a finite"),
        (read_null_odds, '{"a": NaN}', "'a' is nan; it must be a finite"),
        (read_null_odds, '{"a": true}', "'a' is True; it must be a finite"),
    ],
)
def test_broken_files_of_answers_are_named(read, content, message, tmp_path):
    path = written(tmp_path, content, "predictions.json")
    with pytest.raises(UserError, match=message) as error:
        read(path)
    assert str(error.value).startswith(path)


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
    model = models.span_model(
        bert_tf.bert_span_labeler(models.new_encoder()),
        models.tokenizer(),
        max_seq_length=40,
        doc_stride=12,
        max_query_length=10,
        max_answer_length=12,
        n_best_size=5,
        with_null=threshold is not None,
        null_threshold=threshold or 0.0,
    )
    config = span_config(40, 12, 10, 12, 5, threshold is not None)
    model.forward = made_up
    found = as_numpy(
        model.answers(
            tf.constant([q.question for q in questions]),
            tf.constant([q.context for q in questions]),
        )
    )
    windows = make_windows(questions, models.tokenizer(), config)
    every = np.arange(len(windows))
    outputs = as_numpy(made_up(windows.batch(every)))
    expected = decode_answers(
        windows,
        windows.gather([(every, outputs)]),
        config,
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
