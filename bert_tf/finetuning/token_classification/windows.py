"""Words of documents as rows of token ids, and answers back to words.

Devlin et al. 2019, section 5.3: the first sub-token of a word stands for it,
and a sentence is shown with as much of its document as there is room for. A
row is a window on its document, in the middle of which is the sentence whose
words it is to answer; longer sentences have several windows.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from bert_tf.errors import UserError
from bert_tf.features import INPUT_MASK
from bert_tf.finetuning.recipe import CONTEXTS
from bert_tf.finetuning.rows import RowsAround
from bert_tf.finetuning.token_classification.conll_files import TaggedWords
from bert_tf.text.rows import (
    EncodedRows,
    TokenIds,
    counted,
    pack_rows,
    take_ranges,
    tokenize_texts,
)
from bert_tf.text.tokenizer import BertTokenizer

TAG_IDS, TAG_WEIGHTS = "tag_ids", "tag_weights"
# [CLS] and [SEP].
_SPECIAL_TOKENS = 2


@dataclasses.dataclass(frozen=True)
class WordWindows(RowsAround):
    """Rows that together ask for every one of W words once.

    Attributes:
      rows: R rows [CLS] window [SEP]; a row's example is its sentence.
      places: int32 [W], where in its row the first sub-token of a word is.
      word_starts: int64 [R + 1], which words a row asks for: those from its
        entry on to the next one.
    """

    rows: EncodedRows
    places: np.ndarray
    word_starts: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the rows are made of, for digests."""
        return *self.rows.arrays, self.places, self.word_starts

    @property
    def num_words(self) -> int:
        """W."""
        return len(self.places)

    def words(
        self, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which words some rows ask for, and where.

        Args:
          chosen: int64 [B], rows by number.

        Returns:
          Of each word its row in the batch, its place in the row and its
          number, each int64 [words].
        """
        first = self.word_starts[chosen]
        count = self.word_starts[chosen + 1] - first
        word = np.repeat(first, count) + counted(count)
        row = np.repeat(np.arange(len(chosen)), count)
        return row, self.places[word].astype(np.int64), word


class WordRows(Protocol):
    """Rows that together ask for every one of W words once; see `Rows`."""

    @property
    def num_words(self) -> int:
        """W."""

    def words(
        self, chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which words some rows ask for; see `WordWindows.words`."""


@dataclasses.dataclass(frozen=True)
class TaggedRows(RowsAround):
    """Rows with the tags of their words; see `LabelledRows`.

    Attributes:
      rows: the rows, `WordRows` of W words.
      numbers: int32 [W], the tag of each word; see `tag_schemes.tag_numbers`.
    """

    rows: Any
    numbers: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What decides every batch, for digests."""
        return *self.rows.arrays, self.numbers

    def batch(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """A batch of some rows, padded to the longest of them.

        Args:
          chosen: int64 [B], rows by number.

        Returns:
          The inputs and tag_ids, int32 [B, S], and tag_weights, float32
          [B, S], 1 at the places of the words asked for and else 0.
        """
        batch = self.rows.batch(chosen)
        row, place, word = self.rows.words(chosen)
        shape = batch[INPUT_MASK.name].shape
        batch[TAG_IDS] = np.zeros(shape, np.int32)
        batch[TAG_IDS][row, place] = self.numbers[word]
        batch[TAG_WEIGHTS] = np.zeros(shape, np.float32)
        batch[TAG_WEIGHTS][row, place] = 1.0
        return batch


@dataclasses.dataclass(frozen=True)
class _Ranges:
    """What is shown of the document for each of N sentences, in sub-tokens.

    Attributes:
      begin: int64 [N], where it begins.
      count: int64 [N], how long it is; longer than a row for a sentence that
        is longer itself.
    """

    begin: np.ndarray
    count: np.ndarray


def encode_words(
    data: TaggedWords,
    tokenizer: BertTokenizer,
    max_seq_length: int,
    context: str = "document",
    doc_stride: int | None = None,
) -> WordWindows:
    """Tokenises words and lays out a window for each sentence.

    A word of which nothing is left, such as a control character, is [UNK]. A
    sentence stands amid sub-tokens of those before and after it in equal
    number, or where one side has fewer, the other has more. A sentence that
    is longer than a row has windows that overlap, and each of its words is
    asked for where the smaller of its two sides is largest, as
    google-research/bert, run_squad.py, `_check_is_max_context`, has it.

    Args:
      data: the words, their sentences and documents.
      tokenizer: what turns words into ids.
      max_seq_length: S, the longest row.
      context: "document" shows what comes before and after a sentence in its
        document, "sentence" the sentence alone.
      doc_stride: tokens from the start of a window of a long sentence to that
        of the next; None is half of a window, which leaves each word at least
        about a quarter to both sides.

    Raises:
      UserError: an unknown context, no room for a token, or no stride.
    """
    if context not in CONTEXTS:
        raise UserError(
            f"context is {context!r}; it takes one of {', '.join(CONTEXTS)}."
        )
    room, stride = _room_and_stride(max_seq_length, doc_stride)
    ids, word_tokens = token_stream(data.words, tokenizer)
    ranges = _ranges(data, word_tokens, context, room)
    windows = _num_windows(ranges, room, stride)
    window = _windows_of_words(
        data.sentence_starts, word_tokens, ranges, windows, room, stride
    )
    # The context of a long sentence may be as long as a window.
    used, number = np.unique(window, return_inverse=True)
    sentence = np.repeat(np.arange(len(windows)), windows)[used]
    offset = _offsets(
        counted(windows)[used], ranges.count[sentence], room, stride
    )
    begin = ranges.begin[sentence] + offset
    count = np.minimum(ranges.count[sentence], room)
    rows = pack_rows(
        sentence, TokenIds(ids, begin, count), None, len(windows), tokenizer
    )
    word_starts = np.searchsorted(number, np.arange(len(used) + 1))
    places = word_tokens[:-1] - begin[number] + 1
    return WordWindows(rows, places.astype(np.int32), word_starts)


def token_stream(
    words: list[str], tokenizer: BertTokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all words, int32 [T], and where words begin, int64 [W + 1].

    A word of which nothing is left is [UNK], so each has one token at least.
    """
    place = {word: number for number, word in enumerate(dict.fromkeys(words))}
    unique = tokenize_texts(list(place), tokenizer)
    # What every word that comes to nothing points to.
    unknown = np.int32(tokenizer.vocabulary.unk_id)
    ids = np.append(unique.ids, unknown)
    empty = unique.count == 0
    begin = np.where(empty, len(unique.ids), unique.begin)
    count = np.where(empty, 1, unique.count)
    word = np.fromiter(map(place.__getitem__, words), np.int64, len(words))
    starts = np.concatenate([[0], np.cumsum(count[word])])
    return take_ranges(ids, begin[word], count[word]), starts


def num_windows(
    data: TaggedWords,
    word_tokens: np.ndarray,
    max_seq_length: int,
    context: str,
    doc_stride: int | None,
) -> np.ndarray:
    """How many windows each sentence needs at most; see `encode_words`.

    Args:
      data: the words.
      word_tokens: int64 [W + 1], where words begin, in sub-tokens.
      max_seq_length: S, the longest row.
      context: "document" or "sentence".
      doc_stride: see `encode_words`.

    Returns:
      int64 [N], 1 where a sentence fits a row.
    """
    room, stride = _room_and_stride(max_seq_length, doc_stride)
    return _num_windows(_ranges(data, word_tokens, context, room), room, stride)


def _room_and_stride(
    max_seq_length: int, doc_stride: int | None
) -> tuple[int, int]:
    """Tokens of a window, and from one window to the next."""
    room = max_seq_length - _SPECIAL_TOKENS
    if room < 1:
        raise UserError(
            f"max_seq_length is {max_seq_length}; [CLS], [SEP] and a token "
            f"need {_SPECIAL_TOKENS + 1}."
        )
    if doc_stride is None:
        doc_stride = max(room // 2, 1)
    if doc_stride < 1:
        raise UserError(f"doc_stride is {doc_stride}; it must be at least 1.")
    return room, min(doc_stride, room)


def _num_windows(ranges: _Ranges, room: int, stride: int) -> np.ndarray:
    return 1 + -(-np.maximum(ranges.count - room, 0) // stride)


def _ranges(
    data: TaggedWords, word_tokens: np.ndarray, context: str, room: int
) -> _Ranges:
    """Sentences and what surrounds them.

    Args:
      data: the words.
      word_tokens: int64 [W + 1], where words begin, in sub-tokens.
      context: "document" or "sentence".
      room: tokens of a window.
    """
    bounds = word_tokens[data.sentence_starts]
    documents = data.document_starts
    if context == "sentence":
        documents = np.arange(len(bounds))
    document = np.repeat(np.arange(len(documents) - 1), np.diff(documents))
    document_bounds = bounds[documents]
    first, end = bounds[:-1], bounds[1:]
    before = first - document_bounds[document]
    after = document_bounds[document + 1] - end
    spare = room - (end - first)
    # The words at the ends of a long sentence stand amid others too.
    half = np.where(spare >= 0, spare // 2, room // 2)
    left = np.minimum(before, half)
    right = np.minimum(after, np.where(spare >= 0, spare - left, half))
    left = np.where(spare >= 0, np.minimum(before, spare - right), left)
    return _Ranges(first - left, end - first + left + right)


def _offsets(
    number: np.ndarray, count: np.ndarray, room: int, stride: int
) -> np.ndarray:
    """Where a window begins in its range; the last one ends with it."""
    return np.minimum(number * stride, np.maximum(count - room, 0))


def _windows_of_words(
    sentence_starts: np.ndarray,
    word_tokens: np.ndarray,
    ranges: _Ranges,
    windows: np.ndarray,
    room: int,
    stride: int,
) -> np.ndarray:
    """The window that asks for each word.

    Args:
      sentence_starts: int64 [N + 1], where sentences begin, in words.
      word_tokens: int64 [W + 1], where words begin, in sub-tokens.
      ranges: what is shown of the document.
      windows: int64 [N], how many windows that takes.
      room: tokens of a window.
      stride: tokens from one window to the next.

    Returns:
      int64 [W], windows by number over all sentences, ascending.
    """
    sentence = np.repeat(np.arange(len(windows)), np.diff(sentence_starts))
    place = word_tokens[:-1] - ranges.begin[sentence]
    last = windows[sentence] - 1
    # Windows have one length, so the best one is the one whose middle is
    # nearest: that before the word or that behind it.
    lower = np.clip((2 * place - (room - 1)) // (2 * stride), 0, last)
    upper = np.minimum(lower + 1, last)

    def smaller_side(number: np.ndarray) -> np.ndarray:
        offset = _offsets(number, ranges.count[sentence], room, stride)
        return np.minimum(place - offset, offset + room - 1 - place)

    best = np.where(smaller_side(upper) > smaller_side(lower), upper, lower)
    return (np.cumsum(windows) - windows)[sentence] + best


def word_outputs(
    rows: WordRows, batches: Iterable[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """What a model computed for each word.

    Args:
      rows: all rows.
      batches: rows by number, int64 [B], and logits or vectors of theirs,
        [B or more, S, C]; together every row, in any order.

    Returns:
      float32 [W, C], in the order of the words.
    """
    result = None
    for chosen, outputs in batches:
        row, place, word = rows.words(chosen)
        if result is None:
            size = (rows.num_words, outputs.shape[-1])
            result = np.full(size, np.nan, np.float32)
        result[word] = outputs[row, place]
    assert result is not None
    return result
