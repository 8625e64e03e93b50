"""Questions of one's own: the same as SQuAD's, from any of four layouts."""

import csv
import json
import re

import pytest

from bert_tf.families.question_answering.recipe import UserQuestionRecipe
from bert_tf.families.question_answering.squad_files import (
    Answer,
    Question,
    read_questions,
)
from bert_tf.families.question_answering.user_questions import (
    read_user_questions,
    split_off_questions,
)
from tests.families.question_answering.reference_squad import (
    squad_json,
    written,
)
from tests.user_errors import error_of

COLUMNS = {"question_column": "q", "context_column": "c", "answer_column": "a"}
PLAIN = Question("0", "", "who?", "Ann and Bo", (Answer("Bo", 8),), False)
QUOTED = Question(
    "1", "", 'so, "what"?', "one\ntwo", (Answer("two", 4),), False
)


def recipe_of(**settings):
    return UserQuestionRecipe(**{**COLUMNS, **settings})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "t.csv",
            'c;q;a\nAnn and Bo;who?;Bo\n"one\ntwo";"so, ""what""?";two\n',
        ),
        (
            "t.jsonl",
            '{"q": "who?", "c": "Ann and Bo", "a": ["Bo"], "x": 1}\n'
            '{"a": "two", "c": "one\\ntwo", "q": "so, \\"what\\"?"}\n',
        ),
    ],
)
def test_a_table_is_read_as_squads_files_are(tmp_path, name, text, capsys):
    path = written(tmp_path, text, name)
    recipe = recipe_of(empty_text="drop")
    assert read_user_questions(path, recipe) == [PLAIN, QUOTED]
    assert "dropped" not in capsys.readouterr().err
    (article,) = squad_json(PLAIN, QUOTED)["data"]
    del article["title"]
    path = written(tmp_path, json.dumps({"data": [article]}), "t.json")
    # It needs no columns.
    assert read_user_questions(path, UserQuestionRecipe()) == [PLAIN, QUOTED]


def test_several_answers_and_none(tmp_path):
    rows = [
        {"q": "who?", "c": "Bo and Bo", "a": ["Bo", "and Bo"], "s": [7, "3"]},
        {"q": "who?", "c": "Bo and Bo", "a": [], "s": []},
        {"q": "why?", "c": "Bo and Bo", "a": "", "s": ""},
    ]
    text = "\n".join(map(json.dumps, rows))
    path = written(tmp_path, text, "t.jsonl")
    with_null = recipe_of(with_null=True, answer_start_column="s")
    found = read_user_questions(path, with_null)
    assert found[0].answers == (Answer("Bo", 7), Answer("and Bo", 3))
    assert [q.is_impossible for q in found] == [False, True, True]
    strict = recipe_of(answer_start_column="s")
    line = error_of(read_user_questions, path, strict)
    assert line.startswith(f"{path}, row 2: has no answer; give one, or pass")
    assert "2 of 3 rows cannot be used: 2, 3" in line
    # To predict, neither answers nor their column are needed.
    for recipe in (strict, recipe_of(answer_column="")):
        found = read_user_questions(path, recipe, answers_needed=False)
        assert [q.answers for q in found] == [(), (), ()]
        assert not any(q.is_impossible for q in found)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("['Bo']", None), [("Bo", 0)]),
        (('["Bo", "and Bo"]', "[7, 3]"), [("Bo", 7), ("and Bo", 3)]),
        (("['Bo' 'and Bo']", "[7 3]"), [("Bo", 7), ("and Bo", 3)]),
        (("[]", "[]"), []),
        (("[1]", "10"), [("[1]", 10)]),
        (("Bo", "[7]"), [("Bo", 7)]),
        (("{'text': ['Bo'], 'answer_start': [7]}", None), [("Bo", 7)]),
        (
            (
                "{'text': array(['Bo'], dtype=object), "
                "'answer_start': array([7], dtype=int32)}",
                None,
            ),
            [("Bo", 7)],
        ),
        (("{'text': [], 'answer_start': []}", None), []),
    ],
)
def test_answers_as_the_text_of_lists(tmp_path, cells, expected):
    """As `to_csv` writes them."""
    path = tmp_path / "t.csv"
    row = {"q": "who?", "c": "Bo and Bo [1]", "a": cells[0], "s": cells[1]}
    if cells[1] is None:
        del row["s"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    start = "s" if "s" in row else ""
    recipe = recipe_of(with_null=True, answer_start_column=start)
    (found,) = read_user_questions(str(path), recipe)
    assert [(a.text, a.start) for a in found.answers] == expected


def test_answers_with_other_blanks_or_another_case(tmp_path, capsys):
    rows = [
        {"q": "who?", "c": "Ann and\n Bo (3) Bo", "a": answer}
        for answer in ("Bo", " ann  AND bo (3) ", "bo")
    ]
    path = written(tmp_path, "\n".join(map(json.dumps, rows)), "t.jsonl")
    found = read_user_questions(path, recipe_of())
    spelled = [(a.text, a.start) for q in found for a in q.answers]
    assert spelled == [("Bo", 9), ("Ann and\n Bo (3)", 0), ("Bo", 9)]
    logged = capsys.readouterr().err
    assert "2 answers have other blanks or another case" in logged
    assert "' ann  AND bo (3) ', 'bo'; pass" in logged
    line = error_of(read_user_questions, path, recipe_of(exact_answers=True))
    assert line.startswith(f"{path}, row 2: the answer ' ann  AND bo (3) ' is")
    assert "2 of 3 rows cannot be used: 2, 3" in line


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"text": ["Bo"], "answer_start": [7]}, [("Bo", 7, 1)]),
        ({"text": ["Bo"]}, [("Bo", 0, 2)]),
        ([{"text": "Bo", "answer_start": 7}], [("Bo", 7, 1)]),
        ({"text": [], "answer_start": []}, []),
        ({"text": [""], "answer_start": [-1]}, []),
        ([], []),
        ("Bo", [("Bo", 0, 2)]),
    ],
)
def test_answers_as_the_data_sets_of_the_hub_have_them(
    tmp_path, answers, expected
):
    row = {"id": 1, "title": None, "meta": {"by": [1]}, "answers": answers}
    row |= {"question": "who?", "context": "Bo and Bo"}
    recipe = UserQuestionRecipe(answer_column="answers", with_null=True)
    path = written(tmp_path, json.dumps(row), "t.jsonl")
    (found,) = read_user_questions(path, recipe)
    assert found.answers == tuple(Answer(*each) for each in expected)


def test_all_faults_of_questions_are_told_at_once(tmp_path, capsys):
    good = {"q": "who?", "c": "Bo and Ann", "a": "Ann", "s": 7}
    faults = {
        "not in its context": {"a": "Anna"},
        "no answer": {"a": ""},
        "an empty answer": {"a": ["Ann", " "]},
        "an empty text": {"q": " "},
        "a list for a text": {"c": ["Bo"]},
        "no text or number": {"a": [["Ann"]]},
        "a missing key": {"a": {"answer": "Ann"}},
    }
    rows = [good, *(good | change for change in faults.values())]
    path = written(tmp_path, "\n".join(map(json.dumps, rows)), "t.jsonl")
    line = error_of(read_user_questions, path, recipe_of())
    table = capsys.readouterr().err.splitlines()
    for row, kind in enumerate(faults, start=2):
        assert re.search(rf"{kind}: {row}[;.]", line), kind
        assert any(f"{kind} " in shown for shown in table), kind
    (kept,) = read_user_questions(path, recipe_of(bad_rows="skip"))
    assert kept.answers == (Answer("Ann", 7),)
    # With starts, those that are none.
    rows = [good | {"s": start} for start in (7, "x", [1, 2], "")]
    path = written(tmp_path, "\n".join(map(json.dumps, rows)), "t.jsonl")
    recipe = recipe_of(answer_start_column="s")
    line = error_of(read_user_questions, path, recipe)
    assert "a start that is no number: 2" in line
    assert "answers without a start: 3, 4" in line


def test_faults_of_squads_layout_are_told_at_once_too(tmp_path, capsys):
    def asked(number, **changes):
        answers = [{"text": "Bo", "answer_start": 0}]
        row = {"id": f"q{number}", "question": "who?", "answers": answers}
        return row | changes

    qas = [asked(0), asked(1, answers=[]), asked(0), asked(3, question=7)]
    paragraph = {"context": "Bo", "qas": [*qas, asked(4, question="")]}
    content = {"data": [{"paragraphs": [paragraph, {"context": 1}]}, 7]}
    path = written(tmp_path, json.dumps(content), "t.json")
    line = error_of(read_user_questions, path, UserQuestionRecipe())
    assert "6 of 7 questions cannot be used" in line
    assert "an id twice: data[0].paragraphs[0].qas[2];" in line
    assert "no object: data[1]" in line
    skipping = UserQuestionRecipe(bad_rows="skip")
    assert len(read_user_questions(path, skipping)) == 1
    dropping = UserQuestionRecipe(bad_rows="skip", empty_text="drop")
    capsys.readouterr()
    assert len(read_user_questions(path, dropping)) == 1
    assert "1 of 2 questions are empty" in capsys.readouterr().err
    # SQuAD's own tasks have no such setting, and do not advise it.
    line = error_of(read_questions, path)
    assert "4 of 7 questions" in line
    assert "bad_rows" not in line


def test_questions_of_one_context_are_not_split():
    line = error_of(split_off_questions, [PLAIN, PLAIN], 0.5, 0)
    assert line.startswith("all 2 questions have the same context")
