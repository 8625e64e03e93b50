"""Training of vocabularies by counted words, of any kind of tokenizer."""

import abc
import collections
import dataclasses
import json
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.progress import log
from bert_tf.recipe import Limits
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_files import TOKENIZER_CONFIG_FILE
from bert_tf.text.tokenizer_protocol import Tokenizer, TokenizerData
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.word_counts import CorpusCounts, WordCounts

_FEED_CHARACTERS = 1 << 16
_WORDS_AT_ONCE = 10_000


class Learned(NamedTuple):
    """What was learned.

    Attributes:
      data: tokens and rules.
      alphabet: the number of characters, or of bytes, in the vocabulary.
      alphabet_left_out: the number of characters that are too rare.
    """

    data: TokenizerData
    alphabet: int
    alphabet_left_out: int


@dataclasses.dataclass(frozen=True)
class VocabularyTrainer(abc.ABC):
    """Splits lines into words, and learns tokens of counted words.

    Attributes:
      vocab_size, held_out, max_unique_words: see `train_vocab`.
      KIND: the kind of tokenizer.
      FILE: the name of the vocabulary file; empty if any name will do.
    """

    KIND: ClassVar[str]
    FILE: ClassVar[str] = ""

    vocab_size: int
    held_out: float = 0.01
    max_unique_words: int = 5_000_000

    def __post_init__(self) -> None:
        for name, limits in self.limits().items():
            why = f" ({limits.why})" * bool(limits.why)
            limits.check(f"`{name}`", getattr(self, name), why)

    def limits(self) -> dict[str, Limits]:
        """The valid values of the settings."""
        return {
            "held_out": Limits(at_least=0, below=1),
            "max_unique_words": Limits(at_least=1),
        }

    def check_name(self, path: pathlib.Path) -> None:
        """Raises `UserError` if a vocabulary file cannot have this name."""
        if self.FILE and path.name != self.FILE:
            raise _other_name(path, self.KIND, self.FILE)

    @abc.abstractmethod
    def words(self, lines: Sequence[str]) -> collections.Counter[str]:
        """Counts the words of lines."""

    @abc.abstractmethod
    def learn(self, counts: Mapping[str, int]) -> Learned:
        """Learns tokens.

        Raises:
          UserError: more tokens are needed.
        """

    def rules(self) -> dict[str, Any]:
        """The rules of the tokenizer, for the report."""
        return {}

    def extended(self) -> Tokenizer | None:
        """The tokenizer whose vocabulary is extended; None for none."""
        return None


@dataclasses.dataclass(frozen=True)
class VocabularyReport:
    """The training text of a vocabulary and its fit.

    The rates are those of held-out lines, or None if there were none;
    `pieces_per_word_before` is that of the vocabulary that was extended.
    """

    kind: str
    vocab_size: int
    new_tokens: int
    rules: dict[str, Any]
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
    unknown_token: str | None
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
                f"{self.unknown_token}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        values = dataclasses.asdict(self)
        return values | values.pop("rules")


@dataclasses.dataclass(frozen=True)
class TrainedVocabulary:
    """A trained vocabulary and its report."""

    data: TokenizerData
    report: VocabularyReport

    @property
    def vocabulary(self) -> TokenTable:
        """The tokens and the ids of the special tokens."""
        return self.data.vocabulary

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens in the order of their ids."""
        return tuple(self.vocabulary.tokens)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary and next to it its report.

        The report of `vocab.txt` is `vocab_report.json`. Under the name that
        the file has in model folders, tokenizer_config.json with the rules and
        the other files of the tokenizer are written, too.
        """
        path = pathlib.Path(path)
        report = path.with_name(f"{path.stem}_report.json")
        written = [path, report]
        try:
            if path.name in self.data.FILES:
                written.append(path.with_name(TOKENIZER_CONFIG_FILE))
                self.data.save(path.parent)
            elif isinstance(self.vocabulary, Vocabulary):
                self.vocabulary.save(path)
            else:
                raise _other_name(path, self.report.kind, self.data.FILES[0])
            text = json.dumps(self.report.to_dict(), indent=2)
            write_text(report, text + "\n")
        except OSError:
            # Leave no partial result.
            for file in written:
                if file.is_file():
                    file.unlink()
            raise


def learn_vocab(
    counts: CorpusCounts,
    trainer: VocabularyTrainer,
    files: int,
    megabytes: float,
    seconds_reading: float,
) -> TrainedVocabulary:
    """Trains a vocabulary on counted words.

    Args:
      counts: the words.
      trainer: learns the tokens.
      files, megabytes, seconds_reading: the source of the words, for the
        report.

    Raises:
      UserError: more tokens are needed.
    """
    started = time.monotonic()
    learned = trainer.learn(counts.learned.counts)
    seconds = time.monotonic() - started
    table, old = learned.data.vocabulary, trainer.extended()
    if len(table) < trainer.vocab_size:
        log(
            f"`vocab_size`={trainer.vocab_size}: this text gives {len(table)} "
            "tokens; the vocabulary has that many"
        )
    pieces, unknown = _evaluate(learned.data.tokenizer(), counts.held_out)
    before, known = None, set[str]()
    if old is not None:
        before, _ = _evaluate(old, counts.held_out)
        known = set(old.vocabulary.ids)
    report = VocabularyReport(
        kind=trainer.KIND,
        vocab_size=len(table),
        new_tokens=len(set(table.tokens) - known),
        rules=trainer.rules(),
        files=files,
        megabytes=megabytes,
        lines=counts.lines,
        words=counts.learned.words,
        unique_words=len(counts.learned.counts),
        unique_words_forgotten_below=counts.learned.forgotten_below,
        alphabet=learned.alphabet,
        alphabet_left_out=learned.alphabet_left_out,
        held_out_words=counts.held_out.words,
        pieces_per_word=pieces,
        unknown_word_share=unknown,
        unknown_token=table.special.unk,
        pieces_per_word_before=before,
        seconds_reading=seconds_reading,
        seconds_learning=seconds,
    )
    return TrainedVocabulary(learned.data, report)


def repeated(counts: Mapping[str, int]) -> Iterator[str]:
    """Yields texts of bounded length with each word repeated by its count."""
    texts: list[str] = []
    size = 0
    for word, count in counts.items():
        at_once = max(1, _FEED_CHARACTERS // (len(word) + 1))
        while count > 0:
            texts.append(f"{word} " * min(count, at_once))
            size += len(texts[-1])
            count -= at_once
            if size >= _FEED_CHARACTERS:
                yield "".join(texts)
                texts, size = [], 0
    yield "".join(texts)


def split_words(
    tokenizer: Tokenizer, words: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of each word, int64 [n], and whether one is [UNK], bool [n]."""
    pieces, unknown = [np.zeros(0, np.int64)], [np.zeros(0, bool)]
    unk_id = tokenizer.vocabulary.unk_id
    for start in range(0, len(words), _WORDS_AT_ONCE):
        ids = tokenizer.tokenize(words[start : start + _WORDS_AT_ONCE])
        pieces.append(ids.row_lengths().numpy())
        unknown.append(tf.reduce_any(ids == unk_id, axis=-1).numpy())
    return np.concatenate(pieces), np.concatenate(unknown)


def _other_name(path: pathlib.Path, kind: str, name: str) -> UserError:
    return UserError(
        f"`output`={path}: the file of {kind} is named {name}; write "
        f"{path.parent / name}."
    )


def _evaluate(
    tokenizer: Tokenizer, held_out: WordCounts
) -> tuple[float | None, float | None]:
    """Pieces per word, and the share of words with [UNK], of held-out words."""
    words = list(held_out.counts)
    if not words:
        return None, None
    weights = np.array([held_out.counts[word] for word in words])
    pieces, unknown = split_words(tokenizer, words)
    total = int(weights.sum())
    return int(weights @ pieces) / total, int(weights @ unknown) / total
