"""Fine-tuned models are saved and loaded unchanged."""

import dataclasses
import json

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.model_folder import (
    load_model,
    read_config,
    save_model,
    task_of,
)
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.families.text_classification.kinds import SentenceTask
from bert_tf.finetuning.setup import open_initial
from bert_tf.inference.embed import embed
from bert_tf.inference.served_folder import served_model
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import Vocabulary
from tests.finetuning.sentence_runs import model_folder
from tests.model_helpers import encoder_inputs, fill
from tests.user_errors import error_of

TASK = SentenceTask(name="mood", data=None)
FACTS = TextClassificationConfig(
    task="mood",
    label_kind="classes",
    labels=("négatif", "neutral", "positive"),
    num_outputs=3,
    num_texts=2,
    text_columns="a,b",
    label_separator=",",
    max_seq_length=24,
    long_inputs="windows",
    doc_stride=5,
    threshold=0.5,
)


@pytest.fixture
def saved(tmp_path):
    start = model_folder(tmp_path / "start")
    model = TASK.build(BertEncoder.from_checkpoint(start), FACTS)
    fill(model, seed=8)
    tokenizer = BertTokenizer.from_checkpoint(start)
    save_model(tmp_path / "model", model, tokenizer, FACTS)
    return model, tmp_path / "model"


def test_round_trip(saved):
    model, folder = saved
    again, tokenizer, facts = load_model(folder, TASK)
    assert facts == FACTS
    assert tokenizer.tokenize("good film").numpy().tolist() == [5, 14]
    inputs = encoder_inputs(model.encoder.config)
    logits = model(inputs)["logits"]
    np.testing.assert_array_equal(again(inputs)["logits"], logits)
    # A teacher or a member of an ensemble is reordered by the labels.
    labels = FACTS.labels[::-1]
    again, _, facts = load_model(folder, TASK, labels=labels)
    assert facts == dataclasses.replace(FACTS, labels=labels)
    np.testing.assert_allclose(
        again(inputs)["logits"], np.asarray(logits)[:, ::-1], atol=1e-6
    )


def test_columns_that_are_not_utf_8(saved):
    """Such bytes on a command line are lone surrogates in Python."""
    model, folder = saved
    facts = dataclasses.replace(FACTS, text_columns="t\udcff")
    tokenizer = BertTokenizer.from_checkpoint(folder)
    save_model(folder, model, tokenizer, facts)
    assert read_config(folder, TASK) == facts


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "labels.json",
            ["neutral", "négatif", "positive"],
            "labels.json names 'neutral', 'négatif', 'positive', and task.json "
            "names 'négatif', 'neutral', 'positive', but the outputs of the",
        ),
        ("task.json", {"labels": ["a", "b"]}, "task.json names 'a', 'b', but"),
        ("task.json", {"label_kind": "regression"}, ""),
    ],
)
def test_task_file_and_the_head_agree(saved, file, change, message):
    path = saved[1] / file
    if isinstance(change, dict):
        change = json.loads(path.read_text()) | change
    path.write_text(json.dumps(change))
    if message:
        assert message in error_of(load_checkpoint, saved[1])
    else:
        assert load_checkpoint(saved[1]).problem_type == "regression"


def test_task_file_names_the_labels_where_no_other_does(saved):
    (saved[1] / "labels.json").unlink()
    found = load_checkpoint(saved[1])
    assert found.labels == FACTS.labels
    assert found.problem_type == "single_label_classification"
    assert found.max_seq_length == 24


def test_a_folder_without_a_task(tmp_path):
    start = model_folder(tmp_path / "start")
    assert task_of(start) is None
    assert "has no task.json" in error_of(load_model, start, TASK)
    # KerasHub has a file of that name.
    (start / "task.json").write_text('{"registered_name": "x"}')
    assert task_of(start) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"doc_stride": "five"}, "doc_stride is 'five'"),
        ({"labels": [1]}, "labels is 1"),
        ({"doc_stride": 0}, "task.json: doc_stride is 0; it takes 1 or more"),
        ({"max_seq_length": 2}, "task.json: max_seq_length is 2"),
        ({"stride": 1}, "the keys stride are missing or too many"),
    ],
)
def test_a_broken_task_file(change, message, tmp_path):
    values = {**dataclasses.asdict(FACTS), **change}
    (tmp_path / "task.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=message):
        read_config(tmp_path, TASK)


SETTINGS = {"strip_accents": False, "tokenize_chinese_chars": False}


def test_other_settings_of_the_tokenizer_go_along(tmp_path):
    """From Hugging Face's format to a fine-tuned and a served model."""
    start = load_checkpoint(model_folder(tmp_path / "start"))
    tokens = start.vocabulary.tokens
    tokens = [*tokens[:-3], "é", "中國", "##國"]
    start = dataclasses.replace(
        start, vocabulary=Vocabulary(tokens), **SETTINGS
    )
    theirs = tmp_path / "theirs"
    save_checkpoint(theirs, start, "hugging_face")
    values = json.loads((theirs / "tokenizer_config.json").read_text())
    assert {key: values[key] for key in SETTINGS} == SETTINGS
    tokenizer = BertTokenizer.from_checkpoint(theirs)
    model = TASK.build(BertEncoder.from_checkpoint(theirs), FACTS)
    folder = tmp_path / "model"
    save_model(folder, model, tokenizer, FACTS)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.tokenizer_config == TokenizerConfig.of(True, False, False)
    wanted = [tokens.index(token) for token in ("é", "中國")]
    for found in (load_model(folder, TASK)[1], served_model(folder).tokenizer):
        assert found.tokenize("É 中國").numpy().tolist() == wanted


def test_a_tokenizer_of_another_kind_is_refused_everywhere(saved, tmp_path):
    folder = saved[1]
    config = folder / "tokenizer_config.json"
    config.write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    checkpoint = load_checkpoint(folder)
    recipe = FinetuningRecipe(init_from=str(folder), max_seq_length=24)
    for use in (
        lambda: load_model(folder, TASK),
        lambda: served_model(folder),
        lambda: BertTokenizer.from_checkpoint(folder),
        lambda: embed(folder, ["a"]),
        lambda: open_initial(recipe),
        lambda: save_checkpoint(tmp_path / "a", checkpoint),
        lambda: save_checkpoint(tmp_path / "a", checkpoint, "hugging_face"),
    ):
        assert "'BertJapaneseTokenizer', which" in error_of(use)
    assert not (tmp_path / "a").exists()
    weights = dataclasses.replace(checkpoint, vocabulary=None)
    save_checkpoint(tmp_path / "a", weights)
    assert not (tmp_path / "a" / "tokenizer_config.json").exists()
