"""How texts become rows: truncation, windows and special tokens.

In NumPy, on token ids of all texts in one array, without a loop over rows;
`bert_tf.text.layout` does the same in the graph, for inputs and
SavedModels.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.truncation import truncated_lengths
from bert_tf.text.vocabulary import Packing

if TYPE_CHECKING:
    # Scoring a file needs nothing of it.
    import tensorflow as tf

# Texts tokenized at a time.
TEXTS_AT_ONCE = 4096
# Batches that are counted in rows count those of so many tokens.
_ROW_TOKENS = 128
# run_squad.py `_check_is_max_context`: how much a longer window is worth.
LENGTH_WORTH = 0.01

Array: TypeAlias = "np.ndarray | tf.Tensor"


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """N texts as ranges of one array of token ids, of NumPy or in the graph.

    Attributes:
      ids: int32 [T].
      begin: whole numbers [N], where each text begins in `ids`.
      count: whole numbers [N], how many tokens it has.
    """

    ids: Array
    begin: Array
    count: Array


@dataclasses.dataclass(frozen=True)
class Windows:
    """W windows on N texts, those of a text consecutive.

    Attributes:
      text: whole numbers [W], the text that each is on.
      number: whole numbers [W], its number among those of its text.
      offset: whole numbers [W], the token of its text that it begins with.
      count: whole numbers [W], how many tokens it has.
    """

    text: Array
    number: Array
    offset: Array
    count: Array


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """Packed rows of token ids, concatenated, without padding.

    Attributes:
      ids: int32 [T], the tokens of every row: A or A and B, framed.
      starts: int64 [R + 1], where each row begins in `ids`.
      first: int64 [R], how many tokens stand before B, or would.
      is_pair: bool [R], which rows have a B, even an empty one.
      example: int64 [R], the example that a row is of, ascending.
      weights: float32 [R], one over the rows of its example.
      num_examples: how many examples the rows are of.
      packing: what frames the texts.
    """

    ids: np.ndarray
    starts: np.ndarray
    first: np.ndarray
    is_pair: np.ndarray
    example: np.ndarray
    weights: np.ndarray
    num_examples: int
    packing: Packing

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64 [R]."""
        return np.diff(self.starts)

    @property
    def segments(self) -> np.ndarray:
        """Segment of each token, int32 [T]."""
        first = np.repeat(self.first, self.lengths)
        is_second = ragged_range(self.lengths) >= first
        is_second &= np.repeat(self.is_pair, self.lengths)
        return np.int32(self.packing.second_segment) * is_second

    @property
    def bounds(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Begin and exclusive end of A and of B in each row, int64 [R]."""
        begin = np.full_like(self.first, len(self.packing.begin))
        return (
            (begin, self.first - len(self.packing.middle)),
            (self.first, self.lengths - len(self.packing.end)),
        )

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the rows are made of, for digests."""
        return self.ids, self.starts

    def batch(
        self, chosen: np.ndarray, width: int = 0
    ) -> dict[str, np.ndarray]:
        """The encoder's inputs, int32 [B, S], of rows by number, int64 [B].

        They are padded to a width, or to the longest of them.
        """
        lengths = self.lengths[chosen]
        place = np.arange(width or lengths.max())
        mask = place < lengths[:, None]
        ids = np.full(mask.shape, self.packing.pad_id, np.int32)
        ids[mask] = take_ranges(self.ids, self.starts[chosen], lengths)
        is_second = mask & (place >= self.first[chosen, None])
        is_second &= self.is_pair[chosen, None]
        return {
            "input_ids": ids,
            "input_mask": mask.astype(np.int32),
            "segment_ids": np.int32(self.packing.second_segment) * is_second,
        }

    def __len__(self) -> int:
        return len(self.example)


def tokenize_texts(texts: Sequence[str], tokenizer: Tokenizer) -> TokenIds:
    """Tokenizes texts, some thousands at a time."""
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        ragged = tokenizer.tokenize(list(texts[start : start + TEXTS_AT_ONCE]))
        ids.append(ragged.values.numpy().astype(np.int32))
        counts.append(ragged.row_lengths().numpy().astype(np.int64))
    count = np.concatenate(counts)
    return TokenIds(np.concatenate(ids), np.cumsum(count) - count, count)


def ragged_range(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... count - 1 for each count, concatenated."""
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts)


def take_ranges(
    values: np.ndarray, begin: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Ranges of an array, concatenated.

    Args:
      values: [T, ...].
      begin: int64 [R], where each range begins.
      count: int64 [R], its length.
    """
    return values[np.repeat(begin, count) + ragged_range(count)]


def few_widths(lengths: np.ndarray) -> np.ndarray:
    """The width that each row is padded to where there may be only a few.

    Args:
      lengths: int64 [R], tokens of each row.

    Returns:
      int64 [R]: a power of two, 32 or more, but no more than the longest row.
    """
    powers = 2 ** np.ceil(np.log2(np.maximum(lengths, 32))).astype(np.int64)
    return np.minimum(powers, lengths.max())


def batches_by_length(
    lengths: np.ndarray, batch_size: int, multiple: int = 1
) -> Iterator[np.ndarray]:
    """Batches of rows of like length that take about as much memory each.

    Args:
      lengths: int64 [R], tokens of each row.
      batch_size: rows of 128 tokens that a batch may be as large as, padding
        included; of longer rows it has fewer, of shorter ones more.
      multiple: a batch has a multiple of so many rows, at least one, but for
        the last.

    Yields:
      int64 [B], rows by number, together each once. The longest come first,
      so that memory falls short early.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = rows_that_fit(int(lengths[order[start]]), batch_size, multiple)
        yield order[start : start + size]
        start += size


def rows_that_fit(length: int, batch_size: int, multiple: int) -> int:
    """The rows of a batch whose longest has `length` tokens, see above."""
    fitting = batch_size * _ROW_TOKENS // length
    return max(fitting // multiple, 1) * multiple


def truncate(
    first: TokenIds,
    second: TokenIds | None,
    room: int | np.ndarray,
    minimum: Callable = np.minimum,
    maximum: Callable = np.maximum,
) -> tuple[TokenIds, TokenIds | None]:
    """Truncates texts, or pairs of texts, at their ends.

    Args:
      first: N texts.
      second: the N second texts, or None; see `truncated_lengths`, for
        `minimum` and `maximum` too.
      room: how many tokens a row takes, or int64 [N].
    """
    if second is None:
        count = minimum(first.count, room)
        return dataclasses.replace(first, count=count), None
    count_a, count_b = truncated_lengths(
        first.count, second.count, room, minimum, maximum
    )
    return (
        dataclasses.replace(first, count=count_a),
        dataclasses.replace(second, count=count_b),
    )


def make_windows(
    num_windows: np.ndarray,
    length: np.ndarray,
    room: int | np.ndarray,
    stride: int,
    align_last: bool = False,
) -> Windows:
    """Windows every `stride` tokens until one reaches the end of its text.

    Args:
      num_windows: int64 [N], what `num_windows` gives for the rest.
      length: int64 [N], tokens of each text.
      room: tokens of a window, or int64 [N].
      stride: see `num_windows`.
      align_last: whether the last window of a text ends with it and is as
        long as the others, and not what they leave.
    """
    text = np.repeat(np.arange(len(length)), num_windows)
    number = ragged_range(num_windows)
    length, room = length[text], np.broadcast_to(room, length.shape)[text]
    offset = number * np.minimum(stride, room)
    if align_last:
        offset = np.minimum(offset, np.maximum(length - room, 0))
    return Windows(text, number, offset, np.minimum(length - offset, room))


def most_context(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens of a window no other window shows in more context.

    As google-research/bert, run_squad.py, `_check_is_max_context`: a window
    is worth the lesser number of tokens left and right of a token, plus a
    hundredth of its length; the first of the best counts. The tokens of a
    window for which it is the best are one range, and the ranges of a text's
    windows follow one another.

    Returns:
      Begin and exclusive end of the range in each window, int64 [W].
    """
    begin, end = np.zeros_like(windows.count), windows.count.copy()
    per_text = np.bincount(windows.text)
    several = np.flatnonzero(per_text[windows.text] > 1)
    if not several.size:
        return begin, end
    number, offset = windows.number[several], windows.offset[several]
    count = windows.count[several]
    # The tokens of all texts with several windows, concatenated.
    is_last = np.append(number[1:] == 0, True)
    lengths = (offset + count)[is_last]
    text = np.cumsum(number == 0) - 1
    place = (np.cumsum(lengths) - lengths)[text] + offset
    best = np.full(lengths.sum(), -1.0)
    owner = np.zeros(lengths.sum(), np.int64)
    for turn in range(number.max() + 1):
        these = np.flatnonzero(number == turn)
        size = count[these]
        left, length = ragged_range(size), np.repeat(size, size)
        worth = np.minimum(left, length - 1 - left) + LENGTH_WORTH * length
        tokens = np.repeat(place[these], size) + left
        better = worth > best[tokens]
        best[tokens[better]] = worth[better]
        owner[tokens[better]] = np.repeat(these, size)[better]
    owned = np.bincount(owner, minlength=len(several))
    stop = np.cumsum(owned) - place
    begin[several], end[several] = stop - owned, stop
    return begin, end


def pack_rows(
    example: np.ndarray,
    first: TokenIds,
    second: TokenIds | None,
    num_examples: int,
    tokenizer: Tokenizer,
    is_pair: np.ndarray | None = None,
) -> EncodedRows:
    """Frames the texts of every row by special tokens.

    Args:
      example: see `EncodedRows`.
      first: the R texts A, which fit.
      second: the R texts B, or None.
      num_examples: see `EncodedRows`.
      tokenizer: what made the ids.
      is_pair: bool [R], which rows have a B, even an empty one; None: all, if
        there is a `second`.
    """
    packing = tokenizer.packing
    frame = np.array((*packing.begin, *packing.middle, *packing.end))
    source = [frame, first.ids]
    begin, middle, end = (
        np.full_like(first.count, len(ids))
        for ids in (packing.begin, packing.middle, packing.end)
    )
    if is_pair is None:
        is_pair = np.full(len(first.count), second is not None)
    # Where each piece of a row lies in the source, and how long it is.
    pieces = [
        (np.zeros_like(begin), begin),
        (first.begin + len(frame), first.count),
    ]
    if second is not None:
        source.append(second.ids)
        begin_b = second.begin + len(frame) + len(first.ids)
        pieces += [(begin, middle * is_pair), (begin_b, second.count)]
    pieces.append((begin + middle, end))
    begins = np.stack([begin for begin, _ in pieces], axis=1)
    counts = np.stack([count for _, count in pieces], axis=1)
    ids = take_ranges(np.concatenate(source), begins.ravel(), counts.ravel())
    starts = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    rows = np.bincount(example, minlength=num_examples)
    return EncodedRows(
        ids=ids.astype(np.int32),
        starts=starts.astype(np.int64),
        first=packing.before_second(first.count),
        is_pair=is_pair,
        example=example,
        weights=(1.0 / rows[example]).astype(np.float32),
        num_examples=num_examples,
        packing=packing,
    )
