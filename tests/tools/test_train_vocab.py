"""The command that trains vocabularies."""

import json
import pathlib
import subprocess

import pytest

from bert_tf.text.tokenizer import BertTokenizer
from tests import commands

TEXT = "The cat sat on the mat.\nThe cats sit where the mats are.\n" * 30


@pytest.fixture
def corpus(tmp_path) -> pathlib.Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run("tools.train_vocab", *arguments)


def failure(*arguments: str) -> str:
    """Returns the last line of a call that fails."""
    done = run(*arguments)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_writes_the_vocabulary(corpus, tmp_path) -> None:
    output = tmp_path / "new" / "vocab.txt"
    done = run(
        f"--input={tmp_path}/corp*.txt,{corpus}",
        "--vocab_size=45",
        f"--output={output}",
        "--nolower_case",
        "--held_out=0",
        "--min_frequency=1",
    )
    assert done.returncode == 0, done.stderr
    tokenizer = BertTokenizer.from_checkpoint(output.parent)
    assert len(tokenizer.vocabulary) == 45
    assert tokenizer.lower_case is False
    assert "T" in tokenizer.vocabulary.tokens
    assert "45 tokens learned from 450 words" in done.stdout
    assert f"written: {output}" in done.stdout
    assert "reading" in done.stderr


def test_extends_a_vocabulary(corpus, tmp_path) -> None:
    base = tmp_path / "base.txt"
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted(set(TEXT.lower()) - set(" \n"))
    tokens += [*letters, *(f"##{c}" for c in letters)]
    base.write_text("\n".join(tokens))
    done = run(
        f"--input={corpus}",
        f"--extend={base}",
        f"--vocab_size={len(tokens) + 1}",
        f"--output={tmp_path}/vocab.txt",
        "--held_out=0",
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(tokens) + 1} tokens, 2 of them new, learned" in done.stdout
    written = (tmp_path / "vocab.txt").read_text().split()
    assert written == [tokens[0], "the", *tokens[2:], "where"]


def test_takes_text_of_other_formats(tmp_path) -> None:
    rows = [json.dumps({"body": TEXT}), json.dumps({"body": "Other mats."})]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    (tmp_path / "b.txt").write_text(TEXT)
    done = run(
        f"--input=a:0.5={tmp_path}/a.jsonl,b={tmp_path}/b.txt",
        "--text_field=body",
        "--vocab_size=45",
        f"--output={tmp_path}/vocab.txt",
        "--held_out=0",
    )
    assert done.returncode == 0, done.stderr
    assert "45 tokens learned from" in done.stdout


def test_a_failure_leaves_what_was_there(corpus, tmp_path) -> None:
    output = tmp_path / "vocab.txt"
    output.write_text("older")
    before = sorted(tmp_path.iterdir())
    line = failure(f"--input={corpus}", "--vocab_size=20", f"--output={output}")
    assert line.startswith("error: --vocab_size=20: at least ")
    assert output.read_text() == "older"
    assert sorted(tmp_path.iterdir()) == before
