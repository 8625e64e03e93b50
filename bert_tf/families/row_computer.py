"""Rows of token ids in the graph, some of similar length at a time."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert_tf.text.layout import HOST, TokenIds, pack_rows
from bert_tf.text.tokenizer_protocol import Tokenizer

# Tokens, padding included, that go through the model at a time: what memory
# grows with. Rows of similar length go together.
_TOKENS_AT_ONCE = 2048

Tensors = dict[str, tf.Tensor]
Forward = Callable[[Tensors, tf.Tensor], Tensors]


def largest(values: tf.Tensor) -> tf.Tensor:
    """The largest of whole numbers >= 0; 0 where there are none."""
    return tf.reduce_max(tf.concat([[0], tf.reshape(values, [-1])], 0))


class RowComputer:
    """Puts rows through a model, some of similar length at a time.

    Args:
      tokenizer: what made the ids.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._packing = tokenizer.packing

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
            rows = pack_rows(first, second, self._packing)
            lengths = rows.lengths
            order = tf.argsort(lengths, direction="DESCENDING", stable=True)
            count = tf.size(order)

        def compute(start: tf.Tensor, done: Tensors) -> tuple:
            with tf.device(HOST):
                left = order[start:]
                length = tf.gather(lengths, left[0])
                chosen = left[: tf.maximum(_TOKENS_AT_ONCE // length, 1)]
                inputs = rows.take(chosen).padded(length)
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
