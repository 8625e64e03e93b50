"""Small model folders of every kind that is served."""

import pathlib

import numpy as np

import bert_tf
from bert_tf.encoders import BertEncoder
from bert_tf.families.model_folder import save_model
from bert_tf.families.multiple_choice.config import MultipleChoiceConfig
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.task_model import TaskModel
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
from tests.inference.serving_models import text_config
from tests.model_helpers import fill

LENGTH = 16
LABELS = ("bad", "good", "so")
TAGS = ("O", "B-LOC", "I-LOC")
CLASSES = text_config(labels=LABELS, max_seq_length=LENGTH)
PAIRS = text_config(labels=LABELS, max_seq_length=LENGTH, num_texts=2)
HEADS = {
    "classes": (CLASSES, lambda encoder: bert_classifier(encoder, 3)),
    "pairs": (PAIRS, lambda encoder: bert_classifier(encoder, 3)),
    "span": (
        QuestionAnsweringConfig("squad", (), LENGTH, 4, 4, 5, 6, False, 0.0),
        bert_span_labeler,
    ),
    "tags": (
        TokenClassificationConfig("tags", TAGS, LENGTH, "sentence", 0),
        lambda encoder: bert_token_classifier(encoder, len(TAGS)),
    ),
    "choice": (
        MultipleChoiceConfig("swag", (), LENGTH, False),
        bert_multiple_choice,
    ),
}
# Every way of computing, and outputs of rows and of tokens.
KINDS = (
    ("classes", {"hidden_act": "gelu_erf"}),
    ("tags", {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
    ("encoder", {"causal": True}),
)


def make(root: pathlib.Path, kind: str, **changes) -> pathlib.Path:
    """A folder of a kind with one layer, filled with random weights."""
    start = model_folder(root / "start", num_hidden_layers=1, **changes)
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
    save_model(folder, fill(model, seed=5, scale=0.5), tokenizer(), facts)
    return folder


def rows(count: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random rows of different lengths, the first one full."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, length + 1, count)
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    size = (count, length)
    known = len(tokenizer().vocabulary)
    inputs = {
        "input_ids": random.integers(0, known, size) * mask,
        "input_mask": mask,
        "segment_ids": random.integers(0, 2, size) * mask,
    }
    return {name: values.astype(np.int32) for name, values in inputs.items()}
