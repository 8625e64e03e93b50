"""Counts the words of large texts, as split by BERT."""

import collections
import dataclasses
import re
import zlib
from collections.abc import Iterable, Sequence

import tensorflow as tf

from bert_tf.text import unicode_tables
from bert_tf.text.normalizer import BertNormalizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import MAX_WORD_CHARACTERS

CHUNK_CHARACTERS = 1 << 22
_LINES_AT_ONCE = 256
# No more words are held out, which suffices to estimate rates.
_HELD_OUT_WORDS = 1_000_000


@dataclasses.dataclass
class WordCounts:
    """Counts words within bounded memory.

    Attributes:
      max_unique_words: if exceeded, the rarest words are dropped until half as
        many remain; frequent words keep their exact counts.
      counts: the words and their counts.
      words: the number of all words.
      forgotten_below: words rarer than this were dropped; 0 if none.
    """

    max_unique_words: int
    counts: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )
    words: int = 0
    forgotten_below: int = 0

    def add(self, words: collections.Counter) -> None:
        """Adds the counts of words."""
        self.counts.update(words)
        self.words += words.total()
        if len(self.counts) <= self.max_unique_words:
            return
        known = collections.Counter(self.counts.values())
        remaining = len(self.counts)
        for count in sorted(known):
            remaining -= known[count]
            self.forgotten_below = max(self.forgotten_below, count + 1)
            if remaining <= self.max_unique_words // 2:
                break
        frequent = (
            w for w, n in self.counts.items() if n >= self.forgotten_below
        )
        self.counts = collections.Counter({w: self.counts[w] for w in frequent})


@dataclasses.dataclass
class CorpusCounts:
    """The words for training, the held-out words, and the number of lines."""

    learned: WordCounts
    held_out: WordCounts
    lines: int = 0


def count_chunks(
    chunks: Iterable[Sequence[str]],
    config: TokenizerConfig,
    held_out: float,
    max_unique_words: int,
) -> CorpusCounts:
    """Counts the words of lines that are not blank.

    Lines are held out by their checksums, so equal lines stay together and the
    choice is the same in every run.

    Args:
      chunks: batches of lines.
      config: how text is split into words.
      held_out: the fraction of lines to hold out.
      max_unique_words: see `WordCounts`.
    """
    normalizer = BertNormalizer(config)
    pattern = unicode_tables.word_pattern(config.tokenize_chinese_chars)
    counts = CorpusCounts(
        WordCounts(max_unique_words), WordCounts(max_unique_words)
    )
    for lines in chunks:
        learned, held_out_lines = [], []
        for line in lines:
            if (
                counts.held_out.words < _HELD_OUT_WORDS
                and zlib.crc32(line.encode()) < held_out * 2**32
            ):
                held_out_lines.append(line)
            else:
                learned.append(line)
        counts.learned.add(_words(normalizer, pattern, learned))
        counts.held_out.add(_words(normalizer, pattern, held_out_lines))
        counts.lines += len(lines)
    return counts


def _words(
    normalizer: BertNormalizer, pattern: re.Pattern[str], lines: Sequence[str]
) -> collections.Counter:
    if not lines:
        return collections.Counter()
    texts = [
        "\n".join(lines[start : start + _LINES_AT_ONCE])
        for start in range(0, len(lines), _LINES_AT_ONCE)
    ]
    normalized = normalizer.normalize(tf.constant(texts)).numpy()
    blank_separated: collections.Counter = collections.Counter()
    for text in normalized:
        blank_separated.update(text.decode().split())
    counts: collections.Counter = collections.Counter()
    # Splitting at punctuation is slow: once for each distinct run.
    for run, count in blank_separated.items():
        for word in pattern.findall(run):
            # Longer words are always [UNK]; a prefix suffices.
            counts[word[: MAX_WORD_CHARACTERS + 1]] += count
    return counts
