"""A cased model is not lower-cased where no tokenizer_config.json says so.

BioBERT's are such folders: Google's with vocab.txt, bert_config.json and a
TensorFlow 1 checkpoint that holds Adam's slots, and Hugging Face's.
"""

import numpy as np
import pytest
import tensorflow as tf
from model_helpers import fill, small_config

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary

PIECES = "the The cell Cell ##s é e gene BR ##CA ##1 br of .".split()
CASED = Vocabulary([*SPECIAL_TOKENS, *PIECES])
TEXT = "The Cells of é BRCA1"
SPLIT = "The Cell ##s of é BR ##CA ##1".split()
# What the files are called says nothing of case.
NAMES = ("biobert_v1.1_pubmed", "models--dmis-lab--biobert/snapshots/551ca1")
FILES = {
    "google_tf1": {
        *("bert_config.json", "vocab.txt", "bert_model.ckpt.index"),
        "bert_model.ckpt.data-00000-of-00001",
    },
    "hugging_face": {"config.json", "vocab.txt", "model.safetensors"},
}


def add_slots(folder):
    """What Adam keeps of each variable, and the step, as BioBERT's has."""
    prefix = str(folder / "bert_model.ckpt")
    reader = tf.train.load_checkpoint(prefix)
    values = {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
    }
    slots = {
        f"{name}/adam_{moment}": np.ones_like(value)
        for name, value in values.items()
        for moment in "mv"
    }
    values |= slots | {"global_step": np.int64(1_000_000)}
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )


FOLDERS = list(zip(FILES, NAMES, strict=True))


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request, tmp_path_factory):
    layout, name = request.param
    folder = tmp_path_factory.mktemp("models") / name
    config = small_config(vocab_size=len(CASED), max_position_embeddings=32)
    model = fill(bert_tf.BertPretrainer(config), seed=4)
    checkpoint = Checkpoint(config, model.to_arrays(), CASED, lower_case=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(folder, checkpoint, layout)
    CASED.save(folder / "vocab.txt")
    for path in folder.iterdir():
        if path.name not in FILES[layout]:
            path.unlink()
    assert {path.name for path in folder.iterdir()} == FILES[layout]
    if layout == "google_tf1":
        add_slots(folder)
    return folder


def test_text_keeps_its_capitals_and_accents(folder, tmp_path):
    tokenizer = BertTokenizer.from_checkpoint(folder)
    tokens = tokenizer.id_to_token(tokenizer.tokenize(TEXT)).numpy().ravel()
    assert [token.decode() for token in tokens] == SPLIT
    found = load_checkpoint(folder)
    assert (found.lower_case, found.strip_accents) == (False, False)
    upper, lower = bert_tf.embed(folder, ["The Cell", "the cell"])
    assert np.abs(upper - lower).max() > 0.1
    convert_checkpoint(folder, "bert_tf", tmp_path / "ours")
    converted = load_checkpoint(tmp_path / "ours")
    assert (converted.lower_case, converted.strip_accents) == (False, False)
