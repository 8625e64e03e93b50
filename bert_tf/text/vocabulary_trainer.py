"""Trains and extends WordPiece vocabularies by counted words."""

import collections
import dataclasses
import json
import pathlib
import re
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
from bert_tf.text.word_counts import CorpusCounts, WordCounts
from bert_tf.text.wordpiece import WordPiece

_FEED_CHARACTERS = 1 << 16
_UNUSED = re.compile(r"\[unused\d+\]")
_WORDS_AT_ONCE = 10_000


def special_tokens(google_layout: bool = False) -> tuple[str, ...]:
    """The first tokens of a vocabulary.

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
    """Settings of the training; see `train_vocab` for the attributes."""

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
                "google_layout is True: an extended vocabulary keeps its "
                "layout; leave out `google_layout` or `extend`."
            )


@dataclasses.dataclass(frozen=True)
class VocabularyReport:
    """The training text of a vocabulary and its fit.

    The rates are those of held-out lines, or None if there were none;
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
                "to bound memory, words rarer than "
                f"{self.unique_words_forgotten_below} were dropped"
            )
        if self.pieces_per_word is None:
            lines.append("no lines were held out for evaluation")
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
    """A trained vocabulary and its report."""

    vocabulary: Vocabulary
    report: VocabularyReport

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens in the order of their ids."""
        return self.vocabulary.tokens

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary and next to it its report.

        The report of `vocab.txt` is `vocab_report.json`; under this name a
        tokenizer_config.json with the rules is written, too.
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
            # Leave no partial result.
            for file in written:
                if file.is_file():
                    file.unlink()
            raise


def vocabulary_to_extend(
    path: str | pathlib.Path, config: TokenizerConfig
) -> Vocabulary:
    """Reads a vocabulary file and checks that its rules are those of `config`.

    Raises:
      UserError: the file is invalid or has other rules.
    """
    data = WordPiece.of_file(path, config.lower_case)
    for name in ("strip_accents", "tokenize_chinese_chars"):
        ours, theirs = getattr(config, name), getattr(data.config, name)
        if ours != theirs:
            raise UserError(
                f"{name} is {ours}, but {theirs} for the vocabulary of "
                f"`extend`={path}; pass `{name}`={theirs}."
            )
    return data.vocabulary


def learn_vocab(
    counts: CorpusCounts,
    settings: VocabularySettings,
    config: TokenizerConfig,
    files: int,
    megabytes: float,
    seconds_reading: float,
) -> TrainedVocabulary:
    """Trains a vocabulary on counted words.

    Args:
      counts: the words.
      settings: see `train_vocab`.
      config: how text is split into words.
      files, megabytes, seconds_reading: the source of the words, for the
        report.

    Raises:
      UserError: the text has too few tokens.
    """
    started = time.monotonic()
    alphabet, num_rare = _alphabet(
        counts.learned.counts, settings.character_coverage
    )
    tokens = _learn(counts.learned.counts, alphabet, config, settings)
    seconds = time.monotonic() - started
    before, old = None, settings.extend
    special = SPECIAL_TOKENS if old is None else old.special
    vocabulary = Vocabulary(tokens, special=special, notify=False)
    pieces, unknown = _evaluate(vocabulary, config, counts.held_out)
    if old is not None:
        before, _ = _evaluate(old, config, counts.held_out)
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
        alphabet_left_out=num_rare,
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
    """The characters of the vocabulary, and the number of other characters.

    The most frequent characters up to the coverage, and all ASCII characters
    that occur.
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
    alphabet = {*ranked[:needed], *filter(str.isascii, ranked)}
    return sorted(alphabet), len(ranked) - len(alphabet)


def _learn(
    counts: Mapping[str, int],
    alphabet: Sequence[str],
    config: TokenizerConfig,
    settings: VocabularySettings,
) -> list[str]:
    """The special tokens, the alphabet, and pieces in the order of merging.

    Raises `UserError` if the size is too small for the alphabet or too large
    for the text.
    """
    # Letters have both forms, so that a word of known letters is never [UNK].
    isolated = unicode_tables.stand_alone(config.tokenize_chinese_chars)
    letters = [c for c in alphabet if ord(c) not in isolated]
    characters = [*alphabet, *(CONTINUATION + c for c in letters)]
    if settings.extend is not None:
        return _extended_tokens(
            settings.extend,
            counts,
            characters,
            config,
            settings.vocab_size,
            settings.min_frequency,
        )
    special = special_tokens(settings.google_layout)
    vocab_size, min_frequency = settings.vocab_size, settings.min_frequency
    # As special tokens of the trainer they have the same ids in every run; it
    # numbers an alphabet in an order that changes with each process.
    fixed = [*special, *characters]
    if vocab_size < len(fixed):
        raise UserError(
            f"`vocab_size`={vocab_size}: at least {len(fixed)} are needed for "
            f"{len(special)} special tokens and an alphabet of "
            f"{len(alphabet)} characters; ask for more, or lower "
            "`character_coverage`."
        )
    # WordPiece is trained like BPE, with marked continuations.
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
    """Yields texts of bounded length with each word repeated by its count."""
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


def _evaluate(
    vocabulary: Vocabulary, config: TokenizerConfig, held_out: WordCounts
) -> tuple[float | None, float | None]:
    """Pieces per word, and the rate of [UNK], of the held-out words."""
    words = list(held_out.counts)
    if not words:
        return None, None
    weights = np.array([held_out.counts[word] for word in words])
    pieces, unknown = _split_words(vocabulary, config, words)
    total = int(weights.sum())
    return int(weights @ pieces) / total, int(weights @ unknown) / total


def _extended_tokens(
    vocabulary: Vocabulary,
    counts: Mapping[str, int],
    letters: Sequence[str],
    config: TokenizerConfig,
    vocab_size: int,
    min_frequency: int,
) -> list[str]:
    """The tokens of a vocabulary and new ones, `vocab_size` in all.

    Every token keeps its id, so the rows of a model stay valid. New tokens
    replace [unused] ones in their order, and then are appended: first the
    letters that are missing, so that words of them are no longer [UNK], then
    whole words in the order of the pieces they save, a word's count times its
    pieces but one. Words are split greedily by the longest prefix, so other
    words change only if they begin with a new token.

    Raises `UserError` if there is no room, or too few words.
    """
    tokens = list(vocabulary.entries)
    missing = [token for token in letters if token not in vocabulary.ids]
    ids = [
        number
        for number, token in enumerate(vocabulary.tokens)
        if _UNUSED.fullmatch(token)
    ]
    # Room for at least one token.
    needed = len(tokens) + max(0, max(len(missing), 1) - len(ids))
    if vocab_size < needed:
        raise UserError(
            f"`vocab_size`={vocab_size}: at least {needed} are needed for the "
            f"{len(tokens)} tokens of the vocabulary that is extended and "
            f"{len(missing)} letters that it lacks; ask for more, or lower "
            "`character_coverage`."
        )
    words = [
        word
        for word, count in counts.items()
        if count >= min_frequency and len(word) <= MAX_PIECE_BYTES // 4
    ]
    with_letters = Vocabulary(
        [*tokens, *missing], special=vocabulary.special, notify=False
    )
    pieces, _ = _split_words(with_letters, config, words)
    saved = {
        word: counts[word] * int(number - 1)
        for word, number in zip(words, pieces, strict=True)
        if number > 1
    }
    ranked = sorted(saved, key=lambda word: (-saved[word], word))
    ids += range(len(tokens), vocab_size)
    new = dict(zip(ids, [*missing, *ranked], strict=False))
    extended = [new.get(number, token) for number, token in enumerate(tokens)]
    extended += [new[number] for number in new if number >= len(tokens)]
    if len(extended) < vocab_size:
        raise UserError(
            f"`vocab_size`={vocab_size}: this text gives {len(extended)} "
            f"tokens with `min_frequency`={min_frequency}; ask for at most "
            "that many."
        )
    return extended


def _split_words(
    vocabulary: Vocabulary, config: TokenizerConfig, words: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of each word, int64 [n], and whether it is [UNK], bool [n]."""
    tokenizer = WordPiece(vocabulary, config).tokenizer()
    pieces, unknown = [np.zeros(0, np.int64)], [np.zeros(0, bool)]
    for start in range(0, len(words), _WORDS_AT_ONCE):
        ids = tokenizer.tokenize(words[start : start + _WORDS_AT_ONCE])
        pieces.append(ids.row_lengths().numpy())
        first = ids.values.numpy()[ids.row_starts().numpy()]
        unknown.append(first == vocabulary.unk_id)
    return np.concatenate(pieces), np.concatenate(unknown)
