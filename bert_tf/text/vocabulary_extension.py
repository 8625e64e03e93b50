"""The tokens of a vocabulary, with those that a text needs besides.

Every token keeps its id, so a model's rows stay where they are. New ones take
the places of [unused] tokens, in their order, and then follow behind.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.text.tokenizer import MAX_PIECE_BYTES, BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPiece

_UNUSED = re.compile(r"\[unused\d+\]")
_WORDS_AT_ONCE = 10_000


def vocabulary_to_extend(
    path: str | pathlib.Path, config: TokenizerConfig
) -> Vocabulary:
    """Reads a vocabulary file whose text is split as `config` says.

    Raises:
      UserError: the file cannot be used, or its text is split otherwise.
    """
    found = WordPiece.of_file(path, config.lower_case)
    for name in ("strip_accents", "tokenize_chinese_chars"):
        given, theirs = getattr(config, name), getattr(found.config, name)
        if given != theirs:
            raise UserError(
                f"{name} is {given}, but {theirs} for the vocabulary of "
                f"`extend`={path}; pass `{name}`={theirs}."
            )
    return found.vocabulary


def extended_tokens(
    vocabulary: Vocabulary,
    counts: Mapping[str, int],
    letters: Sequence[str],
    config: TokenizerConfig,
    vocab_size: int,
    min_frequency: int,
) -> list[str]:
    """The tokens with new ones, as many as there is room for.

    First come the letters that are missing, so that words of them are no
    longer [UNK], then whole words: first those that save the most pieces, a
    word's count times its pieces but one. Words are split by the longest known
    beginning, so other words change only where they begin with a new one.

    Args:
      vocabulary: its tokens stay, [unused] ones apart.
      counts: how often each word of the text occurs.
      letters: tokens of one character that are to be there.
      config: how text is split into words.
      vocab_size: number of tokens to return.
      min_frequency: how often a word must occur to be added.

    Raises:
      UserError: there is no room, or the text does not give that many tokens.
    """
    tokens = list(vocabulary.entries)
    missing = [token for token in letters if token not in vocabulary.ids]
    places = [
        number
        for number, token in enumerate(vocabulary.tokens)
        if _UNUSED.fullmatch(token)
    ]
    # With room for one token at least.
    needed = len(tokens) + max(0, max(len(missing), 1) - len(places))
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
    pieces, _ = split_words(with_letters, config, words)
    saved = {
        word: counts[word] * int(number - 1)
        for word, number in zip(words, pieces, strict=True)
        if number > 1
    }
    ranked = sorted(saved, key=lambda word: (-saved[word], word))
    places += range(len(tokens), vocab_size)
    new = dict(zip(places, [*missing, *ranked], strict=False))
    kept = [new.get(number, token) for number, token in enumerate(tokens)]
    kept += [new[number] for number in new if number >= len(tokens)]
    if len(kept) < vocab_size:
        raise UserError(
            f"`vocab_size`={vocab_size}: this text gives {len(kept)} tokens "
            f"with `min_frequency`={min_frequency}; ask for at most that many."
        )
    return kept


def split_words(
    vocabulary: Vocabulary, config: TokenizerConfig, words: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of each word, int64 [n], and whether it is [UNK], bool [n]."""
    tokenizer = BertTokenizer.from_config(vocabulary, config)
    pieces, unknown = [np.zeros(0, np.int64)], [np.zeros(0, bool)]
    for start in range(0, len(words), _WORDS_AT_ONCE):
        ids = tokenizer.tokenize(words[start : start + _WORDS_AT_ONCE])
        pieces.append(ids.row_lengths().numpy())
        first = ids.values.numpy()[ids.row_starts().numpy()]
        unknown.append(first == vocabulary.unk_id)
    return np.concatenate(pieces), np.concatenate(unknown)
