import bz2
import collections
import json
import pathlib

from corpus_files import articles, write_dump

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import parse_inputs
from bert_tf.corpora.vocabulary import (
    count_words,
    mixed_counts,
    train_corpus_vocab,
    train_vocab,
)
from bert_tf.text.vocabulary_trainer import TrainedVocabulary
from bert_tf.text.word_counts import CorpusCounts, WordCounts
from bert_tf.text.wordpiece_trainer import WordPieceTrainer
from tests.user_errors import error_of

SENTENCES = ["The cat sat on the mat.", "The cats sit where mats are."] * 30


def counts(words: dict[str, int]) -> CorpusCounts:
    return CorpusCounts(
        WordCounts(10, collections.Counter(words), sum(words.values()), 2),
        WordCounts(10, collections.Counter({"h": 4}), 4),
        lines=5,
    )


def test_counts_are_mixed_by_their_rates() -> None:
    mixed = mixed_counts(
        {"a": counts({"x": 10, "y": 1}), "b": counts({"x": 3, "z": 8})},
        {"a": 0.3, "b": 2.0},
    )
    assert mixed.learned.counts == {"x": 9, "z": 16}
    assert mixed.learned.words == 25
    assert mixed.learned.forgotten_below == 2
    assert mixed.held_out.counts == {"h": 9}
    assert mixed.lines == 10
    alone = counts({"x": 1})
    assert mixed_counts({"": alone}, {"": 1.0}) is alone


def trained(
    text: str, vocab_size: int = 45, workers: int = 1, **settings: object
) -> TrainedVocabulary:
    recipe = CorpusRecipe(**settings)
    files = parse_inputs(text, recipe)
    trainer = WordPieceTrainer(vocab_size, held_out=0.0)
    return train_corpus_vocab(files, recipe, trainer, workers)


def test_formats_give_the_vocabulary_of_their_sentences(tmp_path) -> None:
    lines, text = tmp_path / "a.txt", tmp_path / "b.txt"
    rows = tmp_path / "c.jsonl"
    lines.write_text("\n".join(SENTENCES))
    packed = tmp_path / "a.txt.bz2"
    packed.write_bytes(bz2.compress(lines.read_bytes()))
    text.write_text(" ".join(SENTENCES))
    rows.write_text(json.dumps({"text": " ".join(SENTENCES)}))
    expected = train_vocab([lines], 45, held_out=0.0)
    found = [
        trained(str(lines)),
        trained(str(packed)),
        trained(str(text), input_format="text"),
        trained(str(rows)),
    ]
    for vocabulary in found:
        assert vocabulary.tokens == expected.tokens
        assert vocabulary.report.words == expected.report.words
        assert vocabulary.report.lines == 60


def test_words_of_a_dump(tmp_path: pathlib.Path) -> None:
    path = write_dump(tmp_path / "w.xml.bz2", articles(20))
    found = trained(str(path), 68, workers=2)
    # "Town N is a town of N." is as often there as "It is old." and the wall.
    times = sum(n % 3 + 1 for n in range(20))
    assert found.report.words == (8 + 4 + 5) * times
    assert {"town", "wall", "is"} <= set(found.tokens)
    assert found.report.lines == 3 * times


def test_weights_decide_what_is_learned(tmp_path: pathlib.Path) -> None:
    for name, words in (("a", "abab abab cd"), ("b", "efef efef cd")):
        (tmp_path / f"{name}.txt").write_text(f"{words}\n" * 50)

    def learn(a: float, b: float) -> tuple[str, ...]:
        text = f"a:{a}={tmp_path}/a.txt,b:{b}={tmp_path}/b.txt"
        return trained(text, 19).tokens

    more_of_a = learn(3, 1)
    assert {"ab", "abab"} & set(more_of_a)
    assert not any("ef" in token for token in more_of_a)
    assert any("ef" in token for token in learn(1, 3))


def test_smoothing_decides_how_often_words_count(tmp_path) -> None:
    for name, lines in (("a", 30), ("b", 10)):
        (tmp_path / f"{name}.txt").write_text(f"{name * 2}\n" * lines)
    recipe = CorpusRecipe(smoothing=0.0)
    files = parse_inputs(f"a={tmp_path}/a.txt,b={tmp_path}/b.txt", recipe)
    found = count_words(files, recipe, WordPieceTrainer(100, 0.0))
    assert found.learned.counts == {"aa": 20, "bb": 20}


def test_no_words(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": " "}\n')
    assert "holds no words" in error_of(trained, f"{tmp_path}/a.jsonl")
