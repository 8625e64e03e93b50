"""Finds the words of raw texts: the tokenizer's words, some of them joined."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text import unicode_tables
from bert_tf.text.tokenizer_protocol import Tokenizer

_APOSTROPHES = "'\u2019"
# Characters inside a word between letters, and between digits only.
_INSIDE = f"-._/&@+{_APOSTROPHES}\u2010\u2011"
_INSIDE_NUMBERS = ",:"


class Words(NamedTuple):
    """K words of B texts.

    Attributes:
      row: int32 [K], the index of each word's text.
      token: int32 [K], its first token in the flat list of all tokens.
      begin: int32 [K], its first character in its text.
      end: int32 [K], its exclusive end.
    """

    row: tf.Tensor
    token: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor


class WordFinder(tf.Module):
    """Finds the words of texts.

    Args:
      tokenizer: the tokenizer of the tokens.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        is_letter = np.ones(unicode_tables.CODE_POINTS, bool)
        is_letter[sorted(tokenizer.stand_alone)] = False
        bounds = np.flatnonzero(np.diff(is_letter, prepend=False))
        with tf.init_scope(), tf.device("/CPU:0"):
            self._starts_word = tf.constant(tokenizer.vocabulary.starts_word)
            # The begins and ends of runs of letters, alternating.
            self._bounds = tf.constant(bounds, tf.int32)

    def __call__(
        self,
        codes: tf.RaggedTensor,
        ids: tf.RaggedTensor,
        begins: tf.RaggedTensor,
        ends: tf.RaggedTensor,
    ) -> Words:
        """Finds the words.

        Args:
          codes: the characters, int32 [B, characters].
          ids: the tokens, int32 [B, tokens].
          begins: the first character of each token.
          ends: the exclusive end of each token.
        """
        rows = tf.cast(ids.value_rowids(), tf.int32)
        # The tokenizer's words, by their first tokens.
        first = tf.gather(self._starts_word, ids.flat_values)
        first |= rows != _shifted(rows, 1, -1)
        token = tf.cast(tf.where(first)[:, 0], tf.int32)
        row = tf.gather(rows, token)
        begin = tf.gather(begins.flat_values, token)
        end = tf.gather(ends.flat_values, _lasts(token, tf.size(rows)))
        touches = (row == _shifted(row, 1, -1)) & (
            begin <= _shifted(end, 1, -1)
        )
        starts = tf.cast(codes.row_starts(), tf.int32)
        before = tf.gather(starts, row)
        glued = self._glued(
            touches,
            tf.gather(codes.flat_values, before + begin),
            tf.gather(codes.flat_values, before + end - 1),
            end - begin,
        )
        number = tf.cast(tf.where(~glued)[:, 0], tf.int32)
        last = _lasts(number, tf.size(token))
        return Words(
            tf.gather(row, number),
            tf.gather(token, number),
            tf.gather(begin, number),
            tf.gather(end, last),
        )

    def _glued(
        self,
        touches: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
        size: tf.Tensor,
    ) -> tf.Tensor:
        """Which of N words of the tokenizer continue the word before.

        `touches` is whether no blank precedes the word; `first`, `last` and
        `size` are its first and last character and the number of all.
        """
        passed = tf.searchsorted(self._bounds, first, side="right")
        is_word = passed % 2 == 1
        before, after = (
            _shifted(is_word, 1, False),
            _shifted(is_word, -1, False),
        )
        touched = _shifted(touches, -1, False)
        between = touches & before & touched & after
        digits = _is_digit(_shifted(last, 1, 0)) & _is_digit(
            _shifted(first, -1, 0)
        )
        inside = between & (
            _is_one_of(first, _INSIDE)
            | (_is_one_of(first, _INSIDE_NUMBERS) & digits)
        )
        follows = _shifted(touched & after, -1, False)
        clitic = (
            touched
            & _is_one_of(first, _APOSTROPHES)
            & _is_one_of(_shifted(first, -1, 0), "sS")
            & (_shifted(size, -1, 0) == 1)
            & ~follows
        )
        period = _is_one_of(first, ".")
        letter = (first >= ord("A")) & (first <= ord("Z")) & (size == 1)
        letter &= ~_shifted(inside, 1, False)
        abbreviates = (
            period
            & touches
            & (_shifted(period & inside, 2, False) | _shifted(letter, 1, False))
        )
        return (
            (inside & ~clitic)
            | _shifted(inside | clitic, 1, False)
            | (abbreviates & before)
        )


def _lasts(firsts: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """The last index of each consecutive range, given the first ones."""
    return tf.concat([firsts[1:], [total]], 0)[: tf.size(firsts)] - 1


def _shifted(values: tf.Tensor, by: int, outside: bool | int) -> tf.Tensor:
    """Shifts values by `by` positions, filling in `outside`."""
    fill = tf.fill([abs(by)], tf.constant(outside, values.dtype))
    if by > 0:
        return tf.concat([fill, values], 0)[: tf.size(values)]
    return tf.concat([values, fill], 0)[-by:]


def _is_one_of(codes: tf.Tensor, characters: str) -> tf.Tensor:
    codes_of = [ord(character) for character in characters]
    return tf.reduce_any(codes[:, tf.newaxis] == codes_of, 1)


def _is_digit(codes: tf.Tensor) -> tf.Tensor:
    return (codes >= ord("0")) & (codes <= ord("9"))
