"""One temperature of a model's probabilities, fitted to dev rows."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.families.calibration import fit_temperature, measure
from bert_tf.families.data.examples import Example
from bert_tf.families.model_folder import read_config_as
from bert_tf.families.multiple_choice.answers import choice_answers
from bert_tf.families.task import Answered, Split
from bert_tf.families.text_classification.answers import text_answers
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.families.text_classification.kinds import (
    MultiLabelTask,
    RegressionTask,
    SentenceTask,
)
from bert_tf.families.text_classification.recipe import SentenceRecipe
from bert_tf.families.token_classification import report as tag_report
from bert_tf.families.token_classification.answers import tagged_entities
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.conll_files import TaggedWords
from bert_tf.families.token_classification.recipe import TagRecipe
from bert_tf.families.token_classification.task import (
    ConllFolder,
    TokenClassificationTask,
)
from bert_tf.report.sections import merged_numbers
from tests.inference import serving_models as models
from tests.user_errors import error_of

CALIBRATE = SentenceRecipe(calibrate=True)


def cases():
    """Logits with targets: classes, several labels, choices with padding."""
    random = np.random.default_rng(7)
    logits = random.normal(0, 4, [300, 3])
    classes = np.where(
        random.random(300) < 0.6, logits.argmax(1), random.integers(0, 3, 300)
    )
    labels = random.random([300, 3]) < 1 / (1 + np.exp(-0.3 * logits))
    is_choice = np.arange(3) < random.integers(1, 4, [300, 1])
    choices = np.where(is_choice, logits, -np.inf)
    best = choices.argmax(1)
    right = np.where(random.random(300) < 0.7, best, 0)
    return {
        "classes": (logits, classes),
        "labels": (logits, labels),
        "choices": (choices, right),
        "small logits": (logits / 20, classes),
    }


def plain_error(logits, targets):
    """Equation 3 of Guo et al. 2017, bin by bin."""
    if targets.ndim == 1:
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        confidence = shares.max(axis=1)
        outcomes = shares.argmax(axis=1) == targets
    else:
        confidence = (1 / (1 + np.exp(-logits))).ravel()
        outcomes = targets.ravel()
    bins = np.ceil(confidence * 15)
    return sum(
        abs(outcomes[bins == m].mean() - confidence[bins == m].mean())
        * (bins == m).mean()
        for m in np.unique(bins)
    )


@pytest.mark.parametrize(
    ("case", "temperature", "loss"),
    # scipy 1.17.1, optimize.minimize_scalar(method="bounded", xatol 1e-10) of
    # the loss by special.log_softmax and special.expit.
    [
        ("classes", 3.34128521133751, 0.816325418749531),
        ("labels", 3.068440174852004, 0.5662005263566585),
        ("choices", 3.397170872396769, 0.4747800034564861),
        ("small logits", 0.1670642603821694, 0.816325418749531),
    ],
)
def test_the_temperature_is_that_of_another_minimisation(
    case, temperature, loss
):
    logits, targets = cases()[case]
    found = fit_temperature(logits, targets)
    assert found == pytest.approx(temperature, rel=1e-5)
    measured = measure(logits, targets, found)
    assert measured["negative_log_likelihood"] == pytest.approx(loss, rel=1e-9)
    for other in (0.99 * found, 1.01 * found, 1.0):
        worse = measure(logits, targets, other)["negative_log_likelihood"]
        assert worse > measured["negative_log_likelihood"]
    assert measured["expected_calibration_error"] == pytest.approx(
        plain_error(logits / found, targets), rel=1e-9
    )


def test_nothing_is_fitted_to_rows_without_an_error():
    logits = np.array([[3.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    assert fit_temperature(logits, np.array([0, 1, 0])) == 1
    holds = np.array([[True, False], [False, True], [True, True]])
    assert fit_temperature(logits - 0.5, holds) == 1
    # Worse than chance: probabilities become equal, and stay finite.
    assert fit_temperature(logits, np.array([1, 0, 1])) == pytest.approx(1000)


@pytest.mark.parametrize("kind", ["classes", "multi_label"])
def test_answers_of_text_classifiers(kind):
    logits = np.random.default_rng(1).normal(0, 3, [9, 3]).astype(np.float32)
    config = models.text_config(label_kind=kind, calibration_temperature=2.5)
    plain = dataclasses.replace(config, calibration_temperature=1.0)
    found = text_answers(tf.constant(logits), config)
    np.testing.assert_array_equal(found["logits"], logits)
    divided = text_answers(tf.constant(logits / np.float32(2.5)), plain)
    for name in {"probabilities", "scores"} & found.keys():
        np.testing.assert_allclose(found[name], divided[name], rtol=1e-6)
    before = text_answers(tf.constant(logits), plain)
    np.testing.assert_array_equal(found["label"], before["label"])


def test_answers_of_taggers_and_choices():
    random = np.random.default_rng(2)
    logits = tf.constant(random.normal(0, 3, [12, 5]), tf.float32)
    sentence = np.repeat(np.arange(3), 4)
    one = tagged_entities(logits, sentence, models.TAGS, 2.5)
    other = tagged_entities(logits / 2.5, sentence, models.TAGS)
    assert len(one[0])
    for found, expected in zip(one, other, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    one, other = choice_answers(logits, 2.5), choice_answers(logits / 2.5)
    np.testing.assert_array_equal(one["best"], other["best"])
    np.testing.assert_allclose(
        one["probabilities"], other["probabilities"], rtol=1e-6
    )


@pytest.mark.parametrize(
    "kind", ["classes", "several_labels", "tags", "choice"]
)
def test_served_models_divide_by_it(kind):
    served = models.KINDS[kind]()
    assert served.calibration_temperature == 1
    inputs = served.requests()[0].inputs
    columns = [tf.constant(inputs[name]) for name in served.columns]
    name = "scores" if kind in ("several_labels", "tags") else "probabilities"
    before = served.answers(*columns)[name].numpy()
    if hasattr(served, "usage"):
        served.usage = dataclasses.replace(
            served.usage, calibration_temperature=3.0
        )
    served.calibration_temperature = 3.0
    after = served.answers(*columns)[name].numpy()
    assert before.shape == after.shape
    if kind == "several_labels":
        odds = np.log(before / (1 - before)) / 3
        np.testing.assert_allclose(after, 1 / (1 + np.exp(-odds)), rtol=1e-4)
    elif kind == "tags":
        assert (after < before)[before > 0].all()
    else:
        shares = before ** (1 / 3)
        shares /= shares.sum(-1, keepdims=True)
        np.testing.assert_allclose(after, shares, rtol=1e-4, atol=1e-6)


def answered(task, logits, config, labels):
    """Predictions for rows with these labels."""
    rows = [Example("a", None, x, str(n), n + 2) for n, x in enumerate(labels)]
    split = Split(rows, None)
    found = task.decode({"logits": logits}, split, config)
    return Answered(rows, found, config)


def test_a_task_tunes_it_and_decodes_again():
    logits, classes = cases()["classes"]
    logits = logits.astype(np.float32)
    config = models.text_config()
    task = SentenceTask(name="x", data=None)
    rows = answered(task, logits, config, [config.labels[n] for n in classes])
    tune = task.tuner(CALIBRATE, rows.examples)
    tuned = tune(rows)
    assert tuned.calibration_temperature == fit_temperature(logits, classes)
    again = task.with_config(rows, tuned)
    assert again.predictions["prediction"] == rows.predictions["prediction"]
    assert task.score(again) == task.score(rows)
    line = next(iter(task.prediction_lines(again)))
    assert line["logits"] == logits[0].tolist()
    scaled = np.exp(logits[0] / tuned.calibration_temperature)
    assert line["probabilities"] == pytest.approx(scaled / scaled.sum())
    assert "logits" not in next(iter(task.prediction_lines(rows)))
    assert tuned.summary() == {
        "calibration_temperature": tuned.calibration_temperature
    }
    assert config.summary() == {}


def test_several_labels_are_calibrated_before_the_threshold():
    logits, labels = cases()["labels"]
    config = models.text_config(
        label_kind="multi_label", threshold=0.8, labels=("a", "b", "c")
    )
    task = MultiLabelTask(name="x", data=None)
    names = [
        tuple(x for x, y in zip("abc", row, strict=True) if y) for row in labels
    ]
    rows = answered(task, logits.astype(np.float32), config, names)
    tuned = task.tuner(CALIBRATE, rows.examples)(rows)
    again = task.with_config(rows, tuned).predictions
    limit = tuned.calibration_temperature * np.log(0.8 / 0.2)
    np.testing.assert_array_equal(again["holds"], logits > limit)


def test_the_words_of_a_tagger():
    """Also those of another scheme than the model's; unknown tags are none."""
    random = np.random.default_rng(4)
    labels = ("O", "B-PER", "I-PER")
    tags = ["O", "I-PER", "I-PER", "O", "I-LOC"] * 60
    words = TaggedWords(
        path="words.txt",
        words=["a"] * 300,
        tags=tags,
        rows=np.arange(300),
        sentence_starts=np.arange(0, 301, 5),
        document_starts=np.array([0, 60]),
    )
    # The first word of an entity begins it, in the model's scheme.
    targets = np.array([0, 1, 2, 0, -1] * 60)
    logits = 6 * np.eye(3)[np.maximum(targets, 0)]
    logits = (logits + random.normal(0, 4, [300, 3])).astype(np.float32)
    config = TokenClassificationConfig("tags", labels, 16, "sentence", 0)
    task = TokenClassificationTask(name="tags", data=ConllFolder("", {}))
    rows = Answered(
        words,
        task.decode({"logits": logits}, Split(words, None), config),
        config,
    )
    tuned = task.tuner(TagRecipe(calibrate=True), words)(rows)
    is_known = targets >= 0
    expected = logits[is_known], targets[is_known]
    assert tuned.calibration_temperature == fit_temperature(*expected) != 1
    again = task.with_config(rows, tuned)
    assert again.predictions["prediction"] == rows.predictions["prediction"]
    lines = list(task.prediction_lines(again))
    assert "logits" not in next(iter(task.prediction_lines(rows)))
    results = {"labels": labels, **tuned.summary()}
    numbers = merged_numbers(tag_report.sections(lines, results))
    assert numbers["calibration_before"] == measure(*expected)
    after = measure(*expected, tuned.calibration_temperature)
    assert numbers["calibration"] == after
    # Of a run without it there is no number, but the offer.
    plain = list(task.prediction_lines(rows))
    for recipe, offered in (({}, False), ({"calibrate": False}, True)):
        results = {"labels": labels, "recipe": recipe}
        shown = tag_report.sections(plain, results)
        (section,) = [x for x in shown if x.name == "calibration"]
        assert bool(section.shown) is offered
        assert section.numbers == {}


def test_what_is_not_calibrated():
    task = SentenceTask(name="x", data=None)
    assert task.tuner(SentenceRecipe(), [1] * 50) is None
    assert task.tuner(CALIBRATE, [1] * 50)
    assert error_of(task.tuner, CALIBRATE, [1] * 49).startswith(
        "`calibrate`=true: the dev split has 49 examples, and a temperature is "
        "fitted to 50 or more; "
    )
    task = RegressionTask(name="stars", data=None)
    assert error_of(task.tuner, CALIBRATE, [1] * 50).startswith(
        "`calibrate`=true: stars predicts numbers, which have no probabilities"
    )


def test_a_folder_of_an_earlier_version_has_none(tmp_path):
    for temperature in (1.0, 2.5):
        config = models.text_config(calibration_temperature=temperature)
        values = config.to_dict()
        assert values.get("calibration_temperature", 1.0) == temperature
        assert ("calibration_temperature" in values) is (temperature != 1)
        (tmp_path / "task.json").write_text(json.dumps(values))
        assert read_config_as(tmp_path, TextClassificationConfig) == config
