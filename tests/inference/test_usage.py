"""How a model folder is used: by task.json, or by what others state."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.families.usage_options import NO_OPTIONS, TASKS, UsageOptions
from bert_tf.inference.served_folder import usage_of
from bert_tf.text.tokenizer import BertTokenizer
from tests.fine_tuned_models import TAGS, TOKENS, write_folder
from tests.user_errors import error_of

GARDEN = pathlib.Path(__file__).parents[1] / "golden" / "model_garden"
NAMELESS = tuple(f"LABEL_{i}" for i in range(5))
CLASSES = "BertForSequenceClassification"
SEVERAL = "DistilBertForSequenceClassification"
NUMBER = "ElectraForSequenceClassification"
WORDS = "BertForTokenClassification"
ANSWERS = "BertForQuestionAnswering"
CHOICES = "BertForMultipleChoice"
MASKS = "BertForMaskedLM"


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(TOKENS)


@pytest.fixture
def use(tmp_path, tokenizer):
    def usage(name, config=None, **options):
        folder = write_folder(tmp_path / "model", name)
        path = folder / "config.json"
        values = json.loads(path.read_text()) | (config or {})
        path.write_text(json.dumps(values))
        checkpoint = load_checkpoint(folder)
        return usage_of(folder, checkpoint, UsageOptions(**options), tokenizer)

    return usage


USED = {"task": TASKS[0], "labels": ("bad", "fair", "good"), "num_outputs": 3}
USED |= {"label_kind": "classes", "num_texts": 1, "max_seq_length": 50}
SPANS = {"with_null": False, "max_seq_length": 50, "max_query_length": 23}
NULL = {"with_null": True}
NAMES = {"id2label": None, "num_labels": 3}
RENAMED = {"labels": ("a", "b", "c"), "max_seq_length": 60}
ONE_LABEL = {"problem_type": "single_label_classification"}
OF_PAIRS = {"task": "text-pair multi_label classification", "threshold": 0.2}
SEVERAL_LABELS = {"label_kind": "multi_label"}
SEVERAL_OF_PAIRS = SEVERAL_LABELS | {"num_texts": 2}


@pytest.mark.parametrize(
    ("name", "config", "options", "expected"),
    [
        (CLASSES, {}, {}, USED | {"long_inputs": "cut"}),
        (CLASSES, NAMES, RENAMED, RENAMED),
        (
            *(CLASSES, NAMES, OF_PAIRS),
            SEVERAL_OF_PAIRS | {"labels": NAMELESS[:3], "threshold": 0.2},
        ),
        (SEVERAL, {}, {}, {"label_kind": "multi_label", "threshold": 0.5}),
        (NUMBER, {}, {}, {"label_kind": "regression", "labels": ()}),
        (NUMBER, ONE_LABEL, {}, SEVERAL_LABELS | {"labels": NAMELESS[:1]}),
        (NUMBER, {}, {"task": OF_PAIRS["task"]}, SEVERAL_OF_PAIRS),
        (WORDS, {}, {}, {"task": "token_classification", "labels": TAGS}),
        (ANSWERS, {}, {}, SPANS | {"doc_stride": 16}),
        (ANSWERS, {}, {"threshold": -1.5}, {"null_threshold": -1.5} | NULL),
        (CHOICES, {}, {"task": "multiple choice"}, {"has_start": False}),
    ],
)
def test_what_follows_from_a_folder(name, config, options, expected, use):
    found = dataclasses.asdict(use(name, config, **options))
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("name", "config", "options", "words"),
    [
        (CLASSES, {}, {"task": "text_clasification"}, "Did you mean text_cl"),
        (CLASSES, {}, {"task": "question_answering"}, "its head is a classif"),
        (CLASSES, {}, {"task": "text_regression"}, "3 outputs, but `task`="),
        (CLASSES, {}, {"threshold": 0.5}, "does not apply to text_classific"),
        (CLASSES, {}, {"labels": ["a"]}, "`labels`: are 1 (a), but "),
        (CLASSES, {}, {"labels": list("abc")}, "names its outputs bad, fair, "),
        (CLASSES, {}, {"labels": "abc"}, "`labels`='abc': give a list of na"),
        (CLASSES, {}, {"labels": ["a", "a"]}, "a name occurs twice"),
        (CLASSES, {}, {"max_seq_length": 61}, "from 3 to 60 (longest_input"),
        (CLASSES, {}, {"max_seq_length": 2}, "`max_seq_length`=2: "),
        (CLASSES, {}, {"max_seq_length": "9"}, "`max_seq_length`='9': give a"),
        (CLASSES, {"problem_type": "regression"}, {}, "has 3 outputs, but p"),
        (SEVERAL, {}, {"threshold": 1}, "`threshold`=1: is a probability of "),
        (SEVERAL, {}, {"threshold": "a"}, "`threshold`='a': give a number"),
        (SEVERAL, {}, {"threshold": float("nan")}, "`threshold`=nan: give a n"),
        (SEVERAL, {}, {"task": "text_classification"}, "problem_type multi_la"),
        (NUMBER, {}, {"labels": ["a"]}, "`labels`=a: does not apply to "),
        (NUMBER, {}, {"task": "text_classification"}, "has one output, which"),
        (WORDS, {}, {"threshold": 0.5}, "does not apply to token_classificat"),
        (ANSWERS, {}, {"labels": ["a", "b"]}, "does not apply to question_an"),
        (ANSWERS, {}, {"max_seq_length": 4}, "`max_seq_length`=4: "),
        (CHOICES, {}, {"threshold": 0.5}, "does not apply to multiple_choice"),
        (MASKS, {}, {"labels": ["a"]}, "was not fine-tuned for a task and ha"),
        (CLASSES, {}, {"split_special_tokens": 0}, "`split_special_tokens`=0"),
        (MASKS, {}, {"task": "text_classification"}, "has no head of a task"),
    ],
)
def test_options_that_do_not_apply(name, config, options, words, use):
    assert words in error_of(use, name, config, **options)


def test_a_model_without_a_head_has_no_config(use):
    assert use(MASKS, task="fill mask", max_seq_length=20) is None
    assert use(MASKS, task="embeddings") is None


def test_pairs_need_two_segments(tmp_path, tokenizer):
    folder = write_folder(tmp_path / "theirs", CLASSES)
    checkpoint = load_checkpoint(folder)
    types = "bert/embeddings/token_type_embeddings"
    arrays = dict(checkpoint.arrays)
    arrays[types] = np.asarray(arrays[types])[:1]
    config = dataclasses.replace(checkpoint.config, type_vocab_size=1)
    one = dataclasses.replace(checkpoint, config=config, arrays=arrays)
    assert usage_of(folder, one, NO_OPTIONS, tokenizer).num_texts == 1
    pairs = UsageOptions("text_pair_classification")
    line = error_of(usage_of, folder, one, pairs, tokenizer)
    assert "type_vocab_size is 1" in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "text_pair_classification"}, "with task text_classificatio"),
        ({"labels": ["bad", "good", "fair"]}, "with labels bad,fair,good; "),
        ({"max_seq_length": 20}, "with max_seq_length 50; leave it out"),
        ({"threshold": 0.5}, "with threshold none; leave it out"),
    ],
)
def test_options_that_contradict_task_json(options, words, tmp_path, tokenizer):
    theirs = load_checkpoint(write_folder(tmp_path / "theirs", CLASSES))
    config = usage_of(tmp_path / "theirs", theirs, NO_OPTIONS, tokenizer)
    folder = tmp_path / "ours"
    save_checkpoint(folder, theirs)
    text = json.dumps(dataclasses.asdict(config))
    (folder / "task.json").write_text(text)
    checkpoint = load_checkpoint(folder)
    same = UsageOptions("text classification", ["bad", "fair", "good"], 50)
    assert usage_of(folder, checkpoint, same, tokenizer) == config
    other = UsageOptions(**options)
    line = error_of(usage_of, folder, checkpoint, other, tokenizer)
    assert f"{folder}/task.json states how this model is used" in line
    assert words in line


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("classifier_v1", {"task": TASKS[0], "labels": NAMELESS[:3]}),
        ("token_classifier_v2", {"labels": NAMELESS, "max_seq_length": 12}),
        ("span_labeler_v1", {"max_seq_length": 12, "with_null": False}),
    ],
)
def test_heads_of_model_garden(name, expected, tokenizer):
    folder = GARDEN / name
    checkpoint = load_checkpoint(folder)
    config = usage_of(folder, checkpoint, NO_OPTIONS, tokenizer)
    assert expected.items() <= dataclasses.asdict(config).items()


@pytest.mark.parametrize("to", ["bert_tf", "google_tf1"])
def test_heads_in_other_layouts(to, tmp_path, tokenizer):
    theirs = load_checkpoint(write_folder(tmp_path / "theirs", CLASSES))
    nameless = dataclasses.replace(theirs, labels=None, max_seq_length=None)
    folder = tmp_path / "other"
    save_checkpoint(folder, nameless, to)
    checkpoint = load_checkpoint(folder)
    config = usage_of(folder, checkpoint, NO_OPTIONS, tokenizer)
    assert config.labels == NAMELESS[:3]
    assert config.max_seq_length == 60
    named = UsageOptions(labels=("x", "y", "z"))
    config = usage_of(folder, checkpoint, named, tokenizer)
    assert (config.task, config.labels) == (TASKS[0], ("x", "y", "z"))
