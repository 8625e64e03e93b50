"""What a new family of tasks costs: one folder, and one line in the list.

The folder is `made_up_family/rating`: texts are rated from 0 to 10 by a head
that scores whether each step is reached.
"""

import csv
import json
import pathlib

import numpy as np
import pytest

import bert_tf
from bert_tf import families
from bert_tf.checkpoints import load_checkpoint
from bert_tf.family_list import FAMILIES
from bert_tf.finetuning.run import run_finetuning
from bert_tf.inference.predict import predict_file
from bert_tf.inference.saving import write_saved_model
from tests.contracts.task_cases import SETTINGS, model_folder
from tests.finetuning.sentence_runs import BAD, GOOD
from tests.server.served_models import fetch, served
from tests.user_errors import error_of

FOLDER = pathlib.Path(__file__).parent / "made_up_family"


@pytest.fixture
def task(monkeypatch):
    """The task of the family, which is added to the package."""
    path = [*families.__path__, str(FOLDER)]
    monkeypatch.setattr(families, "__path__", path)
    monkeypatch.setitem(FAMILIES, "rating", "rating.config.RatingConfig")
    from bert_tf.families.rating.task import RatingTask

    return RatingTask(name="stars")


def write_ratings(path: pathlib.Path, count: int, seed: int) -> list[str]:
    """Texts of ten words, whose rating is the number of good words."""
    random = np.random.default_rng(seed)
    texts = []
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["text", "rating"])
        for _ in range(count):
            rating = int(random.integers(11))
            words = [*random.choice(GOOD, rating)]
            words += [*random.choice(BAD, 10 - rating)]
            texts.append(" ".join(random.permutation(words)))
            table.writerow([texts[-1], rating])
    return texts


@pytest.mark.witness("a family costs a folder and a line")
@pytest.mark.usefixtures("undrawn")
def test_a_family_costs_a_folder_and_a_line(task, tmp_path):
    write_ratings(tmp_path / "train.csv", 160, 0)
    texts = write_ratings(tmp_path / "dev.csv", 24, 1)
    start, run = model_folder(tmp_path / "start"), tmp_path / "run"
    settings = SETTINGS | {
        "init_from": str(start),
        "train_file": str(tmp_path / "train.csv"),
        "dev_file": str(tmp_path / "dev.csv"),
        "test_file": str(tmp_path / "dev.csv"),
        "learning_rate": 1e-2,
        "num_train_epochs": 3.0,
    }
    recipe = task.recipe_type(**settings)

    # Training and scoring.
    done = run_finetuning(task, recipe, run, ["train", "eval", "predict"])
    scores = done["train"]["dev"]["dev"]
    assert scores["closeness"] > done["train"]["majority"]["dev"]["closeness"]
    assert scores["closeness"] > 0.85
    assert done["eval"]["dev"] == scores
    found = run / "predictions_dev.tsv"
    references = str(tmp_path / "dev.csv")
    assert task.score_file(recipe, references, str(found)) == scores
    lines = found.read_text().splitlines()[1:]
    predicted = [int(line.split("\t")[1]) for line in lines]
    assert len(set(predicted)) > 4
    assert "rating" in load_checkpoint(run).heads
    assert "How far off ratings are" in (run / "report.html").read_text()
    assert json.loads((run / "task.json").read_text())["steps"] == 10

    # Loading and predicting a file.
    model = bert_tf.load(run)
    answers = model(texts)
    assert [answer["rating"] for answer in answers] == predicted
    shares = np.array([answer["reached"] for answer in answers])
    assert shares.shape == (24, 10)
    assert ((shares > 0.5).sum(1) == predicted).all()
    line = error_of(bert_tf.load, run, task="text_regression")
    assert f"{run} " in line
    assert "its head is a rating" in line
    line = error_of(model.explain, texts[0])
    assert line.startswith("`folder`: ")
    assert "rating" in line
    predict_file(run, references, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["rating"]) for row in rows] == predicted
    assert len(json.loads(rows[0]["reached"])) == 10

    # Exporting and serving.
    write_saved_model(model.served, tmp_path / "export")
    with served(tmp_path / "export") as server:
        url = f"{server.rest}/v1/models/m:predict"
        status, body = fetch(url, {"instances": texts})
        assert status == 200
    found = body["predictions"]
    assert [answer["rating"] for answer in found] == predicted
    np.testing.assert_allclose(
        [answer["reached"] for answer in found], shares, atol=1e-5
    )
