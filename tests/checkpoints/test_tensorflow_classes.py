"""Folders of transformers' TensorFlow and Flax classes, and Keras' files of
them: recorded outputs, and damaged files."""

import pathlib
import shutil
import tarfile

import h5py
import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from tests.checkpoints.arrays import assert_same_arrays
from tests.checkpoints.damage import (
    assert_refused,
    changed_json,
    replaced,
    truncated,
    with_bytes,
    with_keys,
    without,
)
from tests.hugging_face_models import by_our_names
from tests.model_helpers import assert_computes

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "transformers_tf"
RECORDED = dict(np.load(GOLDEN / "outputs.npz"))
FLAX = dict(np.load(GOLDEN / "flax.npz"))
HEADS = {
    "LMHeadModel": "masked_lm",
    "ForMaskedLM": "masked_lm",
    "ForNextSentencePrediction": "next_sentence",
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "token_classifier",
    "ForMultipleChoice": "multiple_choice",
    "ElectraForPreTraining": "replaced_tokens",
}
PRETRAINED = "TFBertForPreTraining"
KERAS_CLASSES = (
    *(PRETRAINED, "TFBertForTokenClassification"),
    *("TFDistilBertForMaskedLM", "TFDistilBertForSequenceClassification"),
    *("TFElectraForMaskedLM", "TFElectraForSequenceClassification"),
    *("TFRobertaForMaskedLM", "TFXLMRobertaForSequenceClassification"),
    "TFAlbertForPreTraining",
)


def classes(recorded):
    return list(dict.fromkeys(key.partition("/")[0] for key in recorded))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folders of the archives."""
    folder = tmp_path_factory.mktemp("transformers_tf")
    for name in ("saved.tar.xz", "flax.tar.xz"):
        with tarfile.open(GOLDEN / name) as archive:
            archive.extractall(folder, filter="data")
    return folder / "saved"


def assert_reads(folder, name, recorded=RECORDED):
    """Our models compute what a class computed, on the inputs of make.py."""
    checkpoint = load_checkpoint(folder)
    random = np.random.default_rng(7)
    config = checkpoint.config
    types = config.type_vocab_size or 2
    batch = {
        "input_ids": random.integers(config.first_position, 24, (2, 10)),
        "input_mask": np.arange(10)[None] < np.array([[10], [6]]),
        "segment_ids": random.integers(0, types, (2, 10)),
    }
    batch = {key: value.astype("int32") for key, value in batch.items()}
    head = next((h for end, h in HEADS.items() if name.endswith(end)), "")
    expected = by_our_names(recorded, name, head)
    if config.first_position:
        # Not trained by its pre-training, and left out.
        expected.pop("pooled_output", None)
    assert_computes(folder, batch, expected)
    return checkpoint


@pytest.mark.parametrize("name", classes(RECORDED))
def test_a_class_of_tensorflow(saved, name):
    checkpoint = assert_reads(saved / name, name)
    if "Roberta" not in name:
        assert checkpoint.left_out == ()
    if name == "TFBertForSequenceClassification":
        assert checkpoint.labels == ("négatif", "neutral", "positive")


@pytest.mark.parametrize("name", classes(FLAX))
def test_a_class_of_flax(saved, name):
    assert_reads(saved.parent / name, name, FLAX)


def assert_same(checkpoint, folder):
    """A checkpoint is that of another folder."""
    expected = load_checkpoint(folder)
    assert checkpoint.config == expected.config
    assert checkpoint.labels == expected.labels
    assert_same_arrays(checkpoint.arrays, expected.arrays)


@pytest.mark.parametrize("kind", ["sharded", "safetensors"])
def test_other_files_of_the_same_model(saved, kind):
    assert_same(load_checkpoint(saved / kind), saved / PRETRAINED)


@pytest.mark.parametrize("name", KERAS_CLASSES)
@pytest.mark.parametrize("kind", ["h5", "keras", "checkpoint"])
def test_files_of_save_weights(saved, tmp_path, kind, name):
    folder = shutil.copytree(saved / kind / name, tmp_path / "m")
    if kind != "keras":
        # The class follows from the names in the file, not from config.json.
        changed_json(folder / "config.json", architectures=["BertForMaskedLM"])
    checkpoint = load_checkpoint(folder)
    assert_same(checkpoint, saved / name)
    trained = name == "TFBertForTokenClassification" and kind != "h5"
    # Two moments of each weight, and the optimizer's counters.
    assert (len(checkpoint.left_out) > 70) == trained


def test_models_within_models(saved, tmp_path):
    """A functional model around TFBertModel, saved whole: model.save(x.h5)."""
    folder = shutil.copytree(saved / "TFBertModel", tmp_path / "m")
    (folder / "tf_model.h5").rename(folder / "old")
    with (
        h5py.File(folder / "old") as old,
        h5py.File(folder / "model.h5", "w") as new,
    ):
        name = "tf_bert_model"
        new.create_group(f"model_weights/{name}")
        old.copy(f"bert/{name}", new[f"model_weights/{name}"])
        new.create_dataset("optimizer_weights/Adam/iter:0", data=3.0)
    checkpoint = load_checkpoint(folder)
    assert_same(checkpoint, saved / "TFBertModel")
    assert checkpoint.left_out == ("optimizer_weights/Adam/iter:0",)


def foreign(folder):
    with h5py.File(folder / "tf_model.h5", "w") as file:
        file["dense/dense/kernel:0"] = np.zeros((2, 3), "float32")


def differing_copies(folder):
    with h5py.File(folder / "tf_model.h5", "r+") as file:
        name = "tf_bert_for_pre_training/bert/embeddings/word_embeddings"
        file[f"mlm___cls/{name}/weight:0"][0, 0] += 1


def two_files(folder):
    (folder / "tf_model.h5").rename(folder / "epoch_1.h5")
    shutil.copy(folder / "epoch_1.h5", folder / "epoch_2.h5")


MSGPACK = "flax_model.msgpack"
NO_CONFIG = without("config.json")


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (PRETRAINED, truncated("tf_model.h5", 5000), "h5: damaged weights"),
        (PRETRAINED, NO_CONFIG, "but no config.json"),
        (f"h5/{PRETRAINED}", NO_CONFIG, "epoch_3.h5 is there, but no"),
        ("checkpoint/TFElectraForMaskedLM", NO_CONFIG, "put its config.json"),
        (PRETRAINED, foreign, "TFBertModel .* but 'dense/dense/kernel:0' and"),
        (
            PRETRAINED,
            with_keys(hidden_size=10),
            r"word_embeddings.weight is \[24, 8\] where the configuration",
        ),
        (PRETRAINED, differing_copies, "weight:0 differ"),
        (PRETRAINED, two_files, "2 files of weights .epoch_1.h5"),
        (
            "sharded",
            without("tf_model-00002-of-00002.h5"),
            "names the file tf_model-00002-of-00002.h5, which is missing",
        ),
        (
            "sharded",
            replaced("tf_model.h5.index.json", b"pooler", b"pooler_more"),
            "lists .*_more.*, not in tf_model-0000",
        ),
        ("../FlaxBertModel", truncated(MSGPACK, 7), "weights file .it is trun"),
        (
            "../FlaxBertModel",
            replaced(MSGPACK, b"\xa7float32", b"\xa7object_"),
            "an array is of type 'object_'",
        ),
        (
            "../FlaxBertModel",
            with_bytes(MSGPACK, lambda _: b"version https://git-lfs"),
            "damaged weights file .it is no array",
        ),
    ],
)
def test_a_damaged_folder(saved, tmp_path, name, damage, message):
    assert_refused(saved / name, tmp_path, damage, message)
