"""How texts become rows, in the graph, and `SentencePacker` made of it.

The same truncation, windows and rows as in `bert_tf.text.packing`, where the
arguments are explained, as TensorFlow operations on int32 for `tf.data` and
SavedModels.
"""

from typing import TypeAlias

import tensorflow as tf

from bert_tf.errors import UserError, whole_number
from bert_tf.features import INPUT_IDS, INPUT_MASK, SEGMENT_IDS
from bert_tf.text import packing
from bert_tf.text.packing import (
    LENGTH_WORTH,
    TEXTS_AT_ONCE,
    TokenIds,
    Tokenizer,
    Windows,
)
from bert_tf.text.vocabulary import Packing

Ids: TypeAlias = tf.Tensor | tf.RaggedTensor


def token_ids(ids: tf.RaggedTensor) -> TokenIds:
    """Ragged ids int32 [N, tokens] as `TokenIds`."""
    return TokenIds(
        ids.flat_values,
        tf.cast(ids.row_starts(), tf.int32),
        tf.cast(ids.row_lengths(), tf.int32),
    )


def tokenize(tokenizer: Tokenizer, texts: tf.Tensor) -> TokenIds:
    """Tokenizes string [N]; eagerly some thousands of texts at a time."""
    if not tf.executing_eagerly():
        return token_ids(tokenizer.tokenize(texts))
    # What is computed for a text takes many times the memory of its ids.
    found = [
        tokenizer.tokenize(texts[begin : begin + TEXTS_AT_ONCE])
        for begin in range(0, max(len(texts), 1), TEXTS_AT_ONCE)
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
    """The row and the place in it of each value of rows of int32 [N] values.

    Returns:
      Both int32 [sum of counts]: 0 0 0 1 1 and 0 1 2 0 1 for counts 3 and 2.
    """
    row = tf.repeat(tf.range(tf.size(counts)), counts)
    starts = tf.cumsum(counts, exclusive=True)
    return row, tf.range(tf.size(row)) - tf.gather(starts, row)


def text_of(
    codes: tf.Tensor, begins: tf.Tensor, counts: tf.Tensor
) -> tf.Tensor:
    """Stretches int32 [V] of a flat list of characters as string [V]."""
    stretch, number = ragged_range(counts)
    taken = tf.gather(codes, tf.gather(begins, stretch) + number)
    ragged = tf.RaggedTensor.from_row_lengths(taken, counts, validate=False)
    return tf.strings.unicode_encode(ragged, "UTF-8")


def truncate(
    first: TokenIds, second: TokenIds | None, room: int
) -> tuple[TokenIds, TokenIds | None]:
    """Truncates texts, or pairs of texts, at their ends."""
    return packing.truncate(first, second, room, tf.minimum, tf.maximum)


def num_windows(
    length: tf.Tensor, room: tf.Tensor | int, stride: int, empty: int = 1
) -> tf.Tensor:
    """How many windows show all of each text, int32 [N]."""
    more = -(-tf.maximum(length - room, 0) // tf.minimum(stride, room))
    return tf.where(length > 0, 1 + more, empty)


def make_windows(
    num_windows: tf.Tensor,
    length: tf.Tensor,
    room: tf.Tensor | int,
    stride: int,
    align_last: bool = False,
) -> Windows:
    """Windows every `stride` tokens until one reaches the end of its text."""
    text, number = ragged_range(num_windows)
    room = tf.gather(tf.broadcast_to(room, tf.shape(length)), text)
    length = tf.gather(length, text)
    offset = number * tf.minimum(stride, room)
    if align_last:
        offset = tf.minimum(offset, tf.maximum(length - room, 0))
    return Windows(text, number, offset, tf.minimum(length - offset, room))


def most_context(windows: Windows) -> tuple[tf.Tensor, tf.Tensor]:
    """Which tokens of a window no other window shows in more context."""
    window, left = ragged_range(windows.count)
    length = tf.gather(windows.count, window)
    least = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    worth = least + LENGTH_WORTH * tf.cast(length, tf.float64)
    # Texts concatenated, each as long as its last window reaches.
    texts = tf.reduce_max(tf.concat([[0], windows.text + 1], 0))
    sizes = tf.math.unsorted_segment_max(
        windows.offset + windows.count, windows.text, texts
    )
    sizes = tf.maximum(sizes, 0)
    total = tf.reduce_sum(sizes)
    begin = tf.cumsum(sizes, exclusive=True)
    place = tf.gather(begin, windows.text) + windows.offset
    token = tf.gather(place, window) + left
    best = tf.math.unsorted_segment_max(worth, token, total)
    owner = tf.math.unsorted_segment_min(
        tf.where(worth == tf.gather(best, token), window, window.dtype.max),
        token,
        total,
    )
    owned = tf.math.unsorted_segment_sum(
        tf.ones_like(owner), owner, tf.size(windows.text)
    )
    end = tf.cumsum(owned) - place
    return end - owned, end


def row_lengths(
    first: TokenIds, second: TokenIds | None, packing: Packing
) -> tf.Tensor:
    """Tokens of rows of one text or two, int32 [R]."""
    if second is None:
        return first.count + packing.num_special(1)
    return first.count + second.count + packing.num_special(2)


def pack_rows(
    first: TokenIds,
    second: TokenIds | None,
    packing: Packing,
    length: tf.Tensor | int,
) -> dict[str, tf.Tensor]:
    """Frames the texts of every row by special tokens, and pads it.

    Args:
      first: the R texts A, which fit.
      second: the R texts B, or None.
      packing: what frames them.
      length: S, at least that of the longest row.

    Returns:
      input_ids, input_mask and segment_ids, int32 [R, S].
    """
    # Every position is gathered from one array.
    begin, middle, end = map(len, (packing.begin, packing.middle, packing.end))
    pad = begin + middle + end
    source = [
        tf.constant(
            (*packing.begin, *packing.middle, *packing.end, packing.pad_id)
        ),
        first.ids,
    ]
    position = tf.range(length)[tf.newaxis]
    # Where the texts end, and from where in the array they are taken.
    end_a = first.count[:, tf.newaxis] + begin
    begin_b = end_b = end_a
    taken = first.begin[:, tf.newaxis] + (pad + 1 - begin) + position
    if second is not None:
        source.append(second.ids)
        begin_b = end_a + middle
        end_b = begin_b + second.count[:, tf.newaxis]
        offset = second.begin[:, tf.newaxis] + (pad + 1) + tf.size(first.ids)
        taken = tf.where(position < begin_b, taken, offset - begin_b + position)
        is_middle = (position >= end_a) & (position < begin_b)
        taken = tf.where(is_middle, begin + position - end_a, taken)
    in_row = position < end_b + end
    last = tf.where(in_row, begin + middle + position - end_b, pad)
    taken = tf.where(position < end_b, taken, last)
    taken = tf.where(position < begin, position, taken)
    segments = tf.zeros_like(taken)
    if second is not None:
        is_second = tf.cast(in_row & (position >= begin_b), tf.int32)
        segments = packing.second_segment * is_second
    return {
        INPUT_IDS.name: tf.gather(tf.concat(source, 0), taken),
        INPUT_MASK.name: tf.cast(in_row, tf.int32),
        SEGMENT_IDS.name: segments,
    }


class SentencePacker(tf.Module):
    """Makes rows of one length: [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

    Segment ids are 0 for A and 1 for B, each with its [SEP]; a tokenizer of
    another `packing` gives other rows. Too long a pair loses tokens one by one
    at the end of the longer text, of B where they are equally long
    (google-research/bert, run_classifier.py, `_truncate_seq_pair`).
    """

    def __init__(self, tokenizer: Tokenizer, seq_length: int):
        """Keeps the tokenizer and the length.

        Args:
          tokenizer: what turns texts into ids.
          seq_length: S, the length of a packed row.

        Raises:
          UserError: seq_length leaves no room for a token.
        """
        super().__init__()
        least = tokenizer.packing.num_special(1) + 1
        self.tokenizer = tokenizer
        # Special tokens and one other.
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
          text_a: strings [B] or a scalar; Python strings or lists will do.
          text_b: the second texts, of the same shape, or None.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S], or [S] for
          scalars.

        Raises:
          UserError: texts of another kind or of two shapes, or no room for
            a pair.
        """
        ids_b = None if text_b is None else self.tokenizer.tokenize(text_b)
        return self.pack_ids(self.tokenizer.tokenize(text_a), ids_b)

    def pack_ids(self, ids_a: Ids, ids_b: Ids | None = None):
        """Packs token ids.

        Args:
          ids_a: int32, ragged [B, tokens], or [tokens] for a single row.
          ids_b: the second texts' ids, of the same kind, or None.

        Returns:
          As `pack`.

        Raises:
          UserError: ids of two shapes, or no room for a pair.
        """
        with tf.device("/CPU:0"):
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
                packed = pack_rows(
                    *truncate(first, second, room), packing, self.seq_length
                )
            if is_single:
                packed = {name: rows[0] for name, rows in packed.items()}
            return packed

    def _check_pair(self, ids_a: Ids, ids_b: Ids) -> None:
        least = self.tokenizer.packing.num_special(2) + 1
        if self.seq_length < least:
            raise UserError(
                f"seq_length={self.seq_length}: a pair needs at least {least}, "
                "for special tokens and one other."
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
    """Ids as ragged int32 [B, tokens]."""
    ids = tf.cast(ids, tf.int32)
    if isinstance(ids, tf.RaggedTensor):
        return ids
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    return tf.RaggedTensor.from_tensor(ids)
