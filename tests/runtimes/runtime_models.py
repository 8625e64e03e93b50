"""Small model folders of every kind that is served."""

import pathlib

import numpy as np

import bert_tf
from bert_tf.encoders import BertEncoder
from bert_tf.families.model_folder import save_model
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.task_model import TaskModel
from bert_tf.families.text_classification.kinds import SentenceTask
from bert_tf.families.token_classification.config import (
    TokenClassificationConfig,
)
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
)
from bert_tf.pretraining.pretrainer import BertPretrainer
from tests.finetuning.sentence_runs import model_folder, tokenizer
from tests.inference.test_served_folders import LENGTH, sentence_facts
from tests.model_helpers import fill

LABELS = ("bad", "good", "so")
TAGS = ("O", "B-LOC", "I-LOC")
MOOD = SentenceTask(name="mood", data=None, labels=LABELS)
HEADS = {
    "classes": (
        lambda: sentence_facts(MOOD, 3, 1),
        lambda encoder: bert_classifier(encoder, 3),
    ),
    "regression": (
        lambda: sentence_facts(
            SentenceTask(name="much", data=None),
            1,
            2,
            labels=(),
            label_kind="regression",
        ),
        lambda encoder: bert_classifier(encoder, 1),
    ),
    "span": (
        lambda: QuestionAnsweringConfig(
            "squad", (), LENGTH, 4, 4, 5, 6, False, 0.0
        ),
        bert_span_labeler,
    ),
    "tags": (
        lambda: TokenClassificationConfig("tags", TAGS, LENGTH, "sentence", 0),
        lambda encoder: bert_token_classifier(encoder, len(TAGS)),
    ),
    "choice": (
        lambda: MultipleChoiceConfig("swag", (), LENGTH, False),
        bert_multiple_choice,
    ),
}
KINDS = (*HEADS, "pretrained", "encoder")


def make(root: pathlib.Path, kind: str, **changes) -> pathlib.Path:
    """A folder of a kind, filled with random weights."""
    start = model_folder(root / "start", **changes)
    if kind == "encoder":
        return start
    folder = root / kind
    if kind == "pretrained":
        config = BertEncoder.from_checkpoint(start).config
        model = fill(BertPretrainer(config), seed=5, scale=0.5)
        checkpoint = bert_tf.Checkpoint(config, model.to_arrays())
        bert_tf.save_checkpoint(folder, checkpoint)
        tokenizer().save(folder)
        return folder
    facts, build = HEADS[kind]
    model = TaskModel(build(BertEncoder.from_checkpoint(start)))
    save_model(folder, fill(model, seed=5, scale=0.5), tokenizer(), facts())
    return folder


def rows(count: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random rows of different lengths, the first one full."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, length + 1, count)
    lengths[0] = length
    kept = np.arange(length) < lengths[:, None]
    size = (count, length)
    known = len(tokenizer().vocabulary)
    inputs = {
        "input_ids": random.integers(0, known, size) * kept,
        "input_mask": kept,
        "segment_ids": random.integers(0, 2, size) * kept,
    }
    return {name: values.astype(np.int32) for name, values in inputs.items()}
