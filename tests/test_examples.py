"""The programs of examples/ run as they stand, on a small model."""

import dataclasses
import json
import pathlib
import re
import runpy
import sys

import pytest

import bert_tf
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.pretraining import run as pretraining_run
from tests.model_helpers import fill
from tests.small_runs import save_small_model, shorten_runs
from tools.language_reference import reference_documents

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


# Graphs of tf.data stay graphs.
pytestmark = pytest.mark.filterwarnings("ignore:Even though the .tf.config")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    return save_small_model(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, eagerly):
    """Runs an example in an empty folder, and returns what it prints."""
    shorten_runs(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")

    def run(name: str, *arguments: object) -> str:
        path = EXAMPLES / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_they_are_short_and_say_how_they_are_called() -> None:
    paths = sorted(EXAMPLES.glob("*.py"))
    text = pathlib.Path(__file__).read_text(encoding="utf-8")
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 40, path
        assert f"python examples/{path.name} " in "\n".join(lines)
        assert f'("{path.stem}", ' in text, f"{path.name} is not tested"
    assert len(paths) >= 9


def test_search(run, model) -> None:
    printed = run("search", model)
    assert len(re.findall(r"^  -?\d\.\d{3}  \w", printed, re.M)) == 4


# Keras 3.15 says so of every data set that is fitted with its defaults.
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_stock_keras(run, model, tmp_path) -> None:
    assert "[[" in run("keras_fit", model)
    assert (tmp_path / "best.keras").stat().st_size > 1000
    printed = run("freezing", model).replace(",", "")
    trained, whole = re.search(r"(\d+) of (\d+)", printed).groups()
    assert 0 < int(trained) < int(whole)


def test_attention_maps(run, model, tmp_path) -> None:
    printed = run("attention_maps", model, "a cat.")
    assert printed == "attention.png: 2 layers of 2 heads, 7 tokens\n"
    assert (tmp_path / "attention.png").stat().st_size > 10_000


def test_explain(run, model, tmp_path) -> None:
    config = TextClassificationConfig(
        *("mood", ("bad", "good"), 32, "classes", 2, 1, "", "", "cut", 16, 0.5)
    )
    start = bert_tf.load_checkpoint(model)
    classifier = bert_tf.bert_classifier(bert_tf.BertEncoder(start.config), 2)
    fill(classifier, seed=2)
    arrays = bert_tf.model_arrays(classifier)
    changes = {"arrays": arrays, "labels": config.labels}
    folder = tmp_path / "tuned"
    bert_tf.save_checkpoint(folder, dataclasses.replace(start, **changes))
    text = json.dumps(dataclasses.asdict(config))
    (folder / "task.json").write_text(text)
    printed = run("explain", folder, "a moving film.")
    assert printed.count("moving") >= 2
    assert "film" in (tmp_path / "why.html").read_text(encoding="utf-8")


def test_pretraining(run, tmp_path, monkeypatch) -> None:
    def run_shortly(recipe, folder):
        recipe = dataclasses.replace(recipe, size="1/8/2", num_train_steps=2)
        return run_pretraining(recipe, folder)

    run_pretraining = pretraining_run.run_pretraining
    monkeypatch.setattr(pretraining_run, "run_pretraining", run_shortly)
    documents = map("\n".join, reference_documents()[:60])
    (tmp_path / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    printed = run("pretraining", "corpus.txt")
    assert "held-out masked LM" in printed
    assert printed.splitlines()[-1].count("(") == 5
    assert (tmp_path / "out" / "model" / "README.md").exists()


@pytest.mark.parametrize(
    ("name", "folder", "answer"),
    [
        ("classification", "films", r"^(good|bad) [01]\.\d+$"),
        ("named_entities", "names", r"\A"),
        ("questions", "questions", r"-?\d+ [01]\.\d+$"),
    ],
)
def test_fine_tuning(run, model, tmp_path, name, folder, answer) -> None:
    assert re.search(answer, run(name, model), re.M)
    assert (tmp_path / "out" / folder / "README.md").exists()
