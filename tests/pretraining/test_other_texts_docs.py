"""The commands of docs/other_texts.md work, each from text to a score."""

import dataclasses
import json
import pathlib
import random

import numpy as np
import pytest

import bert_tf
from bert_tf.architectures.xlm_roberta import XlmRobertaConfig
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.finetuning import report_files
from bert_tf.records.folder import Manifest
from bert_tf.report import figures
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from tests import commands
from tests.documents import blocks
from tests.model_helpers import fill, small_config
from tests.records_corpus import LETTERS, sentence, text
from tests.relatives import UNIGRAM

# Graphs are traced in tests/pretraining/test_run.py, on the same code.
pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:Even though the `tf.config"),
    # A group of rows may have one token each.
    pytest.mark.filterwarnings("ignore:.*softmax over axis"),
]
PAGE = "docs/other_texts.md"
UNUSED = [f"[unused{number}]" for number in range(4)]
VOCABULARY = Vocabulary(
    [
        *("[PAD]", *UNUSED, *SPECIAL_TOKENS[1:], ".", *LETTERS),
        *(f"##{letter}" for letter in LETTERS),
    ]
)
# What the page says, and what is enough here.
SMALLER = {
    "create-pretraining-data": "create-pretraining-data --workers=1",
    "--packing": "--packing --max_seq_length=32 --max_predictions_per_seq=5",
    "--mode=train": "--train_batch_size=4 --mode=train",
    "context=sentence": "context=sentence --max_seq_length=32",
    "num_train_steps=2000": "num_train_steps=1",
    "num_train_steps=200": "num_train_steps=1",
    "num_train_steps=400": "num_train_steps=1",
    "in bert out/more": "in out/more",
    "in xlmr out/xlmr_more": "in out/xlmr_more",
    "full_sentences": "full_sentences --max_seq_length=30 "
    "--max_predictions_per_seq=5",
    "train_batch_size=32": "train_batch_size=4",
    "num_train_epochs=5": "num_train_epochs=1",
    "seeds=3": "seeds=1",
    "size=tiny": "size=1/8/2",
    "vocab_size=8000": "vocab_size=100",
    "vocab_size=12000": "vocab_size=100",
    "vocab_size=30000": "vocab_size=60",
    "max_seq_length=64": "max_seq_length=30",
    "vocab_size=30522": f"vocab_size={len(VOCABULARY) + 3}",
}


def smaller(block: str) -> str:
    for said, enough in SMALLER.items():
        block = block.replace(said, enough)
    return block


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """What the page's commands begin with."""
    config = small_config(
        vocab_size=len(VOCABULARY),
        num_hidden_layers=1,
        max_position_embeddings=32,
    )
    model = fill(bert_tf.BertPretrainer(config))
    checkpoint = Checkpoint(config, model.to_arrays(), VOCABULARY, True)
    save_checkpoint(tmp_path / "bert", checkpoint)
    for name in ("domain", "ner", "languages", "topics"):
        (tmp_path / name).mkdir()
    (tmp_path / "domain" / "a.txt").write_text(text(20))
    rng = random.Random(5)
    for split, rows in (("train", 8), ("dev", 4), ("test", 4)):
        sentences = [sentence(rng) for _ in range(rows)]
        tagged = (
            "\n".join(
                f"{word} {'I-LOC' if word[0] == 'b' else 'O'}"
                for word in words.split()
            )
            for words in sentences
        )
        (tmp_path / "ner" / f"{split}.conll").write_text("\n\n".join(tagged))
        topics = "".join(f"{words[0]}\t{words}\n" for words in sentences)
        (tmp_path / "topics" / f"{split}.tsv").write_text(
            f"label\ttext\n{topics}"
        )
    for name, documents in (("de", 40), ("el", 15), ("tr", 5)):
        path = tmp_path / "languages" / f"{name}.txt"
        path.write_text(text(documents, seed=documents))
    return tmp_path


@pytest.fixture(autouse=True)
def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tunes without pictures and reports, which take as long as a run."""
    for owner, name in (
        (report_files, "write_reports"),
        (figures, "write_learning_curve"),
    ):
        monkeypatch.setattr(owner, name, lambda *_, **__: None)


def run(folder: pathlib.Path, block: str) -> None:
    commands.run_script(smaller(block), folder)


def dev_scores(folder: pathlib.Path, name: str) -> dict[str, float]:
    results = json.loads((folder / "out" / name / "results.json").read_text())
    return results["dev"]["dev"]


def test_what_is_made_smaller_is_said():
    text = "".join(blocks(PAGE, "sh"))
    assert len(blocks(PAGE, "sh")) == 6
    for said in SMALLER:
        assert said in text, said


def test_a_ready_model_reads_on(folder):
    run(folder, blocks(PAGE, "sh")[0])
    assert 0 <= dev_scores(folder, "ner_more")["f1"] <= 1
    more = load_checkpoint(folder / "out" / "more")
    assert more.vocabulary == VOCABULARY


def test_vocabularies_of_the_field(folder):
    _, own, extended, *_ = blocks(PAGE, "sh")
    run(folder, own)
    assert len(load_checkpoint(folder / "out" / "own").vocabulary) == 100
    run(folder, extended)
    tokens = load_checkpoint(folder / "out" / "extended").vocabulary.tokens
    kept = [n for n, t in enumerate(VOCABULARY.tokens) if t not in UNUSED]
    assert [tokens[n] for n in kept] == [VOCABULARY.tokens[n] for n in kept]
    assert not set(UNUSED) & set(tokens)
    assert len(tokens) == len(VOCABULARY) + 3


def test_many_languages(folder):
    run(folder, blocks(PAGE, "sh")[3])
    assert 0 <= dev_scores(folder, "topics")["accuracy"] <= 1
    manifest = Manifest.load(folder / "out" / "languages_records")
    rates = {name: c["rate"] for name, c in manifest.corpora.items()}
    assert rates["de"] < 1 < rates["el"] < rates["tr"]


def test_xlm_roberta(folder):
    config = dataclasses.replace(
        XlmRobertaConfig.from_size("1/8/2", len(UNIGRAM)),
        max_position_embeddings=34,
    )
    arrays = fill(bert_tf.BertPretrainer(config)).to_arrays()
    checkpoint = Checkpoint(
        config, {k: v for k, v in arrays.items() if "pooler" not in k}
    )
    theirs = folder / "xlmr"
    save_checkpoint(theirs, checkpoint.with_tokenizer(UNIGRAM), "hugging_face")
    # Released folders have the name of fairseq's file, or tokenizer.json alone.
    (theirs / "spiece.model").unlink()
    more, smaller_vocabulary = blocks(PAGE, "sh")[4:]
    run(folder, more)
    assert 0 <= dev_scores(folder, "topics_xlmr_more")["accuracy"] <= 1
    trained = load_checkpoint(folder / "out" / "xlmr_transformers")
    assert trained.heads == ("masked_lm",)
    assert trained.tokenizer.tokens == UNIGRAM.tokens
    words = "bert/embeddings/word_embeddings"
    assert np.any(trained.arrays[words] != arrays[words])
    run(folder, smaller_vocabulary)
    start = load_checkpoint(folder / "out" / "pieces_start")
    tokens = start.tokenizer.tokens
    # A piece that both have keeps its embedding.
    number, old = next(
        (n, UNIGRAM.vocabulary.ids[t])
        for n, t in enumerate(tokens)
        if n > 4 and t in UNIGRAM.tokens
    )
    np.testing.assert_array_equal(
        start.arrays[words][number], arrays[words][old]
    )
    last = load_checkpoint(folder / "out" / "pieces_more")
    assert last.tokenizer == start.tokenizer
