"""From token ids to rows: truncation, windows, special tokens and padding.

TensorFlow operations on int32, which run eagerly over a whole data split, in
`tf.data`, and in the graph of a SavedModel.
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, whole_number
from bert_tf.features import INPUT_IDS, INPUT_MASK, SEGMENT_IDS
from bert_tf.text import truncation
from bert_tf.text.token_table import Packing
from bert_tf.text.tokenizer_protocol import Tokenizer

# The device for operations on strings and integers.
HOST = "/CPU:0"
# The batch size of tokenization.
_TEXTS = 4096
# More than any row has columns.
_COLUMNS = 2**31
# run_squad.py `_check_is_max_context`: the score per token of a window.
LENGTH_WORTH = 0.01

Ids: TypeAlias = tf.Tensor | tf.RaggedTensor


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """N texts as ranges of one array of token ids.

    Attributes:
      ids: int32 [T].
      begin: int32 [N], the first token of each text in `ids`.
      count: int32 [N], its number of tokens.
    """

    ids: tf.Tensor
    begin: tf.Tensor
    count: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Windows:
    """W windows over N texts; the windows of a text are consecutive.

    Attributes:
      text: int32 [W], the text of each window.
      number: int32 [W], its number within the text.
      offset: int32 [W], its first token in the text.
      count: int32 [W], its number of tokens.
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
      is_pair: bool [R], the rows with a B, which may be empty; None means all
        if there is a `second`.
      example: int32 [R], the example of each row, ascending.
      num_examples: the number of examples.
      packing: the special tokens around the texts.
      second_end: the index in the ids of the special tokens that end a B; ids
        from there on belong to the segment of B.
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
        """The number of tokens of each row, int32 [R]."""
        special = len(self.packing.begin) + len(self.packing.end)
        if self.second is None:
            return self.first.count + special
        return self.first.count + special + self._middle + self.second.count

    @property
    def _middle(self) -> tf.Tensor | int:
        """The tokens between A and B; int32 [R] if only some rows have a B."""
        middle = len(self.packing.middle)
        if self.is_pair is None:
            return middle
        return middle * tf.cast(self.is_pair, tf.int32)

    @property
    def starts(self) -> tf.Tensor:
        """The first token of each row in `flat`, and its end, int64 [R + 1]."""
        lengths = tf.cast(self.lengths, tf.int64)
        return tf.concat([[0], tf.cumsum(lengths)], 0)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The contents of the rows as arrays, for digests."""
        return self.flat()[INPUT_IDS.name].numpy(), self.starts.numpy()

    def take(self, chosen: tf.Tensor) -> "EncodedRows":
        """Selects rows by number, integers [B]."""
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
        """The encoder's inputs, int32 [B, S], of selected rows.

        Args:
          chosen: the numbers of the rows, integers [B].
          width: S, the padded length; 0 means that of the longest row.
        """
        return self.take(chosen).padded(width)

    def padded(self, width: tf.Tensor | int = 0) -> dict[str, tf.Tensor]:
        """The encoder's inputs, int32 [R, S], of all rows.

        Args:
          width: S, the padded length; 0 means that of the longest row.
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
        """The inputs, int32 [T], with the given number of padding tokens."""
        packing, first, second = self.packing, self.first, self.second
        begin, end = len(packing.begin), len(packing.end)
        ends, pad = begin + len(packing.middle), tf.size(first.ids) - 1
        # Begins and counts of ranges of the ids; see `pack_rows`.
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
        index = joined_ranges(begins, counts)
        is_token = index < pad
        segments = tf.zeros_like(index)
        if second is not None:
            is_second = is_token & (index >= self.second_end)
            segments = packing.second_segment * tf.cast(is_second, tf.int32)
        return {
            # Padding is a range beyond the last id, the padding id.
            INPUT_IDS.name: tf.gather(first.ids, tf.minimum(index, pad)),
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
    """Frames texts by special tokens.

    Args:
      first: the R texts A, already truncated.
      second: the R texts B, or None.
      packing: the special tokens.
      example: int32 [R], the example of each row, ascending; None if each row
        is an example.
      num_examples: the number of examples.
      is_pair: bool [R], the rows with a B, which may be empty; None means all
        if there is a `second`.
    """
    # All ids that `EncodedRows._inputs` gathers from.
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
    """Converts ragged ids int32 [N, tokens] to `TokenIds`."""
    return TokenIds(
        ids.flat_values,
        tf.cast(ids.row_starts(), tf.int32),
        tf.cast(ids.row_lengths(), tf.int32),
    )


def tokenize(
    tokenizer: Tokenizer, texts: tf.Tensor | Sequence[str]
) -> TokenIds:
    """Tokenizes string [N], eagerly in batches to bound memory."""
    texts = tf.convert_to_tensor(texts, tf.string)
    if not tf.executing_eagerly():
        return token_ids(tokenizer.tokenize(texts))
    batches = [
        tokenizer.tokenize(texts[begin : begin + _TEXTS])
        for begin in range(0, max(len(texts), 1), _TEXTS)
    ]
    return token_ids(tf.concat(batches, 0))


def take(
    texts: TokenIds,
    chosen: tf.Tensor,
    offset: tf.Tensor | None = None,
    count: tf.Tensor | None = None,
) -> TokenIds:
    """Selects texts by number, int32 [R], or ranges of them.

    Args:
      texts: N texts.
      chosen: the numbers.
      offset: int32 [R], the first token of each range; None means 0.
      count: int32 [R], the number of tokens; None means that of the text.
    """
    begin = tf.gather(texts.begin, chosen)
    if offset is not None:
        begin += offset
    if count is None:
        count = tf.gather(texts.count, chosen)
    return TokenIds(texts.ids, begin, count)


def ragged_range(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The row and column of each value of ragged rows with these lengths.

    Returns:
      Both int32 [sum of counts]: 0 0 0 1 1 and 0 1 2 0 1 for counts 3 and 2.
    """
    # Both in one number, because `tf.repeat` takes the time of rows that are
    # padded to the longest.
    row = tf.range(tf.size(counts, tf.int64)) * _COLUMNS
    both = joined_ranges(row, tf.cast(counts, tf.int64))
    return (
        tf.cast(tf.bitwise.right_shift(both, 31), tf.int32),
        tf.cast(tf.bitwise.bitwise_and(both, _COLUMNS - 1), tf.int32),
    )


def joined_ranges(begin: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Concatenates R ranges of integers."""
    ranges = tf.ragged.range(begin, begin + count, row_splits_dtype=tf.int32)
    return ranges.flat_values


def take_ranges(
    values: tf.Tensor, begin: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Concatenates R ranges of the first axis of [T, ...]."""
    begin, count = tf.cast(begin, tf.int32), tf.cast(count, tf.int32)
    return tf.gather(values, joined_ranges(begin, count))


def text_of(
    codes: tf.Tensor, begins: tf.Tensor, counts: tf.Tensor
) -> tf.Tensor:
    """Converts V ranges of code points, int32, to strings [V]."""
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
      room: the number of tokens of a row, or int32 [N].
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
    """The number of windows of each text, int32 [N]; see `truncation`."""
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
    """Makes windows every `stride` tokens, up to the end of each text.

    Args:
      num_windows: int32 [N], the result of `num_windows`.
      length: int32 [N], tokens of each text.
      room: tokens of a window, or int32 [N].
      stride: see `truncation.num_windows`.
      align_last: whether the last window of a text is moved back to full
        length instead of being shorter.
    """
    text, number = ragged_range(num_windows)
    room = tf.gather(tf.broadcast_to(room, tf.shape(length)), text)
    length = tf.gather(length, text)
    offset = number * tf.minimum(stride, room)
    if align_last:
        offset = tf.minimum(offset, tf.maximum(length - room, 0))
    return Windows(text, number, offset, tf.minimum(length - offset, room))


def most_context(windows: Windows) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the tokens for which each window has the most context.

    As google-research/bert, run_squad.py, `_check_is_max_context`: the score
    of a window is the smaller number of tokens left and right of a token, plus
    a hundredth of its length; the first window of the maximum wins. These
    tokens are a range in each window, and the ranges of a text's windows are
    adjacent.

    Returns:
      Begin and exclusive end of the range in each window, int32 [W].
    """
    # Texts with a single window need no scores.
    per_text = tf.math.bincount(windows.text)
    several = tf.where(tf.gather(per_text, windows.text) > 1)
    text, offset, count = (
        tf.gather(values, several[:, 0])
        for values in (windows.text, windows.offset, windows.count)
    )
    window, left = ragged_range(count)
    length = tf.gather(count, window)
    context = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    score = context + LENGTH_WORTH * tf.cast(length, tf.float64)
    # Tokens of the concatenated texts, up to the end of the last windows.
    texts = tf.reduce_max(tf.concat([[0], text + 1], 0))
    sizes = tf.math.unsorted_segment_max(offset + count, text, texts)
    sizes = tf.maximum(sizes, 0)
    total = tf.reduce_sum(sizes)
    begin = tf.cumsum(sizes, exclusive=True)
    first = tf.gather(begin, text) + offset
    token = tf.gather(first, window) + left
    best = tf.math.unsorted_segment_max(score, token, total)
    owner = tf.math.unsorted_segment_min(
        tf.where(score == tf.gather(best, token), window, window.dtype.max),
        token,
        total,
    )
    owned = tf.math.unsorted_segment_sum(
        tf.ones_like(owner), owner, tf.size(text)
    )
    end = tf.cumsum(owned) - first
    return (
        tf.tensor_scatter_nd_update(
            tf.zeros_like(windows.count), several, end - owned
        ),
        tf.tensor_scatter_nd_update(windows.count, several, end),
    )


class SentencePacker(tf.Module):
    """Packs texts into rows [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

    Segment ids are 0 for A and 1 for B, each with its [SEP]; tokenizers with
    another `packing` make other rows. Pairs are truncated one token at a time
    at the end of the longer text, of B if they are equally long
    (google-research/bert, run_classifier.py, `_truncate_seq_pair`).
    """

    def __init__(self, tokenizer: Tokenizer, seq_length: int):
        """Creates a packer.

        Args:
          tokenizer: the tokenizer.
          seq_length: S, the length of a packed row.

        Raises:
          UserError: seq_length leaves no room for a token.
        """
        super().__init__()
        least = tokenizer.packing.num_special(1) + 1
        self.tokenizer = tokenizer
        self.seq_length = whole_number("seq_length", seq_length, least)

    def __repr__(self) -> str:
        return (
            f"SentencePacker({self.tokenizer!r}, seq_length={self.seq_length})"
        )

    def __call__(self, text_a, text_b=None) -> dict[str, tf.Tensor]:
        """The same as `pack`."""
        return self.pack(text_a, text_b)

    def pack(self, text_a, text_b=None) -> dict[str, tf.Tensor]:
        """Tokenizes and packs texts.

        Args:
          text_a: strings [B] or a scalar; also Python strings or lists.
          text_b: the second texts, of the same shape, or None.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S], or [S] for
          scalars.

        Raises:
          UserError: the texts are no strings or differ in shape, or
            seq_length leaves no room for a pair.
        """
        ids_b = None if text_b is None else self.tokenizer.tokenize(text_b)
        return self.pack_ids(self.tokenizer.tokenize(text_a), ids_b)

    def pack_ids(self, ids_a: Ids, ids_b: Ids | None = None):
        """Packs token ids; see `pack`.

        Args:
          ids_a: int32, ragged [B, tokens], or [tokens] for a single row.
          ids_b: the second texts' ids, of the same shape, or None.
        """
        with tf.device(HOST):
            is_single = ids_a.shape.rank == 1
            first, second = token_ids(_as_rows(ids_a)), None
            packing, checks = self.tokenizer.packing, []
            if ids_b is not None:
                self._check_pair(ids_a, ids_b)
                second = token_ids(_as_rows(ids_b))
                check = tf.debugging.assert_equal(
                    tf.size(first.count),
                    tf.size(second.count),
                    "text_a and text_b: unequal batches",
                )
                # None when run eagerly.
                checks = [] if check is None else [check]
            texts = 1 if second is None else 2
            room = self.seq_length - packing.num_special(texts)
            with tf.control_dependencies(checks):
                rows = pack_rows(*truncate(first, second, room), packing)
                packed = rows.padded(self.seq_length)
            if is_single:
                packed = {name: rows[0] for name, rows in packed.items()}
            return packed

    def _check_pair(self, ids_a: Ids, ids_b: Ids) -> None:
        least = self.tokenizer.packing.num_special(2) + 1
        if self.seq_length < least:
            raise UserError(
                f"seq_length={self.seq_length}: a pair needs at least {least}, "
                "for the special tokens and one token."
            )
        if ids_a.shape.rank != ids_b.shape.rank or (
            ids_a.shape.rank == 2
            and not ids_a.shape[:1].is_compatible_with(ids_b.shape[:1])
        ):
            raise UserError(
                f"text_a has shape {ids_a.shape[:-1]} and text_b "
                f"{ids_b.shape[:-1]}; they must have one shape."
            )


def _as_rows(ids: Ids) -> tf.RaggedTensor:
    """Converts ids to ragged int32 [B, tokens]."""
    ids = tf.cast(ids, tf.int32)
    if isinstance(ids, tf.RaggedTensor):
        return ids
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    return tf.RaggedTensor.from_tensor(ids)
