"""Learning a WordPiece vocabulary from text files of any size."""

import collections
import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tokenizers

from bert_tf.errors import UserError, check_choice
from bert_tf.files import ENCODING_ERRORS, expand_inputs, write_text
from bert_tf.progress import Progress
from bert_tf.text import unicode_tables
from bert_tf.text.tokenizer import MAX_PIECE_BYTES
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    write_tokenizer_config,
)
from bert_tf.text.tokenizer_files import TOKENIZER_CONFIG_FILE
from bert_tf.text.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    SPECIAL_TOKENS,
    VOCABULARY_FILE,
    Vocabulary,
)
from bert_tf.text.vocabulary_extension import (
    extended_tokens,
    split_words,
    vocabulary_to_extend,
)
from bert_tf.text.word_counts import CorpusCounts, WordCounts, count_words

_FEED_CHARACTERS = 1 << 16


def special_tokens(google_layout: bool = False) -> tuple[str, ...]:
    """The tokens that come first.

    With `google_layout`, as in the vocab.txt of Google's uncased models:
    [PAD], [unused0] to [unused98], [UNK], [CLS], [SEP], [MASK], [unused99] to
    [unused993].
    """
    if not google_layout:
        return SPECIAL_TOKENS
    unused = [f"[unused{number}]" for number in range(994)]
    return (SPECIAL_TOKENS.pad, *unused[:99], *SPECIAL_TOKENS[1:], *unused[99:])


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """How a vocabulary is learned; see `train_vocab` for the attributes."""

    vocab_size: int
    google_layout: bool
    min_frequency: int
    character_coverage: float
    held_out: float
    max_unique_words: int
    extend: Vocabulary | None = None

    def __post_init__(self) -> None:
        special = len(SPECIAL_TOKENS)
        for name, good, takes in (
            (
                "vocab_size",
                self.vocab_size > special,
                f"give more than the {special} special tokens",
            ),
            ("min_frequency", self.min_frequency >= 1, "at least 1"),
            (
                "character_coverage",
                0 < self.character_coverage <= 1,
                "above 0, at most 1",
            ),
            ("held_out", 0 <= self.held_out < 1, "from 0 to below 1"),
            ("max_unique_words", self.max_unique_words >= 1, "at least 1"),
        ):
            if not good:
                raise UserError(f"`{name}`={getattr(self, name)}: {takes}.")
        if self.google_layout and self.extend is not None:
            raise UserError(
                "google_layout is True: a vocabulary that is extended keeps "
                "its own; leave out `google_layout` or `extend`."
            )


@dataclasses.dataclass(frozen=True)
class VocabularyReport:
    """What a vocabulary was learned from and how well it fits.

    The shares are those of held-out lines, or None if there were none.
    `pieces_per_word_before` is that of the vocabulary that was extended.
    """

    vocab_size: int
    new_tokens: int
    lower_case: bool
    strip_accents: bool
    tokenize_chinese_chars: bool
    files: int
    megabytes: float
    lines: int
    words: int
    unique_words: int
    unique_words_forgotten_below: int
    alphabet: int
    alphabet_left_out: int
    held_out_words: int
    pieces_per_word: float | None
    unknown_word_share: float | None
    pieces_per_word_before: float | None
    seconds_reading: float
    seconds_learning: float

    def __str__(self) -> str:
        new = before = ""
        if self.new_tokens < self.vocab_size:
            new = f", {self.new_tokens:,} of them new,"
        if self.pieces_per_word_before is not None:
            before = f" (before, {self.pieces_per_word_before:.3f})"
        rate = self.megabytes / max(self.seconds_reading, 1e-9)
        lines = [
            f"{self.vocab_size:,} tokens{new} learned from {self.words:,} "
            f"words ({self.unique_words:,} different) of {self.lines:,} lines, "
            f"{self.megabytes:,.1f} MB in {self.files} files",
            f"alphabet: {self.alphabet:,} characters, "
            f"{self.alphabet_left_out:,} rarer ones left out",
            f"reading {self.seconds_reading:.1f} s ({rate:.1f} MB/s), "
            f"learning {self.seconds_learning:.1f} s",
        ]
        if self.unique_words_forgotten_below:
            lines.append(
                "words rarer than "
                f"{self.unique_words_forgotten_below} were forgotten on the "
                "way to bound memory"
            )
        if self.pieces_per_word is None:
            lines.append("no lines were held out to judge it by")
        else:
            lines.append(
                f"{self.held_out_words:,} held-out words: "
                f"{self.pieces_per_word:.3f} pieces per word{before}, "
                f"{self.unknown_word_share:.3%} of the words are "
                f"{SPECIAL_TOKENS.unk}"
            )
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class TrainedVocabulary:
    """A learned vocabulary and the report on it."""

    vocabulary: Vocabulary
    report: VocabularyReport

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens in the order of their ids."""
        return self.vocabulary.tokens

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary, and its report beside it.

        `vocab.txt` gets a `vocab_report.json`; under that name it also gets a
        tokenizer_config.json, so that its folder says how text is split.
        """
        path = pathlib.Path(path)
        written = [path]
        try:
            self.vocabulary.save(path)
            if path.name == VOCABULARY_FILE:
                written.append(path.with_name(TOKENIZER_CONFIG_FILE))
                config = TokenizerConfig.of(
                    self.report.lower_case,
                    self.report.strip_accents,
                    self.report.tokenize_chinese_chars,
                )
                write_tokenizer_config(path.parent, config, self.vocabulary)
            written.append(path.with_name(f"{path.stem}_report.json"))
            report = json.dumps(dataclasses.asdict(self.report), indent=2)
            write_text(written[-1], report + "\n")
        except OSError:
            # All of them or none.
            for file in written:
                if file.is_file():
                    file.unlink()
            raise


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
    """Learns a WordPiece vocabulary of exactly the size asked for.

    Words are counted as BERT splits them while the files stream by; pieces
    are then joined by the `tokenizers` library, most frequent pair first, and
    the same text gives the same vocabulary in every run. Memory depends on
    the number of different words, which `max_unique_words` bounds.

    Args:
      input_files: paths or globs; in a single string, comma-separated. Names
        ending in .gz are decompressed.
      vocab_size: V, the number of tokens.
      lower_case: whether to lower-case, and to strip accents unless
        `strip_accents` says otherwise.
      google_layout: whether to leave Google's 994 [unused] slots.
      min_frequency: how often a piece must occur to be joined.
      character_coverage: the share of all characters that the alphabet must
        cover; words with the rarest characters, beyond it, become [UNK].
      held_out: the share of lines that only the report uses.
      encoding_errors: "strict", or "replace" for U+FFFD, which BERT drops.
      max_unique_words: how many different words to remember at a time.
      progress: whether to show a progress bar on standard error.
      strip_accents: whether to strip accents; None does as `lower_case`.
      tokenize_chinese_chars: whether every ideograph is a word of its own.
      extend: a vocabulary file whose tokens all keep their ids, [unused] ones
        apart. What the text needs besides, letters and the words that save
        the most pieces, takes their places and follows behind.

    Raises:
      UserError: unreadable input, impossible values, or a text that does not
        give that many tokens; the message says how many it gives.
    """
    check_choice("`encoding_errors`", encoding_errors, ENCODING_ERRORS)
    if not isinstance(input_files, str):
        input_files = ",".join(map(str, input_files))
    files = expand_inputs(input_files, "input_files")
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
        return count_words(
            files, config, held_out, max_unique_words, encoding_errors, advance
        )

    size = sum(file.stat().st_size for file in files)
    text = CountedText(input_files, len(files), size, count)
    return train_vocab_from(text, settings, config, progress)


@dataclasses.dataclass(frozen=True)
class CountedText:
    """Text whose words can be counted.

    Attributes:
      name: what the user calls it.
      files: number of files.
      size: their bytes.
      count: counts the words; takes a function to call with the bytes read.
    """

    name: str
    files: int
    size: int
    count: Callable[[Callable[[int], object]], CorpusCounts]


def train_vocab_from(
    text: CountedText,
    settings: VocabularySettings,
    config: TokenizerConfig,
    progress: bool,
) -> TrainedVocabulary:
    """Learns a vocabulary from any text; see `train_vocab` for the rest."""
    started = time.monotonic()
    with Progress("reading", text.size, 0, "B", shown=progress) as bar:
        counts = text.count(bar.update)
    read = time.monotonic()
    if not counts.learned.counts:
        raise UserError(f"{text.name}: holds no words.")
    alphabet, left_out = _alphabet(
        counts.learned.counts, settings.character_coverage
    )
    if progress:
        print("learning the pieces", file=sys.stderr, flush=True)
    tokens = _learn(
        counts.learned.counts,
        alphabet,
        config,
        settings,
    )
    learned = time.monotonic()
    before, old = None, settings.extend
    special = SPECIAL_TOKENS if old is None else old.special
    vocabulary = Vocabulary(tokens, special=special, notify=False)
    pieces, unknown = _judge(vocabulary, config, counts.held_out)
    if old is not None:
        before, _ = _judge(old, config, counts.held_out)
    report = VocabularyReport(
        vocab_size=len(tokens),
        new_tokens=len(
            set(vocabulary.tokens).difference(old.ids if old else ())
        ),
        lower_case=config.lower_case,
        strip_accents=config.strip_accents,
        tokenize_chinese_chars=config.tokenize_chinese_chars,
        files=text.files,
        megabytes=text.size / 1e6,
        lines=counts.lines,
        words=counts.learned.words,
        unique_words=len(counts.learned.counts),
        unique_words_forgotten_below=counts.learned.forgotten_below,
        alphabet=len(alphabet),
        alphabet_left_out=left_out,
        held_out_words=counts.held_out.words,
        pieces_per_word=pieces,
        unknown_word_share=unknown,
        pieces_per_word_before=before,
        seconds_reading=read - started,
        seconds_learning=learned - read,
    )
    return TrainedVocabulary(vocabulary, report)


def _alphabet(
    counts: Mapping[str, int], coverage: float
) -> tuple[list[str], int]:
    """The characters to know, and how many others there are.

    These are the most frequent ones, up to the share to cover, and all of
    ASCII that occurs.
    """
    frequency: collections.Counter = collections.Counter()
    for word, count in counts.items():
        if len(word) <= MAX_WORD_CHARACTERS:
            for character in word:
                frequency[character] += count
    if not frequency:
        return [], 0
    ranked = sorted(frequency, key=lambda c: (-frequency[c], c))
    covered = np.cumsum([frequency[c] for c in ranked])
    needed = int(np.searchsorted(covered, coverage * covered[-1])) + 1
    kept = {*ranked[:needed], *filter(str.isascii, ranked)}
    return sorted(kept), len(ranked) - len(kept)


def _learn(
    counts: Mapping[str, int],
    alphabet: Sequence[str],
    config: TokenizerConfig,
    settings: VocabularySettings,
) -> list[str]:
    """The tokens: special ones, alphabet, joined pieces, most frequent first.

    Raises `UserError` if the size is too small for the alphabet or too large
    for the text.
    """
    # Letters get both forms, so that a word of known letters is never [UNK].
    alone = unicode_tables.stand_alone(config.tokenize_chinese_chars)
    letters = [c for c in alphabet if ord(c) not in alone]
    characters = [*alphabet, *(CONTINUATION + c for c in letters)]
    if settings.extend is not None:
        return extended_tokens(
            settings.extend,
            counts,
            characters,
            config,
            settings.vocab_size,
            settings.min_frequency,
        )
    special = special_tokens(settings.google_layout)
    vocab_size, min_frequency = settings.vocab_size, settings.min_frequency
    # Given to the trainer as fixed tokens, they have the same ids in every
    # run; it would number them by an order that changes with each process.
    fixed = [*special, *characters]
    if vocab_size < len(fixed):
        raise UserError(
            f"`vocab_size`={vocab_size}: at least {len(fixed)} are needed for "
            f"{len(special)} special tokens and an alphabet of "
            f"{len(alphabet)} characters; ask for more, or lower "
            "`character_coverage`."
        )
    # WordPiece is learned like BPE, with marked continuations.
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=fixed,
        limit_alphabet=unicode_tables.CODE_POINTS,
        continuing_subword_prefix=CONTINUATION,
        max_token_length=MAX_PIECE_BYTES // 4,
        show_progress=False,
    )
    model.train_from_iterator(_feed(counts, alphabet), trainer)
    ids = model.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    if len(tokens) < vocab_size:
        raise UserError(
            f"`vocab_size`={vocab_size}: this text gives {len(tokens)} tokens "
            f"with `min_frequency`={min_frequency}; ask for at most that many"
            + (", or lower `min_frequency`." if min_frequency > 1 else ".")
        )
    return tokens


def _feed(counts: Mapping[str, int], alphabet: Sequence[str]) -> Iterator[str]:
    """Every word as often as it was counted, in texts of bounded length."""
    known = set(alphabet)
    texts: list[str] = []
    size = 0
    for word, count in counts.items():
        if len(word) > MAX_WORD_CHARACTERS or not known.issuperset(word):
            continue
        at_once = max(1, _FEED_CHARACTERS // (len(word) + 1))
        while count > 0:
            texts.append(f"{word} " * min(count, at_once))
            size += len(texts[-1])
            count -= at_once
            if size >= _FEED_CHARACTERS:
                yield "".join(texts)
                texts, size = [], 0
    yield "".join(texts)


def _judge(
    vocabulary: Vocabulary, config: TokenizerConfig, held_out: WordCounts
) -> tuple[float | None, float | None]:
    """Pieces per word and the share of [UNK] words of the held-out words."""
    words = list(held_out.counts)
    if not words:
        return None, None
    weights = np.array([held_out.counts[word] for word in words])
    pieces, unknown = split_words(vocabulary, config, words)
    total = int(weights.sum())
    return int(weights @ pieces) / total, int(weights @ unknown) / total
