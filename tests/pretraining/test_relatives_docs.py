"""The pre-training commands of docs/relatives.md work, on a small corpus."""

import json
import pathlib
import re

import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.records.folder import RecordFolder
from tests import commands
from tests.documents import blocks
from tests.records_corpus import text

# Graphs are traced in tests/pretraining/test_run.py, on the same code.
pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:Even though the `tf.config"),
    # A group of rows may have one token each.
    pytest.mark.filterwarnings("ignore:.*softmax over axis"),
]
PAGE = "docs/relatives.md"
# What the page says, and what is enough here.
SMALLER = {
    "create-pretraining-data": "create-pretraining-data --workers=1",
    r"--size=base": "--size=1/8/2",
    r"max_seq_length=(512|1024)": "max_seq_length=48",
    r"max_predictions_per_seq=(77|20)\b": "max_predictions_per_seq=7",
    r"max_predictions_per_seq=307": "max_predictions_per_seq=14",
    r"train_batch_size=\d+": "train_batch_size=4",
    r"num_train_steps=\d+": "num_train_steps=1",
    r"vocab_size=3\d000 ": "vocab_size=100 ",
    r"vocab_size=50265": "vocab_size=300",
}


def run(folder: pathlib.Path, block: str) -> None:
    for said, enough in SMALLER.items():
        block = re.sub(said, enough, block)
    commands.run_script(block, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A corpus, and the vocabularies that the page trains."""
    folder = tmp_path_factory.mktemp("relatives")
    for seed, name in enumerate(("corpus", "en", "sw")):
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text(text(20, seed))
    run(folder, next(b for b in blocks(PAGE, "sh") if "train-vocab" in b))
    return folder


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        ("roberta", "full_sentences"),
        ("xlm", "full_sentences"),
        ("albert", "sentence_order"),
        ("modern", "document_sentences"),
    ],
)
def test_the_commands_of_each(folder, name, sequences) -> None:
    out = folder / "out"
    of_name = [b for b in blocks(PAGE, "sh") if f"out/{name}_records" in b]
    run(folder, *of_name)
    records = RecordFolder.open(out / f"{name}_records")
    assert records.recipe is not None
    assert records.recipe.sequences == sequences
    model = load_checkpoint(out / f"{name}_base")
    assert model.config.model_type.replace("-", "").startswith(name[:3])
    assert model.tokenizer == records.tokenizer
    results = json.loads((out / f"{name}_base" / "results.json").read_text())
    assert results["training_masked_lm_loss"] > 0
    order = "training_sentence_order_accuracy" in results
    assert order == (sequences == "sentence_order")
    assert order == ("next_sentence" in model.heads)
