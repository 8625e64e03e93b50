"""Rows of token ids in the graph, padded a little and computed."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from bert_tf.text.packing import TokenIds
from bert_tf.text.packing_graph import pack_rows, row_lengths, take
from bert_tf.text.tokenizer import BertTokenizer

# Strings and whole numbers stay on the processor.
HOST = "/CPU:0"
# Lengths that rows are padded to; beyond the last, multiples of it.
_LENGTHS = (32, 64, 96, 128, 192, 256, 384, 512)
# What they are padded to multiples of where many are sorted by length.
_FINE = 8
# Tokens, padding included, that go through the model at a time: what memory
# grows with. Rows of similar length go together.
_TOKENS_AT_ONCE = 2048

Tensors = dict[str, tf.Tensor]
Forward = Callable[[Tensors, tf.Tensor], Tensors]


def largest(values: tf.Tensor) -> tf.Tensor:
    """The largest of whole numbers >= 0; 0 where there are none."""
    return tf.reduce_max(tf.concat([[0], tf.reshape(values, [-1])], 0))


def lengths_up_to(longest: int) -> tuple[int, ...]:
    """The lengths that rows are padded to."""
    last = _LENGTHS[-1]
    lengths = [*_LENGTHS, *range(2 * last, longest, last)]
    return (*(length for length in lengths if length < longest), longest)


class RowComputer(tf.Module):
    """Puts rows through a model, some of similar length at a time.

    Args:
      tokenizer: what made the ids.
      max_seq_length: the longest row.
    """

    def __init__(self, tokenizer: BertTokenizer, max_seq_length: int):
        super().__init__()
        self._vocabulary = tokenizer.vocabulary
        self._lengths = lengths_up_to(max_seq_length)

    @contextlib.contextmanager
    def pad_finely(self) -> Iterator[None]:
        """What is traced meanwhile pads rows little, to many lengths."""
        served = self._lengths
        fine = range(_FINE, served[-1], _FINE)
        self._lengths = (*fine, served[-1])
        try:
            yield
        finally:
            self._lengths = served

    def padded_length(self, lengths: tf.Tensor) -> tf.Tensor:
        """What rows of int32 [R] tokens are padded to, int32."""
        place = tf.searchsorted(self._lengths, largest(lengths)[tf.newaxis])
        return tf.gather(tf.constant(self._lengths), place)[0]

    def __call__(
        self,
        first: TokenIds,
        second: TokenIds | None,
        forward: Forward,
        outputs: Mapping[str, Sequence[int | None]],
        width: tf.Tensor | None = None,
    ) -> Tensors:
        """Computes all rows.

        Args:
          first: the R texts A, which fit.
          second: the R texts B, or None.
          forward: takes the encoder's inputs of r rows and the numbers of
            these rows, int32 [r]; returns tensors [r, ...].
          outputs: for each of those tensors its shape without the first axis;
            None first stands for an axis that is padded with zeros.
          width: what it is padded to, int32.

        Returns:
          The tensors of all rows, float32 [R, ...].
        """
        with tf.device(HOST):
            lengths = row_lengths(first, second)
            order = tf.argsort(lengths, direction="DESCENDING", stable=True)
            count = tf.size(order)

        def compute(start: tf.Tensor, done: Tensors) -> tuple:
            with tf.device(HOST):
                left = order[start:]
                length = self.padded_length(tf.gather(lengths, left[:1]))
                chosen = left[: tf.maximum(_TOKENS_AT_ONCE // length, 1)]
                inputs = pack_rows(
                    take(first, chosen),
                    None if second is None else take(second, chosen),
                    self._vocabulary,
                    length,
                )
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
