"""Learns a vocabulary from corpora of any format, mixed or not."""

import collections
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from bert_tf.corpora.reading import DocumentSplitter, reader_of
from bert_tf.corpora.recipe import SENTENCES, CorpusRecipe
from bert_tf.corpora.sources import CorpusFile, sampling_rates
from bert_tf.corpora.streams import ByteStream, Position
from bert_tf.errors import UserError
from bert_tf.files import decode_line, expand_inputs
from bert_tf.progress import Progress
from bert_tf.text.subword_trainers import ByteBpeTrainer, UnigramTrainer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary_trainer import (
    TrainedVocabulary,
    VocabularyTrainer,
    learn_vocab,
)
from bert_tf.text.word_counts import (
    CHUNK_CHARACTERS,
    CorpusCounts,
    WordCounts,
    count_chunks,
)
from bert_tf.text.wordpiece_trainer import (
    WordPieceTrainer,
    vocabulary_to_extend,
)

# The settings that each kind has besides sizes.
_UNIGRAM_SETTINGS = {"lower_case", "strip_accents", "character_coverage"}
_BYTE_BPE_SETTINGS = {"min_frequency"}


def train_vocab(
    input_files: str | Sequence[str | pathlib.Path],
    vocab_size: int,
    lower_case: bool | None = None,
    google_layout: bool | None = None,
    min_frequency: int | None = None,
    character_coverage: float | None = None,
    held_out: float = 0.01,
    encoding_errors: str = "strict",
    max_unique_words: int = 5_000_000,
    progress: bool = False,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool | None = None,
    extend: str | pathlib.Path | None = None,
    kind: str = WordPieceTrainer.KIND,
) -> TrainedVocabulary:
    """Learns a vocabulary of a given size, or less from a small text.

    Words are counted in one pass over the files; then the tokens are learned.
    WordPiece and byte-level BPE: the `tokenizers` library merges pieces, most
    frequent pair first. Unigram: the `sentencepiece` library (Kudo 2018). The
    same text gives the same vocabulary in every run. Memory depends on the
    number of different words, which `max_unique_words` bounds.

    Args:
      input_files: paths or globs; in a single string, comma-separated. Names
        ending in .gz are decompressed.
      vocab_size: V, the number of tokens; if the text gives fewer, a line
        says how many.
      lower_case: whether to lower-case the text, and to strip accents if
        `strip_accents` is None. None is True for WordPiece, else False; a
        unigram model is ALBERT's if it is True, else XLM-R's. Not of byte_bpe.
      google_layout: whether to reserve Google's 994 [unused] tokens; WordPiece
        only.
      min_frequency: how often a pair of pieces must occur to be merged, 2 if
        None; not of unigram.
      character_coverage: the share of all characters that the alphabet must
        cover, 0.9999 if None; words with rarer characters become [UNK]. Not of
        byte_bpe.
      held_out: the share of lines that only the report uses.
      encoding_errors: "strict", or "replace" for U+FFFD, which BERT drops.
      max_unique_words: how many different words to count at a time.
      progress: whether to show a progress bar on standard error.
      strip_accents: whether to strip accents; None is `lower_case`.
      tokenize_chinese_chars: whether every ideograph becomes a word, True if
        None; WordPiece only.
      extend: a WordPiece vocabulary file whose tokens keep their ids, except
        [unused] ones. New letters, and the words that save the most pieces,
        replace the [unused] tokens and are appended.
      kind: "wordpiece", "unigram", or "byte_bpe", RoBERTa's.

    Raises:
      UserError: unreadable input, invalid values, or an alphabet that needs
        more tokens; the message says how many.
    """
    if not isinstance(input_files, str):
        input_files = ",".join(map(str, input_files))
    paths = expand_inputs(input_files, "input_files")
    trainer = vocabulary_trainer(
        kind,
        vocab_size,
        held_out,
        max_unique_words,
        lower_case=lower_case,
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
        google_layout=google_layout,
        min_frequency=min_frequency,
        character_coverage=character_coverage,
        extend=extend,
    )
    return train_corpus_vocab(
        [CorpusFile(str(path), SENTENCES) for path in paths],
        CorpusRecipe(SENTENCES, encoding_errors=encoding_errors),
        trainer,
        1,
        progress,
    )


def vocabulary_trainer(
    kind: str,
    vocab_size: int,
    held_out: float,
    max_unique_words: int,
    *,
    lower_case: bool | None = None,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool | None = None,
    google_layout: bool | None = None,
    min_frequency: int | None = None,
    character_coverage: float | None = None,
    extend: str | pathlib.Path | None = None,
) -> VocabularyTrainer:
    """The trainer of a kind of vocabulary; see `train_vocab`.

    Raises:
      UserError: an unknown kind, a setting that it does not have, or an invalid
        value.
    """
    given = {
        name: value
        for name, value in (
            ("lower_case", lower_case),
            ("strip_accents", strip_accents),
            ("tokenize_chinese_chars", tokenize_chinese_chars),
            ("google_layout", google_layout or None),
            ("min_frequency", min_frequency),
            ("character_coverage", character_coverage),
            ("extend", extend),
        )
        if value is not None
    }
    if kind == UnigramTrainer.KIND:
        _refuse_others(kind, given, _UNIGRAM_SETTINGS)
        return UnigramTrainer(
            vocab_size,
            held_out,
            max_unique_words,
            bool(lower_case),
            bool(lower_case if strip_accents is None else strip_accents),
            0.9999 if character_coverage is None else character_coverage,
        )
    frequency = 2 if min_frequency is None else min_frequency
    if kind == ByteBpeTrainer.KIND:
        _refuse_others(kind, given, _BYTE_BPE_SETTINGS)
        return ByteBpeTrainer(vocab_size, held_out, max_unique_words, frequency)
    if kind != WordPieceTrainer.KIND:
        raise UserError(
            f"`kind` is {kind!r}; it takes wordpiece, unigram or byte_bpe."
        )
    config = TokenizerConfig.of(
        lower_case is not False,
        strip_accents,
        tokenize_chinese_chars is not False,
    )
    return WordPieceTrainer(
        vocab_size,
        held_out,
        max_unique_words,
        config,
        bool(google_layout),
        frequency,
        0.9999 if character_coverage is None else character_coverage,
        None if extend is None else vocabulary_to_extend(extend, config),
    )


def _refuse_others(
    kind: str, given: Mapping[str, object], known: Set[str]
) -> None:
    for name, value in given.items():
        if name not in known:
            raise UserError(
                f"`{name}` is {value}: {kind} has no such setting; leave it "
                "out."
            )


def train_corpus_vocab(
    files: Sequence[CorpusFile],
    recipe: CorpusRecipe,
    trainer: VocabularyTrainer,
    workers: int = 0,
    progress: bool = False,
) -> TrainedVocabulary:
    """Learns a vocabulary like `train_vocab`, from files of any format.

    Args:
      files: the files of all corpora.
      recipe: how they are read and mixed.
      trainer: splits lines into words and learns tokens of them.
      progress: see `train_vocab`.
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
            trainer,
            workers,
            bar.update,
        )
    read = time.monotonic() - started
    if not counts.learned.counts:
        names = ",".join(file.path for file in files)
        raise UserError(f"{names}: holds no words.")
    if progress:
        print("learning the pieces", file=sys.stderr, flush=True)
    return learn_vocab(counts, trainer, len(files), size / 1e6, read)


def count_words(
    files: Sequence[CorpusFile],
    recipe: CorpusRecipe,
    trainer: VocabularyTrainer,
    workers: int = 1,
    advance: Callable[[int], object] = lambda size: None,
) -> CorpusCounts:
    """Counts the words of corpora, a few megabytes of text at a time.

    With several corpora, the counts of each are multiplied by how often its
    documents are used (see `sampling_rates`).

    Args:
      files: the files of all corpora.
      recipe: how they are read and mixed.
      trainer: splits lines into words.
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
                trainer.words,
                trainer.held_out,
                max(trainer.max_unique_words // len(weights), 1),
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
