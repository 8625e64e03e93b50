"""Learns a vocabulary from corpora of any format, mixed or not."""

import collections
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from bert_tf.corpora.reading import DocumentSplitter, reader_of
from bert_tf.corpora.recipe import SENTENCES, CorpusRecipe
from bert_tf.corpora.sources import CorpusFile, sampling_rates
from bert_tf.corpora.streams import ByteStream, Position
from bert_tf.errors import UserError
from bert_tf.files import decode_line, expand_inputs
from bert_tf.progress import Progress
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary_trainer import (
    TrainedVocabulary,
    VocabularySettings,
    learn_vocab,
    vocabulary_to_extend,
)
from bert_tf.text.word_counts import (
    CHUNK_CHARACTERS,
    CorpusCounts,
    WordCounts,
    count_chunks,
)


def train_vocab(
    input_files: str | Sequence[str | pathlib.Path],
    vocab_size: int,
    lower_case: bool = True,
    google_layout: bool = False,
    min_frequency: int = 2,
    character_coverage: float = 0.9999,
    held_out: float = 0.01,
    encoding_errors: str = "strict",
    max_unique_words: int = 5_000_000,
    progress: bool = False,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    extend: str | pathlib.Path | None = None,
) -> TrainedVocabulary:
    """Learns a WordPiece vocabulary of a given size.

    Words are counted in one pass over the files; the `tokenizers` library then
    merges pieces, most frequent pair first. The same text gives the same
    vocabulary in every run. Memory depends on the number of different words,
    which `max_unique_words` bounds.

    Args:
      input_files: paths or globs; in a single string, comma-separated. Names
        ending in .gz are decompressed.
      vocab_size: V, the number of tokens.
      lower_case: whether to lower-case the text, and to strip accents if
        `strip_accents` is None.
      google_layout: whether to reserve Google's 994 [unused] tokens.
      min_frequency: how often a pair of pieces must occur to be merged.
      character_coverage: the share of all characters that the alphabet must
        cover; words with rarer characters become [UNK].
      held_out: the share of lines that only the report uses.
      encoding_errors: "strict", or "replace" for U+FFFD, which BERT drops.
      max_unique_words: how many different words to count at a time.
      progress: whether to show a progress bar on standard error.
      strip_accents: whether to strip accents; None is `lower_case`.
      tokenize_chinese_chars: whether every ideograph becomes a word.
      extend: a vocabulary file whose tokens keep their ids, except [unused]
        ones. New letters, and the words that save the most pieces, replace
        the [unused] tokens and are appended.

    Raises:
      UserError: unreadable input, invalid values, or a text that yields fewer
        tokens; the message says how many.
    """
    if not isinstance(input_files, str):
        input_files = ",".join(map(str, input_files))
    paths = expand_inputs(input_files, "input_files")
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
    return train_corpus_vocab(
        [CorpusFile(str(path), SENTENCES) for path in paths],
        CorpusRecipe(SENTENCES, encoding_errors=encoding_errors),
        settings,
        config,
        1,
        progress,
    )


def train_corpus_vocab(
    files: Sequence[CorpusFile],
    recipe: CorpusRecipe,
    settings: VocabularySettings,
    config: TokenizerConfig,
    workers: int = 0,
    progress: bool = False,
) -> TrainedVocabulary:
    """Learns a vocabulary like `train_vocab`, from files of any format.

    Args:
      files: the files of all corpora.
      recipe: how they are read and mixed.
      settings, progress: see `train_vocab`.
      config: how text is split into words.
      workers: processes that split documents into sentences; 0 is one per
        processor. The vocabulary does not depend on it.

    Raises:
      UserError: see `train_vocab`.
    """
    started = time.monotonic()
    size = sum(file.size() for file in files)
    with Progress("reading", size, 0, "B", shown=progress) as bar:
        counts = count_words(
            files,
            recipe,
            config,
            settings.held_out,
            settings.max_unique_words,
            workers,
            bar.update,
        )
    read = time.monotonic() - started
    if not counts.learned.counts:
        names = ",".join(file.path for file in files)
        raise UserError(f"{names}: holds no words.")
    if progress:
        print("learning the pieces", file=sys.stderr, flush=True)
    return learn_vocab(counts, settings, config, len(files), size / 1e6, read)


def count_words(
    files: Sequence[CorpusFile],
    recipe: CorpusRecipe,
    config: TokenizerConfig,
    held_out: float,
    max_unique_words: int,
    workers: int = 1,
    advance: Callable[[int], object] = lambda size: None,
) -> CorpusCounts:
    """Counts the words of corpora, a few megabytes of text at a time.

    With several corpora, the counts of each are multiplied by how often its
    documents are used (see `sampling_rates`).

    Args:
      files: the files of all corpora.
      recipe: how they are read and mixed.
      config: how text is split into words.
      held_out: the share of lines to hold out; see `count_chunks`.
      max_unique_words: bounds the memory; see `WordCounts`.
      workers: see `train_corpus_vocab`.
      advance: called at each step with the bytes read from the files.
    """
    weights = {file.corpus: file.weight for file in files}
    counted = {}
    with DocumentSplitter(workers or os.cpu_count() or 1) as splitter:
        for name in sorted(weights):
            members = [file for file in files if file.corpus == name]
            counted[name] = count_chunks(
                _chunks(members, recipe, splitter, advance),
                config,
                held_out,
                max(max_unique_words // len(weights), 1),
            )
    sizes = {name: c.learned.words for name, c in counted.items()}
    rates = sampling_rates(sizes, weights, recipe.smoothing)
    return mixed_counts(counted, rates)


def _chunks(
    files: Sequence[CorpusFile],
    recipe: CorpusRecipe,
    splitter: DocumentSplitter,
    advance: Callable[[int], object],
) -> Iterator[list[str]]:
    """Yields the sentences of the files, a few megabytes at a time."""
    for file in files:
        lines: list[str] = []
        size = reported = 0
        for sentences, disk_bytes in _sentences(file, recipe, splitter):
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


def _sentences(
    file: CorpusFile, recipe: CorpusRecipe, splitter: DocumentSplitter
) -> Iterator[tuple[list[str], int]]:
    """Yields sentences and how many bytes of the file were read for them."""
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
    """Sums the counts of corpora, each multiplied by its rate, rounded."""
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
    rounded = collections.Counter(
        {word: round(count) for word, count in sums.items() if count >= 0.5}
    )
    return WordCounts(
        max(words.max_unique_words for words in counted.values()),
        rounded,
        rounded.total(),
        max(words.forgotten_below for words in counted.values()),
    )
