"""Unigram models and byte-level BPE that are trained on counted words."""

import io
import itertools
import json

import pytest
import sentencepiece
import tokenizers

from bert_tf.checkpoints.tokenizers import read_tokenizer
from bert_tf.corpora.vocabulary import train_vocab
from bert_tf.errors import UserError
from bert_tf.text.byte_bpe import ByteLevelBpe
from bert_tf.text.unigram import AlbertUnigram, Unigram
from tests import commands

LINES = [
    "The cat sat on the mat, and the other cats sat beside it.",
    "Cats are sitting where cats like to sit; a mat is all they want!",
    "Die Straße führt über den Fluß: Ein Café, eine naïve Façade.",
    "In 1982  it cost 12,5 or 1,250, as others' books said: isn't it so?",
]
FILES = {"unigram": "spiece.model", "byte_bpe": "tokenizer.json"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    # The ends of lines are further lines, some of which are held out.
    ends = [line[n:].lstrip() for line in LINES for n in range(0, 50, 5)]
    path.write_text("\n".join(LINES * 20 + ends))
    return path


def test_a_unigram_model_fits_as_well_as_one_of_sentences(corpus):
    """Counted words give other seeds than sentences, not a worse model."""
    found = train_vocab([corpus], 75, held_out=0.0, kind="unigram")
    lines = corpus.read_text().splitlines()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=73,
        model_type="unigram",
        character_coverage=0.9999,
        minloglevel=2,
    )
    assert isinstance(found.data, Unigram)
    assert len(found.tokens) == 75
    ours, theirs = (
        likelihood(serialized, lines)
        for serialized in (found.data.model, model.getvalue())
    )
    assert ours == pytest.approx(theirs, rel=0.01)
    # As many words, but each counted once.
    once = sorted({word for line in lines for word in line.split()})
    path = corpus.with_name("once.txt")
    path.write_text("\n".join(once))
    other = train_vocab([path], 75, held_out=0.0, kind="unigram")
    assert isinstance(other.data, Unigram)
    assert likelihood(other.data.model, lines) < 1.03 * ours


def likelihood(model: bytes, lines: list[str]) -> float:
    """The sum of the scores of all pieces of the lines."""
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    numbers = itertools.chain.from_iterable(library.encode(lines))
    return sum(map(library.get_score, numbers))


def test_an_albert_model_has_its_rules(corpus, tmp_path):
    settings = {"kind": "unigram", "lower_case": True}
    found = train_vocab([corpus], 75, held_out=0.2, **settings)
    assert isinstance(found.data, AlbertUnigram)
    special = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    assert found.tokens[:7] == (*special, "(", ")")
    assert all(token == token.lower() for token in found.tokens[5:])
    assert not {"é", "ü", "▁Cat"} & {c for t in found.tokens for c in t}
    kept = train_vocab([corpus], 75, strip_accents=False, **settings)
    assert any("é" in token for token in kept.tokens)
    found.save(tmp_path / "spiece.model")
    assert read_tokenizer(tmp_path) == found.data
    report = json.loads((tmp_path / "spiece_report.json").read_text())
    assert report["kind"] == "unigram"
    assert report["lower_case"] is True
    assert report["vocab_size"] == 75
    assert report["pieces_per_word"] is not None


def test_merges_are_those_of_the_library(corpus):
    found = train_vocab([corpus], 370, held_out=0.0, kind="byte_bpe")
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    library.train_from_iterator(
        corpus.read_text().splitlines(),
        tokenizers.trainers.BpeTrainer(
            vocab_size=369,
            min_frequency=2,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    merges = json.loads(library.to_str())["model"]["merges"]
    assert isinstance(found.data, ByteLevelBpe)
    assert len(found.tokens) == 370
    # Pairs of equal frequency are ordered by ids, which differ.
    ours = {"".join(pair) for pair in found.data.merges}
    theirs = {"".join(pair) for pair in merges}
    assert len(ours) == len(theirs) == 109
    assert len(ours & theirs) > 105
    assert found.data.merges[:3] == tuple(map(tuple, merges[:3]))
    assert found.tokens[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert found.tokens[-1] == "<mask>"


@pytest.mark.parametrize("kind", FILES)
def test_a_command_writes_the_files_of_a_folder(kind, corpus, tmp_path):
    output = tmp_path / "new" / FILES[kind]
    size = 60 if kind == "unigram" else 330
    arguments = [f"--input={corpus}", f"--vocab_size={size}", "--held_out=0.2"]
    arguments.append(f"--kind={kind}")
    done = commands.run("tools.train_vocab", *arguments, f"--output={output}")
    assert done.returncode == 0, done.stderr
    data = read_tokenizer(output.parent)
    assert len(data.vocabulary) == size
    ids = data.tokenizer().tokenize(LINES)
    texts = [text.decode() for text in data.tokenizer().detokenize(ids).numpy()]
    # Unigram models know no two blanks in a row.
    words = [" ".join(line.split()) for line in LINES]
    assert texts == (words if kind == "unigram" else LINES)
    assert f"written: {output}" in done.stdout
    assert "0.000% of the words are <unk>" in done.stdout
    again = tmp_path / "again" / FILES[kind]
    commands.run("tools.train_vocab", *arguments, f"--output={again}")
    assert again.read_bytes() == output.read_bytes()
    other = tmp_path / "vocab.txt"
    done = commands.run("tools.train_vocab", *arguments, f"--output={other}")
    assert done.returncode == 1
    assert f"write {tmp_path / FILES[kind]}." in done.stderr
    assert not other.exists()


@pytest.mark.parametrize(
    ("kind", "lower_case"),
    [
        *(("unigram", None), ("unigram", True), ("byte_bpe", None)),
        ("wordpiece", True),
    ],
)
def test_a_size_that_the_text_does_not_allow(corpus, kind, lower_case, capsys):
    def learn(size):
        return train_vocab(
            [corpus], size, kind=kind, held_out=0.0, lower_case=lower_case
        ).tokens

    tokens = learn(9000)
    most = len(tokens)
    assert f"=9000: this text gives {most} tokens; " in capsys.readouterr().err
    assert learn(most) == tokens
    assert len(learn(most - 1)) == most - 1
    assert capsys.readouterr().err == ""
    if kind != "byte_bpe":
        with pytest.raises(UserError) as caught:
            learn(30)
        least = int(str(caught.value).split("at least ")[1].split()[0])
        assert len(learn(least)) == least
        with pytest.raises(UserError, match=f"at least {least}"):
            learn(least - 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "bpe"}, "`kind` is 'bpe'.* wordpiece, unigram"),
        ({"kind": "byte_bpe", "lower_case": True}, "`lower_case` is True: by"),
        ({"kind": "unigram", "min_frequency": 3}, "`min_frequency` is 3: uni"),
        ({"kind": "unigram", "strip_accents": True}, "`strip_accents` is True"),
        ({"kind": "byte_bpe", "vocab_size": 261}, "more than 261 .256 bytes"),
        ({"kind": "unigram", "vocab_size": 5}, "`vocab_size` is 5"),
    ],
)
def test_impossible_settings(corpus, arguments, message):
    with pytest.raises(UserError, match=message):
        train_vocab(**{"input_files": [corpus], "vocab_size": 300, **arguments})
