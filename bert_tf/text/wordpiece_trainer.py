"""Trains and extends WordPiece vocabularies."""

import collections
import dataclasses
import functools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tokenizers

from bert_tf.errors import UserError
from bert_tf.recipe import Limits
from bert_tf.text import unicode_tables
from bert_tf.text.normalizer import BertNormalizer
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import MAX_PIECE_BYTES
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    Vocabulary,
)
from bert_tf.text.vocabulary_trainer import (
    Learned,
    VocabularyTrainer,
    repeated,
    split_words,
)
from bert_tf.text.wordpiece import WordPiece

_LINES_AT_ONCE = 256
_UNUSED = re.compile(r"\[unused\d+\]")


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
class WordPieceTrainer(VocabularyTrainer):
    """Learns WordPiece tokens; see `train_vocab` for the attributes.

    Attributes:
      config: how text is split into words.
    """

    KIND: ClassVar[str] = "wordpiece"

    config: TokenizerConfig = TokenizerConfig.of()
    google_layout: bool = False
    min_frequency: int = 2
    character_coverage: float = 0.9999
    extend: Vocabulary | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.google_layout and self.extend is not None:
            raise UserError(
                "google_layout is True: an extended vocabulary keeps its "
                "layout; leave out `google_layout` or `extend`."
            )

    def limits(self) -> dict[str, Limits]:
        """See `VocabularyTrainer`."""
        return {
            "vocab_size": Limits(above=len(SPECIAL_TOKENS)),
            "min_frequency": Limits(at_least=1),
            "character_coverage": Limits(above=0, at_most=1),
            **super().limits(),
        }

    @functools.cached_property
    def _normalizer(self) -> BertNormalizer:
        return BertNormalizer(self.config)

    def words(self, lines: Sequence[str]) -> collections.Counter[str]:
        """Counts the words of lines, as split by BERT."""
        pattern = unicode_tables.word_pattern(
            self.config.tokenize_chinese_chars
        )
        texts = [
            "\n".join(lines[start : start + _LINES_AT_ONCE])
            for start in range(0, len(lines), _LINES_AT_ONCE)
        ]
        normalized = self._normalizer.normalize(tf.constant(texts)).numpy()
        blank_separated: collections.Counter[str] = collections.Counter()
        for text in normalized:
            blank_separated.update(text.decode().split())
        counts: collections.Counter[str] = collections.Counter()
        # Splitting at punctuation is slow: once for each distinct run.
        for run, count in blank_separated.items():
            for word in pattern.findall(run):
                # Longer words are always [UNK]; a prefix suffices.
                counts[word[: MAX_WORD_CHARACTERS + 1]] += count
        return counts

    def learn(self, counts: Mapping[str, int]) -> Learned:
        """See `VocabularyTrainer`."""
        alphabet, left_out = _alphabet(counts, self.character_coverage)
        tokens = _learn(counts, alphabet, self)
        special = SPECIAL_TOKENS
        if self.extend is not None:
            special = self.extend.special
        vocabulary = Vocabulary(tokens, special=special, notify=False)
        data = WordPiece(vocabulary, self.config)
        return Learned(data, len(alphabet), left_out)

    def rules(self) -> dict[str, Any]:
        """See `VocabularyTrainer`."""
        return {
            "lower_case": self.config.lower_case,
            "strip_accents": self.config.strip_accents,
            "tokenize_chinese_chars": self.config.tokenize_chinese_chars,
        }

    def extended(self) -> Tokenizer | None:
        """See `VocabularyTrainer`."""
        if self.extend is None:
            return None
        return WordPiece(self.extend, self.config).tokenizer()


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
    trainer: WordPieceTrainer,
) -> list[str]:
    """The special tokens, the alphabet, and pieces in the order of merging.

    Raises `UserError` if the size is too small for the alphabet.
    """
    # Letters have both forms, so that a word of known letters is never [UNK].
    isolated = unicode_tables.stand_alone(trainer.config.tokenize_chinese_chars)
    letters = [c for c in alphabet if ord(c) not in isolated]
    characters = [*alphabet, *(CONTINUATION + c for c in letters)]
    if trainer.extend is not None:
        return _extended_tokens(
            trainer.extend,
            counts,
            characters,
            trainer.config,
            trainer.vocab_size,
            trainer.min_frequency,
        )
    special = special_tokens(trainer.google_layout)
    vocab_size, min_frequency = trainer.vocab_size, trainer.min_frequency
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
    pairs = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=fixed,
        limit_alphabet=unicode_tables.CODE_POINTS,
        continuing_subword_prefix=CONTINUATION,
        max_token_length=MAX_PIECE_BYTES // 4,
        show_progress=False,
    )
    known = set(alphabet)
    model.train_from_iterator(
        repeated(
            {
                word: count
                for word, count in counts.items()
                if len(word) <= MAX_WORD_CHARACTERS and known.issuperset(word)
            }
        ),
        pairs,
    )
    ids = model.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _extended_tokens(
    vocabulary: Vocabulary,
    counts: Mapping[str, int],
    letters: Sequence[str],
    config: TokenizerConfig,
    vocab_size: int,
    min_frequency: int,
) -> list[str]:
    """The tokens of a vocabulary and new ones, at most `vocab_size` in all.

    Every token keeps its id, so the rows of a model stay valid. New tokens
    replace [unused] ones in their order, and then are appended: first the
    letters that are missing, so that words of them are no longer [UNK], then
    whole words in the order of the pieces they save, a word's count times its
    pieces but one. Words are split greedily by the longest prefix, so other
    words change only if they begin with a new token.

    Raises `UserError` if there is no room.
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
    tokenizer = WordPiece(with_letters, config).tokenizer()
    pieces, _ = split_words(tokenizer, words)
    saved = {
        word: counts[word] * int(number - 1)
        for word, number in zip(words, pieces, strict=True)
        if number > 1
    }
    ranked = sorted(saved, key=lambda word: (-saved[word], word))
    ids += range(len(tokens), vocab_size)
    new = dict(zip(ids, [*missing, *ranked], strict=False))
    extended = [new.get(number, token) for number, token in enumerate(tokens)]
    return extended + [new[number] for number in new if number >= len(tokens)]
