"""Google's BERT tokenization in plain Python, for single words.

The ids are those of `BertTokenizer`, which is several times as fast on whole
texts. This one needs no TensorFlow, which takes half a gigabyte and seconds to
start: `corpus_tokenizer` asks it for each word once.
"""

import itertools
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.text import unicode_tables
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import CONTINUATION, Vocabulary

# tokenization.py `WordpieceTokenizer`: longer words become [UNK].
MAX_WORD_CHARACTERS = 200


class _Replacements(dict[int, str]):
    """What becomes of each code point, found out when it is first met."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__()
        self._replace = replace

    def __missing__(self, code: int) -> str:
        return self.setdefault(code, self._replace(chr(code)))


def _lies_in(char: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= ord(char) <= last for first, last in ranges)


def _cleaned(char: str) -> str:
    """`_clean_text` of tokenization.py."""
    if char in "\t\n\r":
        return " "
    if char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf"):
        return ""
    return char


def _cleaned_and_apart(char: str) -> str:
    """`_clean_text` and `_tokenize_chinese_chars` of tokenization.py."""
    if _lies_in(char, unicode_tables.IDEOGRAPHS):
        return f" {char} "
    return _cleaned(char)


def _split_off(char: str) -> str:
    """`_run_split_on_punc` of tokenization.py."""
    is_symbol = _lies_in(char, unicode_tables.ASCII_PUNCTUATION)
    if is_symbol or unicodedata.category(char)[0] == "P":
        return f" {char} "
    return char


def _without_accent(char: str) -> str:
    return "" if unicodedata.category(char) == "Mn" else char


class PlainTokenizer:
    """Splits words into WordPiece ids as google-research/bert does.

    Args:
      vocabulary: the pieces.
      config: how text is split into words.
    """

    def __init__(self, vocabulary: Vocabulary, config: TokenizerConfig) -> None:
        self._lower_case = config.lower_case
        self._strips = config.strip_accents
        self._unknown = vocabulary.unk_id
        self._firsts = vocabulary.ids
        self._others = {
            token.removeprefix(CONTINUATION): number
            for token, number in vocabulary.ids.items()
            if token.startswith(CONTINUATION)
        }
        self._longest = max(map(len, vocabulary.tokens))
        self._clean = _Replacements(
            _cleaned_and_apart if config.tokenize_chinese_chars else _cleaned
        )
        self._accents = _Replacements(_without_accent)
        self._marks = _Replacements(_split_off)

    def tokenize(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Splits texts into ids.

        Args:
          texts: UTF-8; bytes that are not are dropped.

        Returns:
          The ids end to end, int32 [t], and how many each text has, int64
          [len(texts)].
        """
        rows = [self._text(text.decode(errors="replace")) for text in texts]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(
            itertools.chain.from_iterable(rows), np.int32, lengths.sum()
        )
        return ids, lengths

    def _text(self, text: str) -> list[int]:
        if text.isascii() and text.isalnum():
            return self._word(text.lower() if self._lower_case else text)
        words = text.translate(self._clean).split()
        if self._lower_case:
            words = [word.lower() for word in words]
        if self._strips:
            words = [
                unicodedata.normalize("NFD", word).translate(self._accents)
                for word in words
            ]
        words = " ".join(words).translate(self._marks).split()
        return [number for word in words for number in self._word(word)]

    def _word(self, word: str) -> list[int]:
        """The longest pieces from the left; [UNK] where there are none."""
        if len(word) > MAX_WORD_CHARACTERS:
            return [self._unknown]
        found: list[int] = []
        pieces, start = self._firsts, 0
        while start < len(word):
            end = min(len(word), start + self._longest)
            while end > start and word[start:end] not in pieces:
                end -= 1
            if end == start:
                return [self._unknown]
            found.append(pieces[word[start:end]])
            pieces, start = self._others, end
        return found
