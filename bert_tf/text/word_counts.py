"""Counts the words of large texts within bounded memory."""

import collections
import dataclasses
import zlib
from collections.abc import Callable, Iterable, Sequence

CHUNK_CHARACTERS = 1 << 22
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
    words: Callable[[Sequence[str]], collections.Counter[str]],
    held_out: float,
    max_unique_words: int,
) -> CorpusCounts:
    """Counts the words of lines that are not blank.

    Lines are held out by their checksums, so equal lines stay together and the
    choice is the same in every run.

    Args:
      chunks: batches of lines.
      words: counts the words of lines.
      held_out: the fraction of lines to hold out.
      max_unique_words: see `WordCounts`.
    """
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
        for found, chosen in (
            (counts.learned, learned),
            (counts.held_out, held_out_lines),
        ):
            if chosen:
                found.add(words(chosen))
        counts.lines += len(lines)
    return counts
