"""What the reports of all kinds of tasks have in common."""

import json
import re

import pytest

from bert_tf.errors import UserError
from bert_tf.finetuning.choices.choice_recipe import OwnChoiceRecipe
from bert_tf.finetuning.report.kinds import KINDS, kind_of
from bert_tf.finetuning.report.make import make_report
from bert_tf.finetuning.report.marks import Mark, marked
from bert_tf.finetuning.tags.feature_recipe import FeatureRecipe
from tests.finetuning import report_folders
from tests.finetuning.report_pages import (
    HOSTILE,
    Page,
    change_line,
    change_results,
    numbers_of,
    read_page,
)

FOLDERS = {
    "questions": report_folders.question_folder,
    "plain_questions": report_folders.plain_question_folder,
    "choices": report_folders.choice_folder,
    "tags": report_folders.tag_folder,
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {
        name: make_report(make(root / name)) for name, make in FOLDERS.items()
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_page_needs_nothing_and_tells_all(reports, name):
    source = reports[name].read_text(encoding="utf-8")
    page = Page(source)
    assert not page.named("script")
    assert not page.named("link")
    assert "url(" not in source
    for picture in page.named("img"):
        assert picture["src"].startswith("data:image/svg+xml;base64,")
        assert len(picture["alt"]) > 20
    names = [each["id"] for _, each in page.tags if "id" in each]
    assert len(set(names)) == len(names)
    assert {each["href"][1:] for each in page.named("a")} == set(names)
    for words in (
        "Scores",
        "Learning curves",
        "Worst mistakes",
        "Recipe",
        "Data doctor data of it: train: 3 rows [UNK]: 1 %",
    ):
        assert words in page.text
    assert {"mistakes", "answers", "doctor"} <= set(names)


@pytest.mark.parametrize("name", FOLDERS)
def test_same_files_give_the_same_bytes(reports, name):
    before = reports[name].read_bytes()
    make_report(reports[name].parent)
    assert reports[name].read_bytes() == before


def test_baselines_and_units(reports):
    texts = {name: read_page(path).text for name, path in reports.items()}
    assert "Baseline: giving no answer." in texts["questions"]
    assert "3,668 train questions" in texts["questions"]
    assert "Baseline \u2013 giving no answer" in texts["plain_questions"]
    assert "Baseline: finding no entity." in texts["tags"]
    assert "408 dev sentences" in texts["tags"]
    assert "always the position that is right" in texts["choices"]
    assert "Null odds above which no answer is given -0.5" in texts["questions"]
    assert "official dev set" in texts["choices"]


def test_settings_are_of_the_kind(tmp_path):
    folder = report_folders.choice_folder(tmp_path)
    recipe = OwnChoiceRecipe(context_column="q", dev_share=0.2)
    recipe.save(folder / "recipe.json")
    make_report(folder)
    rows = {row["name"]: row for row in numbers_of(folder)["settings"]}
    assert rows["context_column"]["changed"]
    assert rows["dev_share"]["default"] == 0.1
    assert rows["dev_share"]["help"].startswith("share of the training")
    assert not rows["start_column"]["changed"]


def test_settings_of_the_recipe_that_has_them(tmp_path):
    folder = report_folders.tag_folder(tmp_path)
    FeatureRecipe(lstm_units=5).save(folder / "recipe.json")
    make_report(folder)
    rows = {row["name"]: row for row in numbers_of(folder)["settings"]}
    assert (rows["lstm_units"]["value"], rows["lstm_units"]["default"]) == (
        5,
        768,
    )
    assert not rows["features"]["changed"]


def test_a_kind_is_told_by_its_key():
    for kind in KINDS:
        assert kind_of({kind.key: 1, "row": 2}, "f, line 1") is kind
    assert len({kind.key for kind in KINDS}) == len(KINDS)
    with pytest.raises(UserError, match="f, line 1: holds none of the keys"):
        kind_of({"row": 2}, "f, line 1")
    with pytest.raises(UserError, match="holds 2 of the keys 'text_a', 'q"):
        kind_of({"tags": [], "choices": []}, "f, line 1")


def hostile(value):
    """The same with every text an attack."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, list):
        return [hostile(each) for each in value]
    if isinstance(value, dict):
        return {key: hostile(each) for key, each in value.items()}
    return value


def hostile_lines(name):
    if name == "choices":
        return [hostile(line) for line in report_folders.CHOICES]
    if name == "tags":
        kinds = {"PER": HOSTILE, "LOC": "<b>", "ORG": "&"}
        return [
            line
            | {"words": hostile(line["words"])}
            | {
                key: [
                    tag[:2] + kinds[tag[2:]] if len(tag) > 1 else tag
                    for tag in line[key]
                ]
                for key in ("tags", "predictions")
            }
            for line in report_folders.TAGS
        ]
    text = HOSTILE * 20
    return [
        hostile(line)
        | {"context": text, "start": 5, "end": len(HOSTILE) - 40}
        | {
            "answers": [
                {"text": text[3:90], "start": 3},
                # Of what does not stand there, nothing is marked.
                {"text": "elsewhere", "start": 9},
            ],
        }
        for line in report_folders.QUESTIONS
    ]


@pytest.mark.parametrize("name", ["questions", "choices", "tags"])
def test_no_text_becomes_markup(tmp_path, reports, name):
    folder = FOLDERS[name](tmp_path)
    report_folders.rewritten(folder, hostile_lines(name))
    change_results(folder, doctor={"lines": [HOSTILE, "  " + HOSTILE]})
    path = make_report(folder)
    source = path.read_bytes()
    assert b"\0" not in source
    text = source.decode("utf-8")
    assert "alert('x')" not in text
    page = Page(text)
    usual = {
        tag for each in reports.values() for tag, _ in read_page(each).tags
    }
    assert {tag for tag, _ in page.tags} <= usual | {"summary", "details"}
    for _, attributes in page.tags:
        assert not any(key.startswith("on") for key in attributes)
    assert "<script>alert('x')</script>" in page.text
    for content in re.findall("<bdi>(.*?)</bdi>", text, re.DOTALL):
        assert content.count("\u2066") == content.count("\u2069")
    for place in re.finditer("\u202e", text):
        before = text[: place.start()]
        opened = max(before.rfind("<bdi>"), before.rfind('dir="auto"'))
        closed = max(before.rfind("</bdi>"), before.rfind("</p>"))
        assert opened > closed, before[-80:]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("choices", {"choices": ["a"]}, "label is 3; it takes 0 to 0"),
        ("choices", {"choices": ["a", 2]}, r"choices\[1\] is 2; it takes"),
        ("choices", {"label": -1}, "label is -1; it takes 0 to 3"),
        ("choices", {"prediction": True}, "prediction is True"),
        ("choices", {"probabilities": [0.5]}, "a list of 4 numbers, one a ch"),
        ("choices", {"probabilities": [2, 0, 0, 0]}, "probabilities hold 2"),
        ("choices", {"start": None}, "start is None"),
        ("choices", {"more": 1}, "has the key 'more'; it takes identifier, r"),
        ("tags", {"words": ["a"]}, "has 1 words and 4 tags"),
        ("tags", {"predictions": ["O"]}, "has 4 words and 1 predictions"),
        ("tags", {"tags": ["O", "O", "O", "X-A"]}, "tags have 'X-A', which is"),
        ("tags", {"predictions": ["O", "O", "O", 3]}, r"predictions\[3\] is 3"),
        ("tags", {"row": "2"}, "row is '2'"),
        ("tags", {"words": [], "tags": [], "predictions": []}, "has 0 words"),
        ("questions", {"start": 2, "end": 1}, "start and end are 2 and 1"),
        ("questions", {"start": -1}, "start and end are -1 and 39"),
        ("questions", {"end": 61}, "start and end are 35 and 61; .* 0 to 60"),
        ("questions", {"null_odds": "1"}, "null_odds is '1'"),
        ("questions", {"null_odds": float("inf")}, "null_odds is inf"),
        ("questions", {"exact": 1.5}, "exact is 1.5; each takes a number from"),
        ("questions", {"f1": None}, "f1 is None"),
        ("questions", {"answers": "Hull"}, "answers is 'Hull'"),
        ("questions", {"answers": [{"text": "a"}]}, r"answers\[0\]: holds no"),
        (
            "questions",
            {"answers": [{"text": "a", "start": 99}]},
            r"answers\[0\] start is 99; it takes 0 to 60",
        ),
        ("questions", {"n_best": [["a"]]}, r"n_best\[0\] is \['a'\]"),
        ("questions", {"n_best": [["a", 7]]}, r"n_best\[0\] has 7"),
        ("questions", {"n_best": [[1, 0.5]]}, r"n_best\[0\] text is 1"),
    ],
)
def test_bad_predictions_are_told(tmp_path, name, changes, message):
    folder = FOLDERS[name](tmp_path)
    change_line(folder, 2, **changes)
    with pytest.raises(UserError, match=message) as caught:
        make_report(folder)
    assert "dev_predictions.jsonl, line 2" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("name", ["questions", "choices", "tags"])
def test_missing_keys_are_told(tmp_path, name):
    folder = FOLDERS[name](tmp_path)
    path = folder / "dev_predictions.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    for key in line:
        report_folders.rewritten(
            folder, [{k: v for k, v in line.items() if k != key}]
        )
        with pytest.raises(UserError, match="line 1: holds no") as caught:
            make_report(folder)
        assert repr(key) in str(caught.value)


@pytest.mark.parametrize("lines", ["one", [1], None])
def test_lines_of_the_doctor_that_are_none(tmp_path, lines):
    folder = report_folders.tag_folder(tmp_path)
    change_results(folder, doctor={"lines": lines})
    with pytest.raises(UserError, match="must be a list of strings"):
        make_report(folder)


def text_of(html):
    return "".join(Page(html).texts)


def test_marks_may_overlap():
    html = marked(
        "one two three four",
        [Mark(4, 13, "true", "gold"), Mark(8, 18, "given", "given")],
    )
    assert text_of(html) == "one truetwo giventhree four"
    styles = [each["class"] for each in Page(html).named("mark")]
    assert styles == ["gold", "gold given", "given"]
    # One in the other, and one of no length.
    html = marked(
        "abc",
        [Mark(0, 3, "A", "x"), Mark(1, 2, "B", "y"), Mark(2, 2, "C", "z")],
    )
    assert text_of(html) == "AaBbc"


def test_long_texts_are_shown_around_their_marks():
    text = "left " * 200 + "GOLD " + "between " * 100 + "GIVEN" + " right" * 200
    first, last = text.index("GOLD"), text.index("GIVEN")
    html = marked(
        text,
        [
            Mark(first, first + 4, "true", "gold"),
            Mark(last, last + 5, "p", "g"),
        ],
    )
    short, whole = html.split("<details>")
    short = text_of(short)
    assert short.count("\u2026") == 3
    assert "trueGOLD" in short
    assert len(short) < 700
    assert set(short.replace("\u2026", "").split()) == {
        "left",
        "trueGOLD",
        "between",
        "pGIVEN",
        "right",
    }
    assert f"Full text, {len(text):,} characters" in whole
    assert "\u2026" not in whole
