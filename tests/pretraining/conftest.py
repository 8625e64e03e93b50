"""A small corpus of the language reference, and records made of it."""

import pathlib
import pydoc_data.topics
import re
from collections.abc import Iterator

import pytest

from bert_tf.config import BertConfig
from bert_tf.pretraining import report
from bert_tf.records.build import create_records
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.token_table import SPECIAL_TOKENS

draw_curves = report._draw
# What a finished run leaves in its folder.
FILES = {
    *(".lock", "README.md", "bert_config.json", "bert_model.safetensors"),
    *("checkpoints", "history.jsonl", "learning_curve.png", "models"),
    *("recipe.json", "report.html", "results.json", "tensorboard"),
    *("tokenizer_config.json", "vocab.txt"),
}


@pytest.fixture(scope="module", autouse=True)
def without_curves() -> Iterator[None]:
    """Draws no learning curve, which takes a tenth of a small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_draw", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory) -> pathlib.Path:
    """Forty short topics, one sentence a line, blank lines between."""
    topics = sorted(pydoc_data.topics.topics.values(), key=len)[:40]
    documents = [
        "\n".join(re.split(r"(?<=\.)\s+", " ".join(topic.split())))
        for topic in topics
    ]
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def small_vocab(small_corpus) -> pathlib.Path:
    """Characters and the most frequent words of the corpus."""
    words = re.findall(r"[a-z]+", small_corpus.read_text().lower())
    frequent = sorted(set(words), key=lambda w: (-words.count(w), w))[:150]
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    pieces = letters + [f"##{c}" for c in letters]
    tokens = [*SPECIAL_TOKENS, *dict.fromkeys(pieces + frequent)]
    path = small_corpus.parent / "vocab.txt"
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def config_file(small_vocab, tmp_path_factory) -> pathlib.Path:
    """The architecture of a tiny model, as a file."""
    config = BertConfig(
        vocab_size=len(small_vocab.read_text().split()),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    path = tmp_path_factory.mktemp("config") / "bert_config.json"
    config.save(path)
    return path


@pytest.fixture(scope="session")
def make_records(small_corpus, small_vocab, tmp_path_factory):
    """Builds records of the small corpus with some settings."""

    def make(name: str, **settings) -> pathlib.Path:
        folder = tmp_path_factory.mktemp("records") / name
        recipe = RecordsRecipe(held_out=0.1, **settings)
        create_records(
            [small_corpus], small_vocab, folder, recipe, 1, log=lambda _: None
        )
        return folder

    return make


@pytest.fixture(scope="session")
def records(make_records) -> pathlib.Path:
    """Records of 32 tokens without masks."""
    return make_records("short", max_seq_length=32, max_predictions_per_seq=5)
