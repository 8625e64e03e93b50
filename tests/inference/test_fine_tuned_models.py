"""Fine-tuned models of transformers answer as its pipelines do."""

import pytest
import tensorflow as tf

from bert_tf.inference.load import load
from tests.fine_tuned_models import answers, recorded, write_folder

ANSWERS = answers()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder_of(name):
        if name not in made:
            made[name] = write_folder(tmp_path_factory.mktemp(name), name)
        return made[name]

    return folder_of


@pytest.fixture
def eager():
    """Without graphs, whose tracing takes longer than all the rest."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def asked(row):
    names = ("text", "text_b", "question", "context", "choices")
    return {name: row[name] for name in names if name in row}


def near(value):
    return pytest.approx(value, abs=2e-5)


def assert_answers(answer, row, model):
    """That an answer of ours is what transformers recorded."""
    if "entities" in row:
        found = answer["entities"]
        assert [
            e | {"score": near(e["score"])} for e in row["entities"]
        ] == found
    elif "masks" in row:
        found = [[list(each.values()) for each in m] for m in answer["masks"]]
        assert found == [
            [[token, near(score)] for token, score in mask]
            for mask in row["masks"]
        ]
    elif "choices" in row:
        assert answer["probabilities"] == near(row["probabilities"])
    elif "question" in row:
        names = ("answer", "start", "end")
        assert [answer[n] for n in names] == [row[n] for n in names]
    elif not model.labels:
        assert answer == {"score": near(row["scores"]["LABEL_0"])}
    else:
        assert answer["probabilities"] == near(row["scores"])
        holds = [n for n in model.labels if row["scores"][n] > 0.5]
        best = max(row["scores"], key=row["scores"].get)
        if model.facts.get("threshold"):
            assert answer["labels"] == holds
        else:
            assert answer["label"] == best


@pytest.mark.parametrize("name", recorded())
def test_every_class_answers_as_in_transformers(name, folders, eager):
    rows = ANSWERS[name]
    alone = [row for row in rows if "text_b" not in row]
    model = load(folders(name))
    assert model.served.max_seq_length == 50
    for row in alone:
        assert_answers(model(**asked(row)), row, model)
