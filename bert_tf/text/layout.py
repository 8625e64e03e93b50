"""How texts become rows: truncation, windows, special tokens and padding.

TensorFlow operations on int32, which run eagerly over the texts of a whole
split, in `tf.data`, and inside the graph of a SavedModel.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.features import INPUT_IDS, INPUT_MASK, SEGMENT_IDS
from bert_tf.text import truncation
from bert_tf.text.token_table import Packing
from bert_tf.text.tokenizer_protocol import Tokenizer

# Strings and whole numbers stay on the processor.
HOST = "/CPU:0"
# Texts tokenized at a time where there are many.
_TEXTS = 4096
# Above the place of any value in its row.
_PLACES = 2**31
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
      second_end: where in the ids the special tokens stand that end a B;
        all from there on are of its segment.
    """

    first: TokenIds
    second: TokenIds | None
    is_pair: tf.Tensor | None
    example: tf.Tensor
    num_examples: int | tf.Tensor
    packing: Packing
    second_end: tf.Tensor

    @property
    def lengths(self) -> tf.Tensor:
        """Tokens of each row, int32 [R]."""
        special = len(self.packing.begin) + len(self.packing.end)
        if self.second is None:
            return self.first.count + special
        return self.first.count + special + self._middle + self.second.count

    @property
    def _middle(self) -> tf.Tensor | int:
        """Tokens between A and B, int32 [R] where not all rows have a B."""
        middle = len(self.packing.middle)
        if self.is_pair is None:
            return middle
        return middle * tf.cast(self.is_pair, tf.int32)

    @property
    def starts(self) -> tf.Tensor:
        """Where each row begins in `flat`, int64 [R + 1]."""
        lengths = tf.cast(self.lengths, tf.int64)
        return tf.concat([[0], tf.cumsum(lengths)], 0)

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
        return self.take(chosen).padded(width)

    def padded(self, width: tf.Tensor | int = 0) -> dict[str, tf.Tensor]:
        """The encoder's inputs, int32 [R, S], of all rows.

        Args:
          width: S, at least the length of the longest row; 0 for that.
        """
        lengths = self.lengths
        if not isinstance(width, int) or not width:
            width = tf.where(width > 0, width, tf.reduce_max(lengths))
        return {
            name: tf.reshape(values, [tf.size(lengths), width])
            for name, values in self._inputs(width - lengths).items()
        }

    def flat(self) -> dict[str, tf.Tensor]:
        """The encoder's inputs, int32 [T], concatenated without padding."""
        return self._inputs(tf.zeros_like(self.first.count))

    def _inputs(self, padding: tf.Tensor) -> dict[str, tf.Tensor]:
        """The encoder's inputs, int32 [T], of rows with padding, int32 [R]."""
        packing, first, second = self.packing, self.first, self.second
        begin, end = len(packing.begin), len(packing.end)
        ends, pad = begin + len(packing.middle), tf.size(first.ids) - 1
        # Ranges of the ids, see `pack_rows`, by their begins and counts.
        ranges = [(0, begin), (first.begin, first.count)]
        if second is not None:
            if self.is_pair is None:
                ends = self.second_end
            else:
                ends = tf.where(self.is_pair, self.second_end, ends)
            ranges += [(begin, self._middle), (second.begin, second.count)]
        ranges += [(ends, end), (pad, padding)]
        shape = tf.shape(first.count)
        begins, counts = (
            tf.reshape(
                tf.stack([tf.broadcast_to(each, shape) for each in of], 1), [-1]
            )
            for of in zip(*ranges, strict=True)
        )
        place = joined_ranges(begins, counts)
        is_token = place < pad
        segments = tf.zeros_like(place)
        if second is not None:
            is_second = is_token & (place >= self.second_end)
            segments = packing.second_segment * tf.cast(is_second, tf.int32)
        return {
            # A row's padding is a range behind the last id, which fills rows.
            INPUT_IDS.name: tf.gather(first.ids, tf.minimum(place, pad)),
            INPUT_MASK.name: tf.cast(is_token, tf.int32),
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
    # All that rows are made of, for `EncodedRows._inputs`.
    frame = (*packing.begin, *packing.middle, *packing.end)
    source = [frame, first.ids]
    second_end = len(frame) + tf.size(first.ids)
    if second is not None:
        source += [packing.end, second.ids]
    source.append([packing.pad_id])
    ids = tf.concat(
        [
            tf.constant(each, tf.int32) if isinstance(each, tuple) else each
            for each in source
        ],
        0,
    )
    if example is None:
        example = tf.range(tf.size(first.count))
        num_examples = tf.size(first.count)
    return EncodedRows(
        first=TokenIds(ids, len(frame) + first.begin, first.count),
        second=second
        and TokenIds(
            ids, second_end + len(packing.end) + second.begin, second.count
        ),
        is_pair=is_pair,
        example=example,
        num_examples=num_examples,
        packing=packing,
        second_end=second_end,
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
    # Both in one number, since `tf.repeat` would take as long as if all rows
    # were as long as the longest.
    row = tf.range(tf.size(counts, tf.int64)) * _PLACES
    both = joined_ranges(row, tf.cast(counts, tf.int64))
    return (
        tf.cast(tf.bitwise.right_shift(both, 31), tf.int32),
        tf.cast(tf.bitwise.bitwise_and(both, _PLACES - 1), tf.int32),
    )


def joined_ranges(begin: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Ranges of whole numbers, int [R], one after the other."""
    found = tf.ragged.range(begin, begin + count, row_splits_dtype=tf.int32)
    return found.flat_values


def take_ranges(
    values: tf.Tensor, begin: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Concatenates ranges of [T, ...] with whole numbers [R]."""
    begin, count = tf.cast(begin, tf.int32), tf.cast(count, tf.int32)
    return tf.gather(values, joined_ranges(begin, count))


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
