"""Folders of transformers' TensorFlow and Flax classes, and Keras' files of
them: the outputs that were recorded, and one line for each kind of damage."""

import json
import pathlib
import shutil
import tarfile

import h5py
import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.errors import UserError
from tests.hugging_face_models import by_our_names
from tests.model_helpers import assert_computes

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "transformers_tf"
RECORDED = dict(np.load(GOLDEN / "outputs.npz"))
CLASSES = list(dict.fromkeys(key.partition("/")[0] for key in RECORDED))
FLAX = dict(np.load(GOLDEN / "flax.npz"))
FLAX_CLASSES = list(dict.fromkeys(key.partition("/")[0] for key in FLAX))
HEADS = {
    "LMHeadModel": "masked_lm",
    "ForMaskedLM": "masked_lm",
    "ForNextSentencePrediction": "next_sentence",
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "token_classifier",
    "ForMultipleChoice": "multiple_choice",
    "ForPreTraining": "replaced_tokens",
}
KERAS_CLASSES = (
    "TFBertForPreTraining",
    "TFBertForTokenClassification",
    "TFDistilBertForMaskedLM",
    "TFDistilBertForSequenceClassification",
    "TFElectraForMaskedLM",
    "TFElectraForSequenceClassification",
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folders of the archives."""
    folder = tmp_path_factory.mktemp("transformers_tf")
    for name in ("saved.tar.xz", "flax.tar.xz"):
        with tarfile.open(GOLDEN / name) as archive:
            archive.extractall(folder, filter="data")
    return folder / "saved"


def batch(types=2):
    """The inputs of make.py."""
    random = np.random.default_rng(7)
    ids = random.integers(0, 24, (2, 10))
    given = {
        "input_ids": ids,
        "input_mask": np.arange(10)[None] < np.array([[10], [6]]),
        "segment_ids": random.integers(0, types, (2, 10)),
    }
    return {name: value.astype("int32") for name, value in given.items()}


def expected(name, recorded):
    """A class's recorded outputs under our names."""
    head = next((h for end, h in HEADS.items() if name.endswith(end)), "")
    return by_our_names(recorded, name, head)


def assert_reads(folder, outputs):
    """Our models compute what is expected."""
    checkpoint = load_checkpoint(folder)
    given = batch(checkpoint.config.type_vocab_size or 2)
    assert_computes(folder, given, outputs)
    return checkpoint


@pytest.mark.parametrize("name", CLASSES)
def test_what_a_class_computed(saved, name):
    checkpoint = assert_reads(saved / name, expected(name, RECORDED))
    assert checkpoint.left_out == ()
    if name == "TFBertForSequenceClassification":
        assert checkpoint.labels == ("négatif", "neutral", "positive")


@pytest.mark.parametrize("name", FLAX_CLASSES)
def test_what_a_class_of_flax_computed(saved, name):
    assert_reads(saved.parent / name, expected(name, FLAX))


@pytest.mark.parametrize("kind", ["sharded", "safetensors"])
def test_other_files_of_the_same_model(saved, kind):
    assert_reads(saved / kind, expected("TFBertForPreTraining", RECORDED))


@pytest.mark.parametrize("name", KERAS_CLASSES)
@pytest.mark.parametrize("kind", ["h5", "keras", "checkpoint"])
def test_what_save_weights_wrote(saved, tmp_path, kind, name):
    folder = shutil.copytree(saved / kind / name, tmp_path / "m")
    if kind != "keras":
        # The names in the file tell the class, whatever the training's
        # beginning was.
        changed_json(folder / "config.json", architectures=["BertForMaskedLM"])
    checkpoint = assert_reads(folder, expected(name, RECORDED))
    trained = name == "TFBertForTokenClassification" and kind != "h5"
    # Two moments of each weight, and the optimizer's counters.
    assert (len(checkpoint.left_out) > 70) == trained


def changed_json(path, **changes):
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(values))


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
    checkpoint = assert_reads(folder, expected("TFBertModel", RECORDED))
    assert checkpoint.left_out == ("optimizer_weights/Adam/iter:0",)


def truncated(folder):
    path = folder / "tf_model.h5"
    path.write_bytes(path.read_bytes()[:-5000])


def no_config(folder):
    (folder / "config.json").unlink()


def foreign(folder):
    with h5py.File(folder / "tf_model.h5", "w") as file:
        file["dense/dense/kernel:0"] = np.zeros((2, 3), "float32")


def other_sizes(folder):
    changed_json(folder / "config.json", hidden_size=10)


def differing_copies(folder):
    with h5py.File(folder / "tf_model.h5", "r+") as file:
        name = "tf_bert_for_pre_training/bert/embeddings/word_embeddings"
        file[f"mlm___cls/{name}/weight:0"][0, 0] += 1


def two_files(folder):
    (folder / "tf_model.h5").rename(folder / "epoch_1.h5")
    shutil.copy(folder / "epoch_1.h5", folder / "epoch_2.h5")


def no_shard(folder):
    (folder / "tf_model-00002-of-00002.h5").unlink()


def other_shards(folder):
    index = folder / "tf_model.h5.index.json"
    files = json.loads(index.read_text())["weight_map"]
    first = next(iter(files))
    changed_json(index, weight_map=files | {f"{first}_more": files[first]})


def torn_flax(folder):
    path = folder / "flax_model.msgpack"
    path.write_bytes(path.read_bytes()[:-7])


def flax_objects(folder):
    path = folder / "flax_model.msgpack"
    path.write_bytes(path.read_bytes().replace(b"\xa7float32", b"\xa7object_"))


def no_flax(folder):
    (folder / "flax_model.msgpack").write_bytes(b"version https://git-lfs")


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("TFBertForPreTraining", truncated, "h5: damaged weights file"),
        ("TFBertForPreTraining", no_config, "but no config.json"),
        ("h5/TFBertForPreTraining", no_config, "epoch_3.h5 is there, but no"),
        ("checkpoint/TFElectraForMaskedLM", no_config, "put its config.json"),
        (
            "TFBertForPreTraining",
            foreign,
            "holds no weights of transformers' TFBertModel or of a class with a"
            " head on it, but 'dense/dense/kernel:0' and others.",
        ),
        (
            "TFBertForPreTraining",
            other_sizes,
            r"word_embeddings.weight is \[24, 8\] where the configuration",
        ),
        ("TFBertForPreTraining", differing_copies, "weight:0 differ"),
        ("TFBertForPreTraining", two_files, "2 files of weights .epoch_1.h5"),
        ("sharded", no_shard, "names the file tf_model-00002-of-00002.h5, whi"),
        ("sharded", other_shards, "lists .*_more, not in tf_model-0000"),
        ("../FlaxBertModel", torn_flax, "damaged weights file .it is trunc"),
        ("../FlaxBertModel", flax_objects, "an array is of type 'object_'"),
        ("../FlaxBertModel", no_flax, "damaged weights file .it is no array"),
    ],
)
def test_a_damaged_folder_is_one_line(saved, tmp_path, name, damage, message):
    folder = shutil.copytree(saved / name, tmp_path / "m")
    damage(folder)
    with pytest.raises(UserError, match=message) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)
