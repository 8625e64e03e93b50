"""Zero-shot classification by a model of natural language inference."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.families.text_classification import zero_shot as module
from bert_tf.families.text_classification.config import entailment_of
from tests import commands, fine_tuned_models
from tests.fine_tuned_models import NLI_LABELS, NLI_MODEL, TEXTS, write_folder
from tests.inference import serving_models
from tests.server.served_models import fetch, served
from tests.user_errors import error_of

PAIRS = "text_pair_classification"
FIRST, *_ = NLI_LABELS
LABELS = ["film", "bad", "the city of paris"]


@functools.cache
def folder_of(order):
    """The folder that the fixture `folders` writes."""
    return folder_of.root / order.replace(" ", "_")


@pytest.fixture(scope="module", autouse=True)
def folders(tmp_path_factory):
    folder_of.root = tmp_path_factory.mktemp("nli")
    for order, labels in NLI_LABELS.items():
        write_folder(folder_of(order), NLI_MODEL, labels)


@functools.cache
def loaded(order=FIRST):
    """A model whose answers are computed without a graph."""
    model = bert_tf.load(folder_of(order), task=PAIRS)
    served = model.served
    served.label_shares = served.label_shares.python_function
    return model


@pytest.mark.parametrize("order", NLI_LABELS)
def test_answers_are_those_of_the_pipeline(order):
    asked = [x for x in fine_tuned_models.zero_shot() if x["order"] == order]
    assert len(asked) == 6
    for row in asked:
        answers = loaded(order).classify(
            row["texts"], row["labels"], row["template"], row["multi_label"]
        )
        for answer, scores in zip(answers, row["scores"], strict=True):
            found = answer["probabilities"]
            assert list(found) == row["labels"]
            assert found == pytest.approx(scores, abs=1e-5)
            if row["multi_label"]:
                holds = [x for x in row["labels"] if scores[x] > 0.5]
                assert answer["labels"] == holds
            else:
                best = max(found, key=found.get)
                assert answer["label"] == best
                assert answer["probability"] == found[best]


def test_one_text_is_one_answer_and_the_template_has_a_default():
    model = loaded()
    one = model.classify(TEXTS[0], iter(LABELS))
    assert (
        one
        == model.classify(
            [TEXTS[0]], LABELS, template="This text is about {}."
        )[0]
    )
    assert one != model.classify(TEXTS[0], LABELS, template="It is {}.")


def test_many_labels_are_not_as_many_calls(monkeypatch):
    """Each text and label is tokenized once, and rows are batches."""
    model, tokenized, batches = loaded(), [], []
    tokenize, forward = module.tokenize, model.served.forward

    def counted(tokenizer, texts):
        tokenized.extend(np.asarray(texts, object).tolist())
        return tokenize(tokenizer, texts)

    def counted_forward(inputs):
        batches.append(len(inputs["input_ids"]))
        return forward(inputs)

    monkeypatch.setattr(module, "tokenize", counted)
    monkeypatch.setattr(model.served, "forward", counted_forward)
    labels = [f"a{n}" for n in range(200)]
    answers = model.classify(TEXTS[:2], labels, "{}")
    assert tokenized == [*labels, *(text.encode() for text in TEXTS[:2])]
    assert sum(batches) == 400
    assert len(batches) < 12
    alone = model.classify(TEXTS[0], labels[:5], "{}", True)["probabilities"]
    both = model.classify(TEXTS[:2], labels, "{}", True)[0]["probabilities"]
    for label, probability in alone.items():
        assert both[label] == pytest.approx(probability, abs=1e-6)
    assert answers[0]["probabilities"].keys() == {*labels}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("contradiction", "neutral", "Entailment"), (2, 0)),
        (("entailment", "neutral", "contradiction"), (0, 2)),
        # transformers takes neutral, the first, for the opposite.
        (("neutral", "entailment", "contradiction"), (1, 2)),
        (("entailment", "not_entailment"), (0, 1)),
        (("no", "entails"), (1, 0)),
    ],
)
def test_entailment_and_its_opposite(labels, expected):
    assert entailment_of(labels) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": []}, "`labels`: is empty; give at least one label."),
        ({"labels": ["a", " "]}, "`labels`: label 1 is ' '; give a text."),
        ({"labels": ["a", 3]}, "`labels`: label 1 is 3; give a text."),
        ({"labels": ["a", "b", "a"]}, "`labels`: the label 'a' occurs twice."),
        ({"labels": "a,b"}, "`labels` is one string, 'a,b'; give a list of t"),
        ({"template": "It is good."}, "`template`='It is good.': has {} where"),
        ({"template": "{} is {}"}, "`template`='{} is {}': has {} where the l"),
        ({"template": None}, "`template`=None: has {} where the label goes, o"),
        ({"texts": 3}, "`text` is 3; give a list of strings."),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments, message):
    given = {"texts": TEXTS[0], "labels": LABELS, **arguments}
    assert error_of(loaded().classify, **given).startswith(message)


def test_other_models_are_refused():
    line = error_of(serving_models.loaded("classes").classify, "a", LABELS)
    assert line.startswith("`model`=")
    assert (
        ": is a model of text pair classification with the labels bad, fair, "
        "gut ü; labels that it was not trained on take a model of natural lan"
    ) in line
    assert line.endswith("choose one that was trained on MNLI or the like.")
    line = error_of(serving_models.loaded("span").classify, "a", LABELS)
    assert ": is a model of question answering; labels that" in line
    line = error_of(bert_tf.load(folder_of(FIRST)).classify, "a", LABELS)
    assert line.endswith(f"load it with `task`={PAIRS} if it has such labels.")


def test_served_labels_are_an_input(tmp_path):
    """Rows may have several numbers of labels, and templates of their own."""
    model = bert_tf.load(folder_of(FIRST), task=PAIRS)
    signature = model.served.signatures()["zero_shot"]
    module_ = tf.Module()
    module_.weights = model.served.weights
    version = tmp_path / "1"
    tf.saved_model.save(module_, version, {"zero_shot": signature})
    again = tf.saved_model.load(version).signatures["zero_shot"]
    labels = [[*LABELS], [LABELS[1], "", ""], ["", "bad", "film"]]
    templates = ["", "It is {}.", "{}"]
    found = again(
        text=tf.constant(TEXTS[:3]),
        labels=tf.constant(labels),
        template=tf.constant(templates),
    )
    found = {name: value.numpy() for name, value in found.items()}
    for row, (names, template) in enumerate(
        zip(labels, templates, strict=True)
    ):
        filled = [name for name in names if name]
        arguments = [TEXTS[row], filled, *([template] if template else [])]
        one = loaded().classify(*arguments)
        assert found["label"][row].decode() == one["label"]
        several = loaded().classify(*arguments, multi_label=True)
        for key, answer in (("probabilities", one), ("scores", several)):
            expected = [answer["probabilities"].get(x, 0) for x in names]
            np.testing.assert_allclose(found[key][row], expected, atol=1e-6)
    inputs = {"text": TEXTS[0], "labels": labels[0], "template": ""}
    with served(tmp_path) as server:
        status, answer = fetch(
            f"{server.rest}/v1/models/m:predict",
            {"signature_name": "zero_shot", "instances": [inputs]},
        )
    assert status == 200
    (row,) = answer["predictions"]
    assert row["label"] == found["label"][0].decode()
    assert row["scores"] == pytest.approx(found["scores"][0].tolist())
    for changes, message in (
        ({"labels": tf.constant([["a"], [""]])}, "labels: row 1 has none"),
        ({"template": tf.constant(["", "a"])}, "template: row 1 must have one"),
        ({"template": tf.constant(["{}{}", ""])}, "template: row 0 must hav"),
        ({"labels": tf.constant([["a"]])}, "text has 2 rows and labels 1"),
    ):
        inputs = {
            "text": tf.constant(TEXTS[:2]),
            "labels": tf.constant([["a"], ["b"]]),
            "template": tf.constant(["", ""]),
            **changes,
        }
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            again(**inputs)


def test_files_and_the_command(tmp_path, eagerly):
    source, output = tmp_path / "in.csv", tmp_path / "out.jsonl"
    source.write_text("id,text\n" + f"7,{TEXTS[0]}\n8,{TEXTS[2]}\n")
    arguments = (
        f"--model={folder_of(FIRST)}",
        f"--task={PAIRS}",
        "--candidate_labels=film, bad",
        "--precision=float32",
        "--runtime=keras",
    )
    done = commands.run(
        "tools.predict",
        *arguments,
        f"--input={source}",
        f"--output={output}",
        "--template=It is {}.",
        "--multi_label",
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    model = loaded().with_labels(["film", "bad"], "It is {}.", True)
    rows = model.predict({"id": [7, 8], "text": [TEXTS[0], TEXTS[2]]})
    for line, row in zip(lines, rows, strict=True):
        assert line["id"] == str(row["id"])
        assert line["labels"] == row["labels"]
        assert line["probabilities"] == pytest.approx(row["probabilities"])
    done = commands.run(
        *("tools.predict", *arguments, "--input=-", "--output=-"),
        standard_input=TEXTS[0],
    )
    assert json.loads(done.stdout)["label"] in ("film", "bad"), done.stderr
    for flags, message in (
        (["--candidate_labels=a,,b"], "--candidate_labels: label 1 is ''; giv"),
        (["--candidate_labels=a,a"], "--candidate_labels: the label 'a' occu"),
        (["--template=about"], "--template='about': has {} where the label "),
        (["--candidate_labels=", "--multi_label"], "multi_label=True: requir"),
    ):
        done = commands.run(
            *("tools.predict", *arguments, f"--input={source}"),
            *(f"--output={tmp_path / 'new.csv'}", *flags),
        )
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: {message}")
