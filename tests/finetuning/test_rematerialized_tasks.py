"""rematerialize=true reaches the training of every kind of task."""

import dataclasses
import json

import numpy as np
import pytest

import bert_tf.encoder
from bert_tf.errors import UserError
from bert_tf.finetuning.multiple_choice.task import UserChoiceTask
from bert_tf.finetuning.question_answering.task import QuestionAnsweringTask
from bert_tf.finetuning.recipe import FeatureRecipe, SpanRecipe
from bert_tf.finetuning.run import run_finetuning
from bert_tf.finetuning.text_classification.kinds import SentenceTask
from tests.finetuning.multiple_choice import choice_runs
from tests.finetuning.sentence_runs import data, model_folder, small_recipe
from tests.finetuning.token_classification import tag_runs
from tests.run_folders import history, weights


class ReachedError(Exception):
    """A block would have been computed anew."""


def sentences(start, folder):
    return SentenceTask(name="mood", data=data()), small_recipe(start)


def choices(start, folder):
    recipe = choice_runs.small_recipe(folder, init_from=str(start))
    return UserChoiceTask(name="choice"), recipe


def tags(start, folder):
    files = tag_runs.write_files(folder / "names")
    return tag_runs.TASK, tag_runs.tag_recipe(start, files)


def spans(start, folder):
    context = "the plot was good and the film was very dull"
    asked = {"question": "the good", "is_impossible": False}
    asked["answers"] = [{"text": "good", "answer_start": 13}]
    for name, count in (("train", 16), ("dev", 2)):
        rows = [{**asked, "id": f"{name}{i}"} for i in range(count)]
        paragraph = {"context": context, "qas": rows}
        text = json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]})
        (folder / f"{name}-v1.1.json").write_text(text)
    task = QuestionAnsweringTask(
        name="squad_v1",
        train_name="train-v1.1.json",
        dev_name="dev-v1.1.json",
        with_null=False,
        main_metric="f1",
    )
    recipe = SpanRecipe(
        task="squad_v1",
        data_dir=str(folder),
        init_from=str(start),
        max_seq_length=16,
        max_query_length=3,
        doc_stride=5,
        train_batch_size=8,
    )
    return task, recipe


@pytest.mark.parametrize("kind", [sentences, choices, tags, spans])
def test_every_kind_is_reached(kind, tmp_path, monkeypatch) -> None:
    def stand_in(*_: object) -> None:
        raise ReachedError

    task, recipe = kind(model_folder(tmp_path / "start"), tmp_path)
    recipe = dataclasses.replace(recipe, rematerialize=True)
    monkeypatch.setattr(bert_tf.encoder, "rematerialized", stand_in)
    with pytest.raises(ReachedError):
        run_finetuning(task, recipe, tmp_path / "run", ["train"])


@pytest.mark.slow
def test_a_run_is_the_same(tmp_path) -> None:
    task, recipe = sentences(model_folder(tmp_path / "start"), tmp_path)
    for again in (False, True):
        changed = dataclasses.replace(
            recipe, rematerialize=again, gradient_accumulation_steps=2
        )
        run_finetuning(task, changed, tmp_path / str(again), ["train"])
    losses = [
        [row["loss"] for row in history(tmp_path / str(again)) if "loss" in row]
        for again in (False, True)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    plain, again = (weights(tmp_path / str(x)) for x in (False, True))
    for name, value in plain.items():
        np.testing.assert_allclose(again[name], value, atol=1e-3)


def test_features_of_a_frozen_encoder_have_no_use_for_it() -> None:
    with pytest.raises(UserError, match="rematerialize=True: is of no use"):
        FeatureRecipe(rematerialize=True)
