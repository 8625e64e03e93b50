"""Encoders and preprocessing models of TensorFlow Hub and Kaggle."""

import pathlib
import re
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import MASKED_LM, POOLER, load_checkpoint
from bert_tf.checkpoints.tensorflow_reader import open_by_full_name
from bert_tf.text.tokenizer import BertTokenizer
from tests.checkpoints.damage import (
    assert_refused,
    replaced,
    truncated,
    with_bytes,
    without,
)
from tests.hugging_face_models import by_our_names
from tests.model_helpers import assert_computes

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tf_hub"
RECORDED = dict(np.load(GOLDEN / "outputs.npz"))
TEXTS = ["The Quick foxes, Élan jumped.", "the lazy dog over élan"]
BATCH = {
    "input_ids": RECORDED["input_word_ids"],
    "input_mask": RECORDED["input_mask"],
    "segment_ids": RECORDED["input_type_ids"],
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folders of the archive."""
    folder = tmp_path_factory.mktemp("tf_hub")
    with tarfile.open(GOLDEN / "saved.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "saved"


@pytest.mark.parametrize(
    ("name", "heads", "activation", "lower_case"),
    [
        ("with_mlm", (POOLER, MASKED_LM), "gelu", True),
        ("relu", (POOLER,), "relu", False),
    ],
)
def test_an_encoder(saved, name, heads, activation, lower_case):
    checkpoint = load_checkpoint(saved / name)
    assert checkpoint.heads == heads
    assert checkpoint.config.hidden_act == activation
    assert checkpoint.config.layer_norm_eps == 1e-12
    assert checkpoint.config.num_attention_heads == 2
    assert checkpoint.lower_case is lower_case
    assert len(checkpoint.vocabulary) == checkpoint.config.vocab_size == 20
    assert checkpoint.left_out == ("do_lower_case",)
    assert_computes(saved / name, BATCH, by_our_names(RECORDED, name))


@pytest.mark.parametrize("casing", ["uncased", "cased"])
def test_ids_of_a_preprocessing_model(saved, tmp_path, casing):
    # Kaggle's folders are named by numbers.
    folder = shutil.copytree(saved / f"preprocess_{casing}", tmp_path / "3")
    ids = BertTokenizer.from_checkpoint(folder).tokenize(TEXTS).to_list()
    for row, expected in zip(ids, RECORDED[f"{casing}/ids"], strict=True):
        length = np.count_nonzero(expected)
        assert expected[1 : length - 1].tolist() == row


_OF_2020 = {r"self_attention/attention_output": "self_attention_output"}
_OF_2019 = {
    **_OF_2020,
    r"transformer/layer": "encoder/layer",
    r"type_embeddings/embeddings": "embedding_postprocessor/type_embeddings",
    r"position_embedding/embeddings": (
        "embedding_postprocessor/position_embeddings"
    ),
    r"embeddings/layer_norm": "embedding_postprocessor/layer_norm",
    r"^": "bert_model/",
}


@pytest.mark.parametrize("changes", [_OF_2020, _OF_2019], ids=["2020", "2019"])
def test_encoders_known_by_names_of_variables(saved, tmp_path, changes):
    folder = shutil.copytree(saved / "with_mlm", tmp_path / "m")
    prefix = folder / "variables" / "variables"
    variables = []
    for name, array in dict(open_by_full_name(prefix)).items():
        for later, earlier in changes.items():
            name = re.sub(later, earlier, name)
        if "cls/predictions" not in name and not name.endswith("Variable"):
            variables.append(tf.Variable(array, name=name))
    shutil.rmtree(prefix.parent)
    tf.train.Checkpoint(
        variables=variables, do_lower_case=tf.Variable(True)
    ).write(str(prefix))
    outputs = by_our_names(RECORDED, "with_mlm")
    del outputs["masked_lm_logits"]
    assert_computes(folder, BATCH, outputs)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("relu", without("variables"), "saved_model.pb is there, but no vari"),
        ("relu", truncated("saved_model.pb", 999), "damaged SavedModel"),
        (
            "relu",
            replaced("keras_metadata.pb", b'first": false', b'first": true '),
            "norm_first is true",
        ),
        (
            "relu",
            with_bytes("keras_metadata.pb", lambda d: d + b'"epsilon": 1e-05,'),
            "have the epsilons 1e-12, 1e-05",
        ),
        (
            "relu",
            truncated("variables/variables.data-00000-of-00001", 999),
            "truncated; the variables take|damaged",
        ),
        ("preprocess_cased", lambda _: None, "holds no BertEncoder of"),
    ],
)
def test_a_damaged_folder(saved, tmp_path, name, damage, message):
    assert_refused(saved / name, tmp_path, damage, message)
