"""Reading files in SQuAD's layout, and what is wrong with them."""

import copy

import pytest

from bert_tf.families.question_answering.squad_files import (
    Answer,
    Question,
    located_answers,
    oddity_lines,
    read_questions,
    trainable,
)
from tests.families.question_answering.reference_squad import (
    question,
    squad_json,
    written,
)
from tests.user_errors import error_of

SARAH = question("Sarah went\nto Rome in 1903.", "Who went?", "Sarah", "a")
YEAR = question("Sarah went\nto Rome in 1903.", "When?", "1903", "b")
NONE = question("Nobody knows.", "Why?", None, "c")


def test_a_file_is_read_whole(tmp_path):
    content = squad_json(SARAH, YEAR, NONE)
    row = content["data"][0]["paragraphs"][2]["qas"][0]
    row |= {"is_impossible": True, "plausible_answers": [{"text": "x"}]}
    read = read_questions(written(tmp_path, content))
    assert read == [q._replace(title="T") for q in (SARAH, YEAR, NONE)]
    assert read[1].answers == (Answer("1903", 22),)
    assert [q.is_impossible for q in read] == [False, False, True]


def test_answers_may_be_unknown_for_predictions(tmp_path):
    content = squad_json(SARAH)
    del content["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    path = written(tmp_path, content)
    (read,) = read_questions(path, answers_needed=False)
    assert read.answers == ()
    assert not read.is_impossible
    assert "has no 'answers'" in error_of(read_questions, path)


def changed(change):
    content = copy.deepcopy(squad_json(SARAH, YEAR))
    change(content["data"][0]["paragraphs"])
    return content


CONTEXT = "Ada met Ada in 1931."
ADA = ("1931", 15, 1)
# Each with its id, whether it is impossible, and its answers.
LAYOUTS = [
    (
        {"answers": {"text": ["1931"], "answer_start": [15]}},
        ("q", False, [ADA]),
    ),
    ({"answers": {"text": [], "answer_start": []}}, ("q", True, [])),
    ({"answers": {"text": "1931", "answer_start": 15}}, ("q", False, [ADA])),
    (
        {"answers": [{"text": "Ada"}], "is_impossible": 0},
        ("q", False, [("Ada", 0, 2)]),
    ),
    (
        {"id": 7, "title": None, "answers": {"text": ["1931"]}},
        ("7", False, [ADA]),
    ),
    ({"id": None, "answers": [], "is_impossible": "True"}, ("0", True, [])),
    (
        {"answers": [{"text": "", "answer_start": -1}], "is_impossible": True},
        ("q", True, []),
    ),
    (
        {"answers": [{"text": "", "answer_start": -1}], "is_impossible": None},
        ("q", True, []),
    ),
]


@pytest.mark.parametrize(("row", "expected"), LAYOUTS)
def test_other_layouts(tmp_path, row, expected):
    row = {"id": "q", "question": "When?", "title": "T", **row}
    title = row.pop("title")
    paragraph = {"context": CONTEXT, "qas": [row], "title": title}
    flat = row | {"context": CONTEXT, "title": title}
    identifier, impossible, answers = expected
    asked = Question(
        identifier,
        title or "",
        "When?",
        CONTEXT,
        tuple(Answer(*answer) for answer in answers),
        impossible,
    )
    for content in (
        {"version": "1", "data": [flat]},
        [flat],
        [paragraph],
        {"data": [{"title": title, "paragraphs": [paragraph]}]},
    ):
        assert read_questions(written(tmp_path, content)) == [asked]


BROKEN = [
    ("hello", "is not JSON"),
    ('{"data": []}\n{"data": []}\n', "JSON lines are for the task q"),
    ({"examples": []}, "is not laid out as SQuAD"),
    ({"data": []}, "has no questions"),
    ({"data": [7]}, "data[0]: is 7; it must be an object"),
    ({"data": [{}]}, "data[0]: has no 'context'"),
    (
        changed(lambda p: p[0].update(context=None)),
        "paragraphs[0]: 'context' is None; it must be a text",
    ),
    (changed(lambda p: p[0]["qas"][0].pop("question")), "(id 'a'): has no 'q"),
    (
        changed(
            lambda p: p[0]["qas"][0].update(answers={"text": ["1903", "In"]})
        ),
        "answers[1]: the answer 'In' is not in the context",
    ),
    (
        changed(
            lambda p: p[0]["qas"][0]["answers"][0].update(answer_start=True)
        ),
        "'answer_start' is True; it must be a whole",
    ),
    (
        changed(lambda p: p[0]["qas"][0].update(is_impossible=True)),
        "'is_impossible' is true and there are 1 answers",
    ),
    (
        changed(
            lambda p: p[0]["qas"][0].update(is_impossible=False, answers=[])
        ),
        "'is_impossible' is false and there is no answer",
    ),
    (
        changed(lambda p: p[0]["qas"][0].update(is_impossible="no")),
        "'is_impossible' is 'no'; it must be true or false",
    ),
    (changed(lambda p: p[1]["qas"][0].update(id="a")), "both have the id 'a'"),
    (
        '{"data": [{"paragraphs": [{"context": "\\ud83d", "qas": []}]}]}',
        "half of a surrogate pair",
    ),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_what_is_broken_is_named(content, message, tmp_path):
    path = written(tmp_path, content)
    line = error_of(read_questions, path)
    assert line.startswith(path)
    assert message in line


def kept(questions, impossible=False):
    return trainable(questions, located_answers(questions), "f", impossible)


def oddities(questions, training=True):
    located = located_answers(questions)
    return oddity_lines(questions, located, "train.json", training)


def with_answers(context, *answers):
    return Question("q", "", "?", context, answers, False)


@pytest.mark.parametrize(
    ("context", "answer", "found"),
    [
        ("in (1903) Rome", Answer("1903", 4), True),
        # In the words that it touches is near enough.
        ("in 1903 Rome", Answer("903", 3), True),
        ("in 1903 Rome", Answer("Rome", 80), False),
        ("in 1903 Rome", Answer("Rome", -4), False),
        ("in 1903 Rome", Answer("", 3), False),
        ("in 1903 Rome", Answer(" ", 2), False),
        ("two\n\nlines", Answer("two\n\nlines", 0), True),
        ("two \n lines", Answer("two lines", 0), True),
        # Other blanks do not divide words, but those of answers are equal.
        ("no\u00a0break", Answer("no\u00a0break", 0), False),
        # Characters beyond U+FFFF count once; others count them twice.
        ("\U0001d53c is \U0001d53c so E", Answer("E", 10), True),
        ("\U0001d53c x y Paris", Answer("Paris", 7), False),
        ("  blanks", Answer(" blanks", 1), False),
    ],
)
def test_an_answer_must_be_where_it_says(context, answer, found):
    good = with_answers("Rome", Answer("Rome", 0))
    rows = [good, with_answers(context, answer)]
    assert len(kept(rows)) == 1 + found
    lines = [line for line in oddities(rows) if "answer_start" in line]
    assert len(lines) == 1 - found


def test_what_is_trained_on_and_what_is_odd():
    several = with_answers(
        "in 1903 Rome", Answer("Rome", 3), Answer("1903", 3), Answer("in", 0)
    )
    assert kept([several]) == [several._replace(answers=(Answer("1903", 3),))]
    (line,) = oddities([several])
    assert line.startswith("train.json: 2 further answers are not")
    assert oddities([several], training=False) == []
    rows = [
        SARAH,
        SARAH._replace(question=" "),
        SARAH._replace(answers=(Answer("Paris", 2),)),
        NONE._replace(context=" \n"),
        NONE,
    ]
    assert kept(rows, impossible=True) == [rows[0], rows[1], rows[4]]
    lines = oddities(rows)
    for line, expected in zip(
        lines,
        (
            "1 of 5 questions have an answer that is not at its answer_start",
            "1 of 5 questions have an empty context; skipped",
            "1 of 5 questions are empty; kept",
            "3 of 5 questions have the id of an earlier question; kept",
        ),
        strict=True,
    ):
        assert line.startswith(f"train.json: {expected}")
    assert "answer_start; kept." in oddities(rows, training=False)[0]
    assert oddities([SARAH, NONE]) == []
    assert "question 'c': has no answer" in error_of(kept, [NONE, SARAH])
    wrong = SARAH._replace(answers=(Answer("Rome", 0),))
    assert "none of its 1 questions" in error_of(kept, [wrong])


@pytest.mark.parametrize(
    ("name", "questions", "impossible"),
    [("dev-v1.1.json", 10570, 0), ("train-v2.0-10articles.json", 4719, 348)],
)
def test_real_files_are_read(name, questions, impossible, shared_data):
    read = read_questions(str(shared_data / "squad" / name))
    assert len(read) == questions
    assert sum(q.is_impossible for q in read) == impossible
    assert len(kept(read, impossible=True)) == questions
    assert not [line for line in oddities(read) if "answer_start" in line]
