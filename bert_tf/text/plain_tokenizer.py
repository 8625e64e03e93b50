"""Google's BERT tokenization without TensorFlow, for many words at once.

Text is normalised as one Python string, with the rules of google-research/bert
in tables of `str.translate`. The pieces of all words are then found together:
the vocabulary is a trie over UTF-16, in which every place of the text takes a
step at a time until no token goes on so.
"""

import bisect
import string
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
# The trie's table has two to four times the slots that it uses: the more, the
# fewer searches go on, and the more they wait for memory.
_SPARE_BITS = 1
# The second half of a character above U+FFFF.
_LOW_SURROGATES = 0xDC00, 0xDFFF


class _Replacements(dict[int, str]):
    """What becomes of each code point, found out when it is first met."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__()
        self._replace = replace

    def __missing__(self, code: int) -> str:
        return self.setdefault(code, self._replace(chr(code)))


# Where the runs of code points begin and end, in turn.
_IDEOGRAPHS = [
    bound
    for first, last in sorted(unicode_tables.IDEOGRAPHS)
    for bound in (first, last + 1)
]


def _cleaned(char: str) -> str:
    """`_clean_text` of tokenization.py, but for line feeds."""
    if char == "\n":
        return char
    if char in "\0\ufffd":
        return ""
    if char not in "\t\r" and unicodedata.category(char) in ("Cc", "Cf"):
        return ""
    return " " if char.isspace() else char


def _cleaned_and_apart(char: str) -> str:
    """`_clean_text` and `_tokenize_chinese_chars` of tokenization.py."""
    if bisect.bisect(_IDEOGRAPHS, ord(char)) % 2:
        return f" {char} "
    return _cleaned(char)


def _split_off(char: str) -> str:
    """`_run_split_on_punc` of tokenization.py."""
    if char in string.punctuation or unicodedata.category(char)[0] == "P":
        return f" {char} "
    return char


def _stripped_and_split_off(char: str) -> str:
    """`_run_strip_accents` and `_run_split_on_punc` of tokenization.py."""
    return "" if unicodedata.category(char) == "Mn" else _split_off(char)


class PlainNormalizer:
    """Turns lines into words with spaces between them, as Google's code does.

    Attributes:
      keeps: the code units of UTF-16 that stay as they are wherever they
        stand, bool [2^16]; surrogates are none.
      parts: those that part what stands before them from what stands behind,
        bool [2^16]; of these `blank` leave nothing behind, bool [2^16].
    """

    def __init__(self, config: TokenizerConfig) -> None:
        self._lower_case = config.lower_case
        self._strips = config.strip_accents
        self._clean = _Replacements(
            _cleaned_and_apart if config.tokenize_chinese_chars else _cleaned
        )
        self._split = _Replacements(
            _stripped_and_split_off if config.strip_accents else _split_off
        )
        codes = [*range(_LINE_FEED), *range(_LINE_FEED + 1, 1 << 16)]
        codes = [c for c in codes if c not in unicode_tables.SURROGATES]
        alone = self("\n".join(map(chr, codes))).split("\n")
        self.keeps, self.parts, self.blank = np.zeros((3, 1 << 16), bool)
        for code, kept in zip(codes, alone, strict=True):
            ordered = not unicodedata.combining(chr(code))
            self.keeps[code] = kept == chr(code) and ordered
            self.parts[code] = kept[:1] == kept[-1:] == " " and ordered
            self.blank[code] = kept == " "
        for flags in (self.keeps, self.parts, self.blank):
            flags[_LINE_FEED] = True
        # Of so many characters they would take 20 MB.
        self._clean.clear()
        self._split.clear()

    def __call__(self, text: str) -> str:
        """Normalises lines, each as if it were alone."""
        # Neither a final sigma nor the order of marks depends on what stands
        # beyond a space or a line feed.
        text = text.translate(self._clean)
        if self._lower_case:
            text = text.lower()
        if self._strips:
            text = unicodedata.normalize("NFD", text)
        return text.translate(self._split)


class WordPieces:
    """The pieces of words: the longest ones from the left."""

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
        """Makes the trie.

        Args:
          text: tokens without their "##", a line feed behind each.
          continues: whether each had one, bool [n].
          numbers: their ids, int64 [n].
        """
        units = np.frombuffer(text.encode(UTF16), np.uint16)
        ends = np.flatnonzero(units == _LINE_FEED)
        starts = np.concatenate([[0], ends[:-1] + 1])
        # A word begins in state 0 and goes on after a piece in state 1.
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
        # How many code units lead to each state, and the token that ends in
        # it, or -1.
        self._depths = np.concatenate(depths)
        self._tokens = np.full(count, -1, np.int32)
        self._tokens[states] = numbers

    def __call__(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids of words.

        Args:
          text: lines, each with its line feed; words are between spaces.

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
        # From piece to piece, in all words at once.
        reached = np.zeros(len(units), bool)
        left = np.flatnonzero(~unknown)
        places = starts[left]
        while len(left):
            reached[places] = True
            steps = lengths[places]
            unknown[left[steps == 0]] = True
            places += steps
            on = (steps > 0) & ~between[places]
            left, places = left[on], places[on]
        if unknown.any():
            reached &= ~unknown[word]
            reached[starts[unknown]] = True
            ids[starts[unknown]] = self._unknown
        found = np.flatnonzero(reached)
        counts = np.diff(np.searchsorted(found, line_ends), prepend=0)
        return ids[found], counts

    def _longest(
        self, units: np.ndarray, places: np.ndarray, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The longest token that begins at each place.

        Args:
          units: a text in UTF-16, uint16 [n], a separator at its end.
          places: where to look.
          starts: where words begin.

        Returns:
          Its id and its code units, 0 where there is none; int32 [n] each.
        """
        first = np.ones(len(units), np.uint64)
        first[starts] = 0
        states = first[places]
        # Of the state in which a token ended last; no token ends in the first.
        best = np.zeros(len(units), np.int32)
        values = units.astype(np.uint64)
        depth = 0
        while len(places):
            keys = states << np.uint64(16) | values[places + depth]
            known, states = self._steps.find([keys])
            places = places[known]
            depth += 1
            ends = np.flatnonzero(self._tokens[states] >= 0)
            best[places[ends]] = states[ends]
            states = states.astype(np.uint64)
        return self._tokens[best], self._depths[best]


class PlainTokenizer:
    """Splits text into WordPiece ids as google-research/bert does."""

    def __init__(self, vocabulary: Vocabulary, config: TokenizerConfig) -> None:
        self.normalizer = PlainNormalizer(config)
        self._pieces = WordPieces(vocabulary)

    def tokenize(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The ids of lines.

        Args:
          text: lines, each with its line feed.

        Returns:
          The ids concatenated, int32 [t], and the count of each line, int64.
        """
        units = np.frombuffer(text.encode(UTF16), np.uint16)
        changed = np.flatnonzero(~self.normalizer.keeps[units])
        if len(changed):
            ends = np.flatnonzero(units == _LINE_FEED)
            lines = text.split("\n")
            places = np.unique(np.searchsorted(ends, changed)).tolist()
            normal = self.normalizer("\n".join([lines[n] for n in places]))
            for place, line in zip(places, normal.split("\n"), strict=True):
                lines[place] = line
            text = "\n".join(lines)
        return self._pieces(text)
