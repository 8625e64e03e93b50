"""Windows, what they own and where answers lie, against plain rules."""

import numpy as np
import pytest
import reference_tokenization
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.families.question_answering.squad_files import (
    Answer,
    located_answers,
    read_questions,
    trainable,
)
from bert_tf.families.question_answering.windows import (
    answer_positions,
    make_windows,
    tokenize_contexts,
)
from bert_tf.text.layout import most_context
from bert_tf.text.vocabulary import Vocabulary
from tests.as_numpy import as_numpy
from tests.families.question_answering.reference_squad import (
    LETTERS,
    SMALL,
    question,
    span_config,
    tools,
)
from tests.relatives import ALBERT_UNIGRAM, BYTES, UNIGRAM


def assert_as_reference(questions, pair, lengths):
    """Every part of the windows is what the plain rules give."""
    tokenizer, reference = pair
    windows = make_windows(questions, tokenizer, span_config(*lengths))
    positions = answer_positions(windows, questions)
    rows, number = windows.rows, 0
    second = rows.packing.before_second(rows.first.count)
    (all_ids, starts), first = as_numpy((rows.arrays, second))
    of_question = rows.example.numpy()
    for index, asked in enumerate(questions):
        words, expected = reference.windows(asked, *lengths)
        for window in expected:
            ids = all_ids[starts[number] : starts[number + 1]]
            assert ids.tolist() == window["ids"]
            assert of_question[number] == index
            assert first[number] == window["first"]
            assert tuple(positions[number]) == window["target"]
            number += 1
    assert number == len(rows) == len(positions)


def offset_and_owned(windows):
    """Where windows begin, and which of their tokens they answer with."""
    (block,) = windows.blocks()
    owned = np.stack(most_context(block.rows.windows), 1)
    return block.rows.windows.offset.numpy().tolist(), owned.tolist()


def test_a_case_worked_by_hand():
    """Ten pieces in windows of four, two apart: 0-3, 2-5, 4-7, 6-9."""
    tokenizer, _ = tools()
    asked = question("a b c d e f g h i j", "who ?", "d e")
    windows = make_windows([asked], tokenizer, span_config(9, 2, 2))
    offset, owned = offset_and_owned(windows)
    assert offset == [0, 2, 4, 6]
    tokens = tokenizer.id_to_token(windows.rows.arrays[0]).numpy().tolist()
    assert b" ".join(tokens).decode() == (
        "[CLS] who ? [SEP] a b c d [SEP] [CLS] who ? [SEP] c d e f [SEP] "
        "[CLS] who ? [SEP] e f g h [SEP] [CLS] who ? [SEP] g h i j [SEP]"
    )
    # c has one token at its right in the first window, none at its left in
    # the second; d is the other way round, and so on.
    assert owned == [[0, 3], [1, 3], [1, 3], [1, 4]]
    assert answer_positions(windows, [asked]).tolist() == [
        [0, 0],
        [5, 6],
        [0, 0],
        [0, 0],
    ]


def test_a_longer_window_is_worth_more():
    """Windows 0-5 and 4-6: 4 and 5 are as deep in both, or less."""
    tokenizer, _ = tools()
    asked = question("a b c d e f g", "who ?")
    windows = make_windows([asked], tokenizer, span_config(11, 4, 2))
    assert offset_and_owned(windows) == ([0, 4], [[0, 5], [1, 3]])


@pytest.mark.parametrize("count", [200, 301])
def test_a_hundred_tokens_more_are_worth_one_more_beside(count):
    asked = question(" ".join(LETTERS[i % 10] for i in range(count)), "who")
    assert_as_reference([asked], tools(), (164, 140, 1))


@pytest.mark.parametrize(
    ("context", "answer", "expected"),
    [
        ("in (a) b", "a", ["a"]),
        ("a-b-c", "b", ["b"]),
        ("b-c. b", "b", ["b"]),
        # No pieces of the words are the answer's own, so whole words.
        ("abc d", "bc", ["a", "##b", "##c"]),
        ("d abc. d", "abc. d", ["a", "##b", "##c", ".", "d"]),
        ("d a b a b", "a b", ["a", "b"]),
        ("A (B)", "B", ["b"]),
    ],
)
def test_an_answer_is_its_own_pieces_or_whole_words(context, answer, expected):
    tokenizer, reference = tools()
    asked = question(context, "who", answer)
    windows = make_windows([asked], tokenizer, span_config())
    ((first, last),) = answer_positions(windows, [asked])
    ids = windows.rows.arrays[0][first : last + 1]
    tokens = tokenizer.id_to_token(ids).numpy()
    assert [token.decode() for token in tokens] == expected
    assert_as_reference([asked], (tokenizer, reference), (384, 128, 64))


@pytest.mark.parametrize(
    ("lower_case", "golden"), [(True, True), (False, False)]
)
def test_texts_full_of_traps_agree_with_the_reference(lower_case, golden):
    texts = [
        *reference_tokenization.GOLDEN_TEXTS,
        "\u202fa\u202fb\u00a0c\u3000d\r\ne\tf \u2028 g\x0bh\x85i",
        " leading and trailing ",
        "\u200b a \u200bb\u200b c\u200b \u200b",
        "a\x00b \x00 c\ufffd",
        "ΑΣ ΑΣ\u202fΑΣ\u00a0ΑΣ\u200b ΣΑ",
        "\U0001d53c\U0001d54f 👩\u200d💻 \U0001f1eb",
        "e\u0301\u0323 \u0301e n\u0303",
    ]
    random = np.random.default_rng(7)
    questions = []
    for context in [*texts, " ".join(texts), "\n".join(texts[::-1])]:
        solid = [i for i, c in enumerate(context) if not c.isspace()]
        for _ in range(3 if solid else 0):
            start = int(random.choice(solid))
            size = int(random.integers(1, 30))
            answer = context[start : start + size].strip()
            asked = question(context, texts[random.integers(len(texts))])
            questions.append(asked._replace(answers=(Answer(answer, start),)))
        questions.append(question(context))
    # The rules say nothing of an answer of characters that are all dropped.
    tokens = reference_tokenization.golden_vocabulary() if golden else SMALL
    tokenizer, reference = tools(lower_case, tokens)
    questions = [
        q
        for q in questions
        if not q.answers or reference.pieces(q.answers[0].text)
    ]
    assert len(questions) > 100
    for lengths in ((384, 128, 64), (24, 5, 12), (10, 1, 6)):
        assert_as_reference(questions, (tokenizer, reference), lengths)


WORDS = st.text(alphabet="abcÀß.-(𝔼é ", max_size=12)


@st.composite
def asked_questions(draw):
    words = draw(st.lists(WORDS, max_size=30))
    blank = st.sampled_from([" ", "\n", "  ", "\u202f", "\t"])
    context = "".join(word + draw(blank) for word in words)
    asked = question(context, draw(WORDS))
    solid = [i for i, c in enumerate(context) if not c.isspace()]
    if solid and draw(st.booleans()):
        start = draw(st.sampled_from(solid))
        size = draw(st.integers(1, 12))
        answer = Answer(context[start : start + size].rstrip(), start)
        asked = asked._replace(answers=(answer,))
    return asked


@settings(max_examples=10)
@given(
    st.lists(asked_questions(), min_size=1, max_size=10),
    st.integers(1, 9),
    st.integers(1, 20),
    st.integers(1, 12),
    st.booleans(),
)
def test_any_windows_agree_with_the_reference(
    questions, query_length, room, stride, lower_case
):
    lengths = (query_length + 3 + room, stride, query_length)
    assert_as_reference(questions, tools(lower_case), lengths)


@pytest.mark.parametrize("data", [BYTES, UNIGRAM, ALBERT_UNIGRAM])
def test_an_answer_is_the_subwords_that_contain_it(data):
    context = " tea in \t Lion\u2019s (the rich) caf\u00e9 \u5317\u4eac 12. "
    tokenizer = data.tokenizer()
    _, begins, ends = map(np.array, tokenizer.tokenize_with_offsets(context))
    texts = ["tea", "in", "in ", " in \t Lion", "the", ") caf", "\u4eac", "12."]
    asked = [question(context, "t", text) for text in texts]
    windows = make_windows(asked, tokenizer, span_config(200, 200, 5))
    positions = answer_positions(windows, asked)
    asking = tokenizer.tokenize("t").shape[0]
    before = tokenizer.packing.before_second(asking)
    for text, (first, last) in zip(texts, positions - before, strict=True):
        start = context.index(text) + len(text) - len(text.lstrip())
        end = start + len(text.strip())
        assert begins[first] <= start < ends[first]
        assert begins[last] < end <= ends[last]
        # No fewer tokens contain it.
        assert first == 0 or ends[first - 1] <= start
        assert last == len(ends) - 1 or begins[last + 1] >= end


def test_contexts_are_tokenized_once():
    tokenizer, _ = tools()
    texts = ["a b", "é c", "a b", "", "d"]
    contexts, numbers = tokenize_contexts(texts, tokenizer)
    found = [text.decode() for text in contexts.texts.numpy()]
    assert len(found) == 4
    assert [found[number] for number in numbers] == texts
    counts = contexts.tokens[0].row_lengths().numpy()
    assert counts[numbers].tolist() == [2, 2, 2, 0, 1]
    # A context without tokens has no window.
    contexts = [" ", "a b", "", "\u200b \x00"]
    questions = [question(context) for context in contexts]
    windows = make_windows(questions, tokenizer, span_config())
    assert windows.rows.example.numpy().tolist() == [1]
    assert windows.rows.num_examples == 4


@pytest.mark.parametrize(
    ("name", "vocabulary", "lower_case", "step"),
    [
        ("train-v2.0-10articles.json", "bert-base-uncased", True, 66),
        ("xquad/xquad.zh.json", "bert-base-multilingual-cased", False, 102),
    ],
)
def test_real_questions_agree_with_the_reference(
    name, vocabulary, lower_case, step, shared_data
):
    path = str(shared_data / "squad" / name)
    read = read_questions(path)
    questions = trainable(read, located_answers(read), path, True)[::step]
    vocabulary = shared_data / "vocab" / vocabulary / "vocab.txt"
    pair = tools(lower_case, Vocabulary.from_file(vocabulary).tokens)
    assert_as_reference(questions, pair, (384, 128, 64))
    assert_as_reference(questions, pair, (96, 31, 20))
