"""Reports of run folders: numbers, page, safety and errors."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import finetuning_folders
import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.report.confusion import confusion_matrix
from bert_tf.finetuning.report.html import passage, shown
from bert_tf.finetuning.report.make import make_report
from bert_tf.finetuning.report.numbers import curves, settings
from bert_tf.finetuning.report.run_files import read_run
from bert_tf.finetuning.report.sentence_mistakes import multi_label_mistakes
from bert_tf.finetuning.report.sentence_rows import DevPrediction
from tests.finetuning.report_pages import (
    HOSTILE,
    Page,
    change_line,
    change_results,
    lines_of,
    numbers_of,
    read_page,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def make_folders(root: pathlib.Path) -> dict[str, pathlib.Path]:
    topics = [f"topic {n}" for n in range(20)]
    return {
        "two": finetuning_folders.classes_run(root / "two", ["0", "1"], 5),
        "three": finetuning_folders.classes_run(
            root / "three", ["contradiction", "entailment", "neutral"]
        ),
        "twenty": finetuning_folders.classes_run(root / "twenty", topics),
        "regression": finetuning_folders.regression_run(root / "regression"),
        "multi_label": finetuning_folders.multi_label_run(root / "multi"),
    }


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, pathlib.Path]:
    folders = make_folders(tmp_path_factory.mktemp("runs"))
    return {name: make_report(folder) for name, folder in folders.items()}


KINDS = ("two", "three", "twenty", "regression", "multi_label")


@pytest.mark.parametrize("kind", KINDS)
def test_page_needs_nothing_and_tells_all(reports, kind: str) -> None:
    source = reports[kind].read_text(encoding="utf-8")
    page = Page(source)
    assert page.named("html") == [{"lang": "en"}]
    assert not page.named("script")
    assert not page.named("link")
    policy = page.named("meta")[1]
    assert policy["content"].startswith("default-src 'none'")
    assert "@import" not in source
    assert "url(" not in source
    for picture in page.named("img"):
        assert picture["src"].startswith("data:image/svg+xml;base64,")
        assert len(picture["alt"]) > 20
    assert all(
        attributes.get("scope") in ("col", "row")
        for attributes in page.named("th")
    )
    # Every entry of the contents leads somewhere, and names are unique.
    names = [each["id"] for _, each in page.tags if "id" in each]
    assert len(set(names)) == len(names)
    assert {each["href"][1:] for each in page.named("a")} == set(names)
    for word in ("Scores", "Learning curves", "Recipe", "Data doctor"):
        assert word in page.text
    assert "learning_rate" in page.text
    assert "finished 2026-03-04 05:06 UTC" in page.text


@pytest.mark.parametrize("kind", ["two", "regression"])
def test_same_files_give_the_same_bytes(
    tmp_path: pathlib.Path, reports, kind: str
) -> None:
    first = reports[kind].parent
    copy = tmp_path / "elsewhere"
    shutil.copytree(first, copy)
    for name in ("report.html", "report.json"):
        (copy / name).unlink()
    # A process of its own, so that nothing is left over from the first time.
    code = (
        "import sys; from bert_tf.finetuning.report.make import make_report; "
        "make_report(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, copy], cwd=ROOT, check=True)
    for name in ("report.html", "report.json"):
        assert (copy / name).read_bytes() == (first / name).read_bytes()


def test_numbers_of_classes(reports) -> None:
    folder = reports["three"].parent
    found = numbers_of(folder)
    lines = lines_of(folder)
    labels = ["contradiction", "entailment", "neutral"]
    matrix = found["predictions"]["confusion_matrix"]
    assert matrix["labels"] == labels
    for i, truth in enumerate(labels):
        for j, answer in enumerate(labels):
            assert matrix["counts"][i][j] == sum(
                (line["label"], line["prediction"]) == (truth, answer)
                for line in lines
            )
    neutral = found["predictions"]["per_label"][2]
    true = [line for line in lines if line["label"] == "neutral"]
    given = [line for line in lines if line["prediction"] == "neutral"]
    both = [line for line in true if line["prediction"] == "neutral"]
    assert neutral["precision"] == pytest.approx(len(both) / len(given))
    assert neutral["recall"] == pytest.approx(len(both) / len(true))
    assert neutral["f1"] == pytest.approx(
        2 * len(both) / (len(given) + len(true))
    )
    worst = found["predictions"]["mistakes"]["worst"]
    wrong = [line for line in lines if line["label"] != line["prediction"]]
    assert found["predictions"]["mistakes"]["total"] == len(wrong)
    wrong.sort(key=lambda line: -max(line["probabilities"]))
    assert [each["row"] for each in worst] == [x["row"] for x in wrong[:20]]
    assert worst[0]["confidence"] == max(wrong[0]["probabilities"])
    confusions = found["predictions"]["confusions"]
    assert confusions[0]["count"] == max(
        matrix["counts"][i][j] for i in range(3) for j in range(3) if i != j
    )


def test_page_shows_scores_beside_baseline_and_paper(reports) -> None:
    page = read_page(reports["two"])
    scores = numbers_of(reports["two"].parent)["scores"]
    value = f"{100 * scores[0]['value']:.1f}"
    assert f"F1 {value} 61.0 88.9 89.3" in page.text
    assert "BERT base" in page.text


def test_a_model_that_learnt_nothing_is_flagged(reports) -> None:
    flag = "This model is no better than the baseline."
    scores = numbers_of(reports["twenty"].parent)["scores"]
    assert scores[0]["value"] < scores[0]["majority"]
    assert flag in read_page(reports["twenty"]).text
    assert flag not in read_page(reports["two"]).text


def test_splits_get_their_own_rows(tmp_path: pathlib.Path) -> None:
    folder = finetuning_folders.classes_run(tmp_path, ["a", "b"])
    change_results(
        folder,
        main_metric="accuracy",
        dev={
            "dev_matched": {"accuracy": 0.841},
            "dev_mismatched": {"accuracy": 0.832},
        },
        majority={
            "dev_matched": {"accuracy": 0.354},
            "dev_mismatched": {"accuracy": 0.352},
        },
        paper={
            "accuracy": {"bert_base": 0.846},
            "accuracy_mismatched": {"bert_base": 0.834},
        },
    )
    text = read_page(make_report(folder)).text
    assert "Accuracy Dev matched 84.1 35.4 84.6" in text
    assert "Accuracy Dev mismatched 83.2 35.2 83.4" in text


def test_seeds_are_listed_and_degenerate_ones_flagged(reports) -> None:
    page = read_page(reports["two"])
    assert "5 seeds" in page.text
    assert page.text.count("12349") == 1
    assert re.search(r"12349 61\.0 61\.0 degenerate", page.text)
    assert re.search(r"12345 [\d.]+ [\d.]+ best", page.text)
    summary = numbers_of(reports["two"].parent)["summary"]["f1"]
    assert f"Mean {100 * summary['mean']:.1f}" in page.text
    series = numbers_of(reports["two"].parent)["curves"]["held_out_loss"]
    assert [each["seed"] for each in series] == [
        str(12345 + n) for n in range(5)
    ]
    assert 'id="seeds"' not in reports["three"].read_text()


def test_numbers_of_regression(reports) -> None:
    folder = reports["regression"].parent
    found = numbers_of(folder)["predictions"]
    lines = lines_of(folder)
    errors = np.array([x["prediction"] - x["label"] for x in lines])
    residuals = found["residuals"]
    assert residuals["mean_error"] == pytest.approx(errors.mean())
    assert residuals["mean_absolute_error"] == pytest.approx(abs(errors).mean())
    assert residuals["root_mean_squared_error"] == pytest.approx(
        np.sqrt((errors**2).mean())
    )
    assert sum(residuals["counts"]) == len(lines)
    assert residuals["edges"][0] == -residuals["edges"][-1]
    worst = found["mistakes"]["worst"]
    assert abs(worst[0]["error"]) == abs(errors).max()
    assert len(found["scatter"]["true"]) == 1500
    assert "calibration" not in found


def test_many_points_are_thinned(tmp_path: pathlib.Path) -> None:
    folder = finetuning_folders.regression_run(tmp_path, 4500)
    page = read_page(make_report(folder))
    scatter = numbers_of(folder)["predictions"]["scatter"]
    assert scatter["every"] == 3
    assert len(scatter["predicted"]) == 1500
    assert "One row in 3 is drawn." in page.text
    assert (folder / "report.html").stat().st_size < 500_000


def test_numbers_of_multi_label(reports) -> None:
    folder = reports["multi_label"].parent
    found = numbers_of(folder)["predictions"]
    lines = lines_of(folder)
    joy = found["per_label"][0]
    true = [line for line in lines if "joy" in line["label"]]
    assert joy["count"] == len(true)
    assert joy["recall"] == pytest.approx(
        sum("joy" in line["prediction"] for line in true) / len(true)
    )
    exact = sum(line["label"] == line["prediction"] for line in lines)
    assert found["exact_matches"] == exact
    assert found["mistakes"]["total"] == len(lines) - exact
    assert sum(x["count"] for x in found["calibration"]["bins"]) == 6 * 300


def test_multi_label_mistakes_by_hand() -> None:
    def row(number, label, prediction, probabilities):
        return DevPrediction(
            "x", number, "t", None, label, prediction, probabilities
        )

    found = multi_label_mistakes(
        [
            row(1, ["a"], ["a"], [0.9, 0.1]),
            row(2, ["a"], [], [0.3, 0.2]),
            row(3, ["a"], ["b"], [0.4, 0.95]),
            row(4, [], ["b"], [0.1, 0.8]),
        ],
        ["a", "b"],
    )
    assert found["total"] == 3
    assert [each["row"] for each in found["worst"]] == [3, 4, 2]
    assert found["worst"][0]["missed"] == {"a": 0.4}
    assert found["worst"][0]["added"] == {"b": 0.95}
    assert found["worst"][2]["confidence"] == pytest.approx(0.7)


def test_no_mistakes_and_one_class_never_met(tmp_path: pathlib.Path) -> None:
    folder = finetuning_folders.classes_run(tmp_path, ["a", "b", "c"])
    lines = [
        {
            "identifier": str(row),
            "row": row,
            "text_a": "yes",
            "text_b": None,
            "label": "ab"[row % 2],
            "prediction": "ab"[row % 2],
            "probabilities": [float("ab"[row % 2] == x) for x in "abc"],
        }
        for row in range(1, 5)
    ]
    finetuning_folders.write_lines(folder / "dev_predictions.jsonl", lines)
    text = read_page(make_report(folder)).text
    assert "None in 4 rows." in text
    assert "no row to take a share of" in text
    found = numbers_of(folder)["predictions"]
    assert found["per_label"][2]["precision"] is None
    assert found["calibration"]["expected_calibration_error"] == 0


def test_large_confusion_matrix_pools_rare_classes() -> None:
    labels = [str(n) for n in range(40)]
    counts = np.arange(1600).reshape(40, 40)
    counts[7] = 0
    found = confusion_matrix(counts, labels)
    small = np.array(found["counts"])
    assert small.shape == (30, 30)
    assert found["pooled"] == 11
    assert small.sum() == counts.sum()
    assert "7" not in found["labels"]
    place = found["labels"].index("39")
    assert small[place, place] == counts[39, 39]


def test_long_curves_become_block_means() -> None:
    rows = [{"step": n, "loss": float(n)} for n in range(1, 1001)]
    rows.append({"step": 1000, "eval_loss": None})
    found = curves({"": rows}, "f1")
    (series,) = found["training_loss"]
    assert series["steps"][:2] == [3, 6]
    assert series["values"][:2] == [2.0, 5.0]
    assert series["steps"][-1] == 1000
    assert found["held_out_loss"] == []


def test_settings_that_differ_come_first() -> None:
    rows = settings(
        {"seed": 12345, "learning_rate": 1e-3, "unknown": True},
        [FinetuningRecipe],
    )
    assert [(row["name"], row["changed"]) for row in rows] == [
        ("learning_rate", True),
        ("unknown", True),
        ("seed", False),
    ]
    assert rows[0]["default"] == 5e-5
    assert rows[0]["help"]


def hostile_run(folder: pathlib.Path) -> pathlib.Path:
    """A run whose every string of the user's is an attack."""
    labels = [HOSTILE, HOSTILE + "2"]
    random = np.random.default_rng(1)
    lines = finetuning_folders.class_lines(labels, 60, random)
    for line in lines:
        line["identifier"] = HOSTILE
        line["text_a"] = HOSTILE
        line["text_b"] = HOSTILE * 100
    scores = {"f1": 0.5}
    results = finetuning_folders.results_of(HOSTILE, labels, scores)
    results["model"] = results["paper_note"] = HOSTILE
    finetuning_folders.write_run(folder, results, lines)
    recipe = {"task": HOSTILE, HOSTILE: HOSTILE, "list": [HOSTILE]}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def test_no_text_becomes_markup(tmp_path: pathlib.Path, reports) -> None:
    path = make_report(hostile_run(tmp_path))
    source = path.read_bytes()
    assert b"\0" not in source
    text = source.decode("utf-8")
    assert "alert('x')" not in text
    page = Page(text)
    kinds = {tag for tag, _ in page.tags}
    allowed = {tag for tag, _ in read_page(reports["three"]).tags}
    assert kinds <= allowed | {"summary", "details"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
    assert "<script>alert('x')</script>" in page.text
    # Marks of direction stay inside an element that ends their effect.
    for place in re.finditer("\u202e", text):
        before = text[: place.start()]
        opened = max(before.rfind("<bdi>"), before.rfind('dir="auto"'))
        closed = max(before.rfind("</bdi>"), before.rfind("</p>"))
        in_a_title = before.rfind("<title>\u2068") > before.rfind("</title>")
        assert opened > closed or in_a_title, before[-80:]
    for content in re.findall("<bdi>(.*?)</bdi>", text, re.DOTALL):
        assert content.count("\u2066") == content.count("\u2069")
    worst = numbers_of(tmp_path)["predictions"]["mistakes"]["worst"]
    assert worst[0]["text_b"] == HOSTILE * 100


def test_long_texts_are_cut_in_the_middle() -> None:
    text = "first " + "word " * 2000 + "last"
    page = Page(passage(text))
    short = page.texts[0] + page.texts[1] + page.texts[2]
    assert short.startswith("first word")
    assert short.endswith("word last")
    assert "\u2026" in short
    assert len(short) < 300
    assert f"Full text, {len(text):,} characters" in page.texts
    assert text in page.texts
    unbroken = Page(passage("x" * 5000))
    assert unbroken.texts[0].strip() == "x" * 200
    assert "<details>" not in passage("short")
    assert "empty" in passage(" \n")


def test_isolates_end_where_their_text_ends() -> None:
    assert shown("a\u2066b\u2067c") == "a\u2066b\u2067c\u2069\u2069"
    assert shown("\u2069a\u2068b\u2069\u2069c") == "a\u2068b\u2069c"
    assert shown("\u05d0\u200f\u202eb\u202c") == "\u05d0\u200f\u202eb\u202c"


def test_characters_that_html_may_not_hold() -> None:
    assert shown("a\x00b\x7f") == "a\u2400b\u2421"
    assert shown("\ud800\x9f\uffff") == "\ufffd" * 3
    assert shown("a\r\nb\tc") == "a\nb\tc"
    assert shown("<\"'&>") == "&lt;&quot;&#x27;&amp;&gt;"


def test_numbers_that_are_not_finite_are_gaps(tmp_path: pathlib.Path) -> None:
    folder = finetuning_folders.classes_run(tmp_path, ["a", "b"])
    change_results(
        folder,
        dev={"dev": {"f1": 0.4, "accuracy": float("nan")}},
        examples_per_second=None,
    )
    with open(folder / "history.jsonl", "a") as file:
        file.write('{"step": 400, "loss": NaN}\n')
    text = read_page(make_report(folder)).text
    assert "Accuracy \u2013 61.0" in text
    steps = numbers_of(folder)["curves"]["training_loss"][0]["steps"]
    assert 400 not in steps


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dev": {}}, "'dev' holds no scores"),
        ({"labels": [1]}, "'labels' must all be strings"),
        ({"main_metric": "mcc"}, "lack the main metric 'mcc'"),
        ({"dev": {"dev": {"f1": "high"}}}, "f1 is 'high'"),
        ({"majority": {}}, "majority dev is None"),
        ({"paper": {"f1": 0.9}}, "paper f1 is 0.9"),
        ({"seeds": [{"seed": 1}]}, "seeds\\[0\\] holds no 'folder'"),
        ({"finished": "yesterday"}, "finished is 'yesterday'"),
        ({"train_seconds": "long"}, "train_seconds is 'long'"),
        ({"doctor": {"rows": 3}}, "'doctor' holds no 'splits'"),
    ],
)
def test_bad_results_are_told(
    tmp_path: pathlib.Path, changes: dict, message: str
) -> None:
    folder = finetuning_folders.classes_run(tmp_path, ["a", "b"])
    change_results(folder, **changes)
    with pytest.raises(UserError, match=message) as caught:
        make_report(folder)
    assert "results.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()
    assert not (folder / "report.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": "maybe"}, "label is 'maybe'"),
        ({"label": None}, "label is None"),
        ({"label": ["a"]}, "label and prediction differ in form"),
        ({"label": ["a"], "prediction": ["a"]}, "some labels are lists"),
        ({"row": "7"}, "row is '7'"),
        ({"text_a": None}, "text_a is None"),
        ({"text_b": 3}, "text_b is 3"),
        ({"probabilities": [1.0]}, "a list of 2 numbers"),
        ({"probabilities": [0.5, float("nan")]}, "probabilities hold nan"),
        ({"probabilities": [0.5, 1.5]}, "probabilities hold 1.5"),
    ],
)
def test_bad_predictions_are_told(
    tmp_path: pathlib.Path, changes: dict, message: str
) -> None:
    folder = finetuning_folders.classes_run(tmp_path, ["a", "b"])
    change_line(folder, 3, **changes)
    with pytest.raises(UserError, match=message) as caught:
        make_report(folder)
    if "some labels" not in message:
        assert "dev_predictions.jsonl, line 3" in str(caught.value)


def test_values_of_regression_must_be_finite(tmp_path: pathlib.Path) -> None:
    folder = finetuning_folders.regression_run(tmp_path, 20)
    change_line(folder, 2, prediction=float("inf"))
    with pytest.raises(UserError, match="line 2: prediction is inf"):
        make_report(folder)


@pytest.mark.parametrize(
    "name",
    ["results.json", "recipe.json", "history.jsonl", "dev_predictions.jsonl"],
)
def test_missing_and_broken_files_are_told(
    tmp_path: pathlib.Path, name: str
) -> None:
    folder = finetuning_folders.classes_run(tmp_path, ["a", "b"])
    (folder / name).write_bytes(b'{"step": 1}\n{"half": \xff')
    with pytest.raises(UserError, match=f"{name}.*not valid JSON"):
        make_report(folder)
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"{name}: no such file"):
        make_report(folder)
    with pytest.raises(UserError, match="no such folder"):
        make_report(folder / "elsewhere")


def test_an_empty_file_of_predictions_is_told(tmp_path: pathlib.Path) -> None:
    folder = finetuning_folders.classes_run(tmp_path, ["a", "b"])
    (folder / "dev_predictions.jsonl").write_text("")
    with pytest.raises(UserError, match="holds no predictions"):
        read_run(folder)


def test_a_report_loads_neither_tensorflow_nor_keras() -> None:
    code = (
        "import sys, bert_tf.finetuning.report.make; "
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
