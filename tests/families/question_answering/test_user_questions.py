"""Questions of one's own: the same as SQuAD's, from any of four layouts."""

import csv
import json
import re

import numpy as np
import pytest

from bert_tf.families.question_answering.squad_files import (
    Answer,
    Question,
    read_questions,
)
from bert_tf.families.question_answering.user_questions import (
    UserQuestionAnsweringTask,
    read_user_questions,
    split_off_questions,
)
from bert_tf.families.recipe import UserQuestionRecipe
from bert_tf.finetuning.run import run_finetuning
from tests.contracts.task_cases import CASES, SETTINGS, model_folder
from tests.finetuning.sentence_runs import tokenizer
from tests.run_folders import answer_lines, weights
from tests.user_errors import error_of
from tools.task_files import load_task

COLUMNS = {
    "question_column": "q",
    "context_column": "c",
    "answer_column": "a",
}
TASK = UserQuestionAnsweringTask(name="questions")
PLAIN = Question("0", "", "who?", "Ann and Bo", (Answer("Bo", 8),), False)
QUOTED = Question(
    "1", "", 'so, "what"?', "one\ntwo", (Answer("two", 4),), False
)


def recipe_of(**settings):
    return UserQuestionRecipe(**{**COLUMNS, **settings})


def write(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "t.csv",
            'q,c,a\nwho?,Ann and Bo,Bo\n"so, ""what""?","one\ntwo",two\n',
        ),
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
def test_a_table_is_read_as_squads_files_are(tmp_path, name, text):
    path = write(tmp_path, text, name)
    assert read_user_questions(path, recipe_of()) == [PLAIN, QUOTED]
    squad = {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": q.context,
                        "qas": [
                            {
                                "id": q.identifier,
                                "question": q.question,
                                "answers": [
                                    {"text": a.text, "answer_start": a.start}
                                    for a in q.answers
                                ],
                            }
                        ],
                    }
                    for q in (PLAIN, QUOTED)
                ]
            }
        ]
    }
    path = write(tmp_path, json.dumps(squad), "t.json")
    # Which needs no columns.
    assert read_user_questions(path, UserQuestionRecipe()) == [PLAIN, QUOTED]


def test_several_answers_and_none(tmp_path):
    rows = [
        {"q": "who?", "c": "Bo and Bo", "a": ["Bo", "and Bo"], "s": [7, "3"]},
        {"q": "who?", "c": "Bo and Bo", "a": [], "s": []},
        {"q": "why?", "c": "Bo and Bo", "a": "", "s": ""},
    ]
    text = "\n".join(map(json.dumps, rows))
    path = write(tmp_path, text, "t.jsonl")
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
    path = write(tmp_path, json.dumps(row), "t.jsonl")
    (found,) = read_user_questions(path, recipe)
    assert found.answers == tuple(Answer(*each) for each in expected)
    # The same as a list of rows.
    path = write(tmp_path, json.dumps([row]), "t.json")
    if isinstance(answers, str):
        return
    (same,) = read_user_questions(path, recipe)
    assert same == found._replace(identifier="1")


def test_all_faults_of_questions_are_told_at_once(tmp_path, capsys):
    good = {"q": "who?", "c": "Bo and Ann", "a": "Ann", "s": 7}
    faults = {
        "not in its context": {"a": "ann"},
        "no answer": {"a": ""},
        "an empty answer": {"a": ["Ann", " "]},
        "an empty text": {"q": " "},
        "a list for a text": {"c": ["Bo"]},
        "no text or number": {"a": [["Ann"]]},
        "a missing key": {"a": {"answer": "Ann"}},
    }
    rows = [good, *(good | change for change in faults.values())]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "t.jsonl")
    line = error_of(read_user_questions, path, recipe_of())
    table = capsys.readouterr().err.splitlines()
    for row, kind in enumerate(faults, start=2):
        assert re.search(rf"{kind}: {row}[;.]", line), kind
        assert any(f"{kind} " in shown for shown in table), kind
    (kept,) = read_user_questions(path, recipe_of(bad_rows="skip"))
    assert kept.answers == (Answer("Ann", 7),)
    # With starts, those that are none.
    rows = [good | {"s": start} for start in (7, "x", [1, 2], "")]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "t.jsonl")
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
    path = write(tmp_path, json.dumps(content), "t.json")
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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"question_column": ""}, "`question_column`=...: name the column in"),
        ({"context_column": ""}, "`context_column`=...: name the column in"),
        ({"answer_column": ""}, "`answer_column`=...: name the column in"),
        ({"answer_column": "q"}, "`question_column`=q: is named twice"),
    ],
)
def test_columns_that_cannot_be(tmp_path, settings, expected):
    path = write(tmp_path, "q,c,a\nwho?,Bo,Bo\n")
    line = error_of(read_user_questions, path, recipe_of(**settings))
    assert line.startswith(expected)


def test_dev_is_split_off_by_context(tmp_path, capsys):
    rows = [f"q{n},Bo {n // 3},Bo" for n in range(90)]
    path = write(tmp_path, "\n".join(["q,c,a", *rows, rows[-1]]))
    recipe = recipe_of(train_file=path, dev_share=0.2, drop_duplicates=True)
    task = TASK.resolve(recipe)
    assert task.splits(("dev",), recipe) == ("dev",)
    train, dev = (task.load(split, recipe) for split in ("train", "dev"))
    assert len(dev) == 18
    assert len(train) == 72
    assert not {q.context for q in train} & {q.context for q in dev}
    shown = capsys.readouterr().err
    assert "18 of 90 questions are kept for dev" in shown
    assert "1 of 91 questions are the same as an earlier one" in shown
    line = error_of(split_off_questions, [PLAIN, PLAIN], 0.5, 0)
    assert line.startswith("all 2 questions have the same context")
    line = error_of(task.load, "test", recipe)
    assert line.startswith("`test_file`=...: name the file")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Task and recipe of SQuAD's files, and of tables of their questions."""
    folder = tmp_path_factory.mktemp("both")
    start = model_folder(folder / "model")
    case = CASES["questions"]
    squad, squad_recipe = case.make(folder, start)
    for name in case.files:
        with (folder / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow("qcas")
            for q in read_questions(str(folder / name)):
                (answer,) = q.answers
                table.writerow([q.question, q.context, *answer[:2]])
    recipe = recipe_of(
        **SETTINGS | case.settings,
        task="questions",
        init_from=str(start),
        train_file=str(folder / f"{case.files[0]}.csv"),
        dev_file=str(folder / f"{case.files[1]}.csv"),
        answer_start_column="s",
    )
    return (squad, squad_recipe), (load_task("questions"), recipe)


def test_a_table_gives_the_rows_of_squads_file(both):
    found = []
    for template, recipe in both:
        task = template.resolve(recipe)
        questions = task.load("train", recipe)
        config = task.configure(recipe, questions)
        rows = task.encode(questions, tokenizer(), config, labelled=True)
        found.append([*rows.arrays])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_a_table_trains_the_model_of_squads_file(both, tmp_path):
    done, lines = [], []
    for number, (task, recipe) in enumerate(both):
        folder = tmp_path / str(number)
        done.append(run_finetuning(task, recipe, folder, ["train", "eval"]))
        ignored = ("identifier", "title")
        lines.append(
            [
                {k: v for k, v in line.items() if k not in ignored}
                for line in answer_lines(folder)
            ]
        )
    assert done[0]["train"]["dev"] == done[1]["train"]["dev"]
    assert done[0]["eval"]["dev"] == done[1]["eval"]["dev"]
    assert lines[0] == lines[1]
    one, two = weights(tmp_path / "0"), weights(tmp_path / "1")
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])
