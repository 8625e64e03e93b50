"""`BertTokenizer` for much text: the pieces of each word are looked up.

A corpus repeats its words. Text is split where BERT's rules split it anyway, at
white space and, in ASCII, at punctuation; the pieces of a word come from a
table that `PlainTokenizer` fills, by the same rules in plain Python. Everything
else is array operations over bytes. TensorFlow, which takes half a gigabyte and
seconds to start, is imported only at the first text that has few words to look
up.
"""

import functools
import itertools
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.quiet_tensorflow import import_tensorflow
from bert_tf.text import unicode_tables
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    Vocabulary,
)

if TYPE_CHECKING:
    from bert_tf.text.tokenizer import BertTokenizer

# Classes of bytes.
_SPACE, _PUNCTUATION, _WORD, _OTHER = range(4)
# Words of more bytes are looked up one by one.
_KEY_BYTES = 16
_SLOTS = 1 << 20
# Above these everything is forgotten, which costs little, since frequent words
# come back at once; text that never repeats itself would fill the memory.
_MAX_WORDS = _SLOTS // 2
_MAX_IDS = 1 << 21
_MAX_LONG_WORDS = 1 << 15
# Text with a larger share of bytes that are not ASCII has few words to look up.
_MAX_OTHER_SHARE = 0.1
# Odd constants of splitmix64 and xxHash: any that spread the bits would do.
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_SHIFT = np.uint64(64 - 20)
# MASKS[n] keeps the first n bytes of a little-endian word.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def _byte_classes() -> bytes:
    classes = bytearray([_OTHER]) * 256
    for code in range(0x21, 0x7F):
        is_word = chr(code).isalnum()
        classes[code] = _WORD if is_word else _PUNCTUATION
    for code in b"\t\n\r ":
        classes[code] = _SPACE
    return bytes(classes)


_CLASSES = _byte_classes()
_SAME = bytes(range(256))
_NOT_ASCII = bytes(range(128, 256))
_LOWER = _SAME.lower()


class _Pieces:
    """Lists of token ids, numbered, concatenated in one array."""

    def __init__(self, dtype: type[np.integer]) -> None:
        # Of ones: the memory is taken now, so that it does not grow with the
        # text. A text may bring many words at once.
        self.ids = np.ones(_MAX_IDS + (1 << 18), dtype)
        self.starts = np.ones(_MAX_WORDS + (1 << 16), np.int32)
        self.clear()

    def clear(self) -> None:
        """Forgets all."""
        self.starts[0] = self.count = 0

    @property
    def size(self) -> int:
        """How many ids there are."""
        return int(self.starts[self.count])

    def add(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Adds concatenated lists; gives their numbers."""
        first, end = self.count, self.size
        self.count += len(lengths)
        self.ids = _with_room(self.ids, end + len(ids))
        self.starts = _with_room(self.starts, self.count + 1)
        self.ids[end : end + len(ids)] = ids
        self.starts[first + 1 : self.count + 1] = end + np.cumsum(lengths)
        return np.arange(first, self.count)

    def gather(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of lists, concatenated, and where each list ends."""
        starts = self.starts[numbers].astype(np.int64)
        counts = self.starts[numbers + 1] - starts
        ends = np.cumsum(counts)
        if len(ends) and ends[-1] == len(ends) and counts.all():
            return self.ids[starts], ends
        places = np.repeat(starts - (ends - counts), counts)
        places += np.arange(len(places))
        return self.ids[places], ends


def _with_room(array: np.ndarray, size: int) -> np.ndarray:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


class _WordTable:
    """Numbers of words of at most `_KEY_BYTES` bytes, by open addressing."""

    def __init__(self) -> None:
        # Of ones: see _Pieces.
        self.low = np.ones(_SLOTS, np.uint64)
        self.high = np.ones(_SLOTS, np.uint64)
        self.numbers = np.ones(_SLOTS, np.int32)
        self.clear()

    def clear(self) -> None:
        """Forgets all."""
        # A word is never empty, so a key of zeros is a free slot.
        self.low[:] = 0
        self.count = 0

    def find(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The numbers of words, -1 for those that are not there."""
        slots = self._first_slots(low, high)
        found = self.numbers[slots]
        wrong = (self.low[slots] != low) | (self.high[slots] != high)
        left = np.flatnonzero(wrong)
        slots = slots[left]
        while len(left):
            free = self.low[slots] == 0
            found[left[free]] = -1
            left, slots = left[~free], (slots[~free] + 1) & (_SLOTS - 1)
            same = (self.low[slots] == low[left]) & (
                self.high[slots] == high[left]
            )
            found[left[same]] = self.numbers[slots[same]]
            left, slots = left[~same], slots[~same]
        return found

    def add(
        self, low: np.ndarray, high: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Adds different words that are not there, as far as there is room."""
        slots = self._first_slots(low, high).tolist()
        room = max(_MAX_WORDS - self.count, 0)
        for index, slot in enumerate(slots[:room]):
            while self.low[slot]:
                slot = (slot + 1) & (_SLOTS - 1)
            self.low[slot], self.high[slot] = low[index], high[index]
            self.numbers[slot] = numbers[index]
            self.count += 1

    @staticmethod
    def _first_slots(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        mixed = (low ^ (high * _FACTORS[1])) * _FACTORS[0]
        return (mixed >> _SHIFT).astype(np.int64)


@functools.lru_cache(maxsize=2)
def _exact_tokenizer(
    vocabulary: Vocabulary, config: TokenizerConfig
) -> "BertTokenizer":
    if "tensorflow" not in sys.modules:
        import_tensorflow()
    from bert_tf.text.tokenizer import BertTokenizer

    return BertTokenizer.from_config(vocabulary, config)


class CorpusTokenizer:
    """Ids of many sentences, those of a `BertTokenizer`.

    Not for several threads at once: each has its own.

    Attributes:
      dtype: of the ids: uint16 where the vocabulary allows, else int32.
    """

    def __init__(self, vocabulary: Vocabulary, config: TokenizerConfig) -> None:
        self.dtype = np.uint16 if len(vocabulary) <= 1 << 16 else np.int32
        self._settings = vocabulary, config
        self._plain = PlainTokenizer(vocabulary, config)
        self._case = _LOWER if config.lower_case else _SAME
        self._pieces = _Pieces(self.dtype)
        self._words = _WordTable()
        self._long_words: dict[bytes, int] = {}

    def tokenize(
        self, text: bytes, sentence_bytes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Splits sentences into ids.

        Args:
          text: the sentences, UTF-8, with a line end behind each.
          sentence_bytes: bytes of each sentence without its line end, int64
            [s].

        Returns:
          The ids concatenated, `dtype` [t], and how many each sentence has,
          int64 [s].
        """
        if self._pieces.count >= _MAX_WORDS or self._pieces.size >= _MAX_IDS:
            self._pieces.clear()
            self._words.clear()
            self._long_words.clear()
        if len(self._long_words) >= _MAX_LONG_WORDS:
            self._long_words.clear()
        others = len(text) - len(text.translate(None, _NOT_ASCII))
        sentence_ends = np.cumsum(sentence_bytes + 1)
        # An added token may hold what separates words.
        added = self._settings[1].added_tokens
        if added or others > _MAX_OTHER_SHARE * len(text):
            starts = sentence_ends - sentence_bytes - 1
            sentences = _slices(text, starts, sentence_ends - 1)
            ids = _exact_tokenizer(*self._settings).tokenize(sentences)
            flat = ids.flat_values.numpy().astype(self.dtype)
            return flat, ids.row_lengths().numpy()
        # Zeros, so that a key may be read at every place.
        text += bytes(_KEY_BYTES)
        chunks = _chunks(text, len(text) - _KEY_BYTES)
        ids, ends = self._pieces.gather(self._numbers(text, *chunks))
        token_ends = np.concatenate([[0], ends])
        chunk_ends = np.searchsorted(chunks[0], sentence_ends)
        return ids, np.diff(token_ends[chunk_ends], prepend=0)

    def _numbers(
        self,
        text: bytes,
        starts: np.ndarray,
        ends: np.ndarray,
        other: np.ndarray,
    ) -> np.ndarray:
        """The number of each chunk's list of pieces, int32."""
        # Letters of ASCII change nothing in the case of those beside them.
        lowered = text.translate(self._case)
        lengths = ends - starts
        low, high = _keys(lowered, starts, lengths)
        numbers = self._words.find(low, high)
        one_by_one = lengths > _KEY_BYTES
        if text.find(0, 0, -_KEY_BYTES) >= 0:
            # A key does not tell zeros behind a word from those of the word.
            one_by_one |= other
        new = np.flatnonzero((numbers < 0) & ~one_by_one)
        if len(new):
            chunks = _slices(lowered, starts[new], ends[new])
            numbers[new] = self._learn(chunks, low[new], high[new])
        long = np.flatnonzero(one_by_one)
        if len(long):
            chunks = _slices(lowered, starts[long], ends[long])
            numbers[long] = self._look_up(chunks)
        return numbers

    def _learn(
        self, chunks: list[bytes], low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        """The numbers of words that the table lacks and now gets."""
        places = {chunk: place for place, chunk in enumerate(chunks)}
        numbers = self._pieces.add(*self._plain.tokenize(list(places)))
        once = np.fromiter(places.values(), np.int64, len(places))
        self._words.add(low[once], high[once], numbers)
        found = dict(zip(places, numbers.tolist(), strict=True))
        return np.array([found[chunk] for chunk in chunks], np.int64)

    def _look_up(self, chunks: list[bytes]) -> np.ndarray:
        """The numbers of chunks that have no key."""
        known = self._long_words
        unknown = [c for c in dict.fromkeys(chunks) if c not in known]
        if unknown:
            numbers = self._pieces.add(*self._plain.tokenize(unknown))
            known.update(zip(unknown, numbers.tolist(), strict=True))
        return np.array([known[chunk] for chunk in chunks], np.int64)


def _slices(text: bytes, starts: np.ndarray, ends: np.ndarray) -> list[bytes]:
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return [text[start:end] for start, end in pairs]


def _chunks(text: bytes, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits the first bytes of a text at white space and ASCII punctuation.

    Words with other characters are left whole: lower case of a sigma depends
    on what stands around it, punctuation included.

    Returns:
      Starts and ends of the chunks, int64, and whether each holds anything
      but printable ASCII.
    """
    classes = np.frombuffer(text.translate(_CLASSES), np.uint8, end)
    others = np.flatnonzero(classes == _OTHER)
    if len(others):
        classes = _whole_words(classes, others)
    begins = classes == _PUNCTUATION
    begins[:1] |= True
    begins[1:] |= classes[1:] != classes[:-1]
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], end)
    kinds = classes[starts]
    kept = kinds != _SPACE
    return starts[kept], ends[kept], kinds[kept] == _OTHER


def _whole_words(classes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Makes whole words of `_OTHER` where one byte is."""
    spaces = np.flatnonzero(classes == _SPACE)
    word = np.unique(np.searchsorted(spaces, others))
    bounds = np.concatenate([[-1], spaces, [len(classes)]])
    starts, ends = bounds[word] + 1, bounds[word + 1]
    change = np.zeros(len(classes) + 1, np.int8)
    change[starts] += 1
    change[ends] -= 1
    return np.where(np.cumsum(change[:-1], dtype=np.int8), _OTHER, classes)


def _keys(
    text: bytes, starts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The first sixteen bytes of chunks, zeros behind their ends: uint64."""
    # Every eight bytes of the text as a number, wherever they begin.
    windows = np.ndarray((len(text) - 7,), np.dtype("<u8"), text, strides=(1,))
    low = windows[starts] & _MASKS[np.minimum(lengths, 8)]
    high = np.zeros_like(low)
    long = np.flatnonzero(lengths > 8)
    rest = np.minimum(lengths[long] - 8, 8)
    high[long] = windows[starts[long] + 8] & _MASKS[rest]
    return low, high


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
    """Splits words into WordPiece ids as google-research/bert does."""

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
        """The ids of UTF-8 concatenated, int32, and each text's count, int64.

        Bytes that are not UTF-8 are dropped.
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
