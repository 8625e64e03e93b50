"""What the reports of all task families have in common: page, safety, files."""

import contextlib
import dataclasses
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.sentence_embedding.recipe import EmbeddingRecipe
from bert_tf.families.sentence_embedding.task import EmbeddingTask
from bert_tf.families.text_classification.ranking import RankingTask
from bert_tf.families.text_classification.recipe import (
    RankingRecipe,
    UserTableRecipe,
)
from bert_tf.families.token_classification.recipe import FeatureRecipe
from bert_tf.finetuning import report_files
from bert_tf.report.statistics import curve_points, setting_rows
from tests import commands
from tests.finetuning import report_runs
from tests.finetuning.report_pages import HOSTILE, Page, numbers_of, text_of
from tests.finetuning.report_runs import write_report
from tests.finetuning.sentence_runs import model_folder
from tests.sharing.cards import read_card, table

RUNS = {name: make() for name, make in report_runs.MAKERS.items()}


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, pathlib.Path]:
    root, pages = tmp_path_factory.mktemp("reports"), {}
    for name, run in RUNS.items():
        (root / name).mkdir()
        # These have every kind of figure.
        is_drawn = name in ("two", "regression", "questions")
        with contextlib.nullcontext() if is_drawn else without_drawings():
            pages[name] = write_report(run, root / name)
    return pages


def without_drawings() -> contextlib.AbstractContextManager:
    """Leaves the files of figures empty, whose layout takes long."""
    return mock.patch("matplotlib.figure.Figure.savefig")


@pytest.fixture
def undrawn() -> Iterator[None]:
    """See `without_drawings`."""
    with without_drawings():
        yield


def changed(run: report_runs.Run, **changes) -> report_runs.Run:
    """A run with other results."""
    results = {**run.finished.results, **changes}
    finished = dataclasses.replace(run.finished, results=results)
    return run._replace(finished=finished)


@pytest.mark.parametrize("name", RUNS)
def test_page_is_complete_and_needs_nothing(reports, name):
    page = Page(reports[name].read_text(encoding="utf-8"))
    page.check()
    # The contents are the sections.
    names = [each["id"] for each in page.named("section")]
    assert [each["href"][1:] for each in page.named("a")] == names
    assert {"scores", "curves", "answers", "mistakes", "doctor"} <= set(names)
    for words in ("Scores", "Learning curves", "Recipe", "Data doctor"):
        assert words in page.text
    assert "learning_rate" in page.text
    assert "Finished 2026-03-04 05:06 UTC" in page.text


def test_the_same_run_gives_the_same_bytes(tmp_path, reports):
    """In another process, with other hashes of strings."""
    names = ("two", "regression")
    for name in names:
        (tmp_path / name).mkdir()
    done = commands.run_as_process(
        "tests.finetuning.report_runs",
        *(tmp_path / name for name in names),
        environment={},
    )
    assert done.returncode == 0, done.stderr
    for name in names:
        for file in ("report.html", "report.json"):
            expected = reports[name].with_name(file).read_bytes()
            assert (tmp_path / name / file).read_bytes() == expected


def test_scores_baselines_and_units(reports):
    texts = {name: text_of(page) for name, page in reports.items()}
    scores = numbers_of(reports["two"])["scores"]
    value = f"{100 * scores[0]['value']:.1f}"
    assert f"F1 dev {value} 61.0 88.9 89.3" in texts["two"]
    assert "BERT base" in texts["two"]
    flag = "This model is no better than the baseline."
    scores = numbers_of(reports["twenty"])["scores"]
    assert scores[0]["value"] < scores[0]["majority"]
    assert flag in texts["twenty"]
    assert flag not in texts["two"]
    for name, part in (
        ("questions", "Baseline: no answer to any question."),
        ("questions", "Train 3,668 questions"),
        ("questions", "Null odds above which there is no answer -0.5"),
        ("plain_questions", "Baseline: no answer to any question"),
        ("tags", "Baseline: the most frequent tag for every word."),
        ("tags", "Dev 408 sentences"),
        ("choices", "the position that is correct"),
        ("choices", "official dev set"),
    ):
        assert part in texts[name]


def test_splits_get_their_own_rows(tmp_path, undrawn):
    run = changed(
        RUNS["three"],
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
    text = text_of(write_report(run, tmp_path))
    assert "Accuracy dev_matched 84.1 35.4 84.6" in text
    assert "Accuracy dev_mismatched 83.2 35.2 83.4" in text


def test_seeds_are_listed_and_degenerate_ones_flagged(reports):
    text = text_of(reports["two"])
    assert text.count("12349") == 1
    # Whether it is the best one, and whether it is degenerate.
    assert re.search(r"12349 61\.0 61\.0 no yes", text)
    assert re.search(r"12345 [\d.]+ [\d.]+ yes no", text)
    numbers = numbers_of(reports["two"])
    mean, median, *_ = numbers["summary"]["f1"].values()
    assert f"F1 {100 * mean:.1f} {100 * median:.1f}" in text
    series = numbers["curves"]["held_out_loss"]
    assert [each["seed"] for each in series] == [
        str(12345 + n) for n in range(5)
    ]
    assert 'id="seeds"' not in reports["three"].read_text()


def test_what_the_data_doctor_found(tmp_path, reports, undrawn):
    found = text_of(reports["tags"]).partition("Data doctor data of it: ")[2]
    assert found.startswith("train: 3 rows unknown: 1 %")
    page = write_report(changed(RUNS["tags"], doctor={}), tmp_path)
    assert "Data doctor" not in text_of(page)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_dev_rows_that_were_trained_on(tmp_path, share, undrawn):
    doctor = {"in_train": {"dev": {"rows": 1, "share": share}}}
    page = text_of(
        write_report(changed(RUNS["three"], doctor=doctor), tmp_path)
    )
    line = f"{100 * share:.1f} % of the rows of dev are rows of the training"
    assert (line in page) == ("training data too" in page) == bool(share)


def test_mistakes_of_each_family(reports):
    choices = text_of(reports["choices"])
    for part in (
        "Row 3 Identifier 1 Prediction 1 Confidence 0.625 Label 3 Label "
        "probability 0.125",
        "context 1 Every choice begins She 0: 12.5 % choice 1 0",
        "1, predicted: 62.5 % choice 1 1",
        "3, true: 12.5 % choice 1 3",
    ):
        assert part in choices
    # The first row, which is correct, is not among them.
    assert "choice 0 0" not in choices
    page = Page(reports["questions"].read_text(encoding="utf-8"))
    for part in (
        "has an answer 2 2 50.0 83.3",
        "no answer 2 1 50.0 50.0",
        "threshold of this model, -0.5",
        "Identifier q2 Title Fram F1 0 Null odds -1",
        "Predicted 1901 True no answer",
        "Predicted Lovell sailed True Ada Lovell, Lovell",
        "Best answers Lovell sailed at 50.0 %, Lovell at 25.0 %",
        "Best answers 1901 at 62.5 %, no answer at 25.0 %",
        # Ada is in one answer, Lovell in all three, sailed in the predicted.
        "true Ada true predicted Lovell sailed from Hull to Oslo",
    ):
        assert part in page.text
    styles = [each["class"] for each in page.named("mark")]
    assert styles == ["given", "gold", "gold given", "given"]
    assert "null odds" not in text_of(reports["plain_questions"]).lower()
    tags = text_of(reports["tags"])
    for part in (
        "Errors on 4 entities in 10 words",
        "Missed 1 25.0",
        "Predicted where there is none 1",
        "True LOC, not found New York calls LOC, not found Hull",
        "Predicted New LOC, wrong York PER, wrong calls Hull",
        "True PER Ada Lovell saw LOC, not found Oslo .",
        "Predicted PER Ada Lovell saw ORG, wrong Oslo .",
    ):
        assert part in tags


def test_pages_of_extreme_runs(tmp_path):
    def page_of(run: report_runs.Run, name: str) -> tuple[pathlib.Path, str]:
        (tmp_path / name).mkdir()
        page = write_report(run, tmp_path / name)
        return page, text_of(page)

    page, text = page_of(report_runs.regression_run(4500), "points")
    scatter = numbers_of(page)["predictions"]["scatter"]
    assert (scatter["every"], len(scatter["predicted"])) == (3, 1500)
    assert "One row in 3 is drawn." in text
    assert page.stat().st_size < 500_000
    texts = {"text_a": "yes", "text_b": None, "identifier": "x"}
    lines = [
        {**texts, "row": row, "label": label, "prediction": label}
        | {"probabilities": [float(label == x) for x in "abc"]}
        for row, label in enumerate("abab")
    ]
    results = report_runs.results_of("MRPC", ["a", "b", "c"], {"f1": 1.0})
    page, text = page_of(report_runs.finished(results, lines), "correct")
    assert "0 of 4 (0.0 %) are not answered exactly" in text
    assert "there are no rows to take a share of" in text
    found = numbers_of(page)["predictions"]
    assert found["per_label"][2]["precision"] is None
    assert found["calibration"]["expected_calibration_error"] == 0
    _, text = page_of(report_runs.tag_run(report_runs.TAGS[2:]), "none")
    assert "Errors on 0 entities in 1 words" in text
    tags = [f"B-T{number:02}" for number in range(40)]
    line = {"row": 1, "words": ["w"] * 40, "tags": tags}
    line["predictions"] = [*tags[1:], tags[0]]
    page, text = page_of(report_runs.tag_run([line]), "many")
    assert numbers_of(page)["predictions"]["confusion_matrix"]["pooled"] == 12
    assert "12 others" in text


def test_long_curves_become_block_means():
    rows = [{"step": n, "loss": float(n)} for n in range(1, 1001)]
    rows.append({"step": 1000, "eval_loss": None})
    (series,) = curve_points({"": rows}, "loss")
    assert series["steps"][:2] == [3, 6]
    assert series["values"][:2] == [2.0, 5.0]
    assert series["steps"][-1] == 1000
    assert curve_points({"": rows}, "eval_loss") == []


def test_settings_that_differ_come_first():
    values = {"seed": 12345, "learning_rate": 1e-3, "unknown": True}
    rows = setting_rows(values, FinetuningRecipe, {})
    assert [(row["name"], row["changed"]) for row in rows] == [
        *(("learning_rate", True), ("unknown", True), ("seed", False))
    ]
    assert rows[0]["default"] == 5e-5
    assert rows[0]["help"]
    # Of the family's own recipe.
    values = FeatureRecipe(lstm_units=5).to_dict()
    rows = setting_rows(values, FeatureRecipe, {})
    assert [row["name"] for row in rows if row["changed"]] == ["lstm_units"]
    assert rows[0]["default"] == 768
    assert all(row["help"] for row in rows)
    # A default of the task is no difference.
    rows = setting_rows(values, FeatureRecipe, {"lstm_units": 5})
    assert not any(row["changed"] for row in rows)


def card_of(folder: pathlib.Path, recipe: Any, **of_task: Any) -> Any:
    """The card of a finished run with a recipe, of a task."""
    run = changed(RUNS["three"], recipe=recipe.to_dict())
    initial = load_checkpoint(model_folder(folder / "start"))
    task = {
        "defaults": {},
        "hub_data_set": "",
        "sentence_kind": "",
        "loss_classes": {},
    }
    data: Any = types.SimpleNamespace(
        task=types.SimpleNamespace(**task | of_task),
        config=types.SimpleNamespace(
            pipeline_tag="text-classification",
            head="",
            sample=lambda: {"text": "A calm sea."},
        ),
        recipe=recipe,
        initial=initial,
        tokenizer=initial.make_tokenizer(),
    )
    report_files.write_card(folder, run.finished, data)
    return read_card(folder)


def test_the_card_lists_only_changed_settings(tmp_path):
    """Those that differ from the defaults of the run's own recipe."""
    recipe = UserTableRecipe(task="sentence", text_columns="review")
    card = card_of(tmp_path, recipe, name="sentence")
    _, _, *rows = table(card, "Training")
    assert sorted(rows) == [["task", "sentence"], ["text\\_columns", "review"]]
    assert "## Use" not in card.text


@pytest.mark.parametrize(
    ("task", "recipe", "tags"),
    [
        (
            EmbeddingTask,
            EmbeddingRecipe(loss="cosent", matryoshka_dims="4,2"),
            ["dense", "loss:MatryoshkaLoss", "loss:CoSENTLoss"],
        ),
        (
            RankingTask,
            RankingRecipe(loss="bce"),
            ["reranker", "loss:BinaryCrossEntropyLoss"],
        ),
    ],
)
def test_the_card_of_embeddings_and_rankings(tmp_path, task, recipe, tags):
    values = {n: getattr(task, n) for n in ("sentence_kind", "loss_classes")}
    card = card_of(tmp_path, recipe, name="own", **values)
    assert card.data.pipeline_tag in ("sentence-similarity", "text-ranking")
    assert set(tags) <= set(card.data.tags)
    assert "## Use" in card.text


def test_numbers_that_are_not_finite_are_gaps(tmp_path):
    run = changed(
        RUNS["three"],
        dev={"dev": {"f1": 0.4, "accuracy": float("nan")}},
        examples_per_second=None,
    )
    lost = {"step": 400, "loss": float("nan")}
    histories = {"": [*run.finished.histories[""], lost]}
    finished = dataclasses.replace(run.finished, histories=histories)
    page = write_report(run._replace(finished=finished), tmp_path)
    assert "Accuracy dev 61.0" in text_of(page)
    steps = numbers_of(page)["curves"]["training_loss"][0]["steps"]
    assert 400 not in steps


def hostile(value):
    """The same with every text an attack."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, list):
        return [hostile(each) for each in value]
    if isinstance(value, dict):
        return {key: hostile(each) for key, each in value.items()}
    return value


def hostile_texts() -> report_runs.Run:
    labels = [HOSTILE, HOSTILE + "2"]
    random = np.random.default_rng(1)
    lines = report_runs.class_lines(labels, 60, random)
    texts = {"text_a": HOSTILE, "text_b": HOSTILE * 100}
    lines = [line | texts | {"identifier": HOSTILE} for line in lines]
    results = report_runs.results_of(HOSTILE, labels, {"f1": 0.5})
    results["model"] = results["paper_note"] = HOSTILE
    recipe = {"task": HOSTILE, HOSTILE: HOSTILE, "list": [HOSTILE]}
    return changed(report_runs.finished(results, lines), recipe=recipe)


def hostile_questions() -> report_runs.Run:
    text = HOSTILE * 20
    lines = [
        hostile(line)
        | {"context": text, "start": 5, "end": len(HOSTILE) - 40}
        | {
            "answers": [
                {"text": text[3:90], "start": 3},
                # Of what does not stand there, nothing is marked.
                {"text": "elsewhere", "start": 9},
            ]
        }
        for line in report_runs.QUESTIONS
    ]
    return report_runs.question_run(lines)


def hostile_tags() -> report_runs.Run:
    kinds = {"PER": HOSTILE, "LOC": "<b>", "ORG": "&"}

    def renamed(tags):
        return [t[:2] + kinds[t[2:]] if len(t) > 1 else t for t in tags]

    lines = [
        {
            "row": line["row"],
            "words": hostile(line["words"]),
            "tags": renamed(line["tags"]),
            "predictions": renamed(line["predictions"]),
        }
        for line in report_runs.TAGS
    ]
    return report_runs.tag_run(lines)


def hostile_choices() -> report_runs.Run:
    return report_runs.choice_run(hostile(report_runs.CHOICES))


@pytest.mark.parametrize(
    "make", [hostile_texts, hostile_questions, hostile_choices, hostile_tags]
)
def test_no_text_becomes_markup(tmp_path, reports, make):
    run = make()
    if make != hostile_texts:
        run = changed(run, doctor={"lines": [HOSTILE, "  " + HOSTILE]})
    path = write_report(run, tmp_path)
    if make == hostile_texts:
        # In the numbers, texts are complete.
        worst = numbers_of(path)["predictions"]["mistakes"]["worst"]
        assert worst[0]["text_b"] == HOSTILE * 100
    source = path.read_bytes()
    assert b"\0" not in source
    text = source.decode("utf-8")
    assert "alert('x')" not in text
    page = Page(text)
    usual = {
        tag
        for each in reports.values()
        for tag, _ in Page(each.read_text(encoding="utf-8")).tags
    }
    assert {tag for tag, _ in page.tags} <= usual
    for _, attributes in page.tags:
        assert not any(key.startswith("on") for key in attributes)
    assert "<script>alert('x')</script>" in page.text
    # Marks of direction stay inside an element that ends their effect.
    for content in re.findall("<bdi>(.*?)</bdi>", text, re.DOTALL):
        assert content.count("\u2066") == content.count("\u2069")
    for place in re.finditer("\u202e", text):
        before = text[: place.start()]
        opened = max(before.rfind("<bdi>"), before.rfind('dir="auto"'))
        closed = max(before.rfind("</bdi>"), before.rfind("</p>"))
        in_a_title = before.rfind("<title>&#x2068;") > before.rfind("</title>")
        assert opened > closed or in_a_title, before[-80:]
