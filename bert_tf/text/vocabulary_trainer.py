"""Learning a WordPiece vocabulary from text files of any size."""

import collections
import dataclasses
import json
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tokenizers

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.recipe import Limits
from bert_tf.text import unicode_tables
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import MAX_PIECE_BYTES
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    write_tokenizer_config,
)
from bert_tf.text.tokenizer_files import TOKENIZER_CONFIG_FILE
from bert_tf.text.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    VOCABULARY_FILE,
    Vocabulary,
)
from bert_tf.text.vocabulary_extension import (
    extended_tokens,
    split_words,
)
from bert_tf.text.word_counts import CorpusCounts, WordCounts

_FEED_CHARACTERS = 1 << 16


def special_tokens(google_layout: bool = False) -> tuple[str, ...]:
    """The tokens that come first.

    With `google_layout`, as in the vocab.txt of Google's uncased models:
    [PAD], [unused0] to [unused98], [UNK], [CLS], [SEP], [MASK], [unused99] to
    [unused993].
    """
    if not google_layout:
        return SPECIAL_TOKENS.present
    unused = [f"[unused{number}]" for number in range(994)]
    pad, *others = SPECIAL_TOKENS.present
    return (pad, *unused[:99], *others, *unused[99:])


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """How a vocabulary is learned; see `train_vocab` for the attributes."""

    vocab_size: int
    google_layout: bool = False
    min_frequency: int = 2
    character_coverage: float = 0.9999
    held_out: float = 0.01
    max_unique_words: int = 5_000_000
    extend: Vocabulary | None = None

    def __post_init__(self) -> None:
        for name, limits in (
            ("vocab_size", Limits(above=len(SPECIAL_TOKENS))),
            ("min_frequency", Limits(at_least=1)),
            ("character_coverage", Limits(above=0, at_most=1)),
            ("held_out", Limits(at_least=0, below=1)),
            ("max_unique_words", Limits(at_least=1)),
        ):
            limits.check(f"`{name}`", getattr(self, name))
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


def learn_vocab(
    counts: CorpusCounts,
    settings: VocabularySettings,
    config: TokenizerConfig,
    files: int,
    megabytes: float,
    seconds_reading: float,
) -> TrainedVocabulary:
    """Learns a vocabulary from words that were counted.

    Args:
      counts: the words.
      settings: see `train_vocab`.
      config: how text is split into words.
      files, megabytes, seconds_reading: where the words come from, for the
        report.

    Raises:
      UserError: the text does not give that many tokens.
    """
    started = time.monotonic()
    alphabet, left_out = _alphabet(
        counts.learned.counts, settings.character_coverage
    )
    tokens = _learn(counts.learned.counts, alphabet, config, settings)
    seconds = time.monotonic() - started
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
        files=files,
        megabytes=megabytes,
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
        seconds_reading=seconds_reading,
        seconds_learning=seconds,
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
