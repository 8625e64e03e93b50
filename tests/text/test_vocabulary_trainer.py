import collections
import gzip
import json
import random
import subprocess
import sys

import pytest
import reference_tokenization
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.corpora import vocabulary as corpus_vocabulary
from bert_tf.corpora.recipe import SENTENCES, CorpusRecipe
from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.vocabulary import count_words, train_vocab
from bert_tf.errors import UserError
from bert_tf.text import word_counts
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.wordpiece_trainer import WordPieceTrainer

TEXT = (
    """The cat sat on the mat, and the other cats sat beside it.
Cats are sitting where cats like to sit; a mat is all they want!

Die Straße führt über den Fluß: Ein Café, naïve Façade.
ΑΣ ΣΑΣ, 中文 and e\u0301 \x07bell A\u00adB.
"""
    * 20
)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def reference_words(text: str, lower_case: bool) -> collections.Counter:
    characters = reference_tokenization.normalized(text, lower_case)
    return collections.Counter(
        "".join(characters[place][0] for place in word)
        for word in reference_tokenization.words(characters)
    )


def count(files, lower_case=True, held_out=0.0, limit=1000):
    files = [CorpusFile(str(path), SENTENCES) for path in files]
    config = TokenizerConfig.of(lower_case)
    trainer = WordPieceTrainer(100, held_out, limit, config)
    return count_words(files, CorpusRecipe(), trainer)


@settings(max_examples=60)
@given(
    st.lists(
        st.text(
            st.characters(
                exclude_categories=["Cs", "Cn"], exclude_characters="\r"
            ),
            max_size=15,
        )
    ),
    st.booleans(),
)
def test_words_of_any_text(tmp_path_factory, lines, lower_case) -> None:
    path = tmp_path_factory.mktemp("words") / "a.txt"
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    found = count([path], lower_case)
    assert found.learned.counts == sum(
        (reference_words(line, lower_case) for line in lines),
        collections.Counter(),
    )
    assert found.learned.words == found.learned.counts.total()
    assert not found.held_out.counts


def test_small_chunks_and_compressed_files_count_the_same(
    corpus, tmp_path, monkeypatch
) -> None:
    packed = tmp_path / "corpus.txt.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    read = []
    monkeypatch.setattr(corpus_vocabulary, "CHUNK_CHARACTERS", 100)
    found = count_words(
        [CorpusFile(str(path), SENTENCES) for path in (corpus, packed)],
        *(CorpusRecipe(), WordPieceTrainer(100, 0.0, 1000)),
        advance=read.append,
    )
    expected = reference_words(TEXT, True)
    assert found.learned.counts == expected + expected
    assert found.lines == 160
    assert sum(read) == corpus.stat().st_size + packed.stat().st_size


def test_held_out_lines_are_the_rest(corpus) -> None:
    found = count([corpus], held_out=0.5)
    both = found.learned.counts + found.held_out.counts
    assert both == reference_words(TEXT, True)
    assert found.learned.counts
    assert found.held_out.counts
    # Equal lines are on one side: every count is of all twenty repetitions.
    assert all(n % 20 == 0 for n in found.held_out.counts.values())
    assert count([corpus], held_out=0.5) == found


def test_memory_is_bounded_by_forgetting_the_rarest() -> None:
    words = word_counts.WordCounts(max_unique_words=4)
    words.add(collections.Counter({"a": 5, "b": 4, "c": 1, "d": 2}))
    assert words.forgotten_below == 0
    words.add(collections.Counter({"e": 1, "a": 1}))
    assert words.counts == {"a": 6, "b": 4}
    assert words.forgotten_below == 3
    assert words.words == 14


@pytest.mark.parametrize(("size", "lower_case"), [(110, True), (120, False)])
def test_exact_size_special_tokens_first(corpus, size, lower_case) -> None:
    everything = {"character_coverage": 1.0, "held_out": 0.0}
    trained = train_vocab([corpus], size, lower_case, **everything)
    assert len(trained.tokens) == len(set(trained.tokens)) == size
    assert trained.tokens[:5] == SPECIAL_TOKENS
    assert trained.vocabulary.looks_cased() is not lower_case
    tokenizer = BertTokenizer(trained.vocabulary, lower_case)
    ids = tokenizer.tokenize(TEXT)
    assert trained.vocabulary.unk_id not in ids.numpy()
    spelled = b"".join(tokenizer.id_to_token(ids).numpy()).replace(b"##", b"")
    words = reference_tokenization.normalized(TEXT, lower_case)
    assert spelled.decode() == "".join(c for c, _ in words if not c.isspace())


def test_frequent_words_become_tokens(corpus) -> None:
    tokens = train_vocab([corpus], 130, held_out=0.0, min_frequency=1).tokens
    assert {"cats", "the", "sat", "mat"} <= set(tokens)
    assert {"<", "##,", "##中"}.isdisjoint(tokens)


def test_google_layout(corpus) -> None:
    trained = train_vocab([corpus], 1120, google_layout=True, min_frequency=1)
    unused = [f"[unused{number}]" for number in range(994)]
    first = ("[PAD]", *unused[:99], "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert trained.tokens[:999] == (*first, *unused[99:])


def test_alphabet_leaves_the_rarest_characters_out(corpus, tmp_path) -> None:
    rare = tmp_path / "rare.txt"
    rare.write_text(TEXT + "Ж ~\n", encoding="utf-8")
    trained = train_vocab([rare], 110, character_coverage=0.999, held_out=0.0)
    assert "ж" not in trained.tokens
    assert "~" in trained.tokens
    assert trained.report.alphabet_left_out >= 1
    everything = train_vocab([rare], 110, character_coverage=1.0, held_out=0.0)
    assert "ж" in everything.tokens
    assert everything.report.alphabet_left_out == 0


def test_report_is_true(corpus, tmp_path) -> None:
    held_out = tmp_path / "other.txt"
    held_out.write_text(TEXT + "ЖЖ cat\n" * 7, encoding="utf-8")
    settings = {"held_out": 0.4, "character_coverage": 0.99}
    trained = train_vocab([held_out], 100, **settings)
    report = trained.report
    counts = count([held_out], held_out=0.4)
    assert (report.lines, report.files) == (87, 1)
    assert report.words == counts.learned.words
    assert report.held_out_words == counts.held_out.words > 0
    pieces = unknown = 0
    for word, number in counts.held_out.counts.items():
        found = reference_tokenization.pieces(word, set(trained.tokens))
        pieces += number * len(found)
        unknown += number * (found == ["[UNK]"])
    assert report.pieces_per_word == pieces / report.held_out_words
    assert report.unknown_word_share == unknown / report.held_out_words
    assert report.megabytes == held_out.stat().st_size / 1e6
    assert "pieces per word" in str(report)


def test_saves_report_and_casing_beside(corpus, tmp_path) -> None:
    trained = train_vocab([corpus], 120, lower_case=False)
    trained.save(tmp_path / "out" / "vocab.txt")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"vocab.txt", "vocab_report.json", "tokenizer_config.json"}
    again = BertTokenizer.from_checkpoint(tmp_path / "out")
    assert again.vocabulary == trained.vocabulary
    assert again.lower_case is False
    report = json.loads((tmp_path / "out" / "vocab_report.json").read_text())
    assert report["vocab_size"] == 120
    trained.save(tmp_path / "named" / "mine.txt")
    names = {path.name for path in (tmp_path / "named").iterdir()}
    assert names == {"mine.txt", "mine_report.json"}


TRAIN = """
import sys
from bert_tf.corpora.vocabulary import train_vocab
print(train_vocab(sys.argv[1], 400, min_frequency=1).vocabulary.digest())
"""


def test_same_text_same_vocabulary_in_every_process(tmp_path) -> None:
    # Many pairs of equal frequency, so that ties must be broken alike.
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(400)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(words))
    vocabulary = train_vocab([path], 400, min_frequency=1).vocabulary
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(path)],
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == vocabulary.digest()


def test_a_line_of_a_million_characters(tmp_path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("a" * 1_000_000 + "\n" + "ab abc " * 50_000 + "\n")
    found = count([path])
    assert found.learned.counts == {"a" * 201: 1, "ab": 50_000, "abc": 50_000}
    trained = train_vocab([path], 12, held_out=0.0)
    assert trained.tokens[5:] == (*"abc", "##a", "##b", "##c", "ab")


def test_pieces_stay_short_enough_for_the_tokenizer(tmp_path) -> None:
    path = tmp_path / "runs.txt"
    path.write_text("\n".join(["ก" * 190 + "ข" * 7] * 50), encoding="utf-8")
    trained = train_vocab([path], 5000, held_out=0.0)
    assert 20 < max(map(len, trained.tokens)) <= 64
    BertTokenizer(trained.vocabulary)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 5}, "`vocab_size` is 5; it takes more than 5"),
        ({"vocab_size": 20}, "at least .* are needed for 5 special tokens"),
        ({"google_layout": True}, "at least 1.* needed for 999 special"),
        ({"min_frequency": 0}, "`min_frequency` is 0"),
        ({"character_coverage": 0.0}, "`character_coverage` is 0.0"),
        ({"held_out": 1.0}, "`held_out` is 1.0"),
        ({"encoding_errors": "ignore"}, "encoding_errors is 'ignore'"),
        ({"max_unique_words": 0}, "`max_unique_words` is 0"),
    ],
)
def test_impossible_settings(corpus, arguments, message) -> None:
    with pytest.raises(UserError, match=message):
        train_vocab(**{"input_files": [corpus], "vocab_size": 120, **arguments})
