"""As many languages as multilingual BERT's, mixed by smoothed shares."""

import numpy as np
import pytest

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import parse_inputs
from bert_tf.corpora.vocabulary import count_words
from bert_tf.records.build import create_records
from bert_tf.records.folder import RecordFolder
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import Vocabulary
from tests.records_corpus import parsed

# Eight scripts of thirteen letters; a language has one word.
SCRIPTS = "aαаאاकก가"
WORDS = [2 * chr(ord(first) + n) for first in SCRIPTS for n in range(13)]
# From 600 documents to 5; one document is one record.
SIZES = np.array([600 // (n + 1) for n in range(len(WORDS))])
SENTENCES, SENTENCE_WORDS = 4, 3
SMOOTHING = 0.7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("languages")
    for number, (word, size) in enumerate(zip(WORDS, SIZES, strict=True)):
        document = f"{' '.join([word] * SENTENCE_WORDS)}\n" * SENTENCES
        text = "\n".join([document] * size)
        (root / f"{number}.txt").write_text(text, encoding="utf-8")
    Vocabulary([*SPECIAL_TOKENS, *WORDS]).save(root / "vocab.txt")
    return root


def inputs(folder):
    return ",".join(f"l{n}={folder}/{n}.txt" for n in range(len(WORDS)))


def smoothed(sizes):
    """p^s / sum of p^s of all the text, p the share of each language."""
    powers = (sizes / sizes.sum()) ** SMOOTHING
    return sizes.sum() * powers / powers.sum()


def test_shares_of_the_records_that_are_written(folder):
    assert len(set(WORDS)) == 104, "as many as multilingual BERT has"
    recipe = RecordsRecipe(
        max_seq_length=16,
        max_predictions_per_seq=2,
        lower_case=False,
        random_next_prob=0.0,
        short_seq_prob=0.0,
        held_out=0.0,
        smoothing=SMOOTHING,
    )
    out = folder / "records"
    create_records(
        parse_inputs(inputs(folder), recipe),
        folder / "vocab.txt",
        out,
        recipe,
        workers=1,
        log=lambda line: None,
    )
    found = np.zeros(len(SPECIAL_TOKENS) + len(WORDS))
    for file in RecordFolder.open(out).training_files:
        for row in parsed(file.path):
            found += np.bincount(row["input_ids"], minlength=len(found))
    found = found[len(SPECIAL_TOKENS) :] / (SENTENCES * SENTENCE_WORDS)
    expected = smoothed(SIZES)
    # A document is taken as often as the whole part of the rate says, and
    # once more by chance.
    rates = expected / SIZES
    assert (found >= SIZES * np.floor(rates)).all()
    assert (found <= SIZES * np.ceil(rates)).all()
    deviations = np.sqrt(SIZES * (rates % 1) * (1 - rates % 1))
    assert (np.abs(found - expected) < 4 * deviations).all()
    # The largest language is less often there, the smallest more often.
    assert rates[0] < 0.6
    assert rates[-1] > 1.9


def test_counts_of_the_words_that_a_vocabulary_is_learned_from(folder):
    recipe = CorpusRecipe(smoothing=SMOOTHING)
    counted = count_words(
        parse_inputs(inputs(folder), recipe),
        *(recipe, TokenizerConfig.of(False), 0.0, 1000),
    )
    words = SIZES * SENTENCES * SENTENCE_WORDS
    found = [counted.learned.counts[word] for word in WORDS]
    np.testing.assert_allclose(found, smoothed(words), rtol=0, atol=0.51)
