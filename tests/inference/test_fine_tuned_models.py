"""Fine-tuned models of transformers answer as its pipelines do."""

import functools
import json
import math

import keras
import numpy as np
import onnxruntime
import pytest

from bert_tf.families.usage_options import UsageOptions
from bert_tf.inference.export_file import export_file
from bert_tf.inference.load import load
from bert_tf.inference.predict import predict_file
from bert_tf.inference.text_classifier import TextClassifier
from bert_tf.text.tokenizer import BertTokenizer
from tests.fine_tuned_models import (
    TEXTS,
    TOKENS,
    answers,
    recorded,
    write_folder,
)
from tests.user_errors import error_of

ANSWERS = answers()
CLASSIFIERS = {
    "BertForSequenceClassification": "text_pair_classification",
    "DistilBertForSequenceClassification": (
        "text_pair_multi_label_classification"
    ),
    "ElectraForSequenceClassification": "text-pair regression",
}
NAMES = ("text", "text_b", "question", "context", "choices")
INPUTS = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture(scope="module")
def tokenizers():
    @functools.cache
    def tokenizer(split_special_tokens):
        return BertTokenizer(TOKENS, split_special_tokens=split_special_tokens)

    return tokenizer


@pytest.fixture(autouse=True)
def one_tokenizer(tokenizers, monkeypatch):
    """The folders' tokenizers are the same; each is traced once."""

    def from_checkpoint(folder, split_special_tokens=True):
        return tokenizers(split_special_tokens)

    stand_in = staticmethod(from_checkpoint)
    monkeypatch.setattr(BertTokenizer, "from_checkpoint", stand_in)


def loaded(folder, **options):
    """A model that computes without a graph, which takes long to trace."""
    model = load(folder, **options)
    model._function = model._function.python_function
    return model


def columns(rows):
    return {n: [row[n] for row in rows] for n in NAMES if n in rows[0]}


def near(value):
    return pytest.approx(value, abs=2e-5)


def assert_answer(answer, row, model):
    """That an answer of ours is what transformers recorded."""
    if "entities" in row:
        expected = [e | {"score": near(e["score"])} for e in row["entities"]]
        assert answer["entities"] == expected
    elif "masks" in row:
        for found, mask in zip(answer["masks"], row["masks"], strict=True):
            expected = [[token, near(score)] for token, score in mask]
            assert [list(each.values()) for each in found] == expected
    elif "choices" in row:
        assert answer["probabilities"] == near(row["probabilities"])
    elif "question" in row:
        names = ("answer", "start", "end")
        assert [answer[n] for n in names] == [row[n] for n in names]
    elif not model.labels:
        assert answer["score"] == near(row["scores"]["LABEL_0"])
    else:
        assert answer["probabilities"] == near(row["scores"])
        holds = [n for n in model.labels if row["scores"][n] > 0.5]
        best = max(row["scores"], key=row["scores"].get)
        one = {"label": best, "probability": near(row["scores"][best])}
        several = model.facts.get("threshold")
        assert one.items() <= answer.items() or several
        assert answer.get("labels", holds) == holds


RUNTIMES = [
    *((name, "keras") for name in recorded()),
    # One output is tested in tests/runtimes/test_runtime.py.
    ("BertForQuestionAnswering", "litert"),
]


@pytest.mark.parametrize(("name", "runtime"), RUNTIMES)
def test_every_class_answers_as_in_transformers(name, runtime, tmp_path):
    rows = [row for row in ANSWERS[name] if "text_b" not in row]
    model = loaded(write_folder(tmp_path, name), runtime=runtime)
    assert model.served.max_seq_length == 50
    for answer, row in zip(model(**columns(rows)), rows, strict=True):
        assert_answer(answer, row, model)


@pytest.mark.parametrize(("name", "task"), CLASSIFIERS.items())
def test_pairs_of_texts(name, task, tmp_path):
    rows = [row for row in ANSWERS[name] if "text_b" in row]
    folder = write_folder(tmp_path, name)
    model = loaded(folder, task=task)
    for answer, row in zip(model(**columns(rows)), rows, strict=True):
        assert_answer(answer, row, model)
    line = error_of(loaded(folder), TEXTS[0], TEXTS[1])
    task = task.replace("-", "_").replace(" ", "_")
    assert f" takes `text`. Load it with `task`={task} for pairs." in line


def test_labels_in_another_order(tmp_path, capfd):
    name, labels = "BertForSequenceClassification", ["good", "bad", "fair"]
    rows = [row for row in ANSWERS[name] if "text_b" not in row]
    folder = write_folder(tmp_path, name)
    model = TextClassifier.from_checkpoint(folder, labels, max_seq_length=50)
    logits = model([row["text"] for row in rows])
    found = np.asarray(keras.ops.softmax(logits))
    expected = [[row["scores"][label] for label in labels] for row in rows]
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert not capfd.readouterr().err


def test_a_file_of_pairs(tmp_path, eagerly):
    name, task = "BertForSequenceClassification", "text pair classification"
    folder = write_folder(tmp_path / "model", name)
    rows = [row for row in ANSWERS[name] if "text_b" in row]
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    pairs = [{n: row[n] for n in ("text", "text_b")} for row in rows]
    source.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    predict_file(folder, source, output, options=UsageOptions(task))
    for line, row in zip(output.read_text().splitlines(), rows, strict=True):
        answer = json.loads(line)
        assert answer["text_b"] == row["text_b"]
        assert answer["probabilities"] == near(row["scores"])


def test_the_score_of_a_cross_encoder_is_explained(tmp_path):
    name = "ElectraForSequenceClassification"
    row = ANSWERS[name][-1]
    folder = write_folder(tmp_path, name)
    path = folder / "config.json"
    activation = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    values = json.loads(path.read_text())
    values["sentence_transformers"] = activation
    path.write_text(json.dumps(values))
    model = loaded(folder)
    found = model.explain(row["text"], row["text_b"], method="occlusion")
    score = 1 / (1 + math.exp(-row["scores"]["LABEL_0"]))
    assert found.score == pytest.approx(score, abs=1e-5)
    assert model(row["text"], row["text_b"])["score"] == near(score)


def test_a_pooler_that_a_folder_lacks_is_not_missed(tmp_path, capfd):
    folder = write_folder(tmp_path, "BertForMaskedLM")
    served = loaded(folder).served
    assert "initialized" not in capfd.readouterr().err
    rows = {name: np.ones((1, 3), np.int32) for name in INPUTS}
    outputs = served.tokens_signature().python_function(**rows)
    assert list(outputs) == ["sequence_output"]


def test_what_a_mask_stands_for_is_explained(tmp_path):
    name = "ElectraForMaskedLM"
    row = ANSWERS[name][1]
    model = loaded(write_folder(tmp_path, name))
    found = model.explain(row["text"], method="occlusion")
    token, probability = row["masks"][0][0]
    assert found.target == token
    log_odds = math.log(probability / (1 - probability))
    assert found.score == pytest.approx(log_odds, abs=1e-4)
    words = [(word.text, word.start) for word in found.words]
    assert words == [("anna", 0), ("in", 12)]
    token, probability = row["masks"][0][3]
    found = model.explain(row["text"], target=token, steps=16)
    log_odds = math.log(probability / (1 - probability))
    assert found.score == pytest.approx(log_odds, abs=1e-4)
    total = sum(word.attribution for word in found.words)
    change = found.score - found.baseline_score
    assert total - change == pytest.approx(found.completeness_error * change)
    line = error_of(model.explain, row["text"], target="Paris")
    assert "`target`='Paris': is no token" in line
    assert "Did you mean 'paris'?" in line


def test_a_file_for_onnx(tmp_path):
    name = "DistilBertForSequenceClassification"
    folder = write_folder(tmp_path / "model", name)
    options = UsageOptions(threshold=0.3, max_seq_length=20)
    path = export_file(folder, tmp_path / "onnx", "onnx", options=options)
    session = onnxruntime.InferenceSession(path)
    assert [each.name for each in session.get_outputs()] == ["logits"]
    about = json.loads((path.parent / "model.json").read_text())
    assert about["task"] == "text multi-label classification"
    assert about["labels"] == ["toxic", "rude", "fine"]
    assert (about["threshold"], about["max_seq_length"]) == (0.3, 20)
