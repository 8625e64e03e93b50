"""Contexts as words and as tokens, each context once."""

import bisect
import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_tf.text.rows import TokenIds

if TYPE_CHECKING:
    # It brings TensorFlow, which scoring a file needs nothing of.
    from bert_tf.text.tokenizer import BertTokenizer

# run_squad.py `is_whitespace`: what divides the words of a context. Other
# blanks, such as U+00A0, stand inside words.
BLANKS = " \t\r\n\u202f"
_WORD = re.compile(f"[^{BLANKS}]+")
# Contexts tokenised at a time.
_CONTEXTS = 512


class Words(NamedTuple):
    """Where the words of a context are, as blanks divide it.

    Attributes:
      context: the context.
      starts: the character at which each word begins.
    """

    context: str
    starts: list[int]

    def at(self, character: int) -> int:
        """The word at a character, or before it if it is a blank.

        It is -1 before the first word and outside of the context.
        """
        if not 0 <= character < len(self.context):
            return -1
        return bisect.bisect_right(self.starts, character) - 1

    def text(self, first: int, last: int) -> str:
        """The words from `first` to `last`, joined by spaces."""
        end = None if last + 1 == len(self.starts) else self.starts[last + 1]
        return " ".join(split_words(self.context[self.starts[first] : end]))


def words_of(context: str) -> Words:
    """Finds the words of a context."""
    return Words(context, [m.start() for m in _WORD.finditer(context)])


def split_words(text: str) -> list[str]:
    """Splits a text into words."""
    return _WORD.findall(text)


@dataclasses.dataclass(frozen=True)
class TokenizedContexts:
    """C different contexts as tokens, with the word that each token is of.

    Words and characters are numbered through all contexts, one character
    between two of them.

    Attributes:
      texts: the contexts.
      tokens: their token ids, end to end in this order.
      character_begin: int64 [C], the number of each one's first character.
      word_starts: int64 [words], the character at which each word begins.
      word_of_token: int64 [T], the word of each token, ascending.
    """

    texts: tuple[str, ...]
    tokens: TokenIds
    character_begin: np.ndarray
    word_starts: np.ndarray
    word_of_token: np.ndarray

    def word_at(self, context: np.ndarray, character: np.ndarray) -> np.ndarray:
        """The numbers of the words at some characters.

        Args:
          context: int64 [N], contexts by number.
          character: int64 [N], characters of them; at a blank, the word before
            it is meant.
        """
        place = self.character_begin[context] + character
        return np.searchsorted(self.word_starts, place, side="right") - 1

    def first_word(self, context: int) -> int:
        """The number of a context's first word."""
        begin = self.character_begin[context]
        return int(np.searchsorted(self.word_starts, begin))


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: "BertTokenizer"
) -> tuple[TokenizedContexts, np.ndarray]:
    """Tokenises contexts, equal ones once.

    google-research/bert tokenises every word of its own; since its tokenizer
    never looks across the blanks that divide them, the tokens of the whole
    are the same.

    Args:
      contexts: N contexts.
      tokenizer: what makes the tokens.

    Returns:
      The different contexts and, for each of the N, its number, int64 [N].
    """
    different = dict.fromkeys(contexts)
    # Batches of ASCII alone are tokenised faster, so they come first.
    plain = [text for text in different if text.isascii()]
    other = [text for text in different if not text.isascii()]
    texts = (*plain, *other)
    numbers = {text: number for number, text in enumerate(texts)}
    lengths = np.array([len(text) + 1 for text in texts], np.int64)
    character_begin = np.cumsum(lengths) - lengths
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    starts = [np.zeros(0, np.int64)]
    word_starts = [np.zeros(0, np.int64)]
    number = 0
    for batch in _batches(plain, other):
        begins = character_begin[number : number + len(batch)]
        found, first, _ = tokenizer.tokenize_with_offsets(batch)
        ids.append(found.values.numpy())
        counts.append(found.row_lengths().numpy())
        starts.append(first.values.numpy() + np.repeat(begins, counts[-1]))
        word_starts.append(_word_starts(batch) + begins[0])
        number += len(batch)
    count, all_starts = np.concatenate(counts), np.concatenate(word_starts)
    tokens = TokenIds(np.concatenate(ids), np.cumsum(count) - count, count)
    word_of_token = (
        np.searchsorted(all_starts, np.concatenate(starts), side="right") - 1
    )
    return (
        TokenizedContexts(
            texts, tokens, character_begin, all_starts, word_of_token
        ),
        np.array([numbers[text] for text in contexts], np.int64),
    )


def _batches(*groups: Sequence[str]) -> list[list[str]]:
    return [
        list(group[start : start + _CONTEXTS])
        for group in groups
        for start in range(0, len(group), _CONTEXTS)
    ]


def _word_starts(texts: Sequence[str]) -> np.ndarray:
    """Where the words begin in texts that one blank stands between."""
    joined = BLANKS[0] + BLANKS[0].join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le"), "<u4")
    blank = np.zeros(len(codes), bool)
    for character in BLANKS:
        blank |= codes == ord(character)
    return np.flatnonzero(blank[:-1] & ~blank[1:]).astype(np.int64)
