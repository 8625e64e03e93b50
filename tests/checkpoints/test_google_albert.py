"""TF1 folders of google-research/albert, made of a model of transformers."""

import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from tests.checkpoints.arrays import assert_same_arrays, write_variables
from tests.relatives import ALBERT_UNIGRAM
from tests.user_errors import error_of

THEIRS = (
    pathlib.Path(__file__).resolve().parents[1]
    / "golden/albert/saved/AlbertForPreTraining"
)
# google-research/albert, modeling.py: what each part of a name becomes.
NAMES = (
    (r"^albert\.encoder\.", "bert/encoder/"),
    (r"albert_layer_groups\.(\d+)\.", r"transformer/group_\1/"),
    (r"albert_layers\.(\d+)\.", r"inner_group_\1/"),
    (r"attention\.(query|key|value)", r"attention_1/self/\1"),
    (r"attention\.dense", "attention_1/output/dense"),
    (r"attention\.LayerNorm", "LayerNorm"),
    (r"ffn_output", "ffn_1/intermediate/output/dense"),
    (r"ffn(?=\.)", "ffn_1/intermediate/dense"),
    (r"full_layer_layer_norm", "LayerNorm_1"),
    (r"^albert\.embeddings\.", "bert/embeddings/"),
    (r"(_embeddings)\.weight", r"\1"),
    (r"^albert\.pooler", "bert/pooler/dense"),
    (r"^predictions\.bias", "cls/predictions/output_bias"),
    (r"^predictions\.", "cls/predictions/transform/"),
    (
        r"^sop_classifier\.classifier\.weight",
        "cls/seq_relationship/output_weights",
    ),
    (r"^sop_classifier\.classifier\.bias", "cls/seq_relationship/output_bias"),
    (r"(LayerNorm\w*)\.weight", r"\1/gamma"),
    (r"(LayerNorm\w*)\.bias", r"\1/beta"),
    (r"\.weight$", "/kernel"),
    (r"\.bias$", "/bias"),
)
# As in the released albert_config.json.
EXTRA = {
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
}


def googles() -> dict[str, np.ndarray]:
    arrays = {}
    for name, array in load_file(THEIRS / "model.safetensors").items():
        for pattern, replacement in NAMES:
            name = re.sub(pattern, replacement, name)
        arrays[name] = array.T if name.endswith("/kernel") else array
    return arrays


@pytest.fixture
def folder(tmp_path):
    arrays = googles()
    # Slots and counters of the training are left out.
    arrays["bert/pooler/dense/kernel/adam_m"] = np.zeros((8, 8), np.float32)
    arrays["global_step"] = np.int64(7)
    write_variables(tmp_path / "model.ckpt-best", arrays)
    values = json.loads((THEIRS / "config.json").read_text())
    known = (
        *("attention_probs_dropout_prob", "hidden_dropout_prob"),
        *("embedding_size", "hidden_size", "initializer_range"),
        *("intermediate_size", "max_position_embeddings", "inner_group_num"),
        *("num_attention_heads", "num_hidden_layers", "num_hidden_groups"),
        *("type_vocab_size", "vocab_size"),
    )
    values = {key: values[key] for key in known}
    # The tanh form in Google's code, gelu_new in that of transformers.
    values |= {"hidden_act": "gelu", **EXTRA}
    (tmp_path / "albert_config.json").write_text(json.dumps(values))
    (tmp_path / "30k-clean.model").write_bytes(ALBERT_UNIGRAM.model)
    return tmp_path


def test_a_tf1_folder_is_the_model_of_transformers(folder):
    found, expected = load_checkpoint(folder), load_checkpoint(THEIRS)
    assert found.config == expected.config
    assert_same_arrays(found.arrays, expected.arrays)
    assert found.tokenizer == ALBERT_UNIGRAM


def test_what_is_written_is_what_google_names(folder, tmp_path):
    checkpoint = load_checkpoint(folder)
    save_checkpoint(tmp_path / "again", checkpoint, "google_tf1")
    reader = tf.train.load_checkpoint(str(tmp_path / "again/bert_model.ckpt"))
    names = reader.get_variable_to_shape_map()
    assert_same_arrays({n: reader.get_tensor(n) for n in names}, googles())
    stored, given = (
        json.loads((place / "albert_config.json").read_text())
        for place in (tmp_path / "again", folder)
    )
    assert stored == given
    assert load_checkpoint(tmp_path / "again").config == checkpoint.config


def test_what_is_refused(folder):
    path = folder / "albert_config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"embeding_size": 6}))
    line = error_of(load_checkpoint, folder)
    assert line.startswith(f"{path}: unknown key embeding_size; it takes")
    path.write_text(json.dumps(values | {"embedding_size": 7}))
    assert "word_embeddings" in error_of(load_checkpoint, folder)
    path.unlink()
    line = error_of(load_checkpoint, folder)
    assert line.startswith(f"{folder}: has no albert_config.json; put")
