"""How texts become rows: truncation, windows, special tokens and padding.

TensorFlow operations on int32, which run eagerly over the texts of a whole
split, in `tf.data`, and inside the graph of a SavedModel.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.features import INPUT_IDS, INPUT_MASK, SEGMENT_IDS
from bert_tf.text import truncation
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.vocabulary import Packing

# Strings and whole numbers stay on the processor.
HOST = "/CPU:0"
# Texts tokenized at a time where there are many.
_TEXTS = 4096
# run_squad.py `_check_is_max_context`: how much a longer window is worth.
LENGTH_WORTH = 0.01


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """N texts as ranges of one array of token ids.

    Attributes:
      ids: int32 [T].
      begin: int32 [N], where each text begins in `ids`.
      count: int32 [N], how many tokens it has.
    """

    ids: tf.Tensor
    begin: tf.Tensor
    count: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Windows:
    """W windows on N texts, those of a text consecutive.

    Attributes:
      text: int32 [W], the text that each is on.
      number: int32 [W], its number among those of its text.
      offset: int32 [W], the token of its text that it begins with.
      count: int32 [W], how many tokens it has.
    """

    text: tf.Tensor
    number: tf.Tensor
    offset: tf.Tensor
    count: tf.Tensor


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """Rows of one text or two, as ranges of token ids; see `pack_rows`.

    Attributes:
      first: the R texts A.
      second: the R texts B, or None.
      is_pair: bool [R], which rows have a B, even an empty one; None for all
        if there is a `second`.
      example: int32 [R], the example that a row is of, ascending.
      num_examples: how many examples the rows are of.
      packing: what frames the texts.
    """

    first: TokenIds
    second: TokenIds | None
    is_pair: tf.Tensor | None
    example: tf.Tensor
    num_examples: int | tf.Tensor
    packing: Packing

    @property
    def bounds(self) -> tuple[tuple[tf.Tensor, tf.Tensor], ...]:
        """Begin and exclusive end of A and of B in each row, int32 [R]."""
        begin_a = tf.fill(tf.shape(self.first.count), len(self.packing.begin))
        begin_b = end_b = end_a = begin_a + self.first.count
        if self.second is not None:
            middle = len(self.packing.middle)
            if self.is_pair is not None:
                middle *= tf.cast(self.is_pair, tf.int32)
            begin_b = end_a + middle
            end_b = begin_b + self.second.count
        return (begin_a, end_a), (begin_b, end_b)

    @property
    def lengths(self) -> tf.Tensor:
        """Tokens of each row, int32 [R]."""
        return self.bounds[1][1] + len(self.packing.end)

    @property
    def starts(self) -> tf.Tensor:
        """Where each row begins in `flat`, int64 [R + 1]."""
        lengths = tf.cast(self.lengths, tf.int64)
        return tf.concat([[0], tf.cumsum(lengths)], 0)

    @property
    def weights(self) -> tf.Tensor:
        """One over the rows of its example, float32 [R]."""
        rows = tf.math.bincount(self.example, dtype=tf.float64)
        return tf.cast(1 / tf.gather(rows, self.example), tf.float32)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What the rows are made of, for digests."""
        return self.flat()[INPUT_IDS.name].numpy(), self.starts.numpy()

    def take(self, chosen: tf.Tensor) -> "EncodedRows":
        """Rows by number, whole numbers [B]."""
        return dataclasses.replace(
            self,
            first=take(self.first, chosen),
            second=self.second and take(self.second, chosen),
            is_pair=None
            if self.is_pair is None
            else tf.gather(self.is_pair, chosen),
            example=tf.gather(self.example, chosen),
        )

    def batch(
        self, chosen: tf.Tensor, width: tf.Tensor | int = 0
    ) -> dict[str, tf.Tensor]:
        """The encoder's inputs, int32 [B, S], of rows by number.

        Args:
          chosen: whole numbers [B].
          width: S, the tokens that rows are padded to; 0 for the longest.
        """
        rows = self.take(chosen)
        longest = tf.reduce_max(rows.lengths)
        return rows.padded(tf.where(tf.equal(width, 0), longest, width))

    def padded(self, width: tf.Tensor | int) -> dict[str, tf.Tensor]:
        """The encoder's inputs, int32 [R, S], of all rows.

        Args:
          width: S, at least the length of the longest row.
        """
        position = tf.range(width)[tf.newaxis]
        return self._inputs(position, lambda values: values[:, tf.newaxis])

    def flat(self) -> dict[str, tf.Tensor]:
        """The encoder's inputs, int32 [T], concatenated without padding."""
        row, position = ragged_range(self.lengths)
        return self._inputs(position, lambda values: tf.gather(values, row))

    def _inputs(
        self, position: tf.Tensor, of_row: Callable[[tf.Tensor], tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """The encoder's inputs at positions of rows.

        Args:
          position: int32, [1, S] or [T].
          of_row: broadcasts values of rows, [R], to those positions.
        """
        packing, (bounds_a, bounds_b) = self.packing, self.bounds
        begin, middle, end = map(
            len, (packing.begin, packing.middle, packing.end)
        )
        end_a, begin_b, end_b = map(of_row, (bounds_a[1], *bounds_b))
        # Each token is gathered from one array, see `pack_rows`.
        place = of_row(self.first.begin - begin) + position
        if self.second is not None:
            shift = of_row(self.second.begin - bounds_b[0])
            place = tf.where(position < begin_b, place, shift + position)
            is_middle = (position >= end_a) & (position < begin_b)
            place = tf.where(is_middle, begin + position - end_a, place)
        in_row = position < end_b + end
        pad = begin + middle + end
        last = tf.where(in_row, begin + middle + position - end_b, pad)
        place = tf.where(position < end_b, place, last)
        place = tf.where(position < begin, position, place)
        segments = tf.zeros_like(place)
        if self.second is not None:
            is_second = in_row & (position >= begin_b)
            if self.is_pair is not None:
                is_second &= of_row(self.is_pair)
            segments = packing.second_segment * tf.cast(is_second, tf.int32)
        return {
            INPUT_IDS.name: tf.gather(self.first.ids, place),
            INPUT_MASK.name: tf.cast(in_row, tf.int32),
            SEGMENT_IDS.name: segments,
        }

    def __len__(self) -> int:
        return len(self.example)


def pack_rows(
    first: TokenIds,
    second: TokenIds | None,
    packing: Packing,
    example: tf.Tensor | None = None,
    num_examples: int | None = None,
    is_pair: tf.Tensor | None = None,
) -> EncodedRows:
    """Makes rows of texts, framed by special tokens.

    Args:
      first: the R texts A, which fit.
      second: the R texts B, or None.
      packing: what frames them.
      example: int32 [R], the example that a row is of, ascending; None where
        each row is one.
      num_examples: how many examples the rows are of.
      is_pair: bool [R], which rows have a B, even an empty one; None for all
        if there is a `second`.
    """
    frame = tf.constant(
        (*packing.begin, *packing.middle, *packing.end, packing.pad_id)
    )
    # The ids of all texts behind the special ones, for `_inputs`.
    source = [frame, first.ids]
    begin = tf.size(frame)
    begin_a, begin_b = first.begin + begin, None
    if second is not None:
        source.append(second.ids)
        begin_b = second.begin + begin + tf.size(first.ids)
    ids = tf.concat(source, 0)
    if example is None:
        example = tf.range(tf.size(first.count))
        num_examples = tf.size(first.count)
    return EncodedRows(
        first=TokenIds(ids, begin_a, first.count),
        second=second and TokenIds(ids, begin_b, second.count),
        is_pair=is_pair,
        example=example,
        num_examples=num_examples,
        packing=packing,
    )


def token_ids(ids: tf.RaggedTensor) -> TokenIds:
    """Ragged ids int32 [N, tokens] as `TokenIds`."""
    return TokenIds(
        ids.flat_values,
        tf.cast(ids.row_starts(), tf.int32),
        tf.cast(ids.row_lengths(), tf.int32),
    )


def tokenize(
    tokenizer: Tokenizer, texts: tf.Tensor | Sequence[str]
) -> TokenIds:
    """Tokenizes string [N]; eagerly some thousands of texts at a time."""
    texts = tf.convert_to_tensor(texts, tf.string)
    if not tf.executing_eagerly():
        return token_ids(tokenizer.tokenize(texts))
    # What is computed for a text takes many times the memory of its ids.
    found = [
        tokenizer.tokenize(texts[begin : begin + _TEXTS])
        for begin in range(0, max(len(texts), 1), _TEXTS)
    ]
    return token_ids(tf.concat(found, 0))


def take(
    texts: TokenIds,
    chosen: tf.Tensor,
    offset: tf.Tensor | None = None,
    count: tf.Tensor | None = None,
) -> TokenIds:
    """Texts by number, int32 [R], or ranges of them.

    Args:
      texts: N texts.
      chosen: the numbers.
      offset: int32 [R], the first token that is taken; None for the text's.
      count: int32 [R], how many are; with None, all from the text's first.
    """
    begin = tf.gather(texts.begin, chosen)
    if offset is not None:
        begin += offset
    if count is None:
        count = tf.gather(texts.count, chosen)
    return TokenIds(texts.ids, begin, count)


def ragged_range(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The row and the place in it of each value of rows, of N lengths.

    Returns:
      Both int32 [sum of counts]: 0 0 0 1 1 and 0 1 2 0 1 for counts 3 and 2.
    """
    counts = tf.cast(counts, tf.int32)
    row = tf.repeat(tf.range(tf.size(counts)), counts)
    starts = tf.cumsum(counts, exclusive=True)
    return row, tf.range(tf.size(row)) - tf.gather(starts, row)


def take_ranges(
    values: tf.Tensor, begin: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Concatenates ranges of [T, ...] with whole numbers [R]."""
    number, place = ragged_range(count)
    begin = tf.cast(begin, tf.int32)
    return tf.gather(values, tf.gather(begin, number) + place)


def text_of(
    codes: tf.Tensor, begins: tf.Tensor, counts: tf.Tensor
) -> tf.Tensor:
    """Stretches int32 [V] of a flat list of characters as string [V]."""
    taken = take_ranges(codes, begins, counts)
    ragged = tf.RaggedTensor.from_row_lengths(taken, counts, validate=False)
    return tf.strings.unicode_encode(ragged, "UTF-8")


def truncate(
    first: TokenIds, second: TokenIds | None, room: tf.Tensor | int
) -> tuple[TokenIds, TokenIds | None]:
    """Truncates texts, or pairs of texts, at their ends.

    Args:
      first: N texts.
      second: the N second texts, or None; see `truncated_lengths`.
      room: how many tokens a row takes, or int32 [N].
    """
    if second is None:
        count = tf.minimum(first.count, room)
        return dataclasses.replace(first, count=count), None
    count_a, count_b = truncation.truncated_lengths(
        first.count, second.count, room, tf.minimum, tf.maximum
    )
    return (
        dataclasses.replace(first, count=count_a),
        dataclasses.replace(second, count=count_b),
    )


def num_windows(
    length: tf.Tensor, room: tf.Tensor | int, stride: int, empty: int = 1
) -> tf.Tensor:
    """How many windows cover each text, int32 [N]; see `truncation`."""
    return truncation.num_windows(
        length, room, stride, empty, tf.minimum, tf.maximum
    )


def make_windows(
    num_windows: tf.Tensor,
    length: tf.Tensor,
    room: tf.Tensor | int,
    stride: int,
    align_last: bool = False,
) -> Windows:
    """Windows every `stride` tokens until one reaches the end of its text.

    Args:
      num_windows: int32 [N], what `num_windows` gives for the rest.
      length: int32 [N], tokens of each text.
      room: tokens of a window, or int32 [N].
      stride: see `truncation.num_windows`.
      align_last: whether the last window of a text ends with it and is as
        long as the others, and not what they leave.
    """
    text, number = ragged_range(num_windows)
    room = tf.gather(tf.broadcast_to(room, tf.shape(length)), text)
    length = tf.gather(length, text)
    offset = number * tf.minimum(stride, room)
    if align_last:
        offset = tf.minimum(offset, tf.maximum(length - room, 0))
    return Windows(text, number, offset, tf.minimum(length - offset, room))


def most_context(windows: Windows) -> tuple[tf.Tensor, tf.Tensor]:
    """Which tokens of a window no other window shows in more context.

    As google-research/bert, run_squad.py, `_check_is_max_context`: a window
    is worth the lesser number of tokens left and right of a token, plus a
    hundredth of its length; the first of the best counts. The tokens of a
    window for which it is the best are one range, and the ranges of a text's
    windows follow one another.

    Returns:
      Begin and exclusive end of the range in each window, int32 [W].
    """
    # All tokens of a text with one window are that window's.
    per_text = tf.math.bincount(windows.text)
    several = tf.where(tf.gather(per_text, windows.text) > 1)
    text, offset, count = (
        tf.gather(values, several[:, 0])
        for values in (windows.text, windows.offset, windows.count)
    )
    window, left = ragged_range(count)
    length = tf.gather(count, window)
    least = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    worth = least + LENGTH_WORTH * tf.cast(length, tf.float64)
    # Texts concatenated, each as long as its last window reaches.
    texts = tf.reduce_max(tf.concat([[0], text + 1], 0))
    sizes = tf.math.unsorted_segment_max(offset + count, text, texts)
    sizes = tf.maximum(sizes, 0)
    total = tf.reduce_sum(sizes)
    begin = tf.cumsum(sizes, exclusive=True)
    place = tf.gather(begin, text) + offset
    token = tf.gather(place, window) + left
    best = tf.math.unsorted_segment_max(worth, token, total)
    owner = tf.math.unsorted_segment_min(
        tf.where(worth == tf.gather(best, token), window, window.dtype.max),
        token,
        total,
    )
    owned = tf.math.unsorted_segment_sum(
        tf.ones_like(owner), owner, tf.size(text)
    )
    end = tf.cumsum(owned) - place
    return (
        tf.tensor_scatter_nd_update(
            tf.zeros_like(windows.count), several, end - owned
        ),
        tf.tensor_scatter_nd_update(windows.count, several, end),
    )
