"""Estimated sizes of splits, beside ones computed by hand."""

import dataclasses

import pytest

from bert_tf.experiments import estimates
from bert_tf.experiments.estimates import (
    finetuning_work,
    measured_rates,
    num_parameters,
    pretraining_work,
)
from bert_tf.families.data.examples import Example
from bert_tf.families.multiple_choice.files import ChoiceExample
from bert_tf.families.multiple_choice.recipe import ChoiceRecipe
from bert_tf.families.question_answering.recipe import SpanRecipe
from bert_tf.families.question_answering.squad_files import Question
from bert_tf.families.text_classification.recipe import (
    SentenceRecipe,
    UserTableRecipe,
)
from bert_tf.families.token_classification.conll_files import read_conll
from bert_tf.families.token_classification.recipe import TagRecipe
from bert_tf.finetuning import (
    MultipleChoiceTask,
    SwagFiles,
    UserFileTask,
    UserQuestionAnsweringTask,
    UserTokenClassificationTask,
)
from bert_tf.memory.measurement import Measured
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.recipe import PretrainingRecipe
from tests.model_helpers import small_config

TEXTS = UserFileTask(name="a").resolve(UserTableRecipe(text_columns="text"))
WORDS = UserTokenClassificationTask(name="b")
CHOICES = MultipleChoiceTask(name="c", data=SwagFiles())
QUESTIONS = UserQuestionAnsweringTask(name="d")


def test_a_token_is_four_characters():
    rows = [
        Example("a" * 40, None, "x", "0", 1),
        Example("a" * 30, "b" * 30, "x", "1", 2),
        Example("a" * 4000, None, "x", "2", 3),
    ]
    size = TEXTS.estimated_tokens(rows, SentenceRecipe(max_seq_length=64))
    assert size == 13 + 18 + 64
    choice = ChoiceExample("a" * 40, "b" * 8, ("c" * 4, "d" * 12), 0, "", 1)
    assert CHOICES.estimated_tokens([choice], ChoiceRecipe()) == 16 + 18


def test_a_question_is_read_in_windows():
    question = Question("1", "", "q" * 40, "c" * 1200, (), False)
    recipe = SpanRecipe(max_seq_length=113, doc_stride=50, max_query_length=64)
    # 300 tokens through windows of 100, at 0, 50, 100, 150 and 200.
    assert QUESTIONS.estimated_tokens([question], recipe) == 5 * 113
    short = dataclasses.replace(recipe, max_seq_length=384)
    assert QUESTIONS.estimated_tokens([question], short) == 313


def test_words_are_read_alone_or_amid_their_document(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Anna B-PER\nsings O\n\nYes O\n")
    recipe = TagRecipe(max_seq_length=32, context="sentence")
    words = read_conll(str(path), recipe, True)
    assert WORDS.estimated_tokens(words, recipe) == 1 + 2 + 1 + 4
    amid = dataclasses.replace(recipe, context="document")
    assert WORDS.estimated_tokens(words, amid) == 64


def test_work_is_weights_times_tokens():
    config = small_config()
    weights = num_parameters(config)
    recipe = SentenceRecipe(num_train_epochs=2.5, seeds=3)
    # An evaluation each epoch and one of the best model, a third of a step.
    work = finetuning_work(recipe, config, 100.0, 30.0, 6.0)
    assert work == pytest.approx(3 * weights * (2.5 * 100 + 4 / 3 * 36))
    recipe = PretrainingRecipe(
        data_dir="a,b",
        train_batch_size=4,
        num_train_steps=10,
        final_phase_proportion=0.2,
        final_phase_batch_size=3,
    )
    work = pretraining_work(recipe, config, [128, 512])
    assert work == weights * (8 * 4 * 128 + 2 * 3 * 512)


def test_a_trial_gives_seconds_for_a_unit_of_work(monkeypatch):
    tried = []

    def stand_in(work, limit):
        tried.append((work.batch_size, limit))
        fits = work.config.hidden_size == 24
        return Measured(1, 2.0) if fits else None

    monkeypatch.setattr(estimates, "measure", stand_in)
    config, large = small_config(), small_config(hidden_size=48)
    trials = [Workload(config, 512, 32, 20), Workload(large, 128, 5)]
    rates = measured_rates(trials, 1e9)
    assert tried == [(8, 1e9), (5, 1e9)]
    assert rates == {config: 2.0 / (num_parameters(config) * 8 * 512)}
