"""Rows of token ids in the graph: laid out, padded a little and computed.

The counterpart of `bert_tf.text.rows`, in TensorFlow operations, so that a
SavedModel makes the rows that the Python path makes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.features import INPUT_IDS, INPUT_MASK, SEGMENT_IDS
from bert_tf.text.tokenizer import BertTokenizer

# Strings and whole numbers stay on the processor.
HOST = "/CPU:0"
# Lengths that rows are padded to; beyond the last, multiples of it.
_LENGTHS = (32, 64, 96, 128, 192, 256, 384, 512)
# Tokens, padding included, that go through the model at a time: what memory
# grows with. Rows of like length go together.
_TOKENS_AT_ONCE = 2048

Tensors = dict[str, tf.Tensor]
Forward = Callable[[Tensors, tf.Tensor], Tensors]


class FlatTexts(NamedTuple):
    """Token ids of N texts, end to end.

    Attributes:
      ids: int32 [T].
      begin: int32 [N], where each text begins in `ids`.
      count: int32 [N], how many tokens it has.
    """

    ids: tf.Tensor
    begin: tf.Tensor
    count: tf.Tensor

    def part(
        self, text: tf.Tensor, offset: tf.Tensor | int, count: tf.Tensor
    ) -> "FlatTexts":
        """Parts of texts: of each its text, its first token, its tokens."""
        return FlatTexts(self.ids, tf.gather(self.begin, text) + offset, count)


class Rows(NamedTuple):
    """R rows [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

    Attributes:
      first: the R texts A.
      second: the R texts B, or None.
    """

    first: FlatTexts
    second: FlatTexts | None = None

    @property
    def lengths(self) -> tf.Tensor:
        """Tokens of each row, int32 [R]."""
        lengths = self.first.count + 2
        if self.second is not None:
            lengths += self.second.count + 1
        return lengths


def flat_texts(ids: tf.RaggedTensor) -> FlatTexts:
    """Ragged ids int32 [N, tokens] as `FlatTexts`."""
    return FlatTexts(
        ids.flat_values,
        tf.cast(ids.row_starts(), tf.int32),
        tf.cast(ids.row_lengths(), tf.int32),
    )


def tokenize(tokenizer: BertTokenizer, texts: tf.Tensor) -> FlatTexts:
    """Tokenises string [N]."""
    return flat_texts(tokenizer.tokenize(texts))


def largest(values: tf.Tensor) -> tf.Tensor:
    """The largest of whole numbers >= 0; 0 where there are none."""
    return tf.reduce_max(tf.concat([[0], tf.reshape(values, [-1])], 0))


def counted(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """For counts int32 [N]: of each thing whose it is, and its number there.

    Returns:
      Both int32 [sum of counts]: 0 0 0 1 1 and 0 1 2 0 1 for counts 3 and 2.
    """
    owner = tf.repeat(tf.range(tf.size(counts)), counts)
    starts = tf.cumsum(counts, exclusive=True)
    return owner, tf.range(tf.size(owner)) - tf.gather(starts, owner)


def pair_counts(
    first: tf.Tensor, second: tf.Tensor, room: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """How much is left of pairs that are too long; see `rows.cut_to_fit`."""
    return (
        tf.minimum(first, tf.maximum(room - second, (room + 1) // 2)),
        tf.minimum(second, tf.maximum(room - first, room // 2)),
    )


def lengths_up_to(longest: int) -> tuple[int, ...]:
    """The lengths that rows are padded to."""
    last = _LENGTHS[-1]
    lengths = [*_LENGTHS, *range(2 * last, longest, last)]
    return (*(length for length in lengths if length < longest), longest)


class RowComputer(tf.Module):
    """Puts rows through a model, some of like length at a time.

    Args:
      tokenizer: what made the ids.
      max_seq_length: the longest row.
    """

    def __init__(self, tokenizer: BertTokenizer, max_seq_length: int):
        super().__init__()
        vocabulary = tokenizer.vocabulary
        self._special = (
            vocabulary.pad_id,
            vocabulary.cls_id,
            vocabulary.sep_id,
        )
        self._lengths = lengths_up_to(max_seq_length)

    def padded_length(self, lengths: tf.Tensor) -> tf.Tensor:
        """What rows of int32 [R] tokens are padded to, int32."""
        place = tf.searchsorted(self._lengths, largest(lengths)[tf.newaxis])
        return tf.gather(tf.constant(self._lengths), place)[0]

    def inputs(self, rows: Rows, chosen: tf.Tensor, length: tf.Tensor):
        """The encoder's inputs for some rows.

        Args:
          rows: R rows.
          chosen: int32 [r], rows by number.
          length: int32, S.

        Returns:
          input_ids, input_mask and segment_ids, int32 [r, S].
        """
        first, second = rows
        pad, cls, sep = range(3)
        position = tf.range(length)[tf.newaxis]

        def of(values: tf.Tensor) -> tf.Tensor:
            return tf.gather(values, chosen)[:, tf.newaxis]

        source = [tf.constant(self._special), first.ids]
        index = of(first.begin) + 3 + position - 1
        end = of(first.count) + 1
        used = of(rows.lengths)
        if second is not None:
            source.append(second.ids)
            begin = of(second.begin) + 3 + tf.size(first.ids)
            index = tf.where(position < end, index, begin + position - end - 1)
        index = tf.where((position == end) | (position == used - 1), sep, index)
        index = tf.where(position >= used, pad, index)
        index = tf.where(position == 0, cls, index)
        in_row = position < used
        return {
            INPUT_IDS.name: tf.gather(tf.concat(source, 0), index),
            INPUT_MASK.name: tf.cast(in_row, tf.int32),
            SEGMENT_IDS.name: tf.cast(in_row & (position > end), tf.int32),
        }

    def __call__(
        self,
        rows: Rows,
        forward: Forward,
        outputs: Mapping[str, Sequence[int | None]],
        width: tf.Tensor | None = None,
    ) -> Tensors:
        """Computes all rows.

        Args:
          rows: R rows.
          forward: takes the encoder's inputs of r rows and the numbers of
            these rows, int32 [r]; returns tensors [r, ...].
          outputs: for each of those tensors its shape without the first axis;
            None first stands for an axis that is padded with zeros.
          width: what it is padded to, int32.

        Returns:
          The tensors of all rows, float32 [R, ...].
        """
        with tf.device(HOST):
            order = tf.argsort(
                rows.lengths, direction="DESCENDING", stable=True
            )
            count = tf.size(order)

        def compute(start: tf.Tensor, done: Tensors) -> tuple:
            with tf.device(HOST):
                left = order[start:]
                length = self.padded_length(tf.gather(rows.lengths, left[:1]))
                chosen = left[: tf.maximum(_TOKENS_AT_ONCE // length, 1)]
                inputs = self.inputs(rows, chosen, length)
            found = forward(inputs, chosen)
            return start + tf.size(chosen), {
                name: tf.concat(
                    [done[name], _padded(found[name], shape, width)], 0
                )
                for name, shape in outputs.items()
            }

        none = {
            name: tf.zeros(
                [0, *(width if size is None else size for size in shape)]
            )
            for name, shape in outputs.items()
        }
        _, found = tf.while_loop(
            lambda start, done: start < count,
            compute,
            [tf.constant(0), none],
            shape_invariants=[
                tf.TensorShape([]),
                {n: tf.TensorShape([None, *s]) for n, s in outputs.items()},
            ],
            parallel_iterations=1,
        )
        place = tf.math.invert_permutation(order)
        return {name: tf.gather(value, place) for name, value in found.items()}


def _padded(
    values: tf.Tensor, shape: Sequence[int | None], width: tf.Tensor | None
) -> tf.Tensor:
    """Values [r, ...] as float32, their second axis filled up."""
    values = tf.cast(values, tf.float32)
    if None not in shape:
        return values
    amount = [[0, 0]] * values.shape.rank
    amount[1] = [0, width - tf.shape(values)[1]]
    return tf.ensure_shape(tf.pad(values, amount), [None, *shape])
