"""Reading files in SQuAD's layout, and what is wrong with them."""

import copy
import re

import pytest

from bert_tf.errors import UserError
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
    with pytest.raises(UserError, match=r"qas\[0\].*has no 'answers'"):
        read_questions(path)


def changed(change):
    content = copy.deepcopy(squad_json(SARAH, YEAR))
    change(content["data"][0]["paragraphs"])
    return content


CONTEXT = "Ada met Ada in 1931."
ADA = ("1931", 15, 1)
# Each with its id, whether it is impossible, and its answers.
LAYOUTS = {
    "of the hub": (
        {"answers": {"text": ["1931"], "answer_start": [15]}},
        ("q", False, [ADA]),
    ),
    "of the hub, none": (
        {"answers": {"text": [], "answer_start": []}},
        ("q", True, []),
    ),
    "one answer": (
        {"answers": {"text": "1931", "answer_start": 15}},
        ("q", False, [ADA]),
    ),
    "no start": (
        {"answers": [{"text": "Ada"}], "is_impossible": 0},
        ("q", False, [("Ada", 0, 2)]),
    ),
    "a number": (
        {"id": 7, "title": None, "answers": {"text": ["1931"]}},
        ("7", False, [ADA]),
    ),
    "no id": (
        {"id": None, "answers": [], "is_impossible": "True"},
        ("0", True, []),
    ),
    "an empty answer": (
        {"answers": [{"text": "", "answer_start": -1}], "is_impossible": True},
        ("q", True, []),
    ),
    "an empty answer, no more said": (
        {"answers": [{"text": "", "answer_start": -1}], "is_impossible": None},
        ("q", True, []),
    ),
}


@pytest.mark.parametrize(("row", "expected"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("outer", ["flat", "list", "paragraphs", "squad"])
def test_other_layouts(tmp_path, outer, row, expected):
    row = {"id": "q", "question": "When?", "title": "T", **row}
    title = row.pop("title")
    paragraph = {"context": CONTEXT, "qas": [row], "title": title}
    flat = row | {"context": CONTEXT, "title": title}
    content = {
        "flat": {"version": "1", "data": [flat]},
        "list": [flat],
        "paragraphs": [paragraph],
        "squad": {"data": [{"title": title, "paragraphs": [paragraph]}]},
    }[outer]
    (found,) = read_questions(written(tmp_path, content))
    identifier, impossible, answers = expected
    assert found == Question(
        identifier,
        title or "",
        "When?",
        CONTEXT,
        tuple(Answer(*answer) for answer in answers),
        impossible,
    )


BROKEN = {
    "text": ("hello", "is not JSON"),
    "lines": (
        '{"data": []}\n{"data": []}\n',
        "JSON lines are for the task q",
    ),
    "list": ("[]", "has no questions"),
    "other": ({"examples": []}, "is not laid out as SQuAD"),
    "data": ({"data": {}}, "'data' is {}; it must be a list"),
    "empty": ({"data": []}, "has no questions"),
    "article": ({"data": [7]}, r"data\[0\]: is 7; it must be an object"),
    "paragraphs": ({"data": [{}]}, r"data\[0\]: has no 'context'"),
    "context": (
        changed(lambda p: p[1].pop("context")),
        r"data\[0\].paragraphs\[1\]: has no 'context'",
    ),
    "context kind": (
        changed(lambda p: p[0].update(context=None)),
        r"paragraphs\[0\]: 'context' is None; it must be a text",
    ),
    "question": (
        changed(lambda p: p[0]["qas"][0].pop("question")),
        r"qas\[0\] \(id 'a'\): has no 'question'",
    ),
    "id": (
        changed(lambda p: p[0]["qas"][0].update(id=[5])),
        r"qas\[0\]: 'id' is \[5\]; it must be a text",
    ),
    "start": (
        changed(
            lambda p: p[0]["qas"][0].update(answers={"text": ["1903", "In"]})
        ),
        r"answers\[1\]: the answer 'In' is not in the context",
    ),
    "start kind": (
        changed(
            lambda p: p[0]["qas"][0]["answers"][0].update(answer_start=True)
        ),
        "'answer_start' is True; it must be a whole",
    ),
    "contradiction": (
        changed(lambda p: p[0]["qas"][0].update(is_impossible=True)),
        "'is_impossible' is true and there are 1 answers",
    ),
    "no answer": (
        changed(
            lambda p: p[0]["qas"][0].update(is_impossible=False, answers=[])
        ),
        "'is_impossible' is false and there is no answer",
    ),
    "impossible kind": (
        changed(lambda p: p[0]["qas"][0].update(is_impossible="no")),
        "'is_impossible' is 'no'; it must be true or false",
    ),
    "repeated": (
        changed(lambda p: p[1]["qas"][0].update(id="a")),
        "questions 1 and 2 both have the id 'a'",
    ),
    "surrogate": (
        '{"data": [{"paragraphs": [{"context": "\\ud83d", "qas": []}]}]}',
        "'context' is .* half of a surrogate pair",
    ),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_named(content, message, tmp_path):
    path = written(tmp_path, content)
    with pytest.raises(UserError, match=message) as error:
        read_questions(path)
    assert str(error.value).startswith(path)
    assert "\n" not in str(error.value)


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
        ("in 1903 Rome", Answer("1903", 3), True),
        ("in (1903) Rome", Answer("1903", 4), True),
        # In the words that it touches is near enough.
        ("in 1903 Rome", Answer("903", 3), True),
        ("in 1903 Rome", Answer("in", 3), False),
        ("in 1903 Rome", Answer("Rome", 80), False),
        ("in 1903 Rome", Answer("Rome", -4), False),
        ("in 1903 Rome", Answer("", 3), False),
        ("in 1903 Rome", Answer(" ", 2), False),
        ("two\n\nlines", Answer("two\n\nlines", 0), True),
        ("two \n lines", Answer("two lines", 0), True),
        # Other blanks do not divide words, but those of answers are equal.
        ("no\u00a0break", Answer("no\u00a0break", 0), False),
        # Characters beyond U+FFFF count once; others count them twice.
        ("\U0001d53c is E", Answer("is", 2), True),
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


def test_one_answer_is_trained_on():
    several = with_answers(
        "in 1903 Rome", Answer("Rome", 3), Answer("1903", 3), Answer("in", 0)
    )
    assert kept([several]) == [several._replace(answers=(Answer("1903", 3),))]
    (line,) = oddities([several])
    assert line.startswith("train.json: 2 further answers are not trained on")
    assert oddities([several], training=False) == []


def test_what_is_odd_is_counted_and_told():
    rows = [
        SARAH,
        SARAH._replace(question=" "),
        SARAH._replace(answers=(Answer("Paris", 2),)),
        NONE._replace(context=" \n"),
        NONE,
    ]
    assert kept(rows, impossible=True) == [rows[0], rows[1], rows[4]]
    lines = oddities(rows)
    assert [re.sub(r"^train.json: ", "", line) for line in lines] == [
        "1 of 5 questions have an answer that is not at its answer_start; "
        "skipped.",
        "1 of 5 questions have an empty context; skipped.",
        "1 of 5 questions are empty; kept.",
        "3 of 5 questions have the id of an earlier question; kept.",
    ]
    assert "answer_start; kept." in oddities(rows, training=False)[0]
    assert oddities([SARAH, NONE]) == []


def test_questions_that_cannot_be_trained_on_are_refused():
    assert kept([NONE, SARAH], impossible=True) == [NONE, SARAH]
    with pytest.raises(UserError, match="question 'c': has no answer"):
        kept([NONE, SARAH])
    wrong = SARAH._replace(answers=(Answer("Rome", 0),))
    with pytest.raises(UserError, match="none of its 1 questions"):
        kept([wrong])


@pytest.mark.parametrize(
    ("name", "questions", "impossible"),
    [
        ("dev-v1.1.json", 10570, 0),
        ("dev-v2.0.json", 11873, 5945),
        ("train-v2.0-10articles.json", 4719, 348),
        ("xquad/xquad.zh.json", 1190, 0),
    ],
)
def test_real_files_are_read(name, questions, impossible, shared_data):
    read = read_questions(str(shared_data / "squad" / name))
    assert len(read) == questions
    assert sum(q.is_impossible for q in read) == impossible
    assert len(kept(read, impossible=True)) == questions
    assert not [line for line in oddities(read) if "answer_start" in line]
