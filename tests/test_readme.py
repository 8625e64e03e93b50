"""README's commands and program are real."""

import importlib
import os
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.text.token_table import SPECIAL_TOKENS
from tests import commands_page
from tests.documents import blocks

ROOT = pathlib.Path(__file__).resolve().parent.parent
POSITIVE = ["a good film.", "good and fine.", "what a fine film"]
NEGATIVE = ["a bad film.", "bad and dull.", "what a dull film"]


def test_the_page_of_commands_is_that_of_the_code():
    written = commands_page.PAGE.read_text("utf-8")
    assert written == commands_page.page(), "run make commands-page"


def test_the_map_names_every_room_and_no_file_that_is_gone():
    text = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8")
    text = text[text.index("## Map") : text.index("## Tests")]
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", text))
    top = [path for path in ROOT.iterdir() if path.name[0] != "."]
    paths = [
        f"/{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}"
        for path in top + [path for each in top for path in each.rglob("*")]
    ]
    missing = [
        name
        for name in named
        if not any(path.endswith(f"/{name}") for path in paths)
    ]
    assert not missing
    rooms = {
        f"{path.parent.name}/" for path in (ROOT / "bert_tf").glob("*/*.py")
    }
    assert rooms <= named, rooms - named


def test_what_its_commands_write_is_ignored():
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    scripts = "\n".join(blocks("README.md", "sh"))
    folders = set(re.findall(r"--output(?:_dir)?=(\w+)/", scripts))
    (program,) = blocks("README.md", "python")
    assert "output_dir" not in program
    assert folders == {"out"}
    for folder in (*folders, "demo_output", "finetuned*", "served"):
        assert f"/{folder}/" in ignored


def test_the_api_page_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: bert_tf\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == bert_tf.__all__


@pytest.fixture
def small_model_folder(tmp_path) -> pathlib.Path:
    words = sorted(set(" ".join(POSITIVE + NEGATIVE).replace(".", "").split()))
    tokens = [*SPECIAL_TOKENS, ".", *words]
    config = bert_tf.BertConfig.from_size("1/32/2", len(tokens))
    folder = tmp_path / "demo_output" / "model"
    folder.mkdir(parents=True)
    keras.utils.set_random_seed(1)
    bert_tf.save_checkpoint(
        folder,
        bert_tf.Checkpoint(config, bert_tf.BertPretrainer(config).to_arrays()),
    )
    bert_tf.BertTokenizer(tokens).save(folder)
    return folder


@pytest.mark.witness("stock Keras fits a BERT, in graphs, and exports it")
# Keras 3.15 says so of every data set that is fitted with its defaults.
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_the_keras_program(small_model_folder, tmp_path, monkeypatch):
    """The program as printed, on rows of our own and at a higher rate."""
    (program,) = blocks("docs/keras.md", "python")
    assert len(program.strip().splitlines()) <= 32
    texts = tf.constant((POSITIVE + NEGATIVE) * 64)
    labels = tf.constant([1] * 3 + [0] * 3, tf.int64)
    rows = tf.data.Dataset.from_tensor_slices(
        {"sentence": texts, "label": tf.tile(labels, [64])}
    )
    datasets = importlib.import_module("tensorflow_datasets")

    def load(name: str, split: list[str]) -> list[tf.data.Dataset]:
        assert (name, split) == ("glue/sst2", ["train", "validation"])
        return [rows, rows.take(6)]

    monkeypatch.setattr(datasets, "load", load)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(program.replace("2e-5", "5e-3"), names)
    assert names["model"].history.history["val_accuracy"][-1] == 1.0
    served = tf.saved_model.load(os.path.join("export", "sst2", "1"))
    answer = served.signatures["serving_default"](
        text=tf.constant(POSITIVE + NEGATIVE)
    )
    guesses = answer["probabilities"].numpy().argmax(-1)
    np.testing.assert_array_equal(guesses, [1, 1, 1, 0, 0, 0])
