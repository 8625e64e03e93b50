"""Our Keras models compute the recorded outputs of other libraries.

This proves the tables of names and layouts in bert_tf/architectures.
"""

import json
import pathlib

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from tests.hugging_face_models import (
    CLASSES,
    by_our_names,
    digest,
    inputs,
    tiny_checkpoint,
    tiny_config,
)
from tests.model_helpers import assert_computes

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
RECORDED = dict(np.load(GOLDEN / "hugging_face" / "outputs.npz"))
WRITTEN = json.loads((GOLDEN / "hugging_face" / "written.json").read_text())
# Class of transformers -> the heads that its folder holds.
SAVED_HEADS = {name: heads for name, (heads, _) in CLASSES.items()} | {
    "BertLMHeadModel": CLASSES["BertForMaskedLM"][0]
}
MODEL_GARDEN_HEADS = {
    "encoder_v1": ("pooler",),
    "encoder_v2": ("pooler",),
    "pretrainer_v1": ("pooler", "masked_lm", "next_sentence"),
    "pretrainer_items_v2": ("pooler", "masked_lm"),
    "trainer_v2": ("pooler", "masked_lm", "next_sentence"),
    "classifier_v1": ("pooler", "classifier"),
    "classifier_v2_own_pooler": ("pooler", "classifier"),
    "token_classifier_v2": ("pooler", "token_classifier"),
    "span_labeler_v1": ("pooler", "span"),
}


@pytest.mark.parametrize("name", SAVED_HEADS)
def test_what_transformers_saved(name):
    folder = GOLDEN / "hugging_face" / "saved" / name
    checkpoint = load_checkpoint(folder)
    assert checkpoint.heads == SAVED_HEADS[name]
    expected = by_our_names(RECORDED, f"saved/{name}", SAVED_HEADS[name][-1])
    made = assert_computes(
        folder, inputs(checkpoint.config.type_vocab_size), expected
    )
    assert made == set(expected)


@pytest.mark.parametrize("name", CLASSES)
def test_what_transformers_loads(name, tmp_path):
    checkpoint = tiny_checkpoint(name)
    save_checkpoint(tmp_path, checkpoint, "hugging_face")
    # So transformers computed the recorded outputs from these very files.
    assert digest(tmp_path) == WRITTEN["digests"][name]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [name]
    expected = by_our_names(RECORDED, f"written/{name}", CLASSES[name][0][-1])
    made = assert_computes(
        tmp_path, inputs(checkpoint.config.type_vocab_size), expected
    )
    assert made == set(expected)


@pytest.mark.parametrize("name", MODEL_GARDEN_HEADS)
def test_what_model_garden_saved(name):
    folder = GOLDEN / "model_garden" / name
    heads = MODEL_GARDEN_HEADS[name]
    checkpoint = load_checkpoint(folder)
    assert checkpoint.heads == heads
    assert checkpoint.config == tiny_config(vocab_size=19)
    given = np.load(GOLDEN / "model_garden" / "inputs.npz")
    batch = {
        "input_ids": given["input_word_ids"],
        "input_mask": given["input_mask"],
        "segment_ids": given["input_type_ids"],
        "masked_lm_positions": given["masked_lm_positions"],
    }
    recorded = dict(np.load(folder / "outputs.npz"))
    expected = by_our_names(recorded, head=heads[-1])
    if name == "pretrainer_items_v2":
        # checkpoint_items leave its output layer out.
        del expected["next_sentence_logits"]
    assert_computes(folder, batch, expected)
