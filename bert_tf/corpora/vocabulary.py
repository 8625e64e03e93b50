"""Learning a vocabulary from corpora of every kind, mixed or not."""

import collections
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from bert_tf.corpora.reading import DocumentSplitter, reader_of
from bert_tf.corpora.recipe import SENTENCES, CorpusRecipe
from bert_tf.corpora.sources import CorpusFile, sampling_rates
from bert_tf.corpora.streams import ByteStream, Position
from bert_tf.files import decode_line
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary_extension import vocabulary_to_extend
from bert_tf.text.vocabulary_trainer import (
    CountedText,
    TrainedVocabulary,
    VocabularySettings,
    train_vocab_from,
)
from bert_tf.text.word_counts import (
    CHUNK_CHARACTERS,
    CorpusCounts,
    WordCounts,
    count_chunks,
)


def train_corpus_vocab(
    files: Sequence[CorpusFile],
    recipe: CorpusRecipe,
    vocab_size: int,
    lower_case: bool = True,
    google_layout: bool = False,
    min_frequency: int = 2,
    character_coverage: float = 0.9999,
    held_out: float = 0.01,
    max_unique_words: int = 5_000_000,
    workers: int = 0,
    progress: bool = False,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    extend: str | pathlib.Path | None = None,
) -> TrainedVocabulary:
    """Learns a vocabulary as `train_vocab` does, from any corpora.

    With several corpora, the words of each are counted alone and their counts
    multiplied by how often its documents are taken (see `sampling_rates`).

    Args:
      files: what to read.
      recipe: how it is read and mixed.
      vocab_size, lower_case, google_layout, min_frequency, character_coverage,
        held_out, max_unique_words, progress, strip_accents,
        tokenize_chinese_chars, extend: see `train_vocab`.
      workers: processes that split documents into sentences; 0 takes one for
        each processor. The vocabulary does not depend on it.

    Raises:
      UserError: unreadable input, impossible values, or a text that does not
        give that many tokens.
    """
    names = sorted({file.corpus for file in files})
    weights = {file.corpus: file.weight for file in files}
    workers = workers or os.cpu_count() or 1
    config = TokenizerConfig.of(
        lower_case, strip_accents, tokenize_chinese_chars
    )
    settings = VocabularySettings(
        vocab_size,
        google_layout,
        min_frequency,
        character_coverage,
        held_out,
        max_unique_words,
        None if extend is None else vocabulary_to_extend(extend, config),
    )

    def count(advance: Callable[[int], object]) -> CorpusCounts:
        counted = {}
        with DocumentSplitter(workers) as splitter:
            for name in names:
                mine = [file for file in files if file.corpus == name]
                counted[name] = count_chunks(
                    corpus_chunks(mine, recipe, splitter, advance),
                    config,
                    held_out,
                    max(max_unique_words // len(names), 1),
                )
        sizes = {name: c.learned.words for name, c in counted.items()}
        rates = sampling_rates(sizes, weights, recipe.smoothing)
        return mixed_counts(counted, rates)

    text = CountedText(
        ",".join(file.path for file in files),
        len(files),
        sum(file.size() for file in files),
        count,
    )
    return train_vocab_from(text, settings, config, progress)


def corpus_chunks(
    files: Sequence[CorpusFile],
    recipe: CorpusRecipe,
    splitter: DocumentSplitter,
    advance: Callable[[int], object],
) -> Iterator[list[str]]:
    """The sentences of files of any format, a few megabytes at a time.

    `advance` receives the bytes read from the files, a step at a time.
    """
    for file in files:
        lines: list[str] = []
        size = reported = 0
        for sentences, disk_bytes in _steps(file, recipe, splitter):
            lines += sentences
            size += sum(map(len, sentences))
            if size >= CHUNK_CHARACTERS:
                yield lines
                lines, size = [], 0
                advance(disk_bytes - reported)
                reported = disk_bytes
        if lines:
            yield lines
        advance(file.size() - reported)


def _steps(
    file: CorpusFile, recipe: CorpusRecipe, splitter: DocumentSplitter
) -> Iterator[tuple[list[str], int]]:
    """The sentences of a file, with the bytes of it that were read."""
    if file.format != SENTENCES:
        reader = reader_of(file, recipe)
        for document in splitter.documents(reader, Position()):
            yield document.sentences, document.disk_bytes
        return
    with ByteStream(pathlib.Path(file.path), Position()) as stream:
        lines = itertools.chain.from_iterable(stream.line_batches())
        offset = 0
        for number, line in enumerate(lines, start=1):
            offset += len(line)
            text = decode_line(line, file.path, number, recipe.encoding_errors)
            if text.strip():
                yield [text.strip()], stream.disk_bytes(offset)


def mixed_counts(
    counted: Mapping[str, CorpusCounts], rates: Mapping[str, float]
) -> CorpusCounts:
    """The counts of several corpora in one, each times its rate, rounded."""
    if len(counted) == 1 and set(rates.values()) == {1.0}:
        return next(iter(counted.values()))
    return CorpusCounts(
        _mixed({name: c.learned for name, c in counted.items()}, rates),
        _mixed({name: c.held_out for name, c in counted.items()}, rates),
        sum(c.lines for c in counted.values()),
    )


def _mixed(
    counted: Mapping[str, WordCounts], rates: Mapping[str, float]
) -> WordCounts:
    sums: dict[str, float] = collections.defaultdict(float)
    for name, words in counted.items():
        for word, count in words.counts.items():
            sums[word] += count * rates[name]
    whole = collections.Counter(
        {word: round(count) for word, count in sums.items() if count >= 0.5}
    )
    return WordCounts(
        max(words.max_unique_words for words in counted.values()),
        whole,
        whole.total(),
        max(words.forgotten_below for words in counted.values()),
    )
