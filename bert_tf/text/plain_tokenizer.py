"""BERT's tokenization in Python and NumPy, for many words at once.

Text is normalized as one Python string, with the rules of google-research/bert
as tables of `str.translate`. The pieces of all words are then found together:
the vocabulary is a trie over UTF-16, in which all positions of the text advance
in step until no token matches.
"""

import bisect
import operator
import unicodedata
from collections.abc import Callable

import numpy as np

from bert_tf.text import unicode_tables
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    Vocabulary,
)
from bert_tf.text.word_table import WordTable

UTF16 = "utf-16-le"
_SPACE, _LINE_FEED = ord(" "), ord("\n")
# The trie's table has two to four times the slots that it uses: more slots mean
# fewer collisions, but more cache misses.
_SPARE_BITS = 1
# The second halves of characters above U+FFFF.
_LOW_SURROGATES = 0xDC00, 0xDFFF
_IDEOGRAPH_BOUNDS = [
    bound
    for first, last in unicode_tables.IDEOGRAPHS
    for bound in (first, last + 1)
]


class _Replacements(dict[int, str]):
    """The replacement of each code point, computed when it is first needed."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__()
        self._replace = replace

    def __missing__(self, code: int) -> str:
        return self.setdefault(code, self._replace(chr(code)))


def _clean(char: str) -> str:
    """`_clean_text` of tokenization.py, except for line feeds."""
    if char == "\n":
        return char
    if ord(char) in unicode_tables.dropped():
        return ""
    return " " if char.isspace() else char


def _clean_and_isolate(char: str) -> str:
    """`_clean_text` and `_tokenize_chinese_chars` of tokenization.py."""
    # An odd number of the blocks' bounds lie at or before an ideograph.
    if bisect.bisect_right(_IDEOGRAPH_BOUNDS, ord(char)) % 2:
        return f" {char} "
    return _clean(char)


def _split(char: str) -> str:
    """`_run_split_on_punc` of tokenization.py."""
    return f" {char} " if ord(char) in unicode_tables.punctuation() else char


def _strip_and_split(char: str) -> str:
    """`_run_strip_accents` and `_run_split_on_punc` of tokenization.py."""
    return "" if ord(char) in unicode_tables.accents() else _split(char)


class PlainNormalizer:
    """Normalizes lines to words separated by spaces, as Google's code does.

    Attributes:
      keeps: the code units of UTF-16 that are unchanged in every context, bool
        [2^16]; surrogates are not.
      parts: those that separate words, bool [2^16].
      blank: those of `parts` that are removed, bool [2^16].
    """

    def __init__(self, config: TokenizerConfig) -> None:
        self._lower_case = config.lower_case
        self._strips = config.strip_accents
        self._clean = _Replacements(
            _clean_and_isolate if config.tokenize_chinese_chars else _clean
        )
        self._split = _Replacements(
            _strip_and_split if config.strip_accents else _split
        )
        codes = [*range(_LINE_FEED), *range(_LINE_FEED + 1, 1 << 16)]
        codes = [c for c in codes if c not in unicode_tables.SURROGATES]
        chars = list(map(chr, codes))
        results = self("\n".join(chars)).split("\n")
        self.keeps, self.parts, self.blank = np.zeros((3, 1 << 16), bool)
        ordered = np.array(list(map(unicodedata.combining, chars))) == 0
        parted = [text[:1] == " " == text[-1:] for text in results]
        self.keeps[codes] = list(map(operator.eq, results, chars)) & ordered
        self.parts[codes] = parted & ordered
        self.blank[codes] = [text == " " for text in results]
        for flags in (self.keeps, self.parts, self.blank):
            flags[_LINE_FEED] = True
        # With so many characters the tables take 20 MB.
        self._clean.clear()
        self._split.clear()

    def __call__(self, text: str) -> str:
        """Normalizes lines independently."""
        # Neither a final sigma nor the order of marks depends on characters
        # beyond a space or a line feed.
        text = text.translate(self._clean)
        if self._lower_case:
            text = text.lower()
        if self._strips:
            text = unicodedata.normalize("NFD", text)
        return text.translate(self._split)


class WordPieces:
    """WordPiece: greedy longest-match-first tokenization of words."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._unknown = vocabulary.unk_id
        numbers = [
            number
            for number in np.flatnonzero(vocabulary.in_words).tolist()
            if vocabulary.tokens[number] != CONTINUATION
        ]
        continues = vocabulary.is_continuation[numbers]
        bodies = [
            vocabulary.tokens[number].removeprefix(CONTINUATION)
            for number in numbers
        ]
        self._build("\n".join([*bodies, ""]), continues, np.array(numbers))

    def _build(
        self, text: str, continues: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Builds the trie.

        Args:
          text: the tokens without "##", one per line.
          continues: whether each token had a "##", bool [n].
          numbers: their ids, int64 [n].
        """
        units = np.frombuffer(text.encode(UTF16), np.uint16)
        ends = np.flatnonzero(units == _LINE_FEED)
        starts = np.concatenate([[0], ends[:-1] + 1])
        # State 0 is the beginning of a word, state 1 follows a piece.
        states = continues.astype(np.int64)
        count, depths = 2, [np.zeros(2, np.int32)]
        keys: list[np.ndarray] = []
        longer = np.arange(len(numbers))
        while len(longer):
            taken = states[longer] << 16 | units[starts[longer] + len(keys)]
            steps, inverse = np.unique(taken, return_inverse=True)
            keys.append(steps.astype(np.uint64))
            states[longer] = count + inverse
            count += len(steps)
            depths.append(np.full(len(steps), len(keys), np.int32))
            longer = longer[(starts + len(keys) < ends)[longer]]
        steps = np.concatenate(keys)
        self._steps = WordTable(1, len(steps).bit_length() + _SPARE_BITS)
        self._steps.add([steps], np.arange(2, count))
        # The depth of each state in code units, and the token that ends in it
        # or -1.
        self._depths = np.concatenate(depths)
        self._tokens = np.full(count, -1, np.int32)
        self._tokens[states] = numbers

    def __call__(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Splits words into ids.

        Args:
          text: lines, each with its line feed, of words separated by spaces.

        Returns:
          The ids concatenated, int32 [t], and the count of each line, int64.
        """
        units = np.frombuffer(text.encode(UTF16), np.uint16)
        line_ends = np.flatnonzero(units == _LINE_FEED)
        between = (units == _SPACE) | (units == _LINE_FEED)
        after_space = np.concatenate([[True], between[:-1]])
        starts = np.flatnonzero(after_space & ~between)
        ends = np.flatnonzero(between & ~after_space)
        sizes = ends - starts
        first, last = _LOW_SURROGATES
        halves = (units >= first) & (units <= last)
        if halves.any():
            before = np.concatenate([[0], np.cumsum(halves)])
            sizes -= before[ends] - before[starts]
        unknown = sizes > MAX_WORD_CHARACTERS
        word = np.cumsum(after_space & ~between) - 1
        searched = ~between
        if unknown.any():
            searched &= ~unknown[word]
        ids, lengths = self._longest(units, np.flatnonzero(searched), starts)
        # Advances from piece to piece, in all words at once.
        reached = np.zeros(len(units), bool)
        left = np.flatnonzero(~unknown)
        positions = starts[left]
        while len(left):
            reached[positions] = True
            steps = lengths[positions]
            unknown[left[steps == 0]] = True
            positions += steps
            inside = (steps > 0) & ~between[positions]
            left, positions = left[inside], positions[inside]
        if unknown.any():
            reached &= ~unknown[word]
            reached[starts[unknown]] = True
            ids[starts[unknown]] = self._unknown
        begins = np.flatnonzero(reached)
        counts = np.diff(np.searchsorted(begins, line_ends), prepend=0)
        return ids[begins], counts

    def _longest(
        self, units: np.ndarray, positions: np.ndarray, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the longest token at each position.

        Args:
          units: a text in UTF-16, uint16 [n], that ends with a separator.
          positions: the positions to search.
          starts: the beginnings of words.

        Returns:
          Its id and its number of code units, 0 if none; int32 [n] each.
        """
        first = np.ones(len(units), np.uint64)
        first[starts] = 0
        states = first[positions]
        # The last state in which a token ended; none ends in the first.
        best = np.zeros(len(units), np.int32)
        values = units.astype(np.uint64)
        depth = 0
        while len(positions):
            keys = states << np.uint64(16) | values[positions + depth]
            known, states = self._steps.find([keys])
            positions = positions[known]
            depth += 1
            ends = np.flatnonzero(self._tokens[states] >= 0)
            best[positions[ends]] = states[ends]
            states = states.astype(np.uint64)
        return self._tokens[best], self._depths[best]


class PlainTokenizer:
    """Splits text into WordPiece ids as google-research/bert does."""

    def __init__(self, vocabulary: Vocabulary, config: TokenizerConfig) -> None:
        self.normalizer = PlainNormalizer(config)
        self._pieces = WordPieces(vocabulary)

    def tokenize(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Splits lines, each with its line feed, into ids; see `WordPieces`."""
        units = np.frombuffer(text.encode(UTF16), np.uint16)
        changed = np.flatnonzero(~self.normalizer.keeps[units])
        if len(changed):
            ends = np.flatnonzero(units == _LINE_FEED)
            lines = text.split("\n")
            numbers = np.unique(np.searchsorted(ends, changed)).tolist()
            normal = self.normalizer("\n".join([lines[n] for n in numbers]))
            for number, line in zip(numbers, normal.split("\n"), strict=True):
                lines[number] = line
            text = "\n".join(lines)
        return self._pieces(text)
