"""A fine-tuned folder, opened and served, answers as its task does."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.model_folder import save_model
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.question_answering.squad_files import Question
from bert_tf.families.question_answering.task import (
    QuestionAnsweringTask,
)
from bert_tf.families.task import Split
from bert_tf.families.task_model import TaskModel
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.finetuning import MultiLabelTask, RegressionTask, SentenceTask
from bert_tf.inference.saving import save
from bert_tf.inference.served_folder import (
    describe_training,
    served_model,
)
from bert_tf.models import (
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
)
from tests.finetuning.sentence_runs import model_folder, texts, tokenizer
from tests.model_helpers import fill

LENGTH = 16


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("start") / "model")


def answers(folder, **inputs):
    """What a served folder answers, computed eagerly, which needs no graph."""
    function = served_model(folder).signatures()["serving_default"]
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    return {
        n: v.numpy() for n, v in function.python_function(**tensors).items()
    }


def saved(folder, start, facts, build):
    model = build(BertEncoder.from_checkpoint(start))
    if not isinstance(model, TaskModel):
        model = TaskModel(model)
    fill(model, seed=5, scale=0.5)
    save_model(folder, model, tokenizer(), facts)
    return model


def sentence_facts(task, num_outputs, num_texts, **changes):
    values = {
        "task": task.name,
        "labels": task.labels,
        "max_seq_length": LENGTH,
        "label_kind": task.label_kind,
        "num_outputs": num_outputs,
        "num_texts": num_texts,
        "text_columns": "",
        "label_separator": "|",
        "long_inputs": "cut",
        "doc_stride": 5,
        "threshold": 0.5,
        **changes,
    }
    return TextClassificationConfig(**values)


@pytest.mark.parametrize(
    ("kind", "labels", "count", "pairs", "changes"),
    [
        (SentenceTask, ("bad", "good"), 2, True, {"long_inputs": "windows"}),
        (RegressionTask, (), 1, True, {}),
        (MultiLabelTask, ("a", "b", "c"), 3, False, {"threshold": 0.4}),
    ],
)
def test_sentences(kind, labels, count, pairs, changes, start, tmp_path):
    task = kind(name="mood", data=None, labels=labels)
    facts = sentence_facts(task, count, 1 + pairs, **changes)
    model = saved(tmp_path, start, facts, lambda e: task.build(e, facts))
    examples = texts(9, 3, pairs)
    rows = task.encode(examples, tokenizer(), facts)
    everything = np.arange(len(rows))
    outputs = {k: np.array(v) for k, v in model(rows.batch(everything)).items()}
    found = rows.gather([(everything, outputs)])
    wanted = task.decode(found, Split(examples, rows), tokenizer(), facts)
    inputs = {"text": [e.text_a for e in examples]}
    if pairs:
        inputs["text_b"] = [e.text_b for e in examples]
    served = answers(tmp_path, **inputs)
    if not labels:
        np.testing.assert_allclose(
            served["score"], wanted["prediction"], atol=1e-5
        )
        return
    np.testing.assert_allclose(served["logits"], wanted["logits"], atol=1e-5)
    names = [name.decode() for name in served["label"]]
    shown = [
        v if isinstance(v, str) else "|".join(v) for v in wanted["prediction"]
    ]
    assert names == shown
    assert len(set(names)) > 1


@pytest.mark.parametrize("with_null", [False, True])
def test_questions(with_null, start, tmp_path):
    task = QuestionAnsweringTask(
        name="squad",
        main_metric="f1",
        train_name="t",
        dev_name="d",
        with_null=with_null,
    )
    facts = QuestionAnsweringConfig(
        "squad", (), LENGTH, 4, 4, 5, 6, with_null, -0.3
    )
    model = saved(tmp_path, start, facts, bert_span_labeler)
    questions = [
        Question(str(n), "", "the film", e.text_a, (), False)
        for n, e in enumerate(texts(12, 6))
    ]
    rows = task.encode(questions, tokenizer(), facts)
    assert len(rows) > len(questions)
    everything = np.arange(len(rows))
    outputs = {k: np.array(v) for k, v in model(rows.batch(everything)).items()}
    found = rows.gather([(everything, outputs)])
    wanted = task.decode(found, Split(questions, rows), tokenizer(), facts)
    if with_null:
        # Half of the questions have an answer then.
        middle = float(np.median(wanted.null_odds))
        facts = dataclasses.replace(facts, null_threshold=middle)
        save_model(tmp_path, model, tokenizer(), facts)
    served = answers(
        tmp_path,
        question=[q.question for q in questions],
        context=[q.context for q in questions],
    )
    names = [name.decode() for name in served["answer"]]
    assert names == list(wanted.texts(facts.null_threshold))
    if with_null:
        assert "" in names
        assert set(names) != {""}


def test_tags_and_choices_open_too(start, tmp_path):
    tags = ("O", "B-X", "I-X")
    facts = TokenClassificationConfig("ner", tags, LENGTH, "sentence", 0)
    saved(tmp_path / "t", start, facts, lambda e: bert_token_classifier(e, 3))
    found = answers(tmp_path / "t", text=["a good film"])
    assert {"entities", "labels", "starts", "ends", "count"} <= set(found)
    facts = MultipleChoiceConfig("swag", (), LENGTH, True)
    saved(tmp_path / "c", start, facts, bert_multiple_choice)
    choices = [["good", "bad", ""]]
    found = answers(
        tmp_path / "c", text=["a film"], choices=choices, start=["the plot"]
    )
    shares = found["probabilities"][0]
    assert shares.sum() == pytest.approx(1, rel=1e-5)
    assert shares[2] == 0


def test_folders_that_cannot_be_served(start, tmp_path):
    assert set(served_model(start).signatures()) == {
        "embed",
        "serving_default",
        "tokens",
    }
    task = SentenceTask(name="mood", data=None, labels=("bad", "good"))
    facts = sentence_facts(task, 2, 1)
    saved(tmp_path, start, facts, lambda e: task.build(e, facts))
    values = json.loads((tmp_path / "task.json").read_text())
    (tmp_path / "task.json").write_text(json.dumps({**values, "more": 1}))
    with pytest.raises(UserError, match="the keys more are missing or too m"):
        served_model(tmp_path)
    (tmp_path / "task.json").unlink()
    (start / "task.json").write_text('{"task": "names"}')
    with pytest.raises(UserError, match="was fine-tuned for names, whose mod"):
        served_model(start)
    (start / "task.json").unlink()
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(UserError, match="holds no vocabulary"):
        served_model(tmp_path)
    with pytest.raises(UserError, match="nowhere"):
        served_model(tmp_path / "nowhere")


def test_what_is_said_of_a_training(tmp_path):
    assert describe_training(tmp_path) == {}
    (tmp_path / "task.json").write_text('{"task": "squad_v2"}')
    assert describe_training(tmp_path) == {"fine_tuned_for": "squad_v2"}
    results = {
        "model": "/home/someone/uncased_L-4",
        "main_metric": "f1",
        "dev": {"dev": {"f1": 0.75, "exact": None}},
        "examples": {"train": 9, "dev": 3},
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert describe_training(tmp_path) == {
        "fine_tuned_for": "squad_v2",
        "init_from": "uncased_L-4",
        "main_metric": "f1",
        "scores": {"dev": {"f1": 0.75, "exact": None}},
        "num_examples": {"train": 9, "dev": 3},
    }
    (tmp_path / "results.json").write_text("[")
    with pytest.raises(UserError, match="results.json: not valid JSON"):
        describe_training(tmp_path)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_it_holds_weights_in_the_dtype_that_it_computes_in(
    precision, start, tmp_path
):
    task = SentenceTask(name="mood", data=None, labels=("bad", "good"))
    facts = sentence_facts(task, 2, 1)
    saved(tmp_path, start, facts, lambda e: task.build(e, facts))
    whole, half = (
        served_model(tmp_path, name) for name in ("float32", precision)
    )
    dtype = precision.removeprefix("mixed_")
    for variable in half.model.weights:
        # The classifier computes in float32.
        single = "bert/" not in variable.path
        assert variable.dtype == ("float32" if single else dtype), variable.path
    for served in (whole, half):
        save(served, tmp_path / served.compute_dtype)
    sizes = [
        sum(f.stat().st_size for f in (tmp_path / name).glob("variables/*"))
        for name in ("float32", dtype)
    ]
    # Of a model so small a part is names.
    assert sizes[1] < 0.65 * sizes[0]
    text = tf.constant([e.text_a for e in texts(9, 3, pairs=False)])
    exact, near = (
        served.all_signatures()["serving_default"](text=text)["logits"]
        for served in (whole, half)
    )
    spread = np.ptp(exact)
    assert spread > 0.1
    assert 0 < np.abs(near - exact).max() < 0.05 * spread
