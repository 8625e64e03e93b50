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
from tests import commands, commands_page
from tests.documents import blocks

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
HUB_MODELS = (ROOT / "docs" / "hub_models.md").read_text(encoding="utf-8")
RELATIVES = (ROOT / "docs" / "relatives.md").read_text(encoding="utf-8")
POSITIVE = ["a good film.", "good and fine.", "what a fine film"]
NEGATIVE = ["a bad film.", "bad and dull.", "what a dull film"]


def flags_of(words: str) -> set[str]:
    """The flags in the help of a command, beside what it is given."""
    text = commands.run_line(f"bert-tf {words} --help").stdout
    return set(re.findall(r"--(?:\[no\])?(\w+)", text.partition("Flags:")[2]))


@pytest.mark.parametrize(
    ("page", "commands_at_least"),
    [(README, 8), (RELATIVES, 7), (HUB_MODELS, 4)],
)
def test_every_command_and_flag_exists(page, commands_at_least):
    printed = re.findall(
        r"^ *bert-tf ([a-z][a-z-]*)((?:[^\n]*\\\n)*[^\n]*)", page, re.MULTILINE
    )
    assert len(printed) >= commands_at_least
    for name, arguments in printed:
        typed = set(re.findall(r"--(\w+)", arguments))
        assert typed <= flags_of(f"{name} {arguments}"), (name, arguments)
    for target in re.findall(r"make ([\w-]+)", page):
        makefile = (ROOT / "Makefile").read_text()
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", [README, RELATIVES])
def test_every_flag_named_exists(page):
    named = set(re.findall(r"`--(\w+)", page))
    assert len(named) >= 10
    listed = re.findall(r"^- (`.*?):", commands_page.page(), re.MULTILINE)
    known = set(re.findall(r"`--(?:\[no\])?(\w+)`", " ".join(listed)))
    known |= {f"no{name}" for name in known} | {"help"}
    assert named <= known, named - known


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


def test_the_api_page_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: bert_tf\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == bert_tf.__all__


@pytest.fixture
def small_model_folder(tmp_path) -> pathlib.Path:
    words = sorted(set(" ".join(POSITIVE + NEGATIVE).replace(".", "").split()))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words]
    config = bert_tf.BertConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    folder = tmp_path / "demo_output" / "model"
    folder.mkdir(parents=True)
    keras.utils.set_random_seed(1)
    bert_tf.save_checkpoint(
        folder,
        bert_tf.Checkpoint(config, bert_tf.BertPretrainer(config).to_arrays()),
    )
    bert_tf.BertTokenizer(tokens).save(folder)
    return folder


@pytest.mark.slow
def test_the_first_program(small_model_folder, tmp_path, monkeypatch, capsys):
    """The program as printed, and that its model can be loaded again."""
    (program,) = blocks("README.md", "python")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    *_, scores, answers = capsys.readouterr().out.splitlines()
    assert scores.endswith("out/films/report.html")
    asked = ["A lovely and moving film.", "Dull and empty."]
    assert answers == str(bert_tf.load("out/films")(asked))


@pytest.mark.slow
def test_the_program_on_strings(small_model_folder, tmp_path, monkeypatch):
    program, _ = blocks("docs/keras.md", "python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(program, names)
    model = keras.saving.load_model("films.keras")
    text = ["A moving film."]
    expected = names["model"].predict(text)
    np.testing.assert_allclose(model.predict(text), expected, atol=1e-6)


# Keras 3.15 says so of every data set that is fitted with its defaults.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_the_keras_program(small_model_folder, tmp_path, monkeypatch):
    """The program as printed, on rows of our own and at a higher rate."""
    _, program = blocks("docs/keras.md", "python")
    assert len(program.strip().splitlines()) <= 32
    texts = tf.constant((POSITIVE + NEGATIVE) * 128)
    labels = tf.constant([1] * 3 + [0] * 3, tf.int64)
    rows = tf.data.Dataset.from_tensor_slices(
        {"sentence": texts, "label": tf.tile(labels, [128])}
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
