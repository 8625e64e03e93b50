"""A trained folder answers in Python and for files as its run scored it."""

import json

import pytest

from bert_tf.inference.load import load
from bert_tf.inference.predict import predict_file
from bert_tf.inference.rows import PredictSettings
from tests.finished_runs import finished_run
from tests.run_folders import answer_lines


def near(value):
    return pytest.approx(value, abs=1e-5)


def assert_same_answer(answer, line):
    """That an answer in Python is the line of a run's prediction."""
    predicted = line["prediction"]
    if "exact" in line:
        names = ("answer", "start", "end")
        expected = [predicted, line["start"], line["end"]]
        assert [answer[name] for name in names] == expected
    elif "probabilities" not in line:
        assert answer["score"] == near(predicted)
    else:
        (name,) = {"label", "labels", "choice"} & answer.keys()
        assert answer[name] == predicted
        shares = answer["probabilities"]
        shares = [*shares.values()] if isinstance(shares, dict) else shares
        assert shares == near(line["probabilities"])


@pytest.mark.parametrize(
    "name", ["classes", "numbers", "several_labels", "choices"]
)
def test_a_dev_file_is_answered_as_by_the_run(name, tmp_path, eagerly):
    run = finished_run(name, tmp_path)
    dev = run.case.train_path(run.files).with_name(run.case.files[1])
    predict_file(run.folder, dev, tmp_path / "out.jsonl", PredictSettings())
    text = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    answers = [json.loads(line) for line in text.splitlines()]
    lines = answer_lines(run.folder)
    for answer, line in zip(answers, lines, strict=True):
        assert_same_answer(answer, line)
    assert len({json.dumps(line["prediction"]) for line in lines}) > 1


def test_questions_are_answered_as_by_the_run(tmp_path, eagerly):
    finished = finished_run("questions", tmp_path)
    lines = answer_lines(finished.folder)
    asked = {n: [line[n] for line in lines] for n in ("question", "context")}
    answers = load(finished.folder)(**asked)
    for answer, line in zip(answers, lines, strict=True):
        assert_same_answer(answer, line)


def test_words_are_tagged_as_by_the_run(tmp_path, eagerly):
    finished = finished_run("tags", tmp_path)
    lines = answer_lines(finished.folder)
    # A word with a hyphen is several words of a raw text.
    lines = [line for line in lines if "-" not in "".join(line["words"])]
    texts = [" ".join(line["words"]) for line in lines]
    found = 0
    for answer, line in zip(load(finished.folder)(texts), lines, strict=True):
        tagged = zip(line["words"], line["predictions"], strict=True)
        expected = [(w, tag[2:]) for w, tag in tagged if tag != "O"]
        assert expected == [
            (word, entity["label"])
            for entity in answer["entities"]
            for word in entity["text"].split()
        ]
        found += len(expected)
    assert found > 3
